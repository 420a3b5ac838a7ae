#include "model/model_spec.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/strings.h"
#include "model/arch/architectures.h"
#include "model/head_spec.h"
#include "model/spec_builder.h"
#include "model/spec_file.h"

namespace weft {
namespace {

struct Architecture {
  std::string_view name;
  void (*build)(SpecBuilder& builder);
};

constexpr Architecture kArchitectures[] = {
#define WEFT_ARCHITECTURE(name, function, model_type, class_name) {name, function},
#include "model/arch/architectures.inc"
#undef WEFT_ARCHITECTURE
};

struct HeadArchitecture {
  std::string_view name;
  void (*build)(SpecBuilder& builder, const ModelSpec& model);
};
constexpr HeadArchitecture kHeads[] = {{"gemma4-assistant", BuildGemma4Assistant}};

const HeadArchitecture* HeadOf(const ModelFile& file) {
  const auto name = file.GetString("general.architecture");
  if (!name.ok() || !file.spec_text().empty()) return nullptr;
  const auto* const it = std::ranges::find(kHeads, *name, &HeadArchitecture::name);
  return it == std::end(kHeads) ? nullptr : it;
}

struct Pooled {
  std::string_view name;
  Pooling pooling;
};
constexpr Pooled kPoolings[] = {{"none", Pooling::kNone},
                                {"mean", Pooling::kMean},
                                {"cls", Pooling::kFirst},
                                {"last", Pooling::kLast}};

// Architectures of Ollama's store that cannot run here: what they are, and what to pull instead.
struct OllamaOnly {
  std::string_view architecture, what, instead;
};
constexpr OllamaOnly kOllamaOnly[] = {
    {"deepseekocr", "DeepSeek-OCR, which reads pictures", "gemma3"},
    {"glmocr", "GLM-OCR, which reads pictures", "gemma3"},
    {"mllama", "Llama 3.2 Vision, whose layers attend to pictures", "llama3.2"},
};

struct WholeTextFinder : OperationVisitor {
  void WholeText() { found = true; }
  bool found = false;
};

// Whether an operation writes state.
struct StateWriter : OperationVisitor {
  void Kv(const KvUse& use) { writes |= use.writes; }
  void Slot(const SlotUse&) { writes = true; }
  bool writes = false;
};

}  // namespace

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

const Path* LastToWriteState(const ModelSpec& spec) {
  const Path* last = nullptr;
  ForEachPath(spec, [&](const Path& path) {
    StateWriter state;
    std::visit([&](const auto& op) { op.Visit(spec.d_model, state); }, path.op);
    if (state.writes) last = &path;
  });
  return last;
}

std::vector<int64_t> ValueDims(const ModelSpec& spec) {
  struct Uses : OperationVisitor {
    void Kv(const KvUse& use) { dims[static_cast<size_t>(use.layer)] = use.v_dim; }
    std::vector<int64_t> dims;
  } uses;
  uses.dims.reserve(spec.kv_layers.size());
  for (const KvLayer& layer : spec.kv_layers) uses.dims.push_back(layer.v_dim);
  VisitOperations(spec, uses);
  return std::move(uses.dims);
}

Status CheckTakesRows(const ModelSpec& spec) {
  if (spec.per_layer_input) {
    return Unimplemented(spec.architecture,
                         " takes no input embeddings: its layers look up a token's id in "
                         "a table of their own (per-layer embeddings)");
  }
  if (RoutesByToken(spec)) {
    return Unimplemented(spec.architecture,
                         " takes no input embeddings: a token's id chooses the experts of its "
                         "first layers");
  }
  if (spec.token_types.separator >= 0) {
    return Unimplemented(spec.architecture,
                         " takes no input embeddings: it tells two texts apart by the "
                         "separator's id");
  }
  return OkStatus();
}

bool AttendsPlainly(const ModelSpec& spec) {
  struct Finder : OperationVisitor {
    void Slot(const SlotUse&) { plain = false; }
    void WholeText() { plain = false; }
    bool plain = true;
  } finder;
  VisitOperations(spec, finder);
  ForEachPath(spec, [&](const Path& path) {
    const auto* const attention = std::get_if<Attention>(&path.op);
    if (attention != nullptr) finder.plain &= !attention->choice && attention->chunk == 0;
    finder.plain &= !std::holds_alternative<LatentAttention>(path.op) &&
                    !std::holds_alternative<UnfoldedLatentAttention>(path.op) &&
                    !std::holds_alternative<CompressedAttention>(path.op);
  });
  return finder.plain;
}

bool HasAxes(const ModelSpec& spec) {
  return std::ranges::any_of(spec.ropes, [](const Rope& rope) { return !rope.axes.empty(); });
}

bool KeepsInputs(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const Layer& layer) {
    return std::ranges::any_of(layer.blocks, &Block::keeps_input);
  });
}

bool SharesFirstValues(const ModelSpec& spec) {
  bool shares = false;
  ForEachPath(spec, [&](const Path& path) { shares |= std::holds_alternative<TimeMix>(path.op); });
  return shares;
}

bool ChoosesKeys(const ModelSpec& spec) {
  bool chooses = false;
  ForEachPath(spec, [&](const Path& path) {
    const auto ask = [&](const auto& op) {
      if constexpr (requires { op.choice; }) chooses |= static_cast<bool>(op.choice);
    };
    std::visit(ask, path.op);
  });
  return chooses;
}

bool RoutesByToken(const ModelSpec& spec) {
  bool by_token = false;
  ForEachPath(spec, [&](const Path& path) {
    const auto* experts = std::get_if<MixtureOfExperts>(&path.op);
    by_token |= experts != nullptr && experts->by_token;
  });
  return by_token;
}

bool NeedsWholeTexts(const ModelSpec& spec) {
  WholeTextFinder finder;
  VisitOperations(spec, finder);
  return finder.found;
}

std::string PurposeOf(const ModelSpec& spec) {
  if (!spec.text_vector) return "text";
  if (spec.text_vector->scores) return "scores of pairs of texts (reranking)";
  const std::string vectors =
      StrCat("vectors of texts (embeddings; pooling ", NameOf(spec.text_vector->pooling), ")");
  return spec.output ? StrCat("text, and ", vectors) : vectors;
}

std::string_view NameOf(Pooling pooling) {
  for (const Pooled& known : kPoolings) {
    if (known.pooling == pooling) return known.name;
  }
  return "";
}

std::optional<Pooling> FindPooling(std::string_view name) {
  for (const Pooled& known : kPoolings) {
    if (known.name == name) return known.pooling;
  }
  return std::nullopt;
}

StatusOr<ModelSpec> BuildModelSpec(const ModelFile& file, const SpecOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  if (!file.spec_text().empty()) {
    SpecBuilder builder(file, options, name);
    BuildFromSpecFile(file, &builder);
    builder.ReadTextVector();
    return builder.Finish();
  }
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != name) continue;
    SpecBuilder builder(file, options, name);
    architecture.build(builder);
    builder.ReadTextVector();
    return builder.Finish();
  }
  if (HeadOf(file) != nullptr) {
    return InvalidArgument(Printable(file.path(), 300),
                           ": it is a prediction head, which runs only with its model: give it as "
                           "--draft-model, and the model as --model");
  }
  if (name == "clip") {
    return InvalidArgument(Printable(file.path(), 300),
                           ": it is a projector for images (mmproj), not a model: name the model's "
                           "own file");
  }
  for (const OllamaOnly& known : kOllamaOnly) {
    if (known.architecture != name) continue;
    return Unimplemented(Printable(file.path(), 300), ": it is ", known.what, " ('", name,
                         "'), and cannot run here; for text, pull ollama:", known.instead);
  }
  return Unimplemented(Printable(file.path(), 300), ": the architecture '", Printable(name),
                       "' is not one of the ", KnownArchitectures().size(),
                       " that are supported ('weft inspect --architectures' lists them); if its "
                       "layers are made of known blocks, a spec file next to it describes them");
}

bool IsHeadFile(const ModelFile& file) { return HeadOf(file) != nullptr; }

StatusOr<ModelSpec> BuildHeadSpec(const ModelFile& file, const ModelSpec& model) {
  const HeadArchitecture* const head = HeadOf(file);
  WEFT_CHECK(head != nullptr, "the file is a head's");
  SpecBuilder builder(file, {}, head->name);
  head->build(builder, model);
  return builder.Finish();
}

}  // namespace weft
