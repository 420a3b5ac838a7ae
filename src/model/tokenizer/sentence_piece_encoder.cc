#include <bit>
#include <cstring>

#include "base/unicode.h"
#include "model/tokenizer/text_encoder.h"

namespace weft {
namespace {

// Maps scores to priorities: the highest score gets the lowest number. No finite score becomes
// kNever.
uint32_t PriorityOf(float score) {
  const auto bits = std::bit_cast<uint32_t>(score);
  return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

// Merges neighbours whose joined text is a token, best score first.
//
// The text is cut before space marks that no token reaches across; merges never cross such a place,
// so the words in between are merged separately.
class SentencePieceEncoder : public TextEncoder {
 public:
  explicit SentencePieceEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const std::string_view text = vocabulary_.text(id);
      for (size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos;
           at = text.find(kSpaceMark, at + 1)) {
        joins_space_[static_cast<unsigned char>(text[at - 1])] = true;
      }
    }
  }

  void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
              std::vector<TokenId>* out) const override {
    std::string& escaped = scratch->escaped;
    escaped.clear();
    if (at_start && vocabulary_.add_space_prefix) escaped += kSpaceMark;
    for (const char c : text) c == ' ' ? escaped.append(kSpaceMark) : escaped += c;

    std::vector<MergeSymbol>& symbols = scratch->merge.symbols;
    symbols.clear();
    const std::string_view all = escaped;
    size_t word = 0;
    for (size_t pos = 0; pos < all.size();) {
      const size_t bytes = std::min(AnnouncedLength(all[pos]), all.size() - pos);
      const bool cut = pos > word && all.substr(pos, bytes) == kSpaceMark &&
                       !joins_space_[static_cast<unsigned char>(all[pos - 1])];
      if (cut) {
        EncodeWord(all.substr(word, pos - word), &scratch->merge, out);
        symbols.clear();
        word = pos;
      }
      symbols.push_back(
          {kNoToken, static_cast<uint32_t>(pos - word), static_cast<uint32_t>(bytes)});
      pos += bytes;
    }
    if (word < all.size()) EncodeWord(all.substr(word), &scratch->merge, out);
  }

 private:
  // REQUIRES: scratch->symbols holds the characters of `word`.
  void EncodeWord(std::string_view word, MergeScratch* scratch, std::vector<TokenId>* out) const {
    MergeSymbols(scratch, [&](const MergeSymbol& left, const MergeSymbol& right) {
      MergeCandidate candidate;
      candidate.id = vocabulary_.Find(word.substr(left.begin, left.bytes + right.bytes));
      if (candidate.id != kNoToken) {
        candidate.priority = PriorityOf(vocabulary_.score(candidate.id));
      }
      return candidate;
    });
    for (const MergeSymbol& symbol : scratch->symbols) {
      const std::string_view text = word.substr(symbol.begin, symbol.bytes);
      const TokenId id = symbol.id != kNoToken ? symbol.id : vocabulary_.Find(text);
      if (id != kNoToken) {
        out->push_back(id);
      } else {
        EmitBytes(text, out);
      }
    }
  }

  void EmitBytes(std::string_view text, std::vector<TokenId>* out) const {
    for (const char c : text) {
      TokenId id = vocabulary_.ByteToken(static_cast<uint8_t>(c));
      if (id == kNoToken) id = vocabulary_.unknown;
      if (id != kNoToken) out->push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
  // By byte: whether some token contains it directly before a space mark.
  bool joins_space_[256] = {};
};

}  // namespace

std::unique_ptr<const TextEncoder> MakeSentencePieceEncoder(const Vocabulary* vocabulary) {
  return std::make_unique<SentencePieceEncoder>(vocabulary);
}

}  // namespace weft
