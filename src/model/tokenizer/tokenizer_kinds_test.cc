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
#include "model/formats/gguf_writer.h"
#include "model/tokenizer/chars_map.h"
#include "model/tokenizer/tokenizer.h"

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
  // U+FFFD stands for bytes that are not UTF-8.
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

// A double array over the keys, as precompiled_charsmap holds it: node i's children at i's base.
std::string CharsMapBytes(const std::map<std::string, std::string>& map) {
  // Bases are multiples of 256 that no other node has, so that children never meet.
  std::map<std::string, uint32_t> base_of = {{"", 256}};
  for (const auto& [key, value] : map) {
    for (size_t n = 1; n <= key.size(); ++n) {
      base_of.emplace(key.substr(0, n), 256 * static_cast<uint32_t>(base_of.size() + 1));
    }
  }
  std::vector<uint32_t> nodes(256 * (base_of.size() + 2));
  std::map<std::string, uint32_t> place_of = {{"", 0}};
  for (const auto& [key, base] : base_of) {
    if (!key.empty()) {
      place_of[key] =
          base_of[key.substr(0, key.size() - 1)] ^ static_cast<unsigned char>(key.back());
    }
  }
  std::string texts;
  for (const auto& [key, base] : base_of) {
    const uint32_t place = place_of[key];
    // A node's own place is part of where its children lie.
    const uint32_t from = key.empty() ? base : base ^ place;
    const bool has_value = map.contains(key);
    const uint32_t byte = key.empty() ? 0 : static_cast<unsigned char>(key.back());
    nodes[place] = (from << 10) | (has_value ? 1u << 8 : 0) | byte;
    if (!has_value) continue;
    nodes[base] = (1u << 31) | static_cast<uint32_t>(texts.size());
    texts += map.at(key) + std::string(1, '\0');
  }
  const auto n_trie = static_cast<uint32_t>(nodes.size() * sizeof(uint32_t));
  return std::string(reinterpret_cast<const char*>(&n_trie), sizeof(n_trie)) +
         std::string(reinterpret_cast<const char*>(nodes.data()), n_trie) + texts;
}

TEST(CharsMaps, ReplaceTheLongestKey) {
  const std::string bytes = CharsMapBytes({{"a", "x"}, {"ab", "yy"}, {"é", "e"}, {"\t", " "}});
  const auto map = CharsMap::Parse(bytes);
  ASSERT_TRUE(map.ok()) << map.status();
  const auto by = [&](std::string_view text) {
    const CharsMap::Match match = map->LongestPrefix(text);
    return StrCat(match.bytes, " ", match.by);
  };
  EXPECT_EQ(by("abc"), "2 yy");
  EXPECT_EQ(by("ac"), "1 x");
  EXPECT_EQ(by("éa"), "2 e");
  EXPECT_EQ(by("\t"), "1  ");
  EXPECT_EQ(by("b"), "0 ");
  EXPECT_EQ(by(std::string_view("\0a", 2)), "0 ");
  EXPECT_FALSE(CharsMap::Parse("abc").ok());
  EXPECT_FALSE(CharsMap::Parse(std::string("\xFF\0\0\0xy", 6)).ok());
  EXPECT_EQ(CharsMap::Parse(std::string(4, '\0'))->LongestPrefix("a").bytes, 0u);
  // Any bytes are a map of something.
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string noise = bytes;
    for (int i = 0; i < 40; ++i)
      noise[4 + random() % (noise.size() - 4)] = static_cast<char>(random());
    const auto odd = CharsMap::Parse(noise);
    ASSERT_TRUE(odd.ok());
    for (const char* text : {"abc", "é", "\t x"}) {
      EXPECT_LE(odd->LongestPrefix(text).bytes, std::string_view(text).size());
    }
  }
}

KindFile SentenceFile() {
  KindFile file{.model = "t5", .tokens = {}, .scores = {}, .types = {}};
  file.Add("<pad>", 0, 3);
  file.Add("</s>", 0, 3);
  file.Add("<unk>", 0, 2);
  file.more = [](GgufWriter* writer) {
    std::vector<int32_t> bytes;
    for (const char c : CharsMapBytes({{"A", "a"}, {"\t", " "}})) bytes.push_back(c);
    writer->AddInt32Array("tokenizer.ggml.precompiled_charsmap", bytes);
    writer->AddBool("tokenizer.ggml.add_space_prefix", true);
    writer->AddBool("tokenizer.ggml.remove_extra_whitespaces", true);
  };
  return file;
}

TEST(SentenceUnigram, NormalisesAndFindsTheBestWay) {
  KindFile file = SentenceFile();
  const TokenId mark = file.Add("\u2581", -4), a = file.Add("a", -3), b = file.Add("b", -3);
  const TokenId mark_a = file.Add("\u2581a", -2), ab = file.Add("ab", -2),
                own = file.Add("<x>", 0, 4);
  const TokenId unknown = 2, end = 1;
  const auto tokenizer = file.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encode = [&](std::string_view text) { return (*tokenizer)->Encode(text, {}); };
  EXPECT_THAT(encode("Ab"), ElementsAre(mark_a, b));  // -5 before -6
  EXPECT_THAT(encode("bAB"), ElementsAre(mark, b, a, unknown));
  EXPECT_THAT(encode("b\t  a  "), ElementsAre(mark, b, mark_a));
  EXPECT_THAT(encode("b中国b"), ElementsAre(mark, b, unknown, b));
  EXPECT_THAT(encode("b<x>ab"), ElementsAre(mark, b, own, mark_a, b));  // anew after it
  EXPECT_THAT(encode("bab"), ElementsAre(mark, b, ab));
  EXPECT_THAT(encode("a\xFF"), ElementsAre(mark_a, unknown));
  EXPECT_THAT(encode("  "), IsEmpty());
  EXPECT_THAT((*tokenizer)->Encode("a", {.add_special = true}), ElementsAre(mark_a, end));
  EXPECT_EQ((*tokenizer)->Decode(encode("ab b"), true), "ab b");
}

TEST(SentenceUnigram, RefusesAMapThatEndsEarly) {
  KindFile file = SentenceFile();
  file.more = [](GgufWriter* writer) {
    writer->AddInt32Array("tokenizer.ggml.precompiled_charsmap",
                          std::vector<int32_t>{9, 0, 0, 0, 1});
  };
  EXPECT_THAT(Message(file.Load().status()), HasSubstr("precompiled_charsmap"));
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
