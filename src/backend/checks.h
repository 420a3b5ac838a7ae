// What every backend checks before it touches anything, so that each says the same.
#ifndef WEFT_BACKEND_CHECKS_H_
#define WEFT_BACKEND_CHECKS_H_

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/state_store.h"
#include "base/best_tokens.h"
#include "base/status.h"
#include "model/model_spec.h"

namespace weft {

// The errors name what the backend has. What is left at 0 for the backend to choose, is chosen.
Status CheckDevice(const Backend& backend, int device);
StatusOr<StateOptions> CheckedOptions(const Backend& backend, StateOptions options);
Status CheckOptions(const Backend& backend, const ExecutorOptions& options);
// MemoryOf a backend whose devices have the host's memory.
StatusOr<MemoryInfo> HostMemory(const Backend& backend, int device);
// Of weights that lie in the host's memory.
Status CheckHostHolds(int64_t weight_bytes);
// Refuses what only a prediction head has, of a backend without them.
Status CheckNoHiddenInput(const Backend& backend, const ModelSpec& spec);
// Whether gated queries, if that is what they are, are as wide as the values and normed by head.
bool GatesByHead(const Attention& op);

// Sizes, page tables long enough, ids inside the pools, tokens inside the vocabulary, no page
// written by two sequences, texts whole where the model sees what follows, rows and hidden values
// only where backend and model take them, room for the results.
struct StepLimits {
  int64_t tokens = 0;
  int64_t best = 0;   // BackendCapabilities::max_best
  bool rows = false;  // BackendCapabilities::rows
  bool prediction_heads = false;
  bool changes = false;  // BackendCapabilities::changes_rows
};
Status ValidateStep(const ModelSpec& spec, const StateStore& state, const StepLimits& limits,
                    const Step& step);

// Writes the best tokens of a row as Step::best has them.
void PutBest(std::span<const float> logits, std::span<TokenLogit> best);
// Puts the rows of logits that the step wants, one after the other in `rows`, where it wants them:
// whole or the best of them.
void PutLogits(const Step& step, size_t n_vocab, std::span<const float> rows);

}  // namespace weft

#endif  // WEFT_BACKEND_CHECKS_H_
