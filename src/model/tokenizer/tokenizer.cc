#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"
#include "model/tokenizer/special_matcher.h"
#include "model/tokenizer/text_encoder.h"
#include "model/tokenizer/vocabulary.h"

namespace weft {
namespace {

// Tidies text for a vocabulary trained with clean_up_tokenization_spaces: each rule processes the
// whole text before the next.
std::string RemoveSpaceBeforePunctuation(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool ends = c == '?' || c == '!' || c == '.' || c == ',';
    if (ends && i > 0 && text[i - 1] == ' ') out.pop_back();
    out += c;
  }
  return out;
}

std::string RemoveSpacesAroundApostrophe(std::string_view text) {
  std::string out;
  bool after_removed = false;  // the space before text[i] was removed
  for (size_t i = 0; i < text.size(); ++i) {
    const bool alone = text[i] == '\'' && !after_removed && i > 0 && text[i - 1] == ' ' &&
                       i + 1 < text.size() && text[i + 1] == ' ';
    if (alone) out.pop_back();
    out += text[i];
    after_removed = alone;
    if (alone) ++i;
  }
  return out;
}

std::string RemoveSpaceBeforeContraction(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'' && i > 0 && text[i - 1] == ' ') {
      const std::string_view rest = text.substr(i + 1);
      const char first = rest.empty() ? '\0' : rest[0];
      const std::string_view two = rest.substr(0, 2);
      if (first == 's' || first == 'm' || two == "re" || two == "ve") out.pop_back();
    }
    out += text[i];
  }
  return out;
}

}  // namespace

class Tokenizer::Impl {
 public:
  static StatusOr<std::unique_ptr<const Impl>> Load(const ModelFile& file) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<const Vocabulary> vocabulary, Vocabulary::Load(file));
    std::unique_ptr<const TextEncoder> encoder;
    switch (vocabulary->kind) {
      case TokenizerKind::kSentencePiece:
        encoder = MakeSentencePieceEncoder(vocabulary.get());
        break;
      case TokenizerKind::kBytePair: {
        WEFT_ASSIGN_OR_RETURN(encoder, MakeBytePairEncoder(vocabulary.get(), file));
        break;
      }
      case TokenizerKind::kWordPiece:
        encoder = MakeWordPieceEncoder(vocabulary.get());
        break;
      case TokenizerKind::kUnigram:
        encoder = MakeUnigramEncoder(vocabulary.get());
        break;
      case TokenizerKind::kLongestMatch:
        encoder = MakeLongestMatchEncoder(vocabulary.get());
        break;
      case TokenizerKind::kSentenceUnigram:
        encoder = MakeSentenceUnigramEncoder(vocabulary.get());
        break;
    }
    return std::unique_ptr<const Impl>(new Impl(std::move(vocabulary), std::move(encoder)));
  }

  const Vocabulary& vocabulary() const { return *vocabulary_; }

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const {
    std::vector<TokenId> out;
    if (options.max_tokens > 0 && !MayFit(text, options, &out)) return out;
    return EncodeAll(text, options);
  }

  std::vector<TokenId> EncodeAll(std::string_view text, const EncodeOptions& options) const {
    const Vocabulary& v = *vocabulary_;
    std::vector<TokenId> out;
    out.reserve(text.size() / 3 + 2);
    if (options.add_special && v.add_bos) out.push_back(v.bos);
    const SpecialMatcher& specials = options.parse_special ? all_specials_ : user_defined_;
    EncodeScratch scratch;
    bool at_start = true;
    for (const SpecialMatcher::Fragment& fragment : specials.Cut(text)) {
      if (fragment.token == kNoToken) {
        encoder_->Encode(fragment.text, at_start, &scratch, &out);
      } else {
        out.push_back(fragment.token);
      }
      at_start = fragment.token != kNoToken;
    }
    if (options.add_special && v.kind == TokenizerKind::kWordPiece && v.add_separator) {
      out.push_back(v.separator);
    }
    if (options.add_special && v.add_eos) out.push_back(v.eos);
    return out;
  }

  std::string_view Piece(TokenId id, bool render_special) const {
    if (!vocabulary_->Contains(id)) return {};
    const bool hidden = (vocabulary_->attrs(id) & (kAttrUnknown | kAttrControl)) != 0;
    if (hidden && !render_special) return {};
    return std::string_view(pieces_).substr(piece_offsets_[id],
                                            piece_offsets_[id + 1] - piece_offsets_[id]);
  }

 private:
  // False if `text` has more than options.max_tokens; `begin` then holds the first ones. Long
  // texts are encoded in slices, so that neither time nor memory is spent on what cannot fit.
  // Slicing may add some tokens at the slices' ends, so the limit must be exceeded by a clear
  // margin.
  bool MayFit(std::string_view text, const EncodeOptions& options,
              std::vector<TokenId>* begin) const {
    constexpr size_t kSliceBytes = size_t{64} << 10, kTokensPerCut = 16, kUsualBytes = 8;
    const auto most = static_cast<size_t>(options.max_tokens);
    if (text.size() <= kSliceBytes || text.size() / kUsualBytes <= most) return true;
    size_t doubtful = most;
    while (!text.empty()) {
      size_t n = std::min(kSliceBytes, text.size());
      for (int i = 0; i < 3 && n < text.size() && IsContinuationByte(text[n]); ++i) --n;
      const auto tokens = EncodeAll(text.substr(0, n), options);
      begin->insert(begin->end(), tokens.begin(), tokens.end());
      doubtful += kTokensPerCut;
      if (begin->size() > most + doubtful) return false;
      text.remove_prefix(n);
    }
    return true;
  }

  Impl(std::unique_ptr<const Vocabulary> vocabulary, std::unique_ptr<const TextEncoder> encoder)
      : vocabulary_(std::move(vocabulary)),
        encoder_(std::move(encoder)),
        user_defined_(*vocabulary_, /*control=*/false),
        all_specials_(*vocabulary_, /*control=*/true) {
    piece_offsets_.reserve(vocabulary_->size() + 1);
    for (TokenId id = 0; id < vocabulary_->size(); ++id) {
      piece_offsets_.push_back(pieces_.size());
      pieces_ += vocabulary_->Piece(id);
    }
    piece_offsets_.push_back(pieces_.size());
  }

  std::unique_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<const TextEncoder> encoder_;  // refers to *vocabulary_
  SpecialMatcher user_defined_;
  SpecialMatcher all_specials_;
  std::string pieces_;  // all pieces, one after another
  std::vector<size_t> piece_offsets_;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const ModelFile& file) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<const Impl> impl, Impl::Load(file));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  return impl_->Encode(text, options);
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool render_special) const {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string_view piece = impl_->Piece(ids[i], render_special);
    const bool added = i == 0 && impl_->vocabulary().add_space_prefix;
    if (added && !piece.empty() && piece[0] == ' ') piece.remove_prefix(1);
    out += piece;
  }
  if (!impl_->vocabulary().clean_spaces) return out;
  return RemoveSpaceBeforeContraction(
      RemoveSpacesAroundApostrophe(RemoveSpaceBeforePunctuation(out)));
}

std::string Tokenizer::Piece(TokenId id, bool render_special) const {
  return std::string(impl_->Piece(id, render_special));
}

int Tokenizer::vocab_size() const { return impl_->vocabulary().size(); }

std::string_view Tokenizer::RawText(TokenId id) const {
  return impl_->vocabulary().Contains(id) ? impl_->vocabulary().text(id) : std::string_view();
}

TokenId Tokenizer::Find(std::string_view raw_text) const {
  return impl_->vocabulary().Find(raw_text);
}

bool Tokenizer::IsControl(TokenId id) const {
  const Vocabulary& v = impl_->vocabulary();
  return v.Contains(id) && (v.attrs(id) & kAttrControl) != 0;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  const Vocabulary& v = impl_->vocabulary();
  return v.Contains(id) && v.is_end_of_generation(id);
}

const std::vector<TokenId>& Tokenizer::EndsOfGeneration() const {
  return impl_->vocabulary().ends_of_generation();
}

TokenId Tokenizer::bos() const { return impl_->vocabulary().bos; }
TokenId Tokenizer::eos() const { return impl_->vocabulary().eos; }
TokenId Tokenizer::eot() const { return impl_->vocabulary().eot; }
TokenId Tokenizer::unknown() const { return impl_->vocabulary().unknown; }
TokenId Tokenizer::separator() const { return impl_->vocabulary().separator; }
TokenId Tokenizer::padding() const { return impl_->vocabulary().padding; }
bool Tokenizer::adds_bos() const { return impl_->vocabulary().add_bos; }
bool Tokenizer::adds_eos() const { return impl_->vocabulary().add_eos; }
bool Tokenizer::adds_separator() const { return impl_->vocabulary().add_separator; }
std::string_view Tokenizer::model_name() const { return impl_->vocabulary().model_name; }
std::string_view Tokenizer::pre_name() const { return impl_->vocabulary().pre_name; }

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool render_special,
                             bool replace_invalid)
    : tokenizer_(std::move(tokenizer)),
      render_special_(render_special),
      replace_invalid_(replace_invalid) {}

std::string StreamDecoder::Push(TokenId id) {
  pending_ += tokenizer_->Piece(id, render_special_);
  return Take(/*at_end=*/false);
}

std::string StreamDecoder::Finish() { return Take(/*at_end=*/true); }

std::string StreamDecoder::Take(bool at_end) {
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const int length = StrictCharLength(rest);
    if (length == 0 && !at_end) break;
    const size_t bytes = length > 0 ? length : 1;
    if (length <= 0 && replace_invalid_) {
      AppendUtf8(kReplacementChar, &out);
    } else {
      out += rest.substr(0, bytes);
    }
    rest.remove_prefix(bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

}  // namespace weft
