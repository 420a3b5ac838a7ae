#include "model/hugging_face_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "model/formats/gguf_writer.h"
#include "model/model_spec.h"
#include "model/model_spec_test_util.h"

namespace weft {
namespace {

HuggingFaceNames NamesOf(const std::string& architecture, const std::string& key = "",
                         int64_t value = 0) {
  testing::TinyModel model;
  model.architecture = architecture;
  if (!key.empty()) model.keys[key] = value;
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("named", std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status();
  return HuggingFaceNamesOf(**file);
}

TEST(HuggingFaceNames, EveryArchitectureHasThem) {
  for (const std::string& architecture : KnownArchitectures()) {
    const HuggingFaceNames names = NamesOf(architecture);
    EXPECT_FALSE(names.model_type.empty()) << architecture;
    EXPECT_TRUE(names.class_name.ends_with("ForCausalLM") ||
                names.class_name.ends_with("ForConditionalGeneration") ||
                names.class_name.ends_with("Model"))
        << architecture;
  }
  EXPECT_EQ(NamesOf("gpt-oss").model_type, "gpt_oss");
  EXPECT_EQ(NamesOf("gpt-oss").class_name, "GptOssForCausalLM");
  EXPECT_EQ(NamesOf("unheard-of").model_type, "");
}

TEST(HuggingFaceNames, OneNameOfAFileMayStandForSeveral) {
  EXPECT_EQ(NamesOf("llama", "expert_count", 0).model_type, "llama");
  EXPECT_EQ(NamesOf("llama", "expert_count", 8).model_type, "mixtral");
  EXPECT_EQ(NamesOf("deepseek2", "expert_gating_func", 1).model_type, "deepseek_v2");
  EXPECT_EQ(NamesOf("deepseek2", "expert_gating_func", 2).model_type, "deepseek_v3");
  EXPECT_EQ(NamesOf("olmo2", "attention.sliding_window", 4096).class_name, "Olmo3ForCausalLM");
  EXPECT_EQ(NamesOf("granitemoe", "expert_shared_feed_forward_length", 64).model_type,
            "granitemoeshared");
}

}  // namespace
}  // namespace weft
