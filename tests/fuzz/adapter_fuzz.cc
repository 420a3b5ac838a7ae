// Adapter files from anywhere, for a small model. A spec that is made of one has pairs that fit.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "base/check.h"
#include "model/adapter_spec.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace {

// A Llama of one layer of 8 values and 4 tokens.
std::string BaseBytes() {
  weft::GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddUint32("llama.block_count", 1);
  writer.AddUint32("llama.context_length", 16);
  writer.AddUint32("llama.embedding_length", 8);
  writer.AddUint32("llama.feed_forward_length", 8);
  writer.AddUint32("llama.attention.head_count", 1);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const auto add = [&](const char* name, std::vector<int64_t> dims) {
    writer.AddTensor(name, weft::DType::kF32, dims, [](int64_t, std::span<std::byte> row) {
      std::memset(row.data(), 0, row.size());
    });
  };
  add("token_embd.weight", {8, 4});
  add("output_norm.weight", {8});
  add("output.weight", {8, 4});
  add("blk.0.attn_norm.weight", {8});
  add("blk.0.ffn_norm.weight", {8});
  for (const char* const name :
       {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
        "blk.0.attn_output.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight"}) {
    add(name, {8, 8});
  }
  return writer.ToBytes();
}

struct Base {
  const std::string bytes = BaseBytes();
  const std::shared_ptr<const weft::ModelFile> file =
      *weft::ModelFile::FromBytes("base", std::as_bytes(std::span(bytes)));
  const weft::ModelSpec spec = *weft::BuildModelSpec(*file, {});
};

void CheckPair(const weft::ModelFile& file, const Base& base, const weft::LowRankPair& pair) {
  const auto at = [](const weft::ModelFile& of, weft::TensorRef ref) -> const weft::TensorInfo& {
    WEFT_CHECK(ref.index >= 0 && ref.index < std::ssize(of.tensors()), "a tensor of the file");
    return of.tensors()[static_cast<size_t>(ref.index)];
  };
  const weft::TensorInfo &a = at(file, pair.a), &b = at(file, pair.b);
  const weft::TensorInfo& target = at(*base.file, pair.target);
  WEFT_CHECK(pair.rank > 0 && b.dims[0] == pair.rank, "a rank");
  const bool is_table = pair.target == base.spec.embedding;
  WEFT_CHECK(b.dims[1] == target.dims[is_table ? 0 : 1], "a row of B for each output");
  WEFT_CHECK(is_table ? a.dims[0] == pair.rank && a.dims[1] == target.dims[1]
                      : a.dims[1] == pair.rank && a.dims[0] == target.dims[0],
             "A's rows are as long as the model's");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Base base;
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  const auto file = weft::ModelFile::FromBytes("input", {bytes.get(), size});
  if (!file.ok()) return 0;
  const auto spec = weft::BuildAdapterSpec(**file, *base.file, base.spec);
  if (!spec.ok()) {
    WEFT_CHECK(!spec.status().message().empty(), "a sentence");
    return 0;
  }
  for (const weft::TokenId token : spec->invocation) {
    WEFT_CHECK(token >= 0 && token < base.spec.n_vocab, "a token of the model");
  }
  for (const weft::LowRankPair& pair : spec->matrices) CheckPair(**file, base, pair);
  if (spec->embedding) CheckPair(**file, base, *spec->embedding);
  return 0;
}
