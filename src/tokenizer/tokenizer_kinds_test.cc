// Kinds of tokenizers without reference data: RWKV's, PLaMo's, and one that knows no spaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/unicode.h"
#include "formats/gguf_writer.h"
#include "tokenizer/tokenizer.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct KindFile {
  std::string model;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::function<void(GgufWriter*)> more = {};

  TokenId Add(const std::string& text, float score = 0, int32_t type = 1) {
    tokens.push_back(text);
    scores.push_back(score);
    types.push_back(type);
    return static_cast<TokenId>(tokens.size()) - 1;
  }
  StatusOr<std::shared_ptr<const Tokenizer>> Load() const {
    GgufWriter writer;
    writer.AddString("general.architecture", "llama");
    writer.AddString("tokenizer.ggml.model", model);
    writer.AddStringArray("tokenizer.ggml.tokens", tokens);
    if (!scores.empty()) writer.AddFloat32Array("tokenizer.ggml.scores", scores);
    if (!types.empty()) writer.AddInt32Array("tokenizer.ggml.token_type", types);
    if (more) more(&writer);
    const std::string bytes = writer.ToBytes();
    auto file = ModelFile::FromBytes("kind.gguf", std::as_bytes(std::span(bytes)));
    if (!file.ok()) return file.status();
    return Tokenizer::Load(**file);
  }
};

TEST(LongestMatch, TakesEscapedBytes) {
  KindFile file{.model = "rwkv", .tokens = {}, .scores = {}, .types = {}};
  file.Add("<s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789abcdef";
    file.Add(StrCat("\\x", kHex[byte >> 4], kHex[byte & 15]));
  }
  const TokenId ab = file.Add("ab"), abc = file.Add("abc"), lines = file.Add("\\n\\n");
  const TokenId half = file.Add("\\xe4\\xb8"), slash = file.Add("\\\\x"), quote = file.Add("\\'s");
  const auto tokenizer = file.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encode = [&](std::string_view text) { return (*tokenizer)->Encode(text, {}); };
  EXPECT_THAT(encode("abcab"), ElementsAre(abc, ab));
  EXPECT_THAT(encode("\n\n\n"), ElementsAre(lines, 1 + '\n'));
  EXPECT_THAT(encode("中"), ElementsAre(half, 1 + 0xAD));
  EXPECT_THAT(encode("\\x's"), ElementsAre(slash, quote));
  EXPECT_THAT(encode(std::string(1, '\0')), ElementsAre(1));
  EXPECT_EQ((*tokenizer)->Decode(encode("a 中\\x'sx\n\n"), true), "a 中\\x'sx\n\n");
}

TEST(LongestMatch, GivesTheUnknownTokenWhereNoneFits) {
  KindFile file{.model = "rwkv", .tokens = {}, .scores = {}, .types = {}};
  const TokenId a = file.Add("a");
  const auto none = file.Load();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT((*none)->Encode("bab", {}), ElementsAre(a));
  const TokenId unknown = file.Add("<unk>");
  file.more = [&](GgufWriter* writer) {
    writer->AddUint32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
  };
  EXPECT_THAT((*file.Load())->Encode("bab", {}), ElementsAre(unknown, a, unknown));
}

KindFile PlamoFile() {
  KindFile file{.model = "plamo2", .tokens = {}, .scores = {}, .types = {}};
  file.Add("<|plamo:unk|>", 0, 2);
  file.Add("<|plamo:bos|>", 0, 3);
  file.Add("<|plamo:eos|>", 0, 3);
  file.Add("<|plamo:pad|>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    file.Add(StrCat("<0x", kHex[byte >> 4], kHex[byte & 15], ">"), 0, 6);
  }
  return file;
}

TEST(Unigram, TakesBytesWhereNoTokenFits) {
  KindFile file = PlamoFile();
  const TokenId a = file.Add("a", -1);
  const auto tokenizer = file.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->Encode("a中a\xFF", {});
  // U+FFFD stands for what is not UTF-8.
  EXPECT_THAT(ids, ElementsAre(a, 4 + 0xE4, 4 + 0xB8, 4 + 0xAD, a, 4 + 0xEF, 4 + 0xBF, 4 + 0xBD));
  EXPECT_THAT((*tokenizer)->Encode("\uFEFFa", {}), ElementsAre(a));
  EXPECT_EQ((*tokenizer)->Decode(std::span(ids).first(5), true), "a中a");
  EXPECT_EQ((*tokenizer)->eos(), 2);
}

// Against all ways to cut a short text.
TEST(Unigram, FindsTheCheapestWay) {
  std::mt19937 random(7);
  const std::vector<std::string> kChars = {"a", "b", "中", " "};
  for (int round = 0; round < 60; ++round) {
    KindFile file = PlamoFile();
    std::map<std::string, int64_t> costs;
    std::map<std::string, TokenId> ids;
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (size_t n = 1 + random() % 3; n > 0; --n) text += kChars[random() % kChars.size()];
      if (costs.contains(text)) continue;
      const float score = -static_cast<float>(random() % 40) / 4;
      costs[text] = std::llround(-score * 1e4);
      ids[text] = file.Add(text, score);
    }
    const auto tokenizer = file.Load();
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += kChars[random() % kChars.size()];
      const std::function<int64_t(std::string_view)> least = [&](std::string_view rest) -> int64_t {
        if (rest.empty()) return 0;
        int64_t best = 10'000'000 + least(rest.substr(DecodeLenient(rest).bytes));
        for (const auto& [token, cost] : costs) {
          if (rest.starts_with(token))
            best = std::min(best, cost + least(rest.substr(token.size())));
        }
        return best;
      };
      const auto encoded = (*tokenizer)->Encode(text, {});
      int64_t cost = 0;
      for (const TokenId id : encoded) {
        const std::string piece = (*tokenizer)->Piece(id, true);
        if (ids.contains(piece) && ids[piece] == id) {
          cost += costs[piece];
        } else if ((static_cast<unsigned char>(piece[0]) & 0xC0) != 0x80) {
          cost += 10'000'000;  // the first byte of a character
        }
      }
      EXPECT_EQ(cost, least(text)) << text;
      EXPECT_EQ((*tokenizer)->Decode(encoded, true), text);
    }
  }
}

TEST(Unigram, TakesLongTokensFirst) {
  KindFile file = PlamoFile();
  const TokenId a = file.Add("a", -1), b = file.Add("b", -1), ab = file.Add("ab", -2);
  EXPECT_THAT((*file.Load())->Encode("ab", {}), ElementsAre(ab));
  file.scores[static_cast<size_t>(ab)] = -2.0002f;
  EXPECT_THAT((*file.Load())->Encode("ab", {}), ElementsAre(a, b));
}

TEST(Unigram, NeedsScores) {
  KindFile file = PlamoFile();
  file.scores.clear();
  EXPECT_THAT(Message(file.Load().status()), HasSubstr("needs scores"));
}

TEST(Whitespace, PartsWordsAndIsLeftOut) {
  KindFile file{.model = "whitespace", .tokens = {}, .scores = {}, .types = {}};
  const TokenId unknown = file.Add("<unk>", 0, 2);
  const TokenId a = file.Add("a"), b = file.Add("b"), ab = file.Add("ab"), zhong = file.Add("中");
  file.more = [&](GgufWriter* writer) {
    writer->AddString("tokenizer.ggml.pre", "whitespace");
    writer->AddStringArray("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    writer->AddUint32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
  };
  const auto tokenizer = file.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode(" ab\n\u3000 a  b中 ", {}), ElementsAre(ab, a, b, zhong));
  EXPECT_THAT((*tokenizer)->Encode(" \t ", {}), IsEmpty());
  EXPECT_THAT((*tokenizer)->Encode("A", {}), ElementsAre(unknown));
  const auto before = file.more;
  file.more = [&](GgufWriter* writer) {
    before(writer);
    writer->AddBool("tokenizer.ggml.normalizer.lowercase", true);
  };
  EXPECT_THAT((*file.Load())->Encode("AB", {}), ElementsAre(ab));
}

TEST(EndsOfGeneration, IncludeAListOfThem) {
  KindFile file{.model = "rwkv", .tokens = {}, .scores = {}, .types = {}};
  file.Add("a");
  const TokenId b = file.Add("b");
  file.more = [](GgufWriter* writer) {
    writer->AddInt32Array("tokenizer.ggml.eos_token_ids", std::vector<int32_t>{1});
  };
  EXPECT_THAT((*file.Load())->EndsOfGeneration(), ElementsAre(b));
  file.more = [](GgufWriter* writer) {
    writer->AddInt32Array("tokenizer.ggml.eos_token_ids", std::vector<int32_t>{2});
  };
  EXPECT_THAT(Message(file.Load().status()), HasSubstr("id 2 is not below the 2 tokens"));
}

}  // namespace
}  // namespace weft
