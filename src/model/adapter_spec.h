// A LoRA adapter as data: which matrices of a model it changes, and by which pairs of matrices of
// its own. It comes from a GGUF file, as llama.cpp's convert_lora_to_gguf.py writes it.
//
// The file is foreign and the model's is not trusted either: every key, name and shape is checked
// here, and backends trust the result.
#ifndef WEFT_MODEL_ADAPTER_SPEC_H_
#define WEFT_MODEL_ADAPTER_SPEC_H_

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// For a text that uses the adapter at scale s, the target's product W x becomes
//   W x + s * factor * B (A x)
// A has `rank` rows of as many values as W's; B has a row of `rank` values for each row of W.
struct LowRankPair {
  TensorRef target;  // in the model's file
  TensorRef a, b;    // in the adapter's
  int64_t rank = 0;
  float factor = 1;  // alpha / rank
};

struct AdapterSpec {
  // Each target once, by its index.
  std::vector<LowRankPair> matrices;
  // The embedding of a token t gains s * factor * B a_t: A has a row of `rank` values for each
  // token, B one for each value of the embedding. Input embeddings gain nothing. The output of a
  // model that ties both is not changed.
  std::optional<LowRankPair> embedding;
  // An activated adapter's (aLoRA): a text is computed without it up to where these tokens begin
  // for the last time, and without them altogether. Empty: it acts from the first token on.
  std::vector<TokenId> invocation;

  // Null if the adapter does not change the tensor as a matrix.
  const LowRankPair* Find(TensorRef target) const;
};

// The matrices that adapters can change, by index. Of a model whose output is its embedding, that
// is among them: a pair for it changes the embedding.
std::vector<TensorRef> AdaptableMatrices(const ModelSpec& spec);

// The adapter of `file` for the model of `base`. Errors name the file and the key or tensor, and
// say what to do.
StatusOr<AdapterSpec> BuildAdapterSpec(const ModelFile& file, const ModelFile& base,
                                       const ModelSpec& spec);

struct Adapter {
  std::shared_ptr<const ModelFile> file;
  AdapterSpec spec;
};

}  // namespace weft

#endif  // WEFT_MODEL_ADAPTER_SPEC_H_
