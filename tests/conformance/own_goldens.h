// Reference data of tiny models that the tests make themselves: testdata/NAME.json says how (see
// tools/make_goldens.py), NAME.f32 holds what another implementation computes.
//
// Files are made when first asked for, in a temporary folder that lives as long as the process. One
// thread.
#ifndef WEFT_TESTS_CONFORMANCE_OWN_GOLDENS_H_
#define WEFT_TESTS_CONFORMANCE_OWN_GOLDENS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tests/conformance/golden_cases.h"

namespace weft::testing {

// "own-NAME" for each testdata/NAME.json, sorted.
std::vector<std::string> OwnModelNames();
bool IsOwnModel(std::string_view name);
// The path of the model's file; empty, with a failure of the current test, if it cannot be made.
std::string OwnModelPath(const std::string& name);
StatusOr<GoldenRun> ReadOwnShortRun(const std::string& name);
StatusOr<GoldenRun> ReadOwnLongRun(const std::string& name);

// A prediction head in a file of its own, of testdata/heads/NAME.json.
struct OwnHead {
  std::string model_path, head_path;
  std::vector<TokenId> tokens;
  // Before the token at each of these positions is computed by the model, the head drafts `depth`
  // rows from it.
  std::vector<int64_t> positions;
  int64_t depth = 0;
  std::vector<float> logits;  // by position, then by depth
};
StatusOr<OwnHead> ReadOwnHead(const std::string& name);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CONFORMANCE_OWN_GOLDENS_H_
