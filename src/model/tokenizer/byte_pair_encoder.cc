#include <bit>
#include <deque>

#include "base/strings.h"
#include "base/unicode.h"
#include "model/tokenizer/pretokenizer.h"
#include "model/tokenizer/string_table.h"
#include "model/tokenizer/text_encoder.h"

namespace weft {
namespace {

constexpr std::string_view kMerges = "tokenizer.ggml.merges";

// (left, right) -> (rank, merged), open addressing, at most half full.
class PairTable {
 public:
  void Reserve(size_t n) {
    slots_.resize(std::bit_ceil(std::max<size_t>(16, 2 * n)));
    shift_ = 64 - std::countr_zero(slots_.size());
  }

  // The first of equal pairs counts. REQUIRES: Reserve made room.
  void Insert(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
    const uint64_t key = Key(left, right);
    size_t i = Start(key);
    for (; slots_[i].key != kFree; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return;
    }
    slots_[i] = {key, {rank, merged}};
  }

  MergeCandidate Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    size_t i = Start(key);
    while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & (slots_.size() - 1);
    return slots_[i].value;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    MergeCandidate value;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t Start(uint64_t key) const {
    key ^= key >> 29;
    return key * 0x9E3779B97F4A7C15u >> shift_;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
};

// Works on symbols: numbers below the vocabulary's size are its tokens; higher ones are
// intermediate texts of merges that are not tokens.
class BytePairEncoder : public TextEncoder {
 public:
  explicit BytePairEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {}

  Status Init(const ModelFile& file) {
    WEFT_ASSIGN_OR_RETURN(const std::span<const std::string_view> merges,
                          file.GetStringArray(kMerges));
    pairs_.Reserve(merges.size());
    for (int byte = 0; byte < 256; ++byte) {
      std::string text;
      AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), &text);
      byte_symbols_[byte] = SymbolOf(text);
    }
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view merge = merges[rank];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        return file.KeyError(kMerges, StrCat("merge ", rank, " '", Printable(merge),
                                             "' is not two texts with a space between"));
      }
      const int32_t left = SymbolOf(merge.substr(0, space));
      const int32_t right = SymbolOf(merge.substr(space + 1));
      const int32_t merged = SymbolOf(StrCat(merge.substr(0, space), merge.substr(space + 1)));
      pairs_.Insert(left, right, static_cast<uint32_t>(rank), merged);
    }
    if (vocabulary_.pre.ignore_merges && !vocabulary_.pre.merges_text()) CollectWords();
    return OkStatus();
  }

  void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
              std::vector<TokenId>* out) const override {
    text = RepairUtf8(text, &scratch->repaired);
    if (vocabulary_.pre.raw_text) {
      scratch->escaped.clear();
      for (const char c : text) {
        c == ' ' ? scratch->escaped.append(kSpaceMark) : scratch->escaped += c;
      }
      text = scratch->escaped;
    } else if (vocabulary_.pre.drops_spaces) {
      scratch->escaped.clear();
      for (size_t pos = 0; pos < text.size();) {
        const DecodedChar c = DecodeTrusted(text.data() + pos);
        const bool is_space = (ClassOf(c.code) & kSpace) != 0;
        AppendUtf8(is_space                ? U' '
                   : vocabulary_.lowercase ? ToLower(c.code)
                                           : c.code,
                   &scratch->escaped);
        pos += c.bytes;
      }
      text = scratch->escaped;
    }
    struct Context {
      const BytePairEncoder* encoder;
      MergeScratch* scratch;
      std::vector<TokenId>* out;
    } context = {this, &scratch->merge, out};
    vocabulary_.pre.splitter->Split(
        text,
        [](void* opaque, std::string_view word) {
          const auto* c = static_cast<Context*>(opaque);
          c->encoder->EncodeWord(word, c->scratch, c->out);
        },
        &context);
  }

 private:
  int32_t SymbolOf(std::string_view text) {
    int32_t symbol = vocabulary_.Find(text);
    if (symbol < 0) symbol = passing_.Find(text);
    if (symbol < 0) {
      passing_texts_.emplace_back(text);
      symbol = vocabulary_.size() + static_cast<int32_t>(passing_texts_.size()) - 1;
      passing_.Insert(passing_texts_.back(), symbol);
    }
    return symbol;
  }

  // Collects the tokens that can be a whole word, by the bytes of that word.
  void CollectWords() {
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const std::string_view text = vocabulary_.text(id);
      std::string bytes;
      size_t pos = 0;
      while (pos < text.size()) {
        const DecodedChar c = DecodeLenient(text.substr(pos));
        const int byte = ByteLevelByte(c.code);
        if (byte < 0) break;
        bytes += static_cast<char>(byte);
        pos += c.bytes;
      }
      if (pos < text.size()) continue;
      word_texts_.push_back(std::move(bytes));
      words_.Insert(word_texts_.back(), id);
    }
  }

  TokenId WholeWord(std::string_view word) const {
    const PreTokenizer::Spec& pre = vocabulary_.pre;
    if (pre.whole_newlines && word[0] == '\n') return vocabulary_.Find(word);
    if (!pre.ignore_merges) return kNoToken;
    return pre.merges_text() ? vocabulary_.Find(word) : words_.Find(word);
  }

  void EncodeWord(std::string_view word, MergeScratch* scratch, std::vector<TokenId>* out) const {
    if (vocabulary_.pre.drops_spaces && word[0] == ' ') return;
    const TokenId whole = WholeWord(word);
    if (whole != kNoToken) return out->push_back(whole);
    std::vector<MergeSymbol>& symbols = scratch->symbols;
    symbols.clear();
    for (uint32_t pos = 0; pos < word.size();) {
      uint32_t bytes = 1;
      int32_t symbol;
      if (vocabulary_.pre.merges_text()) {
        bytes = DecodeTrusted(word.data() + pos).bytes;
        symbol = vocabulary_.Find(word.substr(pos, bytes));
        if (symbol < 0) symbol = passing_.Find(word.substr(pos, bytes));
      } else {
        symbol = byte_symbols_[static_cast<unsigned char>(word[pos])];
      }
      symbols.push_back({symbol, pos, bytes});
      pos += bytes;
    }
    MergeSymbols(scratch, [this](const MergeSymbol& left, const MergeSymbol& right) {
      return pairs_.Find(left.id, right.id);
    });
    for (const MergeSymbol& symbol : symbols) {
      if (vocabulary_.Contains(symbol.id)) {
        out->push_back(symbol.id);
      } else {
        EmitBytes(word.substr(symbol.begin, symbol.bytes), out);
      }
    }
  }

  void EmitBytes(std::string_view bytes, std::vector<TokenId>* out) const {
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      TokenId id =
          vocabulary_.pre.merges_text() ? vocabulary_.ByteToken(byte) : byte_symbols_[byte];
      if (!vocabulary_.Contains(id)) id = vocabulary_.unknown;
      if (id != kNoToken) out->push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
  int32_t byte_symbols_[256] = {};
  PairTable pairs_;
  std::deque<std::string> passing_texts_;  // addresses must be stable
  StringTable passing_;
  std::deque<std::string> word_texts_;
  StringTable words_;
};

}  // namespace

StatusOr<std::unique_ptr<const TextEncoder>> MakeBytePairEncoder(const Vocabulary* vocabulary,
                                                                 const ModelFile& file) {
  auto encoder = std::make_unique<BytePairEncoder>(vocabulary);
  WEFT_RETURN_IF_ERROR(encoder->Init(file));
  return std::unique_ptr<const TextEncoder>(std::move(encoder));
}

}  // namespace weft
