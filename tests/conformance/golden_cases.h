// The reference data's models, for the conformance tests: which there are, and what
// another implementation computed with them. See README.md beside the data; own_goldens.h has those
// that come with the tests.
#ifndef WEFT_TESTS_CONFORMANCE_GOLDEN_CASES_H_
#define WEFT_TESTS_CONFORMANCE_GOLDEN_CASES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"

namespace weft::testing {

// One run: tokens in, logits expected at some positions, then a greedy continuation.
struct GoldenRun {
  int64_t context_tokens = 0;
  std::vector<TokenId> tokens;
  std::vector<int64_t> positions;     // where `logits` has a row
  std::vector<float> logits;          // [positions][n_vocab]
  std::vector<TokenId> greedy;        // may be empty
  std::vector<float> greedy_margins;  // top less second, before each greedy token
  std::vector<TokenId> argmax;        // at every position; may be empty
};

// Names of F32 models, of quantized ones; sorted, without reference data those that come with the
// tests, and no quantized ones. In
// builds that run slowly (unoptimised, sanitized) a few that cover most blocks.
std::vector<std::string> FloatModelNames();
std::vector<std::string> QuantizedModelNames();

// Whether a test of many runs takes this model on this backend. The emulator is slow: it takes a
// model of each kind, and with WEFT_EMULATE=all in the environment every one.
bool RunsHere(std::string_view backend, const std::string& model);

// A parameterized test's name for a model on a backend.
std::string CaseNameOf(std::string_view backend, std::string_view model);

std::string FloatModelPath(const std::string& name);
std::string QuantizedModelPath(const std::string& name);

// 64 tokens, all logits.
StatusOr<GoldenRun> ReadShortRun(const std::string& name);
// 300 tokens, some logits, the argmax everywhere.
StatusOr<GoldenRun> ReadLongRun(const std::string& name);
// Models with a run of thousands of tokens, some logits of it.
std::vector<std::string> FarModelNames();
StatusOr<GoldenRun> ReadFarRun(const std::string& name);
// 32 tokens through a quantized model: what an engine with float activations gives
// (`logits`), and what one with 8-bit activations gave (`eight_bit`).
struct QuantizedRun {
  GoldenRun exact;
  std::vector<float> eight_bit;
};
StatusOr<QuantizedRun> ReadQuantizedRun(const std::string& name);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CONFORMANCE_GOLDEN_CASES_H_
