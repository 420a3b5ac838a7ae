#include "model/formats/model_facts.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/dtype.h"

namespace weft {
namespace {

// The values of `general.file_type`.
std::string_view FileTypeName(int64_t number) {
  static const std::map<int64_t, std::string_view> kNames = {
      {0, "F32"},      {1, "F16"},      {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},
      {8, "Q5_0"},     {9, "Q5_1"},     {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"},
      {13, "Q3_K_L"},  {14, "Q4_K_S"},  {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
      {18, "Q6_K"},    {19, "IQ2_XXS"}, {20, "IQ2_XS"}, {21, "Q2_K_S"}, {22, "IQ3_XS"},
      {23, "IQ3_XXS"}, {24, "IQ1_S"},   {25, "IQ4_NL"}, {26, "IQ3_S"},  {27, "IQ3_M"},
      {28, "IQ2_S"},   {29, "IQ2_M"},   {30, "IQ4_XS"}, {31, "IQ1_M"},  {32, "BF16"},
      {36, "TQ1_0"},   {37, "TQ2_0"},   {38, "MXFP4"},  {39, "NVFP4"},  {40, "Q1_0"},
      {41, "Q2_0"}};
  const auto it = kNames.find(number);
  return it == kNames.end() ? std::string_view() : it->second;
}

}  // namespace

ModelFacts FactsOf(const ModelFile& file) {
  ModelFacts facts;
  const auto text = [&](std::string_view key) {
    const auto value = file.GetStringOr(key, "");
    return value.ok() ? std::string(*value) : "";
  };
  facts.title = text("general.name");
  facts.architecture = text("general.architecture");
  const auto number = [&](std::string_view key) {
    const auto value = file.GetIntOr(StrCat(facts.architecture, ".", key), 0);
    return value.ok() ? *value : 0;
  };
  facts.context_tokens = number("context_length");
  facts.embedding_length = number("embedding_length");
  std::map<DType, size_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) {
    facts.n_parameters += tensor.values();
    facts.tensor_bytes += static_cast<int64_t>(tensor.data.size());
    bytes[tensor.type] += tensor.data.size();
  }
  const auto type = file.GetIntOr("general.file_type", -1);
  if (type.ok()) facts.quantization = FileTypeName(*type);
  if (facts.quantization.empty() && !bytes.empty()) {
    // The most common type by bytes.
    facts.quantization = NameOf(std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) {
                                  return a.second < b.second;
                                })->first);
  }
  return facts;
}

}  // namespace weft
