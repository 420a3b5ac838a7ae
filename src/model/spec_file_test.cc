// Spec files against the functions of arch/: those of examples/specs build the same specs from the
// reference models.
#include "model/spec_file.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "model/model_spec_test_util.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::TinyLlama;
using testing::TinyModel;

const std::string kLlama = R"({
  "architecture": "llama",
  "ropes": {"all": {"pairs": "adjacent", "scaling": true, "divisors": true}},
  "layers": [{"blocks": [{"pre": "attn_norm", "attention": {"rope": "all"}},
                         {"pre": "ffn_norm", "feed_forward": {}}]}]
})";

StatusOr<ModelSpec> BuildWith(const TinyModel& model, const std::string& spec) {
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("tiny", std::as_bytes(std::span(bytes)), spec);
  if (!file.ok()) return file.status();
  return BuildModelSpec(**file, {});
}

std::string ErrorOf(const std::string& from, const std::string& to) {
  std::string spec = kLlama;
  spec.replace(spec.find(from), from.size(), to);
  return std::string(Message(BuildWith(TinyLlama(), spec).status()));
}

bool SameOps(const Op& a, const Op& b) {
  return std::visit(
      [](const auto& x, const auto& y) {
        using X = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<X, std::decay_t<decltype(y)>> && requires { x == x; }) {
          return x == y;
        } else {
          return false;
        }
      },
      a, b);
}

void ExpectSameBlock(const Block& a, const Block& b) {
  EXPECT_EQ(a.pre, b.pre);
  EXPECT_EQ(a.post, b.post);
  EXPECT_EQ(a.residual_scale, b.residual_scale);
  EXPECT_EQ(a.stream_scale, b.stream_scale);
  ASSERT_EQ(a.paths.size(), b.paths.size());
  for (size_t i = 0; i < a.paths.size(); ++i) {
    EXPECT_EQ(a.paths[i].pre, b.paths[i].pre);
    EXPECT_EQ(a.paths[i].post, b.paths[i].post);
    EXPECT_EQ(a.paths[i].scale, b.paths[i].scale);
    EXPECT_TRUE(SameOps(a.paths[i].op, b.paths[i].op)) << "path " << i;
  }
}

void ExpectSameSpec(const ModelSpec& a, const ModelSpec& b) {
  EXPECT_EQ(a.n_vocab, b.n_vocab);
  EXPECT_EQ(a.d_model, b.d_model);
  EXPECT_EQ(a.context_tokens, b.context_tokens);
  EXPECT_EQ(a.embedding, b.embedding);
  EXPECT_EQ(a.embedding_scale, b.embedding_scale);
  EXPECT_EQ(a.output_norm, b.output_norm);
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.logit_scale, b.logit_scale);
  EXPECT_EQ(a.logit_softcap, b.logit_softcap);
  EXPECT_EQ(a.ropes, b.ropes);
  ASSERT_EQ(a.kv_layers.size(), b.kv_layers.size());
  for (size_t i = 0; i < a.kv_layers.size(); ++i) {
    EXPECT_EQ(a.kv_layers[i].group, b.kv_layers[i].group) << i;
    EXPECT_EQ(a.kv_layers[i].k_dim, b.kv_layers[i].k_dim) << i;
  }
  ASSERT_EQ(a.kv_groups.size(), b.kv_groups.size());
  for (size_t i = 0; i < a.kv_groups.size(); ++i) {
    EXPECT_EQ(a.kv_groups[i].window, b.kv_groups[i].window) << i;
  }
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    SCOPED_TRACE(StrCat("layer ", layer));
    ASSERT_EQ(a.layers[layer].blocks.size(), b.layers[layer].blocks.size());
    for (size_t i = 0; i < a.layers[layer].blocks.size(); ++i) {
      SCOPED_TRACE(StrCat("block ", i));
      ExpectSameBlock(a.layers[layer].blocks[i], b.layers[layer].blocks[i]);
    }
  }
}

TEST(SpecFiles, BuildWhatTheFunctionsBuild) {
  WEFT_REQUIRE_GOLDENS();
  const std::filesystem::path goldens = testing::GoldensDir();
  int n_compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/examples/specs")) {
    std::string name = entry.path().filename();
    name.resize(name.size() - std::string_view(".weft.json").size());
    SCOPED_TRACE(name);
    for (const char* folder : {"models", "architectures"}) {
      const std::string path = goldens / folder / (name + ".gguf");
      if (!std::filesystem::exists(path)) continue;
      const auto built_in = ModelFile::Open(path);
      const auto described = ModelFile::Open(path, {.progress = {}, .spec_path = entry.path()});
      ASSERT_TRUE(built_in.ok() && described.ok()) << described.status();
      EXPECT_EQ((*described)->spec_path(), entry.path());
      const auto a = BuildModelSpec(**built_in, {}), b = BuildModelSpec(**described, {});
      ASSERT_TRUE(a.ok()) << a.status();
      ASSERT_TRUE(b.ok()) << b.status();
      ExpectSameSpec(*a, *b);
      ++n_compared;
    }
  }
  EXPECT_GE(n_compared, 10);
}

TEST(SpecFiles, BuildAnArchitectureThatNobodyKnows) {
  TinyModel model = TinyLlama();
  model.architecture = "loom";
  EXPECT_THAT(Message(model.Build().status()), HasSubstr("spec file"));
  std::string text = kLlama;
  text.replace(text.find("llama"), 5, "loom");
  const auto spec = BuildWith(model, text), llama = TinyLlama().Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_TRUE(llama.ok()) << llama.status();
  ExpectSameSpec(*spec, *llama);
}

TEST(SpecFiles, LieBesideTheModel) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / StrCat("weft_spec_", getpid());
  std::filesystem::create_directories(folder);
  TinyModel model = TinyLlama();
  model.architecture = "loom";
  std::ofstream(folder / "x.gguf", std::ios::binary) << model.Bytes();
  const std::string path = folder / "x.gguf";
  EXPECT_FALSE(BuildModelSpec(**ModelFile::Open(path), {}).ok());
  std::string text = kLlama;
  text.replace(text.find("llama"), 5, "loom");
  std::ofstream(folder / "x.weft.json") << text;
  EXPECT_TRUE(BuildModelSpec(**ModelFile::Open(path), {}).ok());
  EXPECT_FALSE(ModelFile::Open(path, {.progress = {}, .spec_path = folder / "none"}).ok());
  std::ofstream(folder / "x.weft.json").close();
  EXPECT_THAT(Message(ModelFile::Open(path).status()), HasSubstr("is empty"));
  std::filesystem::remove_all(folder);
}

TEST(SpecFiles, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf("}]}]", ""), HasSubstr("tiny.weft.json: the body is no valid JSON"));
  EXPECT_THAT(ErrorOf("\"llama\"", "\"qwen2\""), HasSubstr("architecture is 'qwen2'"));
  EXPECT_THAT(ErrorOf("\"pairs\"", "\"pears\""), HasSubstr("ropes.all.pears is not known here"));
  EXPECT_THAT(ErrorOf("adjacent", "both"), HasSubstr("ropes.all.pairs must be one of halves"));
  EXPECT_THAT(ErrorOf("{\"rope\": \"all\"}", "{\"rope\": \"none\"}"),
              HasSubstr("layers[0].blocks[0].attention.rope must be the name"));
  EXPECT_THAT(ErrorOf("\"feed_forward\": {}", "\"x\": 1"),
              HasSubstr("layers[0].blocks[1].attention"));
  EXPECT_THAT(ErrorOf("\"feed_forward\": {}", "\"feed_forward\": {\"width\": 24.5}"),
              HasSubstr("width is 24.5, expected a whole number"));
  EXPECT_THAT(ErrorOf("\"feed_forward\": {}", "\"feed_forward\": {\"width\": {\"key\": \"none\"}}"),
              HasSubstr("llama.none"));
  EXPECT_THAT(ErrorOf("\"feed_forward\": {}", "\"feed_forward\": {\"width\": {\"sqrt\": -4}}"),
              HasSubstr("width"));
  EXPECT_THAT(ErrorOf("\"feed_forward\": {}", "\"feed_forward\": {\"width\": {\"add\": [1, 2]}}"),
              HasSubstr("must be a number, the name of a key"));
  EXPECT_THAT(ErrorOf("{\"blocks\"", "{\"where\": {\"windowed\": true}, \"blocks\""),
              HasSubstr("no kind for layer 0"));
  // A tensor that the description leaves out.
  EXPECT_THAT(ErrorOf(", \"feed_forward\": {}", ", \"attention\": {\"rope\": \"all\"}"),
              HasSubstr("ffn_down.weight"));
}

TEST(SpecFiles, NumbersAreComputed) {
  std::string text = kLlama;
  text.replace(text.find("\"ropes\""), 7,
               R"("embedding_scale": {"sqrt": "embedding_length"},
                  "logit_scale": {"divide": [1, {"key": "none", "or": 4}]},
                  "logit_softcap": {"times": [2, "block_count"]}, "ropes")");
  const auto spec = BuildWith(TinyLlama(), text);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->embedding_scale, 4);
  EXPECT_EQ(spec->logit_scale, 0.25f);
  EXPECT_EQ(spec->logit_softcap, 4);
}

}  // namespace
}  // namespace weft
