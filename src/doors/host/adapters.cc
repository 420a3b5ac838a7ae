#include "doors/host/adapters.h"

#include <set>

#include "base/strings.h"

namespace weft::serve {

std::string_view BaseOfName(std::string_view model) { return model.substr(0, model.rfind(':')); }

std::vector<Adapters::Adapter> Adapters::List() const {
  MutexLock lock(&mutex_);
  return adapters_;
}

std::vector<AdapterScale> Adapters::Defaults() const {
  MutexLock lock(&mutex_);
  std::vector<AdapterScale> scales;
  for (const Adapter& adapter : adapters_) {
    if (adapter.scale != 0) scales.push_back({adapter.name, adapter.scale});
  }
  return scales;
}

Status Adapters::Check(std::span<const Choice> choices) const {
  std::set<int64_t> seen;
  for (const Choice& choice : choices) {
    if (choice.number < 0 || choice.number >= std::ssize(adapters_)) {
      return InvalidArgument("there is no adapter ", choice.number, "; GET /lora-adapters lists ",
                             adapters_.size());
    }
    if (!seen.insert(choice.number).second) {
      return InvalidArgument("the adapter ", choice.number, " is given twice");
    }
  }
  return OkStatus();
}

Status Adapters::SetDefaults(std::span<const Choice> choices) {
  MutexLock lock(&mutex_);
  WEFT_RETURN_IF_ERROR(Check(choices));
  for (Adapter& adapter : adapters_) adapter.scale = 0;
  for (const Choice& choice : choices) {
    adapters_[static_cast<size_t>(choice.number)].scale = choice.scale;
  }
  return OkStatus();
}

StatusOr<std::vector<AdapterScale>> Adapters::Of(std::span<const Choice> choices) const {
  MutexLock lock(&mutex_);
  WEFT_RETURN_IF_ERROR(Check(choices));
  std::vector<AdapterScale> scales;
  for (const Choice& choice : choices) {
    scales.push_back({adapters_[static_cast<size_t>(choice.number)].name, choice.scale});
  }
  return scales;
}

std::vector<AdapterScale> Adapters::InName(std::string_view model) const {
  const size_t colon = model.rfind(':');
  const std::string_view name = colon == model.npos ? model : model.substr(colon + 1);
  MutexLock lock(&mutex_);
  for (const Adapter& adapter : adapters_) {
    if (adapter.name == name) return {{adapter.name, adapter.own_scale}};
  }
  return {};
}

}  // namespace weft::serve
