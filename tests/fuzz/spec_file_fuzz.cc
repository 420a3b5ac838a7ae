// Any text as the spec file of a small model: refused with one line, or a spec that holds together.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace {

// Two layers with the tensors of a llama, and of some experts in the second.
std::string ModelBytes() {
  weft::GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  const std::pair<const char*, uint32_t> counts[] = {
      {"block_count", 2},          {"context_length", 64},      {"embedding_length", 16},
      {"feed_forward_length", 24}, {"attention.head_count", 2}, {"attention.head_count_kv", 1},
      {"expert_count", 4},         {"expert_used_count", 2},    {"attention.sliding_window", 8}};
  for (const auto& [key, value] : counts) writer.AddUint32(std::string("llama.") + key, value);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
    writer.AddTensor(name, weft::DType::kF32, dims, [](int64_t, std::span<std::byte> row) {
      std::ranges::fill(row, std::byte{0});
    });
  };
  add("token_embd.weight", {16, 10});
  add("output_norm.weight", {16});
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string at = layer;
    add(at + "attn_norm.weight", {16});
    add(at + "attn_q.weight", {16, 16});
    add(at + "attn_k.weight", {16, 8});
    add(at + "attn_v.weight", {16, 8});
    add(at + "attn_output.weight", {16, 16});
    add(at + "ffn_norm.weight", {16});
    add(at + "ffn_gate.weight", {16, 24});
    add(at + "ffn_up.weight", {16, 24});
    add(at + "ffn_down.weight", {24, 16});
  }
  return writer.ToBytes();
}

// What a spec promises of an operation's numbers.
struct Judge : weft::OperationVisitor {
  void Require(bool holds, std::string_view) { WEFT_CHECK(holds, "its numbers do not hold"); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string bytes = ModelBytes();
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto file = weft::ModelFile::FromBytes("m", std::as_bytes(std::span(bytes)), text);
  WEFT_CHECK(file.ok(), "the model itself is refused");
  const auto spec = weft::BuildModelSpec(**file, {});
  if (!spec.ok()) {
    const std::string_view message = weft::Message(spec.status());
    WEFT_CHECK(message.find('\n') == message.npos && message.size() < 2000, "not one line");
    return 0;
  }
  WEFT_CHECK(spec->layers.size() == 2, "a layer is missing");
  weft::VisitOperations(*spec, Judge());
  return 0;
}
