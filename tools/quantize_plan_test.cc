#include "tools/quantize_plan.h"

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"

namespace weft::tools {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 16;

struct ModelShape {
  int heads = 4, key_heads = 4, experts = 0;
  bool tied = false;
};
const std::map<std::string, ModelShape> kModels = {
    {"llama", {}}, {"gqa", {8, 1, 0, false}}, {"moe", {4, 2, 8, false}}, {"tied", {4, 1, 0, true}}};

// A model's file, and the bytes that it refers to.
struct Made {
  std::string bytes;
  std::vector<uint64_t> aligned;
  std::shared_ptr<const ModelFile> file;
};

Made MakeModel(const ModelShape& shape) {
  GgufWriter writer;
  writer.AddString("general.architecture", "any");
  writer.AddUint32("any.block_count", kLayers);
  writer.AddUint32("any.attention.head_count", static_cast<uint32_t>(shape.heads));
  writer.AddUint32("any.attention.head_count_kv", static_cast<uint32_t>(shape.key_heads));
  if (shape.experts > 0) {
    writer.AddUint32("any.expert_count", static_cast<uint32_t>(shape.experts));
  }
  const std::vector<std::byte> zeros(256 * 16 * 2 * 2);
  const auto add = [&](const std::string& name, bool is_stack) {
    const std::vector<int64_t> dims =
        is_stack ? std::vector<int64_t>{256, 16, 2} : std::vector<int64_t>{256, 16};
    writer.AddTensor(name, DType::kF16, dims,
                     std::span(zeros).first(is_stack ? zeros.size() : zeros.size() / 2));
  };
  add("token_embd.weight", false);
  if (!shape.tied) add("output.weight", false);
  const std::string stack = shape.experts > 0 ? "_exps" : "";
  for (int layer = kLayers - 1; layer >= 0; --layer) {  // not in the order of layers
    for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      add(StrCat("blk.", layer, ".", part, ".weight"), false);
    }
    for (const char* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      add(StrCat("blk.", layer, ".", part, stack, ".weight"), shape.experts > 0);
    }
  }
  Made made;
  made.bytes = writer.ToBytes();
  made.aligned.resize(made.bytes.size() / 8 + 1);
  std::memcpy(made.aligned.data(), made.bytes.data(), made.bytes.size());
  auto file = ModelFile::FromBytes("m.gguf",
                                   std::as_bytes(std::span(made.aligned)).first(made.bytes.size()));
  EXPECT_TRUE(file.ok()) << file.status();
  made.file = *file;
  return made;
}

// Of "attn_v[0,4]=Q6_K" the names of both tensors; of "attn_k=Q8_0" those of all layers.
std::vector<std::string> NamesOf(const ModelFile& file, const std::string& part) {
  const std::string role = part.substr(0, part.find_first_of("[="));
  if (file.FindTensor(StrCat(role, ".weight")) >= 0) return {StrCat(role, ".weight")};
  std::vector<std::string> names;
  const size_t bracket = part.find('[');
  std::istringstream list(
      bracket == std::string::npos ? "" : part.substr(bracket + 1, part.find(']') - bracket - 1));
  for (std::string layer; std::getline(list, layer, ',');) {
    names.push_back(StrCat("blk.", layer, ".", role, ".weight"));
  }
  for (int layer = 0; bracket == std::string::npos && layer < kLayers; ++layer) {
    names.push_back(StrCat("blk.", layer, ".", role, ".weight"));
  }
  return names;
}

TEST(QuantizePlanTest, GivesTheTypesThatLlamaQuantizeGives) {
  std::map<std::string, Made> made;
  for (const auto& [name, shape] : kModels) made[name] = MakeModel(shape);
  std::ifstream table(WEFT_SOURCE_DIR "/tools/testdata/mixes.txt");
  int n_lines = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with("#")) continue;
    ++n_lines;
    std::istringstream words(line);
    std::string model, name, importance, base;
    words >> model >> name >> importance >> base;
    const ModelFile& file = *made.at(model).file;
    std::map<std::string, std::string, std::less<>> want;
    for (const TensorInfo& tensor : file.tensors()) want[std::string(tensor.name)] = base;
    for (std::string part; words >> part;) {
      for (const std::string& tensor : NamesOf(file, part)) {
        ASSERT_TRUE(want.contains(tensor)) << line;
        want[tensor] = part.substr(part.find('=') + 1);
      }
    }
    const auto recipe = FindRecipe(name, /*pure=*/false);
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    for (const bool with : {false, true}) {
      if (importance == (with ? "without" : "with")) continue;
      const std::vector<DType> types = PlanTypes(file, *recipe, /*pure=*/false, with);
      for (size_t i = 0; i < types.size(); ++i) {
        const std::string_view tensor = file.tensors()[i].name;
        EXPECT_EQ(NameOf(types[i]), want.find(tensor)->second)
            << model << " " << name << " " << importance << " " << tensor;
      }
    }
  }
  EXPECT_GT(n_lines, 100);
}

TEST(QuantizePlanTest, PureIsOneType) {
  const Made made = MakeModel(kModels.at("llama"));
  for (const char* name : {"IQ2_S", "q4_k", "Q2_K", "IQ4_XS"}) {
    const auto recipe = FindRecipe(name, /*pure=*/true);
    ASSERT_TRUE(recipe.ok()) << recipe.status();
    for (const DType type : PlanTypes(*made.file, *recipe, /*pure=*/true, false)) {
      EXPECT_TRUE(EqualIgnoringCase(NameOf(type), name)) << name;
    }
  }
  EXPECT_THAT(std::string(Message(FindRecipe("IQ3_M", true).status())), HasSubstr("ask for IQ3_S"));
  EXPECT_THAT(std::string(Message(FindRecipe("Q4_K_S", true).status())), HasSubstr("ask for Q4_K"));
}

}  // namespace
}  // namespace weft::tools
