#include <cmath>

#include "base/unicode.h"
#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/text_encoder.h"

namespace weft {
namespace {

// PLaMo 2's: of all ways to cut the text into tokens, the one whose scores have the largest sum.
// Scores count in steps of a ten-thousandth, so that sums do not depend on their order; a character
// without a token costs kUnknownCost and becomes its bytes. Among equal ways, longer tokens first.
class UnigramEncoder : public TextEncoder {
 public:
  explicit UnigramEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {
    costs_.reserve(static_cast<size_t>(vocabulary_.size()));
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      // Far more than a real score, and no sum of a text's overflows.
      const double cost = -std::round(static_cast<double>(vocabulary_.score(id)) * 1e4);
      costs_.push_back(static_cast<int64_t>(std::clamp(cost, -kMaxCost, kMaxCost)));
      // Others would end within a character.
      if (IsText(vocabulary_.text(id)) && (vocabulary_.attrs(id) & kAttrByte) == 0)
        trie_.Insert(vocabulary_.text(id), id);
    }
  }

  void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
              std::vector<TokenId>* out) const override {
    text = RepairUtf8(text, &scratch->repaired);
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    FindPath(text, &scratch->path);
    for (size_t at = 0; at < text.size();) {
      const PathStep& step = scratch->path[at];
      if (step.token != kNoToken) {
        out->push_back(step.token);
      } else {
        EmitBytes(text.substr(at, step.bytes), out);
      }
      at += step.bytes;
    }
  }

 private:
  static constexpr int64_t kUnknownCost = 10'000'000;
  static constexpr double kMaxCost = 2e9;

  // Fills the path's steps at the text's characters, from its end.
  void FindPath(std::string_view text, std::vector<PathStep>* path) const {
    path->resize(text.size() + 1);
    (*path)[text.size()] = {0, 0, kNoToken};
    for (size_t at = text.size(); at-- > 0;) {
      if (IsContinuationByte(text[at])) continue;
      const std::string_view rest = text.substr(at);
      const uint32_t bytes = DecodeTrusted(rest.data()).bytes;
      PathStep best = {(*path)[at + bytes].cost + kUnknownCost, bytes, kNoToken};
      trie_.ForEachPrefix(rest, [&](const ByteTrie::Match& match) {
        const int64_t own = costs_[static_cast<size_t>(match.value)];
        const int64_t cost = (*path)[at + match.bytes].cost + own;
        const bool readable = own < 2 * kUnknownCost;
        if (readable && cost <= best.cost) {
          best = {cost, static_cast<uint32_t>(match.bytes), match.value};
        }
      });
      (*path)[at] = best;
    }
  }

  static bool IsText(std::string_view text) {
    std::string repaired;
    return RepairUtf8(text, &repaired) == text;
  }

  void EmitBytes(std::string_view bytes, std::vector<TokenId>* out) const {
    for (const char c : bytes) {
      TokenId id = vocabulary_.ByteToken(static_cast<uint8_t>(c));
      if (id == kNoToken) id = vocabulary_.unknown;
      if (id != kNoToken) out->push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
  std::vector<int64_t> costs_;  // by token
  ByteTrie trie_;
};

}  // namespace

std::unique_ptr<const TextEncoder> MakeUnigramEncoder(const Vocabulary* vocabulary) {
  return std::make_unique<UnigramEncoder>(vocabulary);
}

}  // namespace weft
