// The scanners compared with the published patterns, run by PCRE2 on random text.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcre2.h>

#include <random>
#include <string>

#include "model/tokenizer/pretokenizer_pattern.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::string>;

Words Split(const PreTokenizer::Spec& spec, std::string_view text) {
  Words words;
  spec.splitter->Split(
      text,
      [](void* context, std::string_view word) {
        static_cast<Words*>(context)->emplace_back(word);
      },
      &words);
  return words;
}

Words Split(std::string_view pre, std::string_view text) {
  PreTokenizer::Spec spec;
  EXPECT_TRUE(PreTokenizer::Find(pre, &spec)) << pre;
  return Split(spec, text);
}

// Splits each of `pieces` at the matches of `pattern`, keeping the text in between.
Words CutByPattern(const std::string& pattern, const Words& pieces) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  EXPECT_NE(code, nullptr) << pattern << " at " << offset;
  if (code == nullptr) return {};
  pcre2_match_data* match = pcre2_match_data_create_from_pattern(code, nullptr);
  Words out;
  for (const std::string& piece : pieces) {
    size_t pos = 0;
    while (pos < piece.size() && pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(piece.data()),
                                             piece.size(), pos, 0, match, nullptr) > 0) {
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match);
      if (span[0] > pos) out.push_back(piece.substr(pos, span[0] - pos));
      out.push_back(piece.substr(span[0], span[1] - span[0]));
      pos = span[1];
    }
    if (pos < piece.size()) out.push_back(piece.substr(pos));
  }
  pcre2_match_data_free(match);
  pcre2_code_free(code);
  return out;
}

struct Published {
  std::string_view pre;
  std::vector<std::string> patterns;
};

const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kContraction = R"((?:'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])))";
const std::string kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
const std::string kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
const std::string kAsciiPunctuation = "[!-/:-@\\[-`{-~]";

std::string Llama3(const std::string& digits) {
  return kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits + R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" +
         kSpaces;
}

std::string Cased(const std::string& suffix, const std::string& digits, const std::string& tail) {
  const std::string lead = R"([^\r\n\p{L}\p{N}]?)";
  return lead + kUpper + "*" + kLower + "+" + suffix + "|" + lead + kUpper + "+" + kLower + "*" +
         suffix + "|" + digits + R"(| ?[^\s\p{L}\p{N}]+)" + tail + kSpaces;
}

std::vector<Published> AllPublished() {
  const std::string deepseek3 =
      kAsciiPunctuation +
      R"([A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" + kSpaces;
  return {
      {"gpt-2", {kGpt2}},
      {"starcoder", {R"(\p{N})", kGpt2}},
      {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"llama-bpe", {Llama3(R"(\p{N}{1,3})")}},
      {"qwen2", {Llama3(R"(\p{N})")}},
      {"minicpm5", {R"(\p{N}{1,3})", Llama3(R"(\p{N}+)")}},
      {"qwen35",
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
        kSpaces}},
      {"seed-coder",
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" + kSpaces}},
      {"gpt-4o", {Cased(kContraction + "?", R"(\p{N}{1,3})", R"([\r\n/]*)")}},
      {"tekken", {Cased("", R"(\p{N})", R"([\r\n/]*)")}},
      {"deepseek-v3", {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", deepseek3}},
      {"deepseek-coder",
       {R"([\r\n])", R"(\s?\p{L}+)",
        R"(\s?\p{P}+)",  // Other implementations read all non-ASCII white space as a vertical tab
                         // here.
        "(?:(?!\\s)[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}])+", R"(\p{N})"}},
      {"glm5", {Llama3(R"(\p{N}{1,3})")}},
      {"exaone-moe",
       {kContraction +
        R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)" +
        R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {"jais-2",
       {kContraction +
        R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)" +
        R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S))" +
        R"(|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"}},
      {"spark2_5",
       {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
        kAsciiPunctuation + R"([A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)" +
            R"(|[\r\n]|\s+(?!\S)|\s+)",
        R"(\p{N})"}},
      {"youtu",
       {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
        "ゟ゠-"
        "ヿ]"
        "+",
        Cased(kContraction + "?", R"(\p{N})", R"([\r\n/]*)")}},
      {"chameleon", {R"([\t\n]|    |  )", R"(\p{N})", R"([\p{P}!-/:-@\[-`{-~])", kGpt2}},
      {"whitespace", {R"(\S+)"}},
      {"bloom", {R"( ?[^(\s|.,!?…。，、।۔،)]+)"}},
      {"gemma4", {R"([^\n]+|[\n]+)"}},
      {"tiny_aya",
       {R"([0-9]{1,3}(?=(?:[0-9]{3})*(?![\p{L}\p{M}\p{N}_])))",
        Cased(kContraction + "?", R"(\p{N}{1,3})", R"([\r\n/]*)")}},
  };
}

// Characters of every class that some pattern distinguishes.
std::string RandomText(std::mt19937* random) {
  static const std::vector<std::string> kChars = {
      " ", " ",      "  ",   "\n", "\r", "\t", "\u00A0", "\u3000", "\u2028", "a",  "s",
      "t", "l",      "re",   "ve", "A",  "S",  "LL",     "D",      "Z",      "'",  "'",
      "1", "23",     "4567", "٣",  "Ⅷ",  "½",  ".",      ",",      "!",      "(",  "/",
      "_", "$",      "~",    "|",  "`",  "+",  "é",      "É",      "ß",      "ǅ",  "ʰ",
      "ж", "Ж",      "中",   "あ", "한", "क",  "，",     "〞",     "ㄱ",     "ㄇ", "        ",
      "ि", "\u0301", "🙂", "…",  "。", "،",  "\u200D", "\u0001", "€"};
  std::string text;
  const size_t n = (*random)() % 14;
  for (size_t i = 0; i < n; ++i) text += kChars[(*random)() % kChars.size()];
  return text;
}

TEST(PreTokenizer, CutsAsThePublishedPatterns) {
  std::mt19937 random(1);
  for (const Published& published : AllPublished()) {
    PreTokenizer::Spec spec;
    ASSERT_TRUE(PreTokenizer::Find(published.pre, &spec));
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomText(&random);
      Words expected = text.empty() ? Words() : Words{text};
      for (const std::string& pattern : published.patterns) {
        expected = CutByPattern(pattern, expected);
      }
      ASSERT_EQ(Split(spec, text), expected) << published.pre << " '" << text << "'";
    }
  }
}

// Every rule set, written as patterns, splits like its scanner.
TEST(PreTokenizer, ItsOwnPatternsCutAlike) {
  std::mt19937 random(2);
  for (const std::string_view pre :
       {"default",        "gpt-2",       "starcoder", "falcon",     "llama-bpe", "minicpm5",
        "qwen2",          "qwen35",      "ufakzeka",  "seed-coder", "laguna",    "deepseek-llm",
        "deepseek-coder", "deepseek-v3", "afmoe",     "superbpe",   "tiny_aya",  "gpt-4o",
        "tekken",         "kimi-k2",     "bloom",     "viking",     "gemma4",    "jais-2",
        "exaone-moe",     "spark2_5",    "youtu",     "chameleon",  "whitespace"}) {
    PreTokenizer::Spec spec;
    ASSERT_TRUE(PreTokenizer::Find(pre, &spec));
    const std::vector<std::string> patterns = PatternsOf(*spec.splitter);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = RandomText(&random);
      Words expected = text.empty() ? Words() : Words{text};
      for (const std::string& pattern : patterns) expected = CutByPattern(pattern, expected);
      ASSERT_EQ(Split(spec, text), expected) << pre << " '" << text << "'";
    }
  }
}

TEST(PreTokenizer, Examples) {
  EXPECT_THAT(Split("gpt-2", "It's  12 o'clock!\n"),
              ElementsAre("It", "'s", " ", " 12", " o", "'", "clock", "!", "\n"));
  EXPECT_THAT(Split("llama-bpe", "We'Ve 12345(x)\n\n  y"),
              ElementsAre("We", "'Ve", " ", "123", "45", "(x", ")\n\n", " ", " y"));
  EXPECT_THAT(Split("gpt-4o", "HTTPServer don't a/b"),
              ElementsAre("HTTPServer", " don't", " a", "/b"));
  EXPECT_THAT(Split("tekken", "camelCase 12"), ElementsAre("camel", "Case", " ", "1", "2"));
  EXPECT_THAT(Split("deepseek-llm", "naïve 中文 12  "),
              ElementsAre("na", "ï", "ve", " ", "中文", " ", "12", "  "));
  EXPECT_THAT(Split("kimi-k2", "  中文abc's"), ElementsAre(" ", " ", "中文", "abc's"));
  EXPECT_THAT(Split("afmoe", "a1234567b"), ElementsAre("a", "1", "234", "567", "b"));
  EXPECT_THAT(Split("superbpe", "by 12345"), ElementsAre("by ", "12", "345"));
}

TEST(PreTokenizer, UnknownName) {
  PreTokenizer::Spec spec;
  EXPECT_FALSE(PreTokenizer::Find("no-such-rules", &spec));
}

// If any rule were quadratic, this would take hours.
TEST(PreTokenizer, HostileTextTakesLinearTime) {
  const std::vector<std::string> units = {" ",   "a",  "A", "\n", " \n", "1",      "'",      "🙂",
                                          "Aあ", "\t", ".", "中", "aB",  "\u0301", "\u200D", "12 "};
  for (const std::string_view pre :
       {"default",     "gpt-2",      "starcoder", "falcon",   "llama-bpe",    "qwen2",
        "qwen35",      "gpt-4o",     "tekken",    "kimi-k2",  "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "afmoe",      "superbpe",  "tiny_aya", "bloom",        "viking",
        "laguna",      "seed-coder", "gemma4",    "jais-2",   "exaone-moe",   "spark2_5",
        "youtu",       "chameleon",  "whitespace"}) {
    PreTokenizer::Spec spec;
    ASSERT_TRUE(PreTokenizer::Find(pre, &spec));
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < 100'000) text += unit;
      std::string joined;
      for (const std::string& word : Split(spec, text)) joined += word;
      EXPECT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace weft
