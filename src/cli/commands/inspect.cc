// weft inspect: the contents of a model file.
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal/output.h"
#include "compute/backend.h"
#include "compute/kernels/quants/quants.h"
#include "compute/spec_tensors.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

constexpr size_t kShownItems = 6;

struct InspectFlags {
  ModelFlags model;
  bool architectures = false;
  bool json = false;
  bool tensors = false;
  std::string backend;  // empty: nobody asked how it would hold the weights
  std::string tensor;
  std::string out;
};

nlohmann::json ToJson(const MetaValue& value, size_t max_items);

nlohmann::json ArrayToJson(const MetaArray& array, size_t max_items) {
  auto list = nlohmann::json::array();
  std::visit(
      [&](const auto& items) {
        using Item = typename std::decay_t<decltype(items)>::value_type;
        for (const auto& item : items) {
          if (list.size() >= max_items) break;
          if constexpr (std::is_same_v<Item, MetaArray>) {
            list.push_back(ArrayToJson(item, max_items));
          } else {
            list.push_back(item);
          }
        }
      },
      array.items);
  return list;
}

nlohmann::json ToJson(const MetaValue& value, size_t max_items) {
  return std::visit(
      [&](const auto& v) -> nlohmann::json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, MetaArray>) {
          return ArrayToJson(v, max_items);
        } else {
          return v;
        }
      },
      value);
}

std::string ShowValue(const MetaValue& value) {
  const nlohmann::json json = ToJson(value, kShownItems);
  const auto text_of = [](const nlohmann::json& item) {
    return item.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string text = text_of(json);
  if (json.is_array()) {
    // With blanks, so that lines can end between items.
    std::vector<std::string> items;
    for (const nlohmann::json& item : json) items.push_back(text_of(item));
    text = StrCat("[", StrJoin(items, ", "), "]");
  }
  std::string shown = Printable(text, 100);
  if (const auto* array = std::get_if<MetaArray>(&value)) {
    if (array->size() > kShownItems) StrAppend(&shown, " ... ", array->size(), " in all");
  }
  return shown;
}

std::vector<int64_t> DimsOf(const TensorInfo& tensor) {
  return std::vector<int64_t>(tensor.dims, tensor.dims + tensor.n_dims);
}

// What the model is for, or why it cannot be run here.
struct Use {
  bool can_run = false;
  std::string purpose;
  bool has_head = false;  // that predicts the token behind the next
  std::string no_head;    // why the one that the file has cannot be used
};

Use UseOf(const ModelFile& file) {
  const StatusOr<ModelSpec> spec = BuildModelSpec(file, {});
  if (!spec.ok()) return {.purpose = std::string(Message(spec.status()))};
  return {.can_run = true,
          .purpose = PurposeOf(*spec),
          .has_head = spec->prediction_head != nullptr,
          .no_head = spec->no_prediction_head};
}

// The matrices of one type, and how a backend holds them.
struct HeldMatrices {
  DType type;
  bool is_stack;
  int64_t n_tensors = 0, n_weights = 0;
  HeldAs held;
};

std::vector<HeldMatrices> MatricesOn(const Backend& backend, const ModelFile& file) {
  std::map<std::pair<uint32_t, bool>, HeldMatrices> by_type;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.n_dims < 2 || !CanDequantize(tensor.type)) continue;
    const bool is_stack = tensor.n_dims > 2;
    HeldMatrices& held = by_type[{static_cast<uint32_t>(tensor.type), is_stack}];
    held.type = tensor.type;
    held.is_stack = is_stack;
    ++held.n_tensors;
    held.n_weights += tensor.values();
    held.held = backend.FormOf(tensor.type, is_stack);
  }
  std::vector<HeldMatrices> all;
  all.reserve(by_type.size());
  for (auto& [key, held] : by_type) all.push_back(std::move(held));
  return all;
}

void PrintHeld(const std::string& backend, const ModelFile& file) {
  PrintWrapped(StrCat("matrices on the ", backend, " backend"));
  for (const HeldMatrices& matrices : MatricesOn(**FindBackend(backend), file)) {
    char bits[32];
    std::snprintf(bits, sizeof(bits), "%.4g", matrices.held.bits_per_weight);
    PrintWrapped(StrCat("  ", NameOf(matrices.type), matrices.is_stack ? " stacks" : "", "  ",
                        matrices.n_tensors, " of ", matrices.n_weights, " weights, held as ",
                        matrices.held.form, ": ", bits, " bits a weight"));
  }
}

nlohmann::json HeldToJson(const std::string& backend, const ModelFile& file) {
  auto list = nlohmann::json::array();
  for (const HeldMatrices& matrices : MatricesOn(**FindBackend(backend), file)) {
    list.push_back({{"type", NameOf(matrices.type)},
                    {"stacks", matrices.is_stack},
                    {"tensors", matrices.n_tensors},
                    {"weights", matrices.n_weights},
                    {"held_as", matrices.held.form},
                    {"bits_per_weight", matrices.held.bits_per_weight}});
  }
  return list;
}

void PrintContents(const ModelFile& file, bool tensors, const std::string& backend) {
  PrintWrapped(StrCat("file      ", file.path(), " (", HumanBytes(file.file_bytes()), ", ",
                      file.version() == 0 ? "safetensors" : StrCat("GGUF v", file.version()), ")"));
  int64_t parameters = 0;
  for (const TensorInfo& tensor : file.tensors()) parameters += tensor.values();
  PrintWrapped(StrCat("tensors   ", file.tensors().size(), " (", parameters, " values)"));
  if (const std::string note = file.TranslationNote(); !note.empty()) {
    PrintWrapped(StrCat("form      ", note));
  }
  const Use use = UseOf(file);
  PrintWrapped(StrCat(use.can_run ? "for       " : "cannot be run here: ", use.purpose));
  if (use.has_head) PrintWrapped("head      predicts the token after the next (--speculate mtp)");
  if (!use.no_head.empty()) PrintWrapped(StrCat("head      cannot be used: ", use.no_head));
  if (!backend.empty()) PrintHeld(backend, file);
  PrintWrapped("metadata");
  for (const auto& [key, value] : file.metadata()) {
    PrintWrapped(StrCat("  ", Printable(key, 200), " = ", ShowValue(value)));
  }
  if (!tensors) return;
  PrintWrapped("tensors");
  for (const TensorInfo& tensor : file.tensors()) {
    PrintWrapped(StrCat("  ", Printable(tensor.name, 200), "  ", NameOf(tensor.type), "  [",
                        StrJoin(DimsOf(tensor), ", "), "]"));
  }
}

void PrintJson(const ModelFile& file, bool tensors, const std::string& backend) {
  nlohmann::json metadata = nlohmann::json::object();
  for (const auto& [key, value] : file.metadata()) {
    metadata[std::string(key)] = ToJson(value, SIZE_MAX);
  }
  nlohmann::json result = {{"path", file.path()},
                           {"version", file.version()},
                           {"file_bytes", file.file_bytes()},
                           {"metadata", std::move(metadata)}};
  if (std::string note = file.TranslationNote(); !note.empty()) result["form"] = std::move(note);
  Use use = UseOf(file);
  result[use.can_run ? "purpose" : "cannot_run"] = std::move(use.purpose);
  if (use.can_run) result["prediction_head"] = use.has_head;
  if (!use.no_head.empty()) result["no_prediction_head"] = std::move(use.no_head);
  if (!backend.empty()) result["matrices"] = HeldToJson(backend, file);
  if (tensors) {
    auto list = nlohmann::json::array();
    for (const TensorInfo& tensor : file.tensors()) {
      list.push_back({{"name", tensor.name},
                      {"type", NameOf(tensor.type)},
                      {"dims", DimsOf(tensor)},
                      {"bytes", tensor.data.size()}});
    }
    result["tensors"] = std::move(list);
  }
  PrintJsonLine(result);
}

Status WriteTensor(const ModelFile& file, const std::string& name, const std::string& out) {
  const int index = file.FindTensor(name);
  if (index < 0) return NotFound(file.path(), " has no tensor named ", Printable(name));
  const TensorInfo& tensor = file.tensors()[static_cast<size_t>(index)];
  if (!CanDequantize(tensor.type)) {
    return Unimplemented("tensor ", Printable(name), " is of type ", NameOf(tensor.type),
                         ", which cannot be decoded");
  }
  const std::vector<float> values = ValuesOf(tensor);
  WEFT_RETURN_IF_ERROR(file.CheckUnchanged());
  return WriteFile(out, std::as_bytes(std::span(values)));
}

Status ListArchitectures(bool as_json) {
  if (as_json) {
    std::printf("%s\n", nlohmann::json(KnownArchitectures()).dump().c_str());
  } else {
    for (const std::string& name : KnownArchitectures()) std::printf("%s\n", name.c_str());
  }
  return FlushStdout();
}

Status Inspect(const InspectFlags& flags) {
  if (flags.architectures) return ListArchitectures(flags.json);
  WEFT_ASSIGN_OR_RETURN(const auto file, OpenFlaggedFile(flags.model));
  if (!flags.tensor.empty()) return WriteTensor(*file, flags.tensor, flags.out);
  if (flags.json) {
    PrintJson(*file, flags.tensors, flags.backend);
  } else {
    PrintContents(*file, flags.tensors, flags.backend);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeInspectCommand(CLI::App* app) {
  auto flags = std::make_shared<InspectFlags>();
  AddModelFlag(app, &flags->model, "MODEL");
  app->add_flag("--architectures", flags->architectures,
                "List the architectures that Weft can run, as files name them");
  app->add_flag("--json", flags->json, "Print one JSON object, with complete arrays");
  app->add_flag("--tensors", flags->tensors, "Also list the tensors");
  AddBackendFlag(app, &flags->backend, "Also show how a backend stores the matrices");
  CLI::Option* const tensor =
      app->add_option("--tensor", flags->tensor, "Decode this tensor and write it to --out");
  CLI::Option* const out =
      app->add_option("--out", flags->out, "Where to write the tensor: little-endian float32");
  tensor->needs(out);
  out->needs(tensor);
  return [flags] { return Inspect(*flags); };
}

}  // namespace weft::cli
