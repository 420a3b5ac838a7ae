#include "model/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/strings.h"
#include "base/unicode.h"
#include "model/formats/gguf_writer.h"
#include "model/tokenizer/fill_in.h"
#include "model/tokenizer/vocabulary.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<TokenId>;

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

// The tokenizer part of a model file, built token by token.
struct VocabBuilder {
  std::string model = "llama";
  std::string pre;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::function<void(GgufWriter*)> more;

  TokenId Add(std::string text, int32_t type = kNormal, float score = 0) {
    tokens.push_back(std::move(text));
    types.push_back(type);
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size()) - 1;
  }

  void AddByteTokens() {
    for (int byte = 0; byte < 256; ++byte) {
      constexpr char kHex[] = "0123456789ABCDEF";
      Add(StrCat("<0x", kHex[byte >> 4], kHex[byte & 15], ">"), kByte);
    }
  }

  void AddByteLevelAlphabet() {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text;
      AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), &text);
      Add(text);
    }
  }

  void AddMerge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    Add(left + right);
  }

  StatusOr<std::shared_ptr<const Tokenizer>> Load() const {
    const std::string bytes = Bytes();
    auto file = ModelFile::FromBytes("test.gguf", std::as_bytes(std::span(bytes)));
    if (!file.ok()) return file.status();
    return Tokenizer::Load(**file);
  }

  // The model file's bytes.
  std::string Bytes() const {
    GgufWriter writer;
    writer.AddString("general.architecture", "llama");
    writer.AddString("tokenizer.ggml.model", model);
    if (!pre.empty()) writer.AddString("tokenizer.ggml.pre", pre);
    writer.AddStringArray("tokenizer.ggml.tokens", tokens);
    writer.AddFloat32Array("tokenizer.ggml.scores", scores);
    writer.AddInt32Array("tokenizer.ggml.token_type", types);
    if (model != "llama") writer.AddStringArray("tokenizer.ggml.merges", merges);
    if (more) more(&writer);
    return writer.ToBytes();
  }
};

std::shared_ptr<const Tokenizer> MustLoad(const VocabBuilder& builder) {
  auto tokenizer = builder.Load();
  EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  return tokenizer.ok() ? *tokenizer : nullptr;
}

// <unk> 0, <s> 1, </s> 2, bytes from 3, then pieces from 259.
VocabBuilder SmallSentencePiece() {
  VocabBuilder b;
  b.Add("<unk>", kUnknown);
  b.Add("<s>", kControl);
  b.Add("</s>", kControl);
  b.AddByteTokens();
  const std::vector<std::string> pieces = {"▁",  "a",  "b",  "c",   "é",  "ab",
                                           "bc", "▁a", "▁b", "abc", "▁▁", "▁abc"};
  float score = -1;
  for (const std::string& piece : pieces) b.Add(piece, kNormal, score -= 1);
  return b;
}

// Bytes 0..255, merges of "hello", and special tokens.
VocabBuilder SmallBytePair() {
  VocabBuilder b;
  b.model = "gpt2";
  b.pre = "gpt-2";
  b.AddByteLevelAlphabet();
  b.AddMerge("h", "e");
  b.AddMerge("l", "l");
  b.AddMerge("he", "ll");
  b.AddMerge("hell", "o");
  b.AddMerge("Ġ", "hello");
  b.Add("<|im_start|>", kControl);
  b.Add("<|im_end|>", kControl);
  b.Add("<tool>", kUserDefined);
  b.Add("<tool>\n", kUserDefined);
  return b;
}

std::string Joined(const Tokenizer& tokenizer, const Ids& ids) {
  std::string out;
  for (const TokenId id : ids) out += tokenizer.Piece(id, true);
  return out;
}

std::string RandomBytes(std::mt19937* random, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += static_cast<char>((*random)());
  return out;
}

TEST(SentencePiece, MergesTheBestScoreFirst) {
  const auto t = MustLoad(SmallSentencePiece());
  // "ab" scores better than "bc"; then "▁a" is impossible, and "abc" and "▁abc" are reached.
  EXPECT_THAT(t->Encode("abc", {}), ElementsAre(t->Find("▁abc")));
  EXPECT_THAT(t->Encode("xabc", {}), ElementsAre(t->Find("▁"), t->Find("<0x78>"), t->Find("abc")));
  EXPECT_THAT(t->Encode("bcb", {}), ElementsAre(t->Find("▁"), t->Find("bc"), t->Find("b")));
}

TEST(SentencePiece, SpacesAndSpecials) {
  const auto t = MustLoad(SmallSentencePiece());
  EXPECT_THAT(t->Encode("", {.add_special = true}), ElementsAre(1));
  EXPECT_THAT(t->Encode("a  a", {.add_special = true}),
              ElementsAre(1, t->Find("▁a"), t->Find("▁"), t->Find("▁a")));
  EXPECT_THAT(t->Encode("a</s>b", {.parse_special = true}),
              ElementsAre(t->Find("▁a"), 2, t->Find("▁b")));
  EXPECT_EQ(t->Encode("</s>", {}).size(), 5u);  // user text is never a control token
  EXPECT_EQ(t->Decode(t->Encode("a  a", {}), false), "a  a");
  EXPECT_EQ(t->Decode(Ids{1, t->Find("▁a"), 2}, false), " a");
  EXPECT_EQ(t->Decode(Ids{1, t->Find("▁a"), 2}, true), "<s> a</s>");
}

TEST(SentencePiece, WhatHasFarTooManyTokensIsNotEncodedToItsEnd) {
  const auto t = MustLoad(SmallSentencePiece());
  std::string text;
  while (text.size() < 3'000'000) text += "xäa</s>€";
  const size_t all = t->Encode(text, {.parse_special = true}).size();
  const size_t some = t->Encode(text, {.parse_special = true, .max_tokens = 1000}).size();
  EXPECT_GT(some, 1000u);
  EXPECT_LT(some, all / 10);
  // Up to the limit and somewhat beyond it nothing changes.
  for (const int n : {100, 1000, 1100}) {
    const std::string_view begin = std::string_view(text).substr(0, static_cast<size_t>(n));
    EXPECT_EQ(t->Encode(begin, {.max_tokens = 1000}), t->Encode(begin, {}));
  }
  // Few tokens of many bytes fit.
  std::string words;
  while (words.size() < 400'000) words += "</s>";
  const Ids ids = t->Encode(words, {.parse_special = true});
  EXPECT_EQ(t->Encode(words, {.parse_special = true,
                              .max_tokens = static_cast<int64_t>(ids.size()) / 3 * 2}),
            ids)
      << "what may fit is encoded whole";
}

TEST(SentencePiece, WithoutSpacePrefix) {
  VocabBuilder b = SmallSentencePiece();
  b.more = [](GgufWriter* w) { w->AddBool("tokenizer.ggml.add_space_prefix", false); };
  const auto t = MustLoad(b);
  EXPECT_THAT(t->Encode("a", {}), ElementsAre(t->Find("a")));
  EXPECT_EQ(t->Decode(Ids{t->Find("▁a")}, false), " a");
}

TEST(SentencePiece, UnknownWhereThereAreNoByteTokens) {
  VocabBuilder b;
  b.Add("<unk>", kUnknown);
  b.Add("<s>", kControl);
  b.Add("</s>", kControl);
  b.Add("▁a", kNormal, -1);
  b.Add("▁", kNormal, -2);
  const auto t = MustLoad(b);
  EXPECT_THAT(t->Encode("é", {}), ElementsAre(4, 0, 0));
}

TEST(SentencePiece, EveryByteStringSurvives) {
  const auto t = MustLoad(SmallSentencePiece());
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const std::string text = RandomBytes(&random, random() % 40);
    // A space where a broken character announces more bytes is encoded as the bytes of its mark, as
    // other implementations do.
    std::string back = t->Decode(t->Encode(text, {}), true);
    for (size_t at; (at = back.find(kSpaceMark)) != std::string::npos;) {
      back.replace(at, kSpaceMark.size(), " ");
    }
    EXPECT_EQ(back, text);
  }
}

TEST(BytePair, MergesByRank) {
  const auto t = MustLoad(SmallBytePair());
  EXPECT_THAT(t->Encode("hello hello", {}), ElementsAre(t->Find("hello"), t->Find("Ġhello")));
  EXPECT_THAT(t->Encode("help", {}), ElementsAre(t->Find("he"), t->Find("l"), t->Find("p")));
}

TEST(BytePair, EveryTextSurvives) {
  const auto t = MustLoad(SmallBytePair());
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    const std::string text = RandomBytes(&random, random() % 40);
    std::string storage;
    EXPECT_EQ(Joined(*t, t->Encode(text, {})), RepairUtf8(text, &storage));
  }
}

TEST(BytePair, MergesMayPassThroughTextsThatAreNoTokens) {
  VocabBuilder b = SmallBytePair();
  b.merges.push_back("x y");
  b.merges.push_back("xy z");
  b.Add("xyz");
  const auto t = MustLoad(b);
  EXPECT_THAT(t->Encode("xyz", {}), ElementsAre(t->Find("xyz")));
  EXPECT_THAT(t->Encode("xy", {}), ElementsAre(t->Find("x"), t->Find("y")));
}

TEST(BytePair, WholeWordsWhereMergesAreIgnored) {
  VocabBuilder b = SmallBytePair();
  b.Add("lol");
  const auto merged = MustLoad(b);
  EXPECT_EQ(merged->Encode("lol", {}).size(), 3u);
  b.pre = "llama-bpe";
  const auto whole = MustLoad(b);
  EXPECT_THAT(whole->Encode("lol", {}), ElementsAre(whole->Find("lol")));
}

TEST(BytePair, RobertasPairsHaveASeparatorOfTheirOwn) {
  VocabBuilder b = SmallBytePair();
  b.more = [](GgufWriter* w) { w->AddUint32("tokenizer.ggml.seperator_token_id", 7); };
  EXPECT_FALSE(MustLoad(b)->adds_separator());
  b.pre = "jina-v1-en";
  EXPECT_TRUE(MustLoad(b)->adds_separator());
  EXPECT_THAT(MustLoad(b)->Encode("he", {.add_special = true}),
              ElementsAre(MustLoad(b)->Find("he")))
      << "a text alone has none";
  b.more = nullptr;
  EXPECT_FALSE(MustLoad(b)->adds_separator()) << "the file names none";
}

TEST(BytePair, RawTextOfGemma4) {
  VocabBuilder b;
  b.model = "gemma4";
  b.Add("<pad>", kControl);
  b.Add("<bos>", kControl);
  b.AddByteTokens();
  for (const char* text : {"▁", "a", "b", "\n", "\n\n"}) b.Add(text);
  b.AddMerge("▁", "a");
  b.AddMerge("▁a", "b");
  b.more = [](GgufWriter* w) { w->AddUint32("tokenizer.ggml.bos_token_id", 1); };
  const auto t = MustLoad(b);
  EXPECT_TRUE(t->adds_bos());
  EXPECT_THAT(t->Encode("b ab\n\né", {.add_special = true}),
              ElementsAre(1, t->Find("b"), t->Find("▁ab"), t->Find("\n\n"), t->Find("<0xC3>"),
                          t->Find("<0xA9>")));
  EXPECT_EQ(Joined(*t, t->Encode("b ab\n\né", {})), "b ab\n\né");
}

TEST(WordPiece, LongestPiecesOfNormalizedWords) {
  VocabBuilder b;
  b.model = "bert";
  b.Add("[UNK]", kControl);
  b.Add("[CLS]", kControl);
  b.Add("[SEP]", kControl);
  for (const char* text : {"▁un", "aff", "able", "▁,", "▁中", "▁cafe", "▁un,"}) b.Add(text);
  b.more = [](GgufWriter* w) {
    w->AddUint32("tokenizer.ggml.unknown_token_id", 0);
    w->AddUint32("tokenizer.ggml.cls_token_id", 1);
    w->AddUint32("tokenizer.ggml.seperator_token_id", 2);
  };
  const auto t = MustLoad(b);
  EXPECT_THAT(t->Encode("Unaffable, Café中", {.add_special = true}),
              ElementsAre(1, 3, 4, 5, 6, 8, 7, 2));
  EXPECT_THAT(t->Encode("unaffx cafe\u200D", {}), ElementsAre(0, 8));
  EXPECT_EQ(t->Decode(Ids{1, 8, 6, 3, 4, 2}, false), " cafe, unaff");
}

TEST(Specials, LongestFirstAndUserDefinedAlways) {
  const auto t = MustLoad(SmallBytePair());
  EXPECT_THAT(t->Encode("<tool>", {}), ElementsAre(t->Find("<tool>")));
  EXPECT_THAT(t->Encode("<tool>\n", {}), ElementsAre(t->Find("<tool>\n")));
  EXPECT_GT(t->Encode("<|im_end|>", {}).size(), 1u);
  EXPECT_THAT(t->Encode("<|im_start|>he<|im_end|>", {.parse_special = true}),
              ElementsAre(t->Find("<|im_start|>"), t->Find("he"), t->Find("<|im_end|>")));
}

TEST(Specials, OverlapGoesToTheLongerThenTheLeft) {
  VocabBuilder b = SmallBytePair();
  b.Add("ABC", kUserDefined);
  b.Add("BCDE", kUserDefined);
  b.Add("AB", kUserDefined);
  b.Add("XX", kUserDefined);
  const auto t = MustLoad(b);
  // BCDE is longer than ABC; the rest of ABC is not a token. XXX: the left XX.
  EXPECT_THAT(t->Encode("ABCDE", {}), ElementsAre(t->Find("A"), t->Find("BCDE")));
  EXPECT_THAT(t->Encode("ABCD", {}), ElementsAre(t->Find("ABC"), t->Find("D")));
  EXPECT_THAT(t->Encode("XXX", {}), ElementsAre(t->Find("XX"), t->Find("X")));
  // AB fits before the second BCDE, although ABC does not.
  EXPECT_THAT(t->Encode("ABBCDE", {}), ElementsAre(t->Find("AB"), t->Find("BCDE")));
}

TEST(Specials, RunsOfOneTokenTakeLinearTime) {
  VocabBuilder b = SmallBytePair();
  for (size_t n = 2; n <= 64; ++n) b.Add(std::string(n, '\n'), kUserDefined);
  const auto t = MustLoad(b);
  const std::string text(1'000'007, '\n');
  const Ids ids = t->Encode(text, {});
  EXPECT_EQ(ids.size(), text.size() / 64 + 1);
  EXPECT_EQ(t->RawText(ids.back()).size(), text.size() % 64);
}

TEST(Specials, Phi3TokensSwallowTheSpaceBehindThem) {
  VocabBuilder b = SmallSentencePiece();
  b.Add("<|user|>", kControl);
  b.more = [](GgufWriter* w) { w->AddString("general.name", "Phi-3 mini"); };
  const auto t = MustLoad(b);
  EXPECT_THAT(t->Encode("<|user|> \n a", {.parse_special = true}),
              ElementsAre(t->Find("<|user|>"), t->Find("▁a")));
}

TEST(EndOfGeneration, ByIdAndByText) {
  const auto t = MustLoad(SmallBytePair());
  EXPECT_TRUE(t->IsEndOfGeneration(t->Find("<|im_end|>")));
  EXPECT_FALSE(t->IsEndOfGeneration(t->Find("<|im_start|>")));
  EXPECT_FALSE(t->IsEndOfGeneration(-1));
  EXPECT_FALSE(t->IsEndOfGeneration(t->vocab_size()));
  EXPECT_THAT(t->EndsOfGeneration(), ::testing::Contains(t->eot()));
  for (const TokenId id : t->EndsOfGeneration()) EXPECT_TRUE(t->IsEndOfGeneration(id));
  EXPECT_EQ(t->eot(), t->Find("<|im_end|>"));
  EXPECT_TRUE(t->IsControl(t->Find("<|im_end|>")));

  VocabBuilder b = SmallBytePair();
  b.more = [](GgufWriter* w) { w->AddUint32("tokenizer.ggml.eos_token_id", 7); };
  EXPECT_TRUE(MustLoad(b)->IsEndOfGeneration(7));
}

TEST(EndOfGeneration, EveryIdThatTheFileNames) {
  VocabBuilder b = SmallBytePair();
  b.more = [](GgufWriter* w) {
    w->AddUint32("tokenizer.ggml.eos_token_id", 7);
    w->AddUint32("tokenizer.ggml.eot_token_id", 8);
    w->AddUint32("tokenizer.ggml.eom_token_id", 9);
  };
  const auto t = MustLoad(b);
  for (const TokenId id : {7, 8, 9}) EXPECT_TRUE(t->IsEndOfGeneration(id)) << id;
  EXPECT_FALSE(t->IsEndOfGeneration(10));
}

TEST(EndOfGeneration, HarmonyMessagesEndWithoutEndingTheTurn) {
  VocabBuilder b = SmallBytePair();
  for (const char* text : {"<|end|>", "<|return|>", "<|call|>", "<|channel|>"}) {
    b.Add(text, kControl);
  }
  const auto t = MustLoad(b);
  EXPECT_FALSE(t->IsEndOfGeneration(t->Find("<|end|>")));
  EXPECT_TRUE(t->IsEndOfGeneration(t->Find("<|return|>")));
  EXPECT_TRUE(t->IsEndOfGeneration(t->Find("<|call|>")));
  EXPECT_EQ(t->Piece(t->Find("<|channel|>"), false), "<|channel|>");
}

TEST(Decode, OutOfRangeAndHidden) {
  const auto t = MustLoad(SmallBytePair());
  EXPECT_EQ(t->Piece(-1, true), "");
  EXPECT_EQ(t->Piece(t->vocab_size(), true), "");
  EXPECT_EQ(t->RawText(-5), "");
  EXPECT_EQ(t->Piece(t->Find("<|im_start|>"), false), "");
  EXPECT_EQ(t->Piece(t->Find("<|im_start|>"), true), "<|im_start|>");
  EXPECT_EQ(t->Piece(t->Find("Ġhello"), false), " hello");
}

TEST(Decode, TidiesSpacesWhereTheVocabularyDoes) {
  VocabBuilder b = SmallBytePair();
  const auto tidy = MustLoad(b);
  b.pre = "qwen2";
  const auto plain = MustLoad(b);
  const std::string text = "a , b ! it 's we 're x ' y 't .";
  EXPECT_EQ(tidy->Decode(tidy->Encode(text, {}), false), "a, b! it's we're x'y 't.");
  EXPECT_EQ(plain->Decode(plain->Encode(text, {}), false), text);
}

TEST(StreamDecoder, NeverEndsInsideACharacter) {
  const auto t = MustLoad(SmallBytePair());
  StreamDecoder decoder(t, false);
  const Ids ids = t->Encode("é🙂", {});
  ASSERT_EQ(ids.size(), 6u);
  {
    EXPECT_EQ(decoder.Push(ids[0]), "");
    EXPECT_EQ(decoder.Push(ids[1]), "é");
    EXPECT_EQ(decoder.Push(ids[2]), "");
    EXPECT_EQ(decoder.Push(ids[3]), "");
    EXPECT_EQ(decoder.Push(ids[4]), "");
    EXPECT_EQ(decoder.Push(ids[5]), "🙂");
    EXPECT_EQ(decoder.Finish(), "");
  }
}

TEST(StreamDecoder, ReplacesWhatIsNoCharacter) {
  const auto t = MustLoad(SmallSentencePiece());
  const auto byte = [&](int value) { return static_cast<TokenId>(3 + value); };
  StreamDecoder decoder(t, false);
  EXPECT_EQ(decoder.Push(byte(0xC3)), "");
  EXPECT_EQ(decoder.Push(byte('(')), "\uFFFD(");
  EXPECT_EQ(decoder.Push(byte(0xFF)), "\uFFFD");
  EXPECT_EQ(decoder.Push(byte(0xE2)), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  StreamDecoder raw(t, false, /*replace_invalid=*/false);
  EXPECT_EQ(raw.Push(byte(0xE2)), "");
  EXPECT_EQ(raw.Finish(), "\xE2");
}

bool IsWellFormed(std::string_view text) {
  while (!text.empty()) {
    const int length = StrictCharLength(text);
    if (length <= 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// The same bytes split into different tokens give the same text.
TEST(StreamDecoder, AnyCutGivesTheSameText) {
  VocabBuilder b = SmallSentencePiece();
  const std::vector<std::string> tokens = {"é(",       "\xC3",     "\xA9",  "\xE2\x82", "\xAC",
                                           "🙂\xF0", "\x9F\x99", "\x82z", "\xC0\xAF", "\xED\xA0"};
  for (const std::string& token : tokens) b.Add(token, kUserDefined);
  const auto t = MustLoad(b);
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    StreamDecoder coarse(t, true);
    StreamDecoder fine(t, true);
    std::string coarse_text;
    std::string fine_text;
    for (int k = 0; k < 8; ++k) {
      const TokenId id = t->Find(tokens[random() % tokens.size()]);
      coarse_text += coarse.Push(id);
      EXPECT_TRUE(IsWellFormed(coarse_text));
      for (const char c : t->Piece(id, true)) {
        fine_text += fine.Push(3 + static_cast<unsigned char>(c));
      }
    }
    EXPECT_EQ(coarse_text + coarse.Finish(), fine_text + fine.Finish());
  }
}

TEST(HostileText, TakesLinearTime) {
  const auto spm = MustLoad(SmallSentencePiece());
  VocabBuilder bpe = SmallBytePair();
  bpe.AddMerge("a", "a");
  bpe.AddMerge("aa", "aa");
  bpe.AddMerge("Ġ", "Ġ");
  const auto gpt = MustLoad(bpe);
  for (const std::string unit : {"a", " ", "🙂", "\xFF", "ab", "\n", "h", "<", "'"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    for (const auto& t : {spm, gpt}) {
      std::string storage;
      const std::string_view expected = t == gpt ? RepairUtf8(text, &storage) : text;
      const std::string joined = Joined(*t, t->Encode(text, {.parse_special = true}));
      EXPECT_EQ(joined.substr(joined.size() - expected.size()), expected) << unit;
    }
  }
}

// --- inconsistent files -----------------------------------------------------

struct BrokenCase {
  const char* named;  // what the error must name
  std::function<void(VocabBuilder*)> breaks;
};

TEST(Load, NamesTheKeyThatIsWrong) {
  const BrokenCase cases[] = {
      {"tokenizer.ggml.model", [](VocabBuilder* b) { b->model = "no\nsuch"; }},
      {"tokenizer.ggml.pre", [](VocabBuilder* b) { b->pre = "no-such"; }},
      {"tokenizer.ggml.tokens", [](VocabBuilder* b) { b->Add("hello"); }},
      {"tokenizer.ggml.tokens", [](VocabBuilder* b) { b->Add(std::string(70'000, 'x')); }},
      {"tokenizer.ggml.scores", [](VocabBuilder* b) { b->scores.pop_back(); }},
      {"tokenizer.ggml.scores", [](VocabBuilder* b) { b->scores[3] = NAN; }},
      {"tokenizer.ggml.token_type", [](VocabBuilder* b) { b->types.push_back(1); }},
      {"tokenizer.ggml.token_type", [](VocabBuilder* b) { b->types[0] = 77; }},
      {"tokenizer.ggml.token_type", [](VocabBuilder* b) { b->types[0] = kByte; }},
      {"tokenizer.ggml.merges", [](VocabBuilder* b) { b->merges.push_back("nospace"); }},
      {"tokenizer.ggml.merges", [](VocabBuilder* b) { b->merges.push_back(""); }},
      {"tokenizer.ggml.merges", [](VocabBuilder* b) { b->merges.push_back("x "); }},
      {"tokenizer.ggml.eos_token_id",
       [](VocabBuilder* b) {
         b->more = [](GgufWriter* w) { w->AddUint32("tokenizer.ggml.eos_token_id", 100'000); };
       }},
      {"tokenizer.ggml.add_bos_token",
       [](VocabBuilder* b) {
         b->more = [](GgufWriter* w) { w->AddBool("tokenizer.ggml.add_bos_token", true); };
       }},
      {"tokenizer.ggml.bos_token_id",
       [](VocabBuilder* b) {
         b->more = [](GgufWriter* w) { w->AddString("tokenizer.ggml.bos_token_id", "x"); };
       }},
  };
  for (const BrokenCase& broken : cases) {
    VocabBuilder builder = SmallBytePair();
    broken.breaks(&builder);
    const auto tokenizer = builder.Load();
    ASSERT_FALSE(tokenizer.ok()) << broken.named;
    EXPECT_THAT(std::string(Message(tokenizer.status())), HasSubstr(broken.named));
  }
}

TEST(Load, EmptyTokensAreNamedAndNeverMatch) {
  VocabBuilder b = SmallBytePair();
  const TokenId empty = b.Add("", kUserDefined);
  const auto t = MustLoad(b);
  EXPECT_EQ(t->RawText(empty), StrCat("[EMPTY_", empty, "]"));
  EXPECT_THAT(t->Encode("", {}), IsEmpty());
}

TEST(Load, TinyVocabularies) {
  VocabBuilder b;
  b.Add("a", kNormal, -1);
  const auto t = MustLoad(b);
  EXPECT_EQ(t->bos(), kNoToken);
  EXPECT_EQ(t->eos(), kNoToken);
  EXPECT_THAT(t->Encode("aa", {.add_special = true}), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_EQ(t->Find("b"), kNoToken);
}

FillInTokens FillInOf(const VocabBuilder& builder) {
  const std::string bytes = builder.Bytes();
  const auto file = ModelFile::FromBytes("test.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status();
  return FindFillInTokens(**file, *MustLoad(builder));
}

TEST(FillIn, TokensAreFoundByTheirTexts) {
  const char* const families[][3] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                     {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                     {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                                     {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},
                                     {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>",
                                      "<\uff5cfim\u2581end\uff5c>"}};
  for (const auto& texts : families) {
    VocabBuilder b = SmallSentencePiece();
    TokenId ids[3];
    for (int i = 0; i < 3; ++i) ids[i] = b.Add(texts[i], kControl);
    const FillInTokens found = FillInOf(b);
    EXPECT_TRUE(found.complete()) << texts[0];
    EXPECT_EQ(found.prefix, ids[0]);
    EXPECT_EQ(found.suffix, ids[1]);
    EXPECT_EQ(found.middle, ids[2]);
    EXPECT_EQ(found.repository, kNoToken);
    EXPECT_EQ(found.file, kNoToken);
  }
  EXPECT_FALSE(FillInOf(SmallSentencePiece()).complete());
}

TEST(FillIn, AFileMayNameThem) {
  VocabBuilder b = SmallSentencePiece();
  const TokenId by_text = b.Add("<|fim_prefix|>", kControl);
  const TokenId other = b.Add("<|odd|>", kControl);
  const TokenId repository = b.Add("<|repo_name|>", kControl);
  b.more = [&](GgufWriter* w) {
    w->AddUint32("tokenizer.ggml.fim_pre_token_id", static_cast<uint32_t>(other));
    w->AddUint32("tokenizer.ggml.suffix_token_id", static_cast<uint32_t>(by_text));
    w->AddUint32("tokenizer.ggml.fim_mid_token_id", 1u << 30);
  };
  const FillInTokens found = FillInOf(b);
  EXPECT_EQ(found.prefix, other);
  EXPECT_EQ(found.suffix, by_text) << "the key of older files";
  EXPECT_EQ(found.middle, kNoToken) << "no token has such an id";
  EXPECT_EQ(found.repository, repository);
}

}  // namespace
}  // namespace weft
