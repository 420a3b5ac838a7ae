// Random schemas, random vocabularies and random walks: a mask equals the result of trying every
// token, and an answer's state does not depend on the way to it.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "constraint/constraint.h"
#include "constraint/constraint_test_util.h"
#include "gtest/gtest.h"
#include "tests/support/slow_build.h"

namespace weft::constraint {
namespace {

using Random = std::mt19937;

template <typename T, size_t n>
const T& Pick(const T (&list)[n], Random* random) {
  return list[(*random)() % n];
}

// All bytes, and tokens composed of random pieces: words, JSON punctuation, halves of characters,
// escapes. Some occur two or three times, some are long, some are empty.
std::shared_ptr<const TokenTable> RandomTable(uint32_t seed) {
  static constexpr const char* kPieces[] = {
      "a",        "b",  "key",  "name", "x-",    "hello", " ",  "  ",   "1",    "23",        ".5",
      "-",        "e",  "\"",   "\"",   "\":",   ",",     ": ", "\"}",  "{\"",  "}",         "]",
      "[",        "\\", "\\n",  "\\\"", "\\u00", "\n",    "\t", "\xC3", "\xA9", "é",         "€",
      "\xF0\x9F", "😀",  "true", "null", "\x01",  "Z",     "_",  "/",    "2024", "aaaaaaaaa", "ef"};
  Random random(seed);
  std::vector<std::string> bytes{"", "", ""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  for (int i = 0; i < 220; ++i) {
    std::string token;
    for (size_t n = 1 + random() % 4; n > 0; --n) token += Pick(kPieces, &random);
    bytes.push_back(token);
    for (size_t twins = random() % 12 == 0 ? 1 + random() % 3 : 0; twins > 0; --twins)
      bytes.push_back(token);
  }
  for (const size_t length : {15, 16, 17, 40, 64, 65, 130}) {
    bytes.push_back(std::string(length, 'a'));
    bytes.push_back(std::string(length, ' '));
    bytes.push_back(std::string(length, 'a') + "\"");
    bytes.push_back(std::string(length, 'b') + "\", \"");
  }
  bytes.push_back(std::string(2000, 'a'));
  return std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{1, 2});
}

class SchemaMaker {
 public:
  explicit SchemaMaker(uint32_t seed) : random_(seed) {}

  std::string Make() { return Schema(3); }

 private:
  size_t Roll(size_t sides) { return random_() % sides; }

  std::string String() {
    static constexpr const char* kPatterns[] = {"^[a-z]+$",
                                                "^[a-z]+( [a-z]+)*$",
                                                "a",
                                                "^x-",
                                                "[0-9a-f]{4}",
                                                "^(ab|a)*b$",
                                                "\\\\d{2,}",
                                                "^.{3,20}$",
                                                "^[^a]*$",
                                                "(?!.*ab)",
                                                "^(?=.*1).{2,}$",
                                                "é|€",
                                                "e$",
                                                "^$|(^(?:\\\\S+\\\\s+){0,9}\\\\S+$)",
                                                "^(?:\\\\S+\\\\s+){0,40}\\\\S+$",
                                                "^([a-z]{1,30}[- ]){0,60}$",
                                                "^[^ ]{0,90}(é| [^b]{2,70})?$",
                                                "name|key|hello",
                                                "hello|^x-",
                                                "^(?!.*://)(?=.{1,200}$)(.{1,63}/){1,99}[a-z]+$",
                                                "^(?!.*ab)[^-]{0,80}$"};
    static constexpr const char* kWords[] = {"name", "aaaaaaaa", "key", "é", "x-"};
    static constexpr const char* kFormats[] = {"date",  "date-time", "uuid",
                                               "email", "ipv4",      "time"};
    std::string out = "{\"type\":\"string\"";
    if (Roll(3) == 0) StrAppend(&out, ",\"minLength\":", Roll(4));
    if (Roll(3) == 0) StrAppend(&out, ",\"maxLength\":", 4 + Roll(Roll(2) == 0 ? 90 : 400));
    if (Roll(2) == 0) StrAppend(&out, ",\"pattern\":\"", Pick(kPatterns, &random_), "\"");
    if (Roll(8) == 0) StrAppend(&out, ",\"format\":\"", Pick(kFormats, &random_), "\"");
    if (Roll(8) == 0) StrAppend(&out, ",\"not\":{\"pattern\":\"", Pick(kPatterns, &random_), "\"}");
    if (Roll(8) == 0 && out.find("pattern") == out.npos) {
      StrAppend(&out, ",\"oneOf\":[{\"pattern\":\"", Pick(kWords, &random_), "\"},{\"pattern\":\"",
                Pick(kWords, &random_), "\"},{\"pattern\":\"hello\"}]");
    }
    return out + "}";
  }

  std::string Number() {
    std::string out = Roll(2) == 0 ? "{\"type\":\"integer\"" : "{\"type\":\"number\"";
    if (Roll(2) == 0) StrAppend(&out, ",\"minimum\":", static_cast<int>(Roll(40)) - 20);
    if (Roll(2) == 0) StrAppend(&out, ",\"exclusiveMaximum\":", 20 + Roll(2000));
    if (Roll(4) == 0) StrAppend(&out, ",\"multipleOf\":", Choose({"3", "0.5", "0.01"}));
    return out + "}";
  }

  std::string Array(int depth) {
    std::string out = StrCat("{\"type\":\"array\",\"items\":", Schema(depth - 1));
    if (Roll(5) == 0) {
      out = R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b","key",1,1.0,null]})";
    } else if (Roll(4) == 0) {
      StrAppend(&out, ",\"contains\":", Schema(0));
    } else if (Roll(4) == 0) {
      StrAppend(&out, ",\"prefixItems\":[", Schema(0), ",", Schema(depth - 1), "]");
    }
    if (Roll(3) == 0) StrAppend(&out, ",\"minItems\":", Roll(3));
    if (Roll(3) == 0) StrAppend(&out, ",\"maxItems\":", 2 + Roll(4));
    return out + "}";
  }

  std::string Object(int depth) {
    static constexpr const char* kNames[] = {"a", "ab", "key", "name", "x-y", "é", "two words"};
    std::string properties, required;
    for (const char* name : kNames) {
      if (Roll(2) == 0) continue;
      StrAppend(&properties, properties.empty() ? "" : ",", "\"", name, "\":", Schema(depth - 1));
      if (Roll(3) == 0) StrAppend(&required, required.empty() ? "" : ",", "\"", name, "\"");
    }
    std::string out = StrCat("{\"type\":\"object\",\"properties\":{", properties,
                             "},\"required\":[", required, "]");
    if (Roll(3) == 0) StrAppend(&out, ",\"additionalProperties\":", Schema(0));
    if (Roll(4) == 0) {
      StrAppend(&out, ",\"patternProperties\":{\"^x-\":", Schema(0), "}");
    } else if (Roll(4) == 0) {
      StrAppend(&out, ",\"patternProperties\":{\"", Choose({"name", "a", "aaaaaa", "key|hello"}),
                "\":", Number(), ",\"", Choose({".*", "\\\\w", "ab", "^.{1,99}$"}),
                "\":{\"type\":[\"integer\",\"null\"]}}");
    }
    if (Roll(6) == 0) StrAppend(&out, ",\"propertyNames\":{\"maxLength\":", 3 + Roll(9), "}");
    if (Roll(6) == 0) StrAppend(&out, ",\"dependentRequired\":{\"a\":[\"key\"]}");
    if (Roll(6) == 0) StrAppend(&out, ",\"maxProperties\":", 1 + Roll(4));
    return out + "}";
  }

  std::string Schema(int depth) {
    switch (Roll(depth > 0 ? 12 : 6)) {
      case 0:
        return Choose({"true", "{\"type\":\"boolean\"}", "{\"type\":[\"null\",\"string\"]}"});
      case 1:
        return R"({"enum":["a","abc","key",12,null,"é\n"]})";
      case 2:
        return Number();
      case 3:
      case 4:
      case 5:
        return String();
      case 6:
      case 7:
        return Array(depth);
      case 8:
        return StrCat("{\"anyOf\":[", Schema(depth - 1), ",", Schema(depth - 1), "]}");
      case 9:
        return StrCat("{\"allOf\":[", Schema(depth - 1), ",{\"not\":", Schema(0), "}]}");
      default:
        return Object(depth);
    }
  }

  std::string Choose(std::initializer_list<const char*> list) {
    return list.begin()[Roll(list.size())];
  }

  Random random_;
};

// The allowed tokens by brute force: another constraint's automata read each token's bytes.
std::vector<TokenId> TriedBy(const Constraint& other, const std::string& text) {
  const TokenTable& table = other.tokens();
  ConstraintState state = other.Begin();
  std::vector<TokenId> allowed;
  if (!text.empty() && !state.AdvanceText(text)) return allowed;
  for (TokenId id = 0; id < table.size(); ++id) {
    const std::string_view bytes = table.Bytes(id);
    const bool readable = !bytes.empty() && bytes.size() <= TokenTable::kMaxTokenBytes;
    const bool fits =
        table.IsEnd(id) ? state.CanEnd() : readable && state.AllowedPrefix(bytes) == bytes.size();
    if (fits) allowed.push_back(id);
  }
  return allowed;
}

// The number of schemas; set the variable to try more by hand.
uint32_t Seeds(uint32_t usual) {
  const char* const chosen = std::getenv("WEFT_CONSTRAINT_SEEDS");
  if (chosen != nullptr) return static_cast<uint32_t>(std::atoi(chosen));
  return testing::kSlowBuild ? usual / 3 : usual;
}

TEST(ConstraintProperty, MasksOfRandomSchemasAreWhatTryingEveryTokenGives) {
  uint32_t walked = 0, steps = 0;
  for (uint32_t seed = 0; seed < Seeds(220); ++seed) {
    const std::string schema = SchemaMaker(seed).Make();
    const auto table = RandomTable(seed % 7);
    const ConstraintOptions options{
        .property_order = seed % 2 == 0 ? PropertyOrder::kAny : PropertyOrder::kSchema,
        .white_space = seed % 5 == 0 ? WhiteSpace::kAny : WhiteSpace::kOptionalSpace};
    const auto made = Constraint::JsonSchema(schema, options, table);
    const auto other = Constraint::JsonSchema(schema, options, table);
    if (!made.ok()) continue;
    ++walked;
    Random random(seed);
    for (int walk = 0; walk < 3; ++walk) {
      ConstraintState state = (*made)->Begin();
      for (int step = 0; step < 30; ++step, ++steps) {
        std::vector<TokenId> allowed = AllowedTokens(state, *table);
        ASSERT_EQ(allowed, TriedBy(**other, state.text())) << schema << "\n" << state.text();
        ASSERT_FALSE(allowed.empty()) << schema << "\n" << state.text();
        // Prefer longer tokens: there are few of them.
        TokenId token = allowed[random() % allowed.size()];
        for (int i = 0; i < 3 && table->Bytes(token).size() < 2; ++i)
          token = allowed[random() % allowed.size()];
        ASSERT_TRUE(state.Advance(token)) << schema << "\n" << state.text();
        if (table->IsEnd(token)) break;
      }
    }
  }
  EXPECT_GT(walked, 6 * Seeds(220) / 11);
  EXPECT_GT(steps, 150 * Seeds(220) / 11);
}

TEST(ConstraintProperty, AnAnswerIsTheSameHoweverItWasComeBy) {
  uint32_t walked = 0;
  for (uint32_t seed = 1000; seed < 1000 + Seeds(60); ++seed) {
    const std::string schema = SchemaMaker(seed).Make();
    const auto table = RandomTable(seed % 5);
    const auto made = Constraint::JsonSchema(schema, {}, table);
    // So little memory that the automata are rebuilt again and again.
    const auto small = Constraint::JsonSchema(schema, {.max_walk_bytes = 100'000}, table);
    if (!made.ok() || !small.ok()) continue;
    ++walked;
    Random random(seed);
    ConstraintState state = (*made)->Begin(), poor = (*small)->Begin();
    std::vector<TokenId> taken;
    for (int step = 0; step < 60; ++step) {
      const std::vector<TokenId> allowed = AllowedTokens(state, *table);
      ASSERT_EQ(allowed, AllowedTokens(poor, *table)) << schema << "\n" << state.text();
      if (!taken.empty() && (allowed.empty() || random() % 4 == 0)) {
        const size_t back = 1 + random() % std::min<size_t>(taken.size(), 6);
        state.Rollback(back);
        poor.Rollback(back);
        taken.resize(taken.size() - back);
        continue;
      }
      taken.push_back(allowed[random() % allowed.size()]);
      ConstraintState copy = state;
      ASSERT_TRUE(copy.Advance(taken.back()));
      ASSERT_TRUE(poor.Advance(taken.back()));
      // The original has not changed.
      ASSERT_EQ(allowed, AllowedTokens(state, *table));
      state = copy;
      ConstraintState fresh = (*made)->Begin();
      for (const TokenId token : taken) ASSERT_TRUE(fresh.Advance(token));
      const auto restored = (*made)->Restore(state.Serialize());
      ASSERT_TRUE(restored.ok()) << restored.status();
      for (const ConstraintState* one : {&std::as_const(fresh), &*restored}) {
        ASSERT_EQ(state.text(), one->text());
        ASSERT_EQ(state.CanEnd(), one->CanEnd());
        ASSERT_EQ(AllowedTokens(state, *table), AllowedTokens(*one, *table));
      }
    }
  }
  EXPECT_GT(walked, Seeds(60) / 2);
}

// Here the way to the end is long, and it is the same from most states.
TEST(ConstraintProperty, WaysToTheEndAreFoundWhereverTheyAreFar) {
  static constexpr const char* kSchemas[] = {
      R"({"type":"object","patternProperties":{"name":{"type":"integer"},
          "^.{1,99}$":{"type":["integer","null"]}}})",
      R"({"type":"object","patternProperties":{"key|hello":{"type":"integer"},
          "^.{1,99}$":{"type":["integer","null"]}}})",
      R"({"type":"string","pattern":"e$","maxLength":166,
          "oneOf":[{"pattern":"key"},{"pattern":"b$"},{"pattern":"hello"}]})",
      R"({"type":"string","pattern":"[0-9a-f]{4}","maxLength":400,
          "oneOf":[{"pattern":"name"},{"pattern":"aaaaaaaa"},{"pattern":"hello"}]})"};
  Random random(5);
  for (uint32_t i = 0; i < 40; ++i) {
    const char* const schema = kSchemas[i % std::size(kSchemas)];
    const auto table = RandomTable(i);
    const auto made = Constraint::JsonSchema(schema, {}, table);
    ASSERT_TRUE(made.ok()) << made.status();
    ConstraintState state = (*made)->Begin();
    for (int step = 0; step < 80; ++step) {
      const std::vector<TokenId> allowed = AllowedTokens(state, *table);
      ASSERT_FALSE(allowed.empty()) << schema << "\n" << state.text();
      const TokenId token = allowed[random() % allowed.size()];
      ASSERT_TRUE(state.Advance(token));
      if (table->IsEnd(token)) break;
    }
  }
}

}  // namespace
}  // namespace weft::constraint
