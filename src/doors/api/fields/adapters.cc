#include "doors/api/fields/adapters.h"

#include <cmath>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxAdapterChoices = 1024;
constexpr double kMaxScale = 1e4;

Status WrongChoice(std::string_view place) {
  return Misshapen(place, StrCat("must be {\"id\": number, \"scale\": number}, with a scale from -",
                                 kMaxScale, " to ", kMaxScale));
}

}  // namespace

StatusOr<std::vector<Adapters::Choice>> ReadAdapterChoices(const ordered_json& list,
                                                           std::string_view place) {
  if (!list.is_array() || list.size() > kMaxAdapterChoices) {
    return Misshapen(place,
                     StrCat("must be an array of at most ", kMaxAdapterChoices, " adapters"));
  }
  std::vector<Adapters::Choice> choices;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = StrCat(place, "[", i, "]");
    const ordered_json &id = ValueIn(list[i], "id"), &scale = ValueIn(list[i], "scale");
    if (!id.is_number_integer() || !scale.is_number()) return WrongChoice(at);
    const double value = scale.get<double>();
    if (!std::isfinite(value) || std::abs(value) > kMaxScale) return WrongChoice(at);
    choices.push_back({id.get<int64_t>(), static_cast<float>(value)});
  }
  return choices;
}

void ReadAdapters(ApiFields* fields, const Host& host, const std::optional<std::string>& model,
                  TurnOptions* turn) {
  const auto& adapters = host.defaults().adapters;
  if (adapters == nullptr) {
    return fields->Refuse("lora", "is not supported: no adapters are loaded (--lora)",
                          ordered_json::array());
  }
  if (model) turn->adapters = adapters->InName(*model);
  const ordered_json* const list = fields->Value("lora");
  turn->adapters_are_default = turn->adapters.empty() && list == nullptr;
  if (list == nullptr) return;
  if (!turn->adapters.empty()) {
    return fields->Fail("lora", "cannot be used with a model that names an adapter");
  }
  const auto choices = ReadAdapterChoices(*list, "lora");
  if (!choices.ok()) return fields->Adopt(choices.status());
  auto chosen = adapters->Of(*choices);
  if (!chosen.ok()) return fields->Fail("lora", Message(chosen.status()));
  turn->adapters = *std::move(chosen);
}

}  // namespace weft::serve
