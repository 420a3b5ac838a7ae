// Times of token masks, over the values of MaskBench's schemas and a model's vocabulary.
//
//   constraint_bench MODEL.gguf CASES.jsonl[.zst] [EVERY] [--slowest N] [--refused] [--digest]
//
// Without arguments the model is $WEFT_BENCH_MODEL and the cases are those of the reference data.
// CASES has one object per line: "schema", and "tests" with "data" and "valid". Every EVERY-th case
// is walked token by token, with a mask before each token. --slowest lists the N cases with the
// slowest masks (time, line in CASES, text before the mask), then the N slowest to compile.
// --refused lists refused schemas and why. --digest prints a hash of all masks, which makes the
// times longer. Times are CPU time, so other load on the machine matters little.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "constraint/constraint.h"
#include "constraint/regex/characters.h"
#include "constraint/schema/json_value.h"
#include "engine/loading/token_table_of.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/unpacked.h"

namespace weft::constraint {
namespace {

constexpr const char* kReferenceCases = "/schemas/maskbench.jsonl.zst";
constexpr size_t kMaxBytes = size_t{1} << 30;

// This thread's CPU time in microseconds.
double ProcessorTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// With a space after each comma and colon.
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
      return std::string(value.text);
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

struct Slowest {
  double time = 0;
  size_t line = 0;
  std::string before;
};

struct Times {
  std::vector<double> compile, first, all;
  std::vector<Slowest> slowest, compiled;  // a case each
  int64_t empty = 0;                       // masks that took too much
  bool digests = false;
  uint64_t digest = 0;
};

uint64_t Mixed(uint64_t digest, std::span<const uint32_t> words) {
  for (const uint32_t word : words) digest = (digest ^ word) * 0x9E3779B97F4A7C15 + (digest >> 47);
  return digest;
}

void Walk(const Constraint& constraint, const Tokenizer& tokenizer, const std::string& text,
          bool fresh, Times* times) {
  ConstraintState state = constraint.Begin();
  std::vector<uint32_t> mask(constraint.tokens().mask_words());
  for (const TokenId token : tokenizer.Encode(text, {})) {
    const double begin = ProcessorTime();
    state.FillMask(mask);
    times->all.push_back(ProcessorTime() - begin);
    times->empty += std::ranges::all_of(mask, [](uint32_t word) { return word == 0; });
    if (times->digests) times->digest = Mixed(times->digest, mask);
    Slowest& slowest = times->slowest.back();
    if (times->all.back() > slowest.time) {
      slowest.time = times->all.back();
      slowest.before = state.text();
    }
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

void PrintSlowest(const char* what, std::vector<Slowest> slowest, size_t count) {
  constexpr size_t kShown = 60;
  std::ranges::sort(slowest, std::greater{}, &Slowest::time);
  slowest.resize(std::min(slowest.size(), count));
  for (const Slowest& one : slowest) {
    const size_t from = one.before.size() - std::min(one.before.size(), kShown);
    std::printf("%10.1f us  line %zu  %s %s\n", one.time, one.line, what,
                Printable(one.before.substr(from)).c_str());
  }
}

int Main(int argc, char** argv) {
  size_t max_listed = 0;
  Times times;
  times.digests = std::string_view(argv[argc - 1]) == "--digest";
  if (times.digests) --argc;
  const bool lists_refused = std::string_view(argv[argc - 1]) == "--refused";
  if (lists_refused) --argc;
  if (argc > 2 && std::string_view(argv[argc - 2]) == "--slowest") {
    max_listed = static_cast<size_t>(std::max(0, std::atoi(argv[argc - 1])));
    argc -= 2;
  }
  const char* chosen = std::getenv("WEFT_BENCH_MODEL");
  const std::string model = argc > 1 ? argv[1] : chosen != nullptr ? chosen : "";
  const std::string path = argc > 2 ? argv[2] : testing::GoldensDir() + kReferenceCases;
  const auto packed = ReadFile(path, kMaxBytes);
  if (model.empty() || !packed.ok()) {
    std::printf("constraint_bench MODEL.gguf CASES.jsonl[.zst] [EVERY]: nothing to measure\n");
    return 0;
  }
  const auto file = ModelFile::Open(model);
  if (!file.ok()) return std::fprintf(stderr, "%s\n", file.status().ToString().c_str()), 1;
  const auto tokenizer = Tokenizer::Load(**file);
  if (!tokenizer.ok())
    return std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str()), 1;
  double begin = ProcessorTime();
  const auto table = TokenTableOf(**tokenizer);
  std::printf("table of %d tokens: %.1f ms\n", table->size(), (ProcessorTime() - begin) / 1000);
  const size_t every = argc > 3 ? static_cast<size_t>(std::max(1, std::atoi(argv[3]))) : 1;
  const std::string cases = path.ends_with(".zst") ? testing::Unpacked(*packed) : *packed;
  const std::vector<std::string_view> lines = StrSplit(cases, '\n');
  int64_t refused = 0;
  for (size_t i = 0; i < lines.size(); i += every) {
    JsonArena arena;
    const auto one = ReadJson(lines[i], &arena);
    if (!one.ok() || one->Find("schema") == nullptr || one->Find("tests") == nullptr) continue;
    const std::string schema = Written(*one->Find("schema"));
    begin = ProcessorTime();
    const auto constraint =
        Constraint::JsonSchema(schema, {.property_order = PropertyOrder::kAny}, table);
    times.compile.push_back(ProcessorTime() - begin);
    times.compiled.push_back({.time = times.compile.back(), .line = i + 1, .before = ""});
    if (!constraint.ok()) {
      ++refused;
      if (lists_refused) {
        const std::string why(constraint.status().message());
        std::printf("line %zu is refused: %s\n", i + 1, why.c_str());
      }
      continue;
    }
    times.slowest.push_back({.line = i + 1});
    bool fresh = true;
    for (const JsonValue& test : one->Find("tests")->items) {
      const JsonValue* data = test.Find("data");
      if (data == nullptr) continue;
      Walk(**constraint, **tokenizer, Written(*data), fresh, &times);
      fresh = false;
    }
  }
  std::printf("refused  %9lld\n", static_cast<long long>(refused));
  std::printf("empty    %9lld masks, which would have taken more than they may\n",
              static_cast<long long>(times.empty));
  if (times.digests) {
    std::printf("digest   %016llx\n", static_cast<unsigned long long>(times.digest));
  }
  Print("compile", &times.compile);
  Print("first", &times.first);
  Print("masks", &times.all);
  PrintSlowest("behind", std::move(times.slowest), max_listed);
  PrintSlowest("compiled", std::move(times.compiled), max_listed);
  return 0;
}

}  // namespace
}  // namespace weft::constraint

int main(int argc, char** argv) { return weft::constraint::Main(argc, argv); }
