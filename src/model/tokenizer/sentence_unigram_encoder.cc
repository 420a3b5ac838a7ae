#include <algorithm>
#include <limits>

#include "base/unicode.h"
#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/text_encoder.h"

namespace weft {
namespace {

// SentencePiece's unigram models (T5, XLM-RoBERTa): the text is normalised, spaces become marks,
// and of all ways to cut it into tokens the one with the largest sum of scores is taken. A
// character without a token is unknown; unknown neighbours count as one.
class SentenceUnigramEncoder : public TextEncoder {
 public:
  explicit SentenceUnigramEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {
    float least = std::numeric_limits<float>::max();
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const uint8_t attrs = vocabulary_.attrs(id);
      const std::string_view text = vocabulary_.text(id);
      if ((attrs & (kAttrNormal | kAttrUserDefined | kAttrUnused)) == 0) continue;
      if ((attrs & kAttrNormal) != 0) least = std::min(least, vocabulary_.score(id));
      tokens_.Insert(text, id);
      if ((attrs & kAttrUserDefined) != 0) user_defined_.Insert(text, id);
    }
    constexpr float kUnknownPenalty = 10;
    unknown_score_ = static_cast<double>(least - kUnknownPenalty);
  }

  void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
              std::vector<TokenId>* out) const override {
    std::string& normal = scratch->escaped;
    Normalize(text, &normal);
    if (normal.empty()) return;
    std::vector<Step> steps(normal.size() + 1);
    steps[0].score = 0;
    FindSteps(normal, &steps);
    const size_t before = out->size();
    bool unknown_before = false;
    for (size_t at = normal.size(); at > 0; at = steps[at].begin) {
      const bool is_unknown = steps[at].token == vocabulary_.unknown;
      const bool joins = is_unknown && unknown_before;
      if (!joins && steps[at].token != kNoToken) out->push_back(steps[at].token);
      unknown_before = is_unknown;
    }
    std::reverse(out->begin() + static_cast<std::ptrdiff_t>(before), out->end());
  }

 private:
  // The best way to a place in a text: its last token, and where that begins.
  struct Step {
    double score = -std::numeric_limits<double>::max();
    size_t begin = 0;
    TokenId token = kNoToken;
  };

  void FindSteps(std::string_view text, std::vector<Step>* steps) const {
    for (size_t at = 0; at < text.size();) {
      const size_t n_char = std::min(AnnouncedLength(text[at]), text.size() - at);
      const double before = (*steps)[at].score;
      const auto try_step = [&](size_t bytes, TokenId token, double score) {
        Step& step = (*steps)[at + bytes];
        if (before + score > step.score) step = {before + score, at, token};
      };
      bool has_char = false;
      tokens_.ForEachPrefix(text.substr(at), [&](const ByteTrie::Match& match) {
        has_char |= match.bytes == n_char;
        const bool is_free = (vocabulary_.attrs(match.value) & kAttrUserDefined) != 0;
        try_step(match.bytes, match.value,
                 is_free ? 0 : static_cast<double>(vocabulary_.score(match.value)));
      });
      if (!has_char) try_step(n_char, vocabulary_.unknown, unknown_score_);
      at += n_char;
    }
  }

  // Characters as the vocabulary writes them; a mark for each space, or for runs of them before
  // something else.
  void Normalize(std::string_view text, std::string* out) const {
    out->clear();
    bool in_word = false, marked = false;
    while (!text.empty()) {
      const auto [bytes, by] = NextPart(text);
      for (const char c : by) {
        if (c == ' ') {
          in_word = false;
          if (!vocabulary_.merge_spaces) out->append(kSpaceMark);
          continue;
        }
        const bool prepends = (vocabulary_.add_space_prefix && !marked) || vocabulary_.merge_spaces;
        if (!in_word && prepends) {
          out->append(kSpaceMark);
          marked = true;
        }
        in_word = true;
        *out += c;
      }
      text.remove_prefix(bytes);
    }
  }

  CharsMap::Match NextPart(std::string_view text) const {
    const ByteTrie::Match whole = user_defined_.LongestPrefix(text);
    if (whole.bytes > 0) return {whole.bytes, text.substr(0, whole.bytes)};
    const CharsMap::Match mapped = vocabulary_.chars_map.LongestPrefix(text);
    if (mapped.bytes > 0) return mapped;
    const int length = StrictCharLength(text);
    if (length > 0)
      return {static_cast<size_t>(length), text.substr(0, static_cast<size_t>(length))};
    return {1, "\xEF\xBF\xBD"};
  }

  const Vocabulary& vocabulary_;
  ByteTrie tokens_, user_defined_;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<const TextEncoder> MakeSentenceUnigramEncoder(const Vocabulary* vocabulary) {
  return std::make_unique<SentenceUnigramEncoder>(vocabulary);
}

}  // namespace weft
