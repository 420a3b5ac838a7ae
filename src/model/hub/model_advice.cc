#include "model/hub/model_advice.h"

#include <algorithm>
#include <string_view>

#include "base/strings.h"
#include "model/formats/sampling_advice.h"
#include "nlohmann/json.hpp"

namespace weft::hub {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxStops = 64;

void ReadStopTexts(const OrderedJson& value, SamplingAdvice* advice) {
  const OrderedJson list = value.is_array() ? value : OrderedJson::array({value});
  for (const OrderedJson& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) continue;
    if (advice->stop.size() < kMaxStops) advice->stop.push_back(stop.get<std::string>());
  }
}

// Parts of an Ollama model besides weights and parameters, and their names in the note that they
// are ignored.
struct OllamaExtra {
  std::string_view kind, text;
};
constexpr OllamaExtra kOllamaExtras[] = {{"adapter", "an adapter"},
                                         {"projector", "a projector for images"},
                                         {"system", "a system message"},
                                         {"messages", "messages to begin with"},
                                         {"template", "a template in Ollama's language"}};

void AddOllamaExtras(const LocalModel& model, const ModelFile& file, SamplingAdvice* advice) {
  const auto own = file.GetStringOr("tokenizer.chat_template", "");
  for (const OllamaExtra& extra : kOllamaExtras) {
    const auto& kinds = model.ollama_kinds;
    if (std::find(kinds.begin(), kinds.end(), extra.kind) == kinds.end()) continue;
    // The file's own template says the same.
    if (extra.kind == "template" && own.ok() && !own->empty()) continue;
    advice->left_out.emplace_back(extra.text);
  }
}

}  // namespace

SamplingAdvice ParseOllamaParameters(std::string_view text) {
  SamplingAdvice advice;
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return advice;
  for (const auto& [name, value] : json.items()) {
    if (name == "stop") {
      ReadStopTexts(value, &advice);
      continue;
    }
    const SamplingParameter* const parameter = FindSamplingParameter(name);
    if (parameter != nullptr && value.is_number() && parameter->Takes(value.get<double>())) {
      advice.*parameter->advice = value.get<double>();
    } else {
      const std::string said = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      advice.left_out.push_back(StrCat(Printable(name), " ", Printable(said)));
    }
  }
  return advice;
}

ModelAdvice AdviceOf(const LocalModel& model, const ModelFile& file,
                     std::span<const CatalogueEntry> catalogue) {
  ModelAdvice result;
  const auto add = [&](const SamplingAdvice& advice, const char* by) {
    if (!advice.empty()) result.by.push_back(by);
    result.advice.FillFrom(advice);
  };
  if (!model.parameters.empty()) add(ParseOllamaParameters(model.parameters), "ollama");
  const CatalogueEntry* const entry = FindInCatalogue(catalogue, model.name);
  if (model.owner == Owner::kWeft && entry != nullptr) add(entry->sampling, "catalogue");
  add(ReadSamplingAdvice(file), "file");
  AddOllamaExtras(model, file, &result.advice);
  return result;
}

}  // namespace weft::hub
