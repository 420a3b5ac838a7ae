// Any bytes as a model file: refused with one line, or accepted and then every
// byte that the file hands out can be read.

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "model/formats/gguf_test_util.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "model/formats/sampling_advice.h"

namespace {

// Every kind of value must survive being written and read again.
void CheckRoundTrip(const weft::ModelFile& file) {
  weft::GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) {
    if (key != weft::gguf::kAlignmentKey) writer.AddMeta(key, value);
  }
  for (const weft::TensorInfo& tensor : file.tensors()) {
    writer.AddTensor(tensor.name, tensor.type, std::span(tensor.dims, tensor.n_dims), tensor.data);
  }
  const std::string bytes = writer.ToBytes();
  const auto again = weft::ModelFile::FromBytes("copy", std::as_bytes(std::span(bytes)));
  WEFT_CHECK(again.ok(), "a copy of an accepted file is refused");
  WEFT_CHECK((*again)->tensors().size() == file.tensors().size(), "tensors were lost");
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const auto original = file.tensors()[i].data, copy = (*again)->tensors()[i].data;
    WEFT_CHECK(original.size() == copy.size() &&
                   std::memcmp(original.data(), copy.data(), copy.size()) == 0,
               "a tensor changed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of the exact size, aligned as the reader asks.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  const auto file = weft::ModelFile::FromBytes("input", {bytes.get(), size});
  if (!file.ok()) {
    const std::string_view message = weft::Message(file.status());
    WEFT_CHECK(message.find('\n') == message.npos && message.size() < 1000, "not one line");
    return 0;
  }
  volatile uint64_t sink = weft::testing::TouchAll(**file);
  (void)sink;
  CheckRoundTrip(**file);
  const weft::SamplingAdvice advice = weft::ReadSamplingAdvice(**file);
  for (const weft::SamplingParameter& field : weft::SamplingParameters()) {
    const auto& number = advice.*field.advice;
    WEFT_CHECK(!number || field.Takes(*number), "advice that makes no sense");
  }
  return 0;
}
