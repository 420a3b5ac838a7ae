// What masks take, over the values of MaskBench's schemas and a model's vocabulary.
//
//   constraint_bench MODEL.gguf CASES.jsonl [EVERY]
//
// CASES has an object a line: "schema", and "tests" with "data" and "valid". Of them every
// EVERY-th is walked, token by token, a mask before each.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "constraint/characters.h"
#include "constraint/constraint.h"
#include "constraint/json_value.h"
#include "constraint/vocabulary_bytes.h"
#include "formats/model_file.h"
#include "tokenizer/tokenizer.h"

namespace weft::constraint {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// With a space behind each comma and colon.
std::string Written(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  std::string out;
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kFalse:
      return "false";
    case Kind::kTrue:
      return "true";
    case Kind::kNumber:
      return value.text;
    case Kind::kString:
      return StrCat("\"", Spell(value.text, Spelling::kJson), "\"");
    case Kind::kArray:
      for (const JsonValue& item : value.items)
        StrAppend(&out, out.empty() ? "" : ", ", Written(item));
      return StrCat("[", out, "]");
    case Kind::kObject:
      for (const auto& [name, member] : value.members) {
        StrAppend(&out, out.empty() ? "\"" : ", \"", Spell(name, Spelling::kJson),
                  "\": ", Written(member));
      }
      return StrCat("{", out, "}");
  }
  return out;
}

struct Times {
  std::vector<double> compile, first, all;
};

void Walk(const Constraint& constraint, const Tokenizer& tokenizer, const std::string& text,
          bool fresh, Times* times) {
  ConstraintState state = constraint.Begin();
  std::vector<uint32_t> mask(constraint.tokens().mask_words());
  for (const TokenId token : tokenizer.Encode(text, {})) {
    const auto begin = Clock::now();
    state.FillMask(mask);
    times->all.push_back(MicrosSince(begin));
    if (fresh && state.length() == 0) times->first.push_back(times->all.back());
    if (!state.Advance(token)) break;
  }
}

void Print(const char* name, std::vector<double>* values) {
  if (values->empty()) return;
  std::ranges::sort(*values);
  double sum = 0;
  for (const double value : *values) sum += value;
  const auto at = [&](double share) {
    return (*values)[std::min(values->size() - 1,
                              static_cast<size_t>(share * static_cast<double>(values->size())))];
  };
  std::printf("%-8s %9zu  average %8.1f  median %8.1f  p99 %8.1f  largest %10.1f us\n", name,
              values->size(), sum / static_cast<double>(values->size()), at(0.5), at(0.99),
              values->back());
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::printf("constraint_bench MODEL.gguf CASES.jsonl [EVERY]: nothing to measure\n");
    return 0;
  }
  const auto file = ModelFile::Open(argv[1]);
  if (!file.ok()) return std::fprintf(stderr, "%s\n", file.status().ToString().c_str()), 1;
  const auto tokenizer = Tokenizer::Load(**file);
  if (!tokenizer.ok())
    return std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str()), 1;
  auto begin = Clock::now();
  const auto table = TableOf(**tokenizer);
  std::printf("table of %d tokens: %.1f ms\n", table->size(), MicrosSince(begin) / 1000);
  const int64_t every = argc > 3 ? std::max(1, std::atoi(argv[3])) : 1;
  std::ifstream cases(argv[2]);
  std::string line;
  Times times;
  int64_t refused = 0;
  for (int64_t i = 0; std::getline(cases, line); ++i) {
    if (i % every != 0) continue;
    const auto one = ReadJson(line);
    if (!one.ok() || one->Find("schema") == nullptr || one->Find("tests") == nullptr) continue;
    const std::string schema = Written(*one->Find("schema"));
    begin = Clock::now();
    const auto constraint =
        Constraint::JsonSchema(schema, {.property_order = PropertyOrder::kAny}, table);
    times.compile.push_back(MicrosSince(begin));
    if (!constraint.ok()) {
      ++refused;
      continue;
    }
    bool fresh = true;
    for (const JsonValue& test : one->Find("tests")->items) {
      const JsonValue* data = test.Find("data");
      if (data == nullptr) continue;
      Walk(**constraint, **tokenizer, Written(*data), fresh, &times);
      fresh = false;
    }
  }
  std::printf("refused  %9lld\n", static_cast<long long>(refused));
  Print("compile", &times.compile);
  Print("first", &times.first);
  Print("masks", &times.all);
  return 0;
}

}  // namespace
}  // namespace weft::constraint

int main(int argc, char** argv) { return weft::constraint::Main(argc, argv); }
