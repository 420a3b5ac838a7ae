#include "model/pictures/picture_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/formats/gguf_writer.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// A projector file in memory, which a test changes before it is read. Two layers of 16 values in
// two heads, patches of 2 pixels, pictures of 8.
struct TinyProjector {
  std::string projector = "gemma3";
  std::map<std::string, uint32_t> numbers = {
      {"image_size", 8},  {"patch_size", 2},           {"embedding_length", 16},
      {"block_count", 2}, {"attention.head_count", 2}, {"projector.scale_factor", 2}};
  std::map<std::string, std::vector<int64_t>> tensors;
  bool sees = true;
  bool gelu = true;

  TinyProjector() {
    tensors = {{"v.patch_embd.weight", {2, 2, 3, 16}},
               {"v.position_embd.weight", {16, 16}},
               {"v.post_ln.weight", {16}},
               {"mm.soft_emb_norm.weight", {16}},
               {"mm.input_projection.weight", {10, 16}}};
    for (const std::string layer : {"v.blk.0.", "v.blk.1."}) {
      for (const char* const name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
        tensors[layer + name + ".weight"] = {16, 16};
      }
      tensors[layer + "ffn_up.weight"] = {16, 24};
      tensors[layer + "ffn_down.weight"] = {24, 16};
      tensors[layer + "ln1.weight"] = tensors[layer + "ln2.weight"] = {16};
    }
  }

  StatusOr<PictureSpec> Build() {
    GgufWriter writer;
    writer.AddString("general.architecture", "clip");
    writer.AddBool("clip.has_vision_encoder", sees);
    writer.AddBool("clip.use_gelu", gelu);
    writer.AddString("clip.projector_type", projector);
    for (const auto& [key, value] : numbers) writer.AddUint32("clip.vision." + key, value);
    writer.AddFloat32("clip.vision.attention.layer_norm_epsilon", 1e-6f);
    writer.AddFloat32Array("clip.vision.image_mean", std::vector<float>{0.5f, 0.5f, 0.5f});
    writer.AddFloat32Array("clip.vision.image_std", std::vector<float>{0.5f, 0.25f, 0.5f});
    for (const auto& [name, dims] : tensors) {
      writer.AddTensor(name, DType::kF32, dims, [](int64_t, std::span<std::byte> row) {
        std::ranges::fill(row, std::byte{0});
      });
    }
    bytes = writer.ToBytes();
    WEFT_ASSIGN_OR_RETURN(file, ModelFile::FromBytes("tiny", std::as_bytes(std::span(bytes))));
    return BuildPictureSpec(*file);
  }

  std::string bytes;
  std::shared_ptr<const ModelFile> file;
};

TEST(PictureSpecTest, Gemma3IsPatchesLayersAndAProjection) {
  TinyProjector tiny;
  const StatusOr<PictureSpec> spec = tiny.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->stages.size(), 3U);
  EXPECT_EQ(RowWidth(spec->stages[0].spec), 12);
  EXPECT_EQ(spec->stages[1].spec.layers.size(), 2U);
  EXPECT_EQ(spec->stages[1].n_positions, 16);
  EXPECT_EQ(spec->stages[2].change.kind, RowChange::Kind::kAverage);
  EXPECT_EQ(spec->stages[2].input, 1);
  EXPECT_EQ(spec->width, 10);
  EXPECT_EQ(spec->preparation.unit, 4);
  EXPECT_EQ(spec->preparation.deviation[1], 0.25f);
}

TEST(PictureSpecTest, OlderFilesHaveUpAndDownTheOtherWayRound) {
  TinyProjector tiny;
  for (const std::string layer : {"v.blk.0.", "v.blk.1."}) {
    std::swap(tiny.tensors[layer + "ffn_up.weight"], tiny.tensors[layer + "ffn_down.weight"]);
  }
  const StatusOr<PictureSpec> spec = tiny.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Op& op = spec->stages[1].spec.layers[0].blocks[1].paths[0].op;
  EXPECT_EQ(std::get<DenseFfn>(op).up.n_out, 24);
}

TEST(PictureSpecTest, WindowsAndWholePicturesAreStagesOfTheirOwn) {
  TinyProjector tiny;
  tiny.projector = "qwen2.5vl_merger";
  tiny.numbers.erase("projector.scale_factor");
  tiny.numbers["n_wa_pattern"] = 2;
  tiny.numbers["window_size"] = 8;
  for (const char* const name :
       {"v.position_embd.weight", "mm.soft_emb_norm.weight", "mm.input_projection.weight"}) {
    tiny.tensors.erase(name);
  }
  tiny.tensors["v.patch_embd.weight.1"] = {2, 2, 3, 16};
  tiny.tensors["mm.0.weight"] = {64, 64};
  tiny.tensors["mm.2.weight"] = {64, 10};
  const StatusOr<PictureSpec> spec = tiny.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->stages.size(), 4U);
  EXPECT_EQ(spec->stages[1].window, 4);
  EXPECT_EQ(spec->stages[2].window, 0);
  const Rope& rope = spec->stages[1].spec.ropes[0];
  EXPECT_THAT(rope.axes, ::testing::ElementsAre(kRowAxis, kRowAxis, kColumnAxis, kColumnAxis));
  EXPECT_THAT(rope.frequencies, ::testing::ElementsAre(1, 0.01, 1, 0.01));
}

TEST(PictureSpecTest, FilesThatAreNoKnownProjectorsAreRefused) {
  const auto error = [](const std::function<void(TinyProjector*)>& change) {
    TinyProjector tiny;
    change(&tiny);
    return std::string(tiny.Build().status().message());
  };
  EXPECT_THAT(
      error([](TinyProjector* t) { t->projector = "resampler"; }),
      HasSubstr("the projector 'resampler' is not one of those that are supported: gemma3"));
  EXPECT_THAT(error([](TinyProjector* t) { t->sees = false; }), HasSubstr("not for pictures"));
  EXPECT_THAT(error([](TinyProjector* t) { t->gelu = false; }), HasSubstr("clip.use_gelu"));
  EXPECT_THAT(error([](TinyProjector* t) { t->numbers.erase("patch_size"); }),
              HasSubstr("clip.vision.patch_size"));
  EXPECT_THAT(error([](TinyProjector* t) { t->numbers["attention.head_count"] = 3; }),
              HasSubstr("does not part 16 values"));
  EXPECT_THAT(error([](TinyProjector* t) {
                t->tensors["v.position_embd.weight"] = {16, 15};
              }),
              HasSubstr("v.position_embd.weight: has the shape [16, 15], expected [16, 16]"));
  EXPECT_THAT(error([](TinyProjector* t) { t->tensors["v.unknown"] = {3}; }),
              HasSubstr("v.unknown"));
  EXPECT_THAT(error([](TinyProjector* t) { t->tensors.erase("v.blk.1.ln2.weight"); }),
              HasSubstr("v.blk.1.ln2.weight: is missing"));
}

}  // namespace
}  // namespace weft
