// Checks that every backend makes before it changes anything, so that all give the same errors.
#ifndef WEFT_COMPUTE_CHECKS_H_
#define WEFT_COMPUTE_CHECKS_H_

#include <cstdint>
#include <span>

#include "base/best_tokens.h"
#include "base/status.h"
#include "compute/backend.h"
#include "compute/state_store.h"
#include "model/model_spec.h"

namespace weft {

// The errors say what the backend supports. CheckedOptions fills in options that are 0 with the
// backend's choice.
Status CheckDevice(const Backend& backend, int device);
StatusOr<StateOptions> CheckedOptions(const Backend& backend, StateOptions options);
Status CheckOptions(const Backend& backend, const ExecutorOptions& options);
// MemoryOf for a backend whose devices use the host's memory.
StatusOr<MemoryInfo> HostMemory(const Backend& backend, int device);
// For weights of the file that are to be put into the host's memory.
Status CheckHostHolds(int64_t weight_bytes, const ModelFile& file);
// Refuses prediction heads, for backends without them.
Status CheckNoHiddenInput(const Backend& backend, const ModelSpec& spec);
// Refuses adapters, for backends without them.
Status CheckNoAdapters(const Backend& backend, const LoadOptions& options);
// Refuses models without tokens, for backends without them.
Status CheckNoRowInput(const Backend& backend, const ModelSpec& spec);
// False for gated queries that differ in width from the values or are normed, but not by head.
bool GatesByHead(const Attention& op);

// ValidateStep checks sizes, that page tables are long enough, that ids are inside the pools and
// tokens inside the vocabulary, that no page is written by two sequences, that texts are whole if
// the model sees later tokens, that input embeddings and hidden values appear only if backend and
// model take them, that the adapters are the weights', and that the results have room.
struct StepLimits {
  int64_t tokens = 0;
  int64_t best = 0;   // BackendCapabilities::max_best
  bool rows = false;  // BackendCapabilities::rows
  bool prediction_heads = false;
  bool changes = false;  // BackendCapabilities::changes_rows
  bool row_input = false;
  bool mutual = false;
  int64_t adapters = 0;  // of the weights
};
Status ValidateStep(const ModelSpec& spec, const StateStore& state, const StepLimits& limits,
                    const Step& step);

// The last position that token `i` of a sequence's part of a step attends to.
int64_t LastSeen(const StepSequence& sequence, int64_t i);

// Writes a row's best tokens in the form of Step::best.
void PutBest(std::span<const float> logits, std::span<TokenLogit> best);
// Distributes consecutive rows of logits to the step's results: whole rows, or the best of each.
void PutLogits(const Step& step, size_t n_vocab, std::span<const float> rows);

}  // namespace weft

#endif  // WEFT_COMPUTE_CHECKS_H_
