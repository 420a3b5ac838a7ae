// Any bytes as one of the files of a folder that Hugging Face's libraries saved: refused with one
// line, or a model whose every byte can be read.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/formats/gguf_test_util.h"
#include "model/formats/model_file.h"

namespace {

constexpr std::string_view kConfig = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4,
  "num_attention_heads": 1, "num_hidden_layers": 1})";
constexpr std::string_view kTokenizer =
    R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0}}})";
constexpr const char* kNames[] = {
    "config.json",           "tokenizer.json",         "model.safetensors",
    "tokenizer_config.json", "generation_config.json", "model.safetensors.index.json"};

std::string SafeTensors() {
  const std::string head =
      R"({"model.layers.0.self_attn.q_proj.weight":{"dtype":"F32","shape":[4,1],"data_offsets":[0,16]}})";
  const uint64_t n = head.size();
  return std::string(reinterpret_cast<const char*>(&n), sizeof(n)) + head + std::string(16, 'x');
}

// One folder for the whole run, whose files are put back after each input.
const std::string& Folder() {
  // Never destroyed: the handler at the exit still needs it.
  static const std::string& folder = *new std::string([] {
    std::string name = (std::filesystem::temp_directory_path() / "weft_fuzz_XXXXXX").string();
    WEFT_CHECK(mkdtemp(name.data()) != nullptr, "there is no folder for files");
    std::atexit([] { std::filesystem::remove_all(Folder()); });
    return name;
  }());
  return folder;
}

void Write(const std::string& name, std::string_view bytes) {
  std::ofstream(Folder() + "/" + name, std::ios::binary) << bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  for (const char* name : kNames) std::filesystem::remove(Folder() + "/" + name);
  Write("config.json", kConfig);
  Write("tokenizer.json", kTokenizer);
  Write("model.safetensors", SafeTensors());
  // The first byte chooses the file.
  Write(kNames[data[0] % std::size(kNames)], {reinterpret_cast<const char*>(data) + 1, size - 1});
  const auto file = weft::ModelFile::Open(Folder());
  if (!file.ok()) {
    const std::string_view message = weft::Message(file.status());
    WEFT_CHECK(message.find('\n') == message.npos && message.size() < 3000, "not one line");
    return 0;
  }
  volatile uint64_t sink = weft::testing::TouchAll(**file);
  (void)sink;
  return 0;
}
