// weft-make-model: the command line of make_model.h.

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "tools/make_adapter.h"
#include "tools/make_encoder.h"
#include "tools/make_model.h"
#include "tools/make_projector.h"

namespace {

using weft::tools::ModelShape;

std::string Examples() {
  constexpr size_t kNameWidth = 20;
  std::string text = "Shapes:\n";
  for (const ModelShape& shape : weft::tools::KnownShapes()) {
    weft::StrAppend(&text, "  ", shape.name,
                    std::string(kNameWidth - std::min(kNameWidth, shape.name.size()), ' '),
                    shape.description, " (", shape.architecture, ", ", shape.layers, " layers of ",
                    shape.embd, ", vocabulary ", shape.vocab, ")\n");
  }
  for (const weft::tools::EncoderShape& shape : weft::tools::KnownEncoders()) {
    weft::StrAppend(&text, "  ", shape.name,
                    std::string(kNameWidth - std::min(kNameWidth, shape.name.size()), ' '),
                    "for tests (", shape.architecture, ", ", shape.layers, " layers of ",
                    shape.embd, ", an encoder, whose sizes are fixed)\n");
  }
  for (const weft::tools::ProjectorShape& shape : weft::tools::KnownProjectorShapes()) {
    weft::StrAppend(&text, "  ", shape.name,
                    std::string(kNameWidth - std::min(kNameWidth, shape.name.size()), ' '),
                    " for tests (", shape.projector, ", ", shape.layers, " layers of ", shape.embd,
                    ", a projector for pictures, whose sizes are fixed)\n");
  }
  return text +
         "\nTypes with blocks of 256 need rows of a multiple of 256; other rows (gemma3-1b's of\n"
         "1152) get the nearest type with blocks of 32, as models of the field do.\n"
         "\nExamples:\n"
         "  weft-make-model --shape qwen3-0.6b --type Q4_0 --out qwen3-0.6b.gguf\n"
         "  weft-make-model --shape llama-8b --type Q4_K_M --layers 8 --out quarter.gguf\n"
         "  weft-make-model --shape tiny-llama --type F32 --seed 7 --out tiny.gguf\n"
         "  weft-make-model --lora-of tiny.gguf --rank 4 --out adapter.gguf\n";
}

void ShowProgress(uint64_t done, uint64_t total) {
  const double percent = 100.0 * static_cast<double>(done) / static_cast<double>(total);
  std::fprintf(stderr, "\r%s of %s (%.0f %%) ", weft::HumanBytes(done).c_str(),
               weft::HumanBytes(total).c_str(), percent);
}

struct SizeOption {
  const char* name;
  const char* help;
  int64_t ModelShape::*size;
  std::optional<int64_t> value;
};

void ShowFailure(const weft::Status& status) {
  std::fprintf(stderr, "weft-make-model: %s\n", std::string(weft::Message(status)).c_str());
}

// The end of the command for a model whose sizes are fixed.
int EndSmall(const weft::StatusOr<weft::tools::MadeModel>& made, const std::string& out) {
  if (!made.ok()) {
    ShowFailure(made.status());
    return 1;
  }
  std::fprintf(stderr, "wrote %s: %.6f billion weights\n", out.c_str(),
               static_cast<double>(made->parameters) * 1e-9);
  return 0;
}

int WriteAdapter(const std::string& base, weft::tools::MakeAdapterOptions adapter,
                 const weft::tools::MakeModelOptions& options, const std::string& out) {
  adapter.seed = options.seed;
  if (options.type != weft::tools::MakeModelOptions().type) adapter.type = options.type;
  const weft::Status made = weft::tools::MakeAdapter(base, adapter, out);
  if (!made.ok()) {
    ShowFailure(made);
    return 1;
  }
  std::fprintf(stderr, "wrote %s: an adapter of rank %lld\n", out.c_str(),
               static_cast<long long>(adapter.rank));
  return 0;
}

int WriteModel(const ModelShape& shape, weft::tools::MakeModelOptions options,
               const std::string& out) {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) options.progress = ShowProgress;
  const auto made = weft::tools::MakeModel(shape, options, out);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!made.ok()) {
    ShowFailure(made.status());
    return 1;
  }
  std::fprintf(stderr, "wrote %s: %.3f billion weights, %s\n", out.c_str(),
               static_cast<double>(made->parameters) * 1e-9,
               weft::HumanBytes(made->weight_bytes).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes a model file of a known shape with random weights and a made-up vocabulary.\n"
      "It loads, runs and costs like the real model; what it says means nothing. The same\n"
      "arguments give the same bytes.");
  app.footer(Examples());
  std::string shape_name, out;
  weft::tools::MakeModelOptions options;
  CLI::Option* const shape_option =
      app.add_option("--shape", shape_name, "one of the shapes below");
  std::string base;
  weft::tools::MakeAdapterOptions adapter;
  CLI::Option* const base_option =
      app.add_option("--lora-of", base,
                     "write a LoRA adapter for this model instead: a GGUF file (--type F16 or F32)")
          ->excludes(shape_option);
  app.add_option("--rank", adapter.rank, "of the adapter")->needs(base_option);
  app.add_option("--invocation", adapter.invocation, "tokens that the adapter waits for: 5,6")
      ->delimiter(',')
      ->needs(base_option);
  app.add_option("--type", options.type,
                 "of the matrices: F32, F16, BF16, Q8_0, Q4_0, NVFP4, ... or Q4_K_M, Q5_K_M")
      ->capture_default_str();
  app.add_option("--out", out, "the file to write; it appears when it is complete")->required();
  app.add_option("--seed", options.seed, "another one gives other weights")->capture_default_str();
  SizeOption sizes[] = {
      {"--layers", "number of layers", &ModelShape::layers, {}},
      {"--embd", "width of the residual stream", &ModelShape::embd, {}},
      {"--ffn", "width of the feed-forward", &ModelShape::ffn, {}},
      {"--heads", "attention heads", &ModelShape::heads, {}},
      {"--kv-heads", "heads of keys and values", &ModelShape::kv_heads, {}},
      {"--head-dim", "width of a head", &ModelShape::head_dim, {}},
      {"--vocab", "tokens in the vocabulary", &ModelShape::vocab, {}},
      {"--context", "positions the model claims to know", &ModelShape::context, {}},
      {"--experts", "experts of a mixture", &ModelShape::experts, {}},
      {"--experts-used", "experts used per token", &ModelShape::experts_used, {}},
      {"--expert-ffn", "width of an expert", &ModelShape::expert_ffn, {}},
      {"--predictors", "prediction heads", &ModelShape::predictors, {}},
  };
  for (SizeOption& size : sizes) {
    app.add_option(size.name, size.value, std::string(size.help) + ", instead of the shape's");
  }
  bool fill_in = false;
  app.add_flag("--fill-in", fill_in, "with the tokens that fill in the middle");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (shape_name.empty() && base.empty()) {
    ShowFailure(weft::InvalidArgument("give --shape or --lora-of; --help lists the shapes"));
    return 2;
  }
  if (!base.empty()) return WriteAdapter(base, adapter, options, out);
  if (const auto* const encoder = weft::tools::FindEncoder(shape_name); encoder != nullptr) {
    return EndSmall(weft::tools::MakeEncoder(*encoder, options, out), out);
  }
  if (const auto* const projector = weft::tools::FindProjectorShape(shape_name);
      projector != nullptr) {
    return EndSmall(weft::tools::MakeProjector(*projector, options, out), out);
  }
  weft::StatusOr<ModelShape> shape = weft::tools::FindShape(shape_name);
  if (!shape.ok()) {
    ShowFailure(shape.status());
    return 2;
  }
  for (const SizeOption& size : sizes) {
    if (size.value) (*shape).*size.size = *size.value;
  }
  shape->fill_in = fill_in;
  return WriteModel(*shape, options, out);
}
