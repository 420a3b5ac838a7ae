// Runs the JSON-Schema-Test-Suite if $WEFT_SCHEMA_SUITE is its folder of tests (the one that
// contains draft2020-12).
//
// A test's value is written compactly and walked. An invalid value must never be accepted. A valid
// one must be accepted unless its spelling is not allowed here (a number with an exponent, an
// integer with a fraction, a host name with xn--).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "constraint/constraint.h"
#include "constraint/regex/characters.h"
#include "constraint/schema/json_value.h"
#include "gtest/gtest.h"

namespace weft::constraint {
namespace {

struct Dialect {
  const char* folder;
  const char* address;
};
constexpr Dialect kDialects[] = {
    {"draft2020-12", "https://json-schema.org/draft/2020-12/schema"},
    {"draft2019-09", "https://json-schema.org/draft/2019-09/schema"},
    {"draft7", "http://json-schema.org/draft-07/schema#"},
    {"draft6", "http://json-schema.org/draft-06/schema#"},
    {"draft4", "http://json-schema.org/draft-04/schema#"},
};

struct SuiteCounts {
  int groups = 0, refused = 0, left_out = 0, tests = 0, spelled_otherwise = 0;
};

// A schema whose $schema names a custom dialect is left out: the compiler does not read dialect
// descriptions.
bool IsLeftOut(const JsonValue& schema) {
  const JsonValue* dialect = schema.Find("$schema");
  return dialect != nullptr && dialect->text.find("json-schema.org") == std::string::npos;
}

std::string Compact(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  const auto quoted = [](std::string_view text) {
    return StrCat("\"", Spell(text, Spelling::kJson), "\"");
  };
  std::string out;
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kFalse:
      return "false";
    case Kind::kTrue:
      return "true";
    case Kind::kNumber:
      return std::string(value.text);
    case Kind::kString:
      return quoted(value.text);
    case Kind::kArray:
      for (const JsonValue& item : value.items)
        StrAppend(&out, out.empty() ? "" : ",", Compact(item));
      return StrCat("[", out, "]");
    case Kind::kObject:
      for (const auto& [name, member] : value.members)
        StrAppend(&out, out.empty() ? "" : ",", quoted(name), ":", Compact(member));
      return StrCat("{", out, "}");
  }
  return out;
}

// Whether the value contains a spelling that is never generated: a number with an exponent or with
// only zeros as its fraction, or a host name that encodes other characters.
bool IsNeverWritten(const JsonValue& value) {
  if (value.Is(JsonValue::Kind::kString)) return value.text.starts_with("xn--");
  if (value.Is(JsonValue::Kind::kNumber)) {
    const std::string_view text = value.text;
    const size_t point = text.find('.');
    return text.find_first_of("eE") != std::string::npos ||
           (point != std::string::npos &&
            text.find_first_not_of('0', point + 1) == std::string::npos);
  }
  return std::ranges::any_of(value.items, IsNeverWritten) ||
         std::ranges::any_of(value.members,
                             [](const JsonMember& member) { return IsNeverWritten(member.value); });
}

void RunGroup(const std::string& where, const JsonValue& group, const Dialect& dialect,
              bool formats, const std::shared_ptr<const TokenTable>& table, SuiteCounts* counts) {
  JsonValue schema = *group.Find("schema");
  JsonArena arena;
  if (schema.Is(JsonValue::Kind::kObject) && schema.Find("$schema") == nullptr) {
    std::vector<JsonMember> members(schema.members.begin(), schema.members.end());
    members.push_back(
        {"$schema", JsonValue{.kind = JsonValue::Kind::kString, .text = dialect.address}});
    schema = {.kind = JsonValue::Kind::kObject, .members = {members, &arena}};
  }
  ++counts->groups;
  if (IsLeftOut(schema)) {
    ++counts->left_out;
    return;
  }
  const std::string name = StrCat(where, ": ", group.Find("description")->text);
  const auto made = Constraint::JsonSchema(
      Compact(schema), {.property_order = PropertyOrder::kAny, .formats = formats}, table);
  if (!made.ok()) {
    ++counts->refused;
    const StatusCode code = made.status().code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kUnimplemented ||
                code == StatusCode::kResourceExhausted)
        << name << ": " << made.status();
    // A schema that is refused as unsatisfiable must not have valid values.
    const bool nothing = made.status().message().find("nothing can ever") != std::string::npos;
    if (std::getenv("WEFT_SCHEMA_SUITE_PRINT") != nullptr)
      std::printf("refused %s: %s\n", name.c_str(), std::string(made.status().message()).c_str());
    for (const JsonValue& test : group.Find("tests")->items) {
      EXPECT_FALSE(nothing && test.Find("valid")->Is(JsonValue::Kind::kTrue)) << name;
    }
    return;
  }
  for (const JsonValue& test : group.Find("tests")->items) {
    ++counts->tests;
    const JsonValue& data = *test.Find("data");
    const bool valid = test.Find("valid")->Is(JsonValue::Kind::kTrue);
    const std::string text = Compact(data);
    ConstraintState state = (*made)->Begin();
    const bool accepted = state.AdvanceText(text) && state.CanEnd();
    if (valid && !accepted && IsNeverWritten(data)) {
      ++counts->spelled_otherwise;
      continue;
    }
    EXPECT_EQ(accepted, valid) << name << ": " << test.Find("description")->text << ": "
                               << Compact(schema).substr(0, 500) << " with " << text.substr(0, 200);
  }
}

TEST(SchemaSuite, WhatIsNotRefusedIsEnforcedExactly) {
  const char* folder = std::getenv("WEFT_SCHEMA_SUITE");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "set WEFT_SCHEMA_SUITE to the JSON-Schema-Test-Suite's folder `tests`";
  }
  std::vector<std::string> bytes{""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  const auto table = std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{0});
  for (const Dialect& dialect : kDialects) {
    SuiteCounts counts;
    std::vector<std::filesystem::path> files;
    const std::filesystem::path root = std::filesystem::path(folder) / dialect.folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const auto& file : files) {
      const std::string where = file.lexically_relative(folder).string();
      const auto text = ReadFile(file.string(), size_t{1} << 24);
      ASSERT_TRUE(text.ok()) << text.status();
      JsonArena arena;
      const auto groups = ReadJson(*text, &arena);
      if (!groups.ok()) {  // for example lone surrogates
        std::printf("%s is not read: %s\n", where.c_str(),
                    std::string(groups.status().message()).c_str());
        continue;
      }
      // Formats are annotations except in the tests of formats.
      const bool formats = where.find("optional/format/") != std::string::npos;
      for (const JsonValue& group : groups->items) {
        RunGroup(where, group, dialect, formats, table, &counts);
      }
    }
    EXPECT_GT(counts.tests, 100) << dialect.folder;
    std::printf("%s: %d schemas, %d refused, %d left out; %d tests, %d spelled otherwise\n",
                dialect.folder, counts.groups, counts.refused, counts.left_out, counts.tests,
                counts.spelled_otherwise);
  }
}

}  // namespace
}  // namespace weft::constraint
