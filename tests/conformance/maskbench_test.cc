// MaskBench's cases: real-world schemas with valid and invalid values.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "constraint/constraint.h"
#include "constraint/regex/characters.h"
#include "constraint/schema/json_value.h"
#include "gtest/gtest.h"
#include "tests/support/goldens.h"
#include "tests/support/unpacked.h"

namespace weft::constraint {
namespace {

// Tests every 12th case so that the test takes seconds, or every $WEFT_MASKBENCH_EVERY-th.
size_t Stride() {
  const char* every = std::getenv("WEFT_MASKBENCH_EVERY");
  return every == nullptr ? 12 : static_cast<size_t>(std::max(1, std::atoi(every)));
}
constexpr size_t kMaxBytes = size_t{1} << 30;

// Writes JSON as Python's json.dumps does with ensure_ascii=False.
void Write(const JsonValue& value, std::string* out) {
  using Kind = JsonValue::Kind;
  const auto quoted = [&](std::string_view text) {
    StrAppend(out, "\"", Spell(text, Spelling::kJson), "\"");
  };
  switch (value.kind) {
    case Kind::kNull:
      out->append("null");
      break;
    case Kind::kFalse:
      out->append("false");
      break;
    case Kind::kTrue:
      out->append("true");
      break;
    case Kind::kNumber:
      out->append(value.text);
      break;
    case Kind::kString:
      quoted(value.text);
      break;
    case Kind::kArray:
      out->push_back('[');
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out->append(", ");
        Write(value.items[i], out);
      }
      out->push_back(']');
      break;
    case Kind::kObject:
      out->push_back('{');
      for (size_t i = 0; i < value.members.size(); ++i) {
        if (i > 0) out->append(", ");
        quoted(value.members[i].name);
        out->append(": ");
        Write(value.members[i].value, out);
      }
      out->push_back('}');
      break;
  }
}

std::string Written(const JsonValue& value) {
  std::string text;
  Write(value, &text);
  return text;
}

TEST(MaskBench, SchemasAreEnforcedOrRefused) {
  WEFT_REQUIRE_GOLDENS();
  const auto packed = ReadFile(testing::GoldensDir() + "/schemas/maskbench.jsonl.zst", kMaxBytes);
  if (!packed.ok()) GTEST_SKIP() << "the reference data has no schemas/maskbench.jsonl.zst";
  std::vector<std::string> bytes{""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  const auto table = std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{0});
  const std::string text = testing::Unpacked(*packed);
  const std::vector<std::string_view> lines = StrSplit(text, '\n');
  const size_t stride = Stride();
  ASSERT_GT(lines.size(), stride);
  int schemas = 0, passed = 0, refused = 0, schemas_rejecting = 0;
  for (size_t i = 0; i < lines.size(); i += stride) {
    if (lines[i].empty()) continue;
    JsonArena arena;
    const auto line = ReadJson(lines[i], &arena);
    ASSERT_TRUE(line.ok()) << line.status();
    ++schemas;
    const std::string_view name = line->Find("name")->text;
    const auto constraint = Constraint::JsonSchema(Written(*line->Find("schema")),
                                                   {.property_order = PropertyOrder::kAny}, table);
    if (!constraint.ok()) {
      EXPECT_NE(constraint.status().code(), StatusCode::kInternal) << name;
      ++refused;
      continue;
    }
    bool pass = true, rejecting = false;
    for (const JsonValue& test : line->Find("tests")->items) {
      const bool valid = test.Find("valid")->Is(JsonValue::Kind::kTrue);
      ConstraintState state = (*constraint)->Begin();
      const std::string value = Written(*test.Find("data"));
      const bool accepted = state.AdvanceText(value) && state.CanEnd();
      EXPECT_FALSE(accepted && !valid) << name << " accepts " << value.substr(0, 300);
      rejecting |= valid && !accepted;
      pass &= accepted == valid;
    }
    passed += pass;
    schemas_rejecting += rejecting;
  }
  std::printf("MaskBench: %d schemas, %d pass, %d refused, %d reject a valid value\n", schemas,
              passed, refused, schemas_rejecting);
  EXPECT_GE(passed * 100, schemas * 91);
  EXPECT_LE(schemas_rejecting, 5);
}

}  // namespace
}  // namespace weft::constraint
