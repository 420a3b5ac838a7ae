#include "engine/sessions/adapter_mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/strings.h"

namespace weft {

std::string AdapterMix::Describe() const {
  std::vector<std::string> parts;
  for (const SessionHead::Adapter& adapter : saved) {
    parts.push_back(StrCat(Printable(adapter.name), " at ", adapter.scale));
  }
  return StrJoin(parts, ", ");
}

int64_t AdapterMix::InvokedAt(std::span<const TokenId> text) const {
  if (invocation.empty()) return kNotInvoked;
  const auto found = std::find_end(text.begin(), text.end(), invocation.begin(), invocation.end());
  return found == text.end() ? kNotInvoked : found - text.begin();
}

bool SameMix(const AdapterMixRef& a, const AdapterMixRef& b) {
  return a == b || (a != nullptr && b != nullptr && a->uses == b->uses);
}

std::string AdapterMixes::Names() const {
  if (known_.empty()) return "none is loaded; start with --lora NAME=FILE";
  std::vector<std::string> names;
  for (const Known& known : known_) names.push_back(Printable(known.name));
  return StrCat("there are ", StrJoin(names, ", "));
}

StatusOr<AdapterMixRef> AdapterMixes::Of(std::span<const AdapterScale> asked) const {
  std::vector<AdapterUse> uses;
  std::vector<bool> is_asked(known_.size());
  for (const AdapterScale& wish : asked) {
    const auto found = std::ranges::find(known_, wish.name, &Known::name);
    if (found == known_.end()) {
      return NotFound("there is no adapter ", Printable(wish.name), ": ", Names());
    }
    const auto index = static_cast<size_t>(found - known_.begin());
    if (is_asked[index]) return InvalidArgument("the adapter ", wish.name, " is given twice");
    if (!std::isfinite(wish.scale)) {
      return InvalidArgument("the scale of the adapter ", wish.name, " must be finite");
    }
    is_asked[index] = true;
    if (wish.scale != 0) uses.push_back({static_cast<int>(index), wish.scale});
  }
  std::ranges::sort(uses, {}, &AdapterUse::adapter);
  if (NumberWaiting(uses) > 1) {
    return InvalidArgument(
        "of adapters that wait for their invocation tokens (aLoRA), a request can use one");
  }
  return Make(std::move(uses));
}

bool AdapterMixes::Waits(const AdapterUse& use) const {
  return !known_[static_cast<size_t>(use.adapter)].invocation.empty();
}

int64_t AdapterMixes::NumberWaiting(std::span<const AdapterUse> uses) const {
  return std::ranges::count_if(uses, [this](const AdapterUse& use) { return Waits(use); });
}

StatusOr<AdapterMixRef> AdapterMixes::OfSaved(std::span<const SessionHead::Adapter> saved) const {
  std::vector<AdapterUse> uses;
  for (const SessionHead::Adapter& adapter : saved) {
    const auto is_same = [&](const Known& known) {
      return known.content == adapter.content && known.name == adapter.name;
    };
    auto found = std::ranges::find_if(known_, is_same);
    if (found == known_.end()) {
      found = std::ranges::find(known_, adapter.content, &Known::content);
    }
    if (found == known_.end()) {
      return FailedPrecondition("the session uses the adapter ", Printable(adapter.name), " (",
                                adapter.content.ToHex(),
                                "), which is not loaded; start with --lora ",
                                Printable(adapter.name), "=FILE, or delete the session");
    }
    uses.push_back({static_cast<int>(found - known_.begin()), adapter.scale});
  }
  std::ranges::sort(uses, {}, &AdapterUse::adapter);
  const auto same = [](const AdapterUse& a, const AdapterUse& b) { return a.adapter == b.adapter; };
  if (std::ranges::adjacent_find(uses, same) != uses.end() || NumberWaiting(uses) > 1) {
    return DataLoss("the session's file names adapters that cannot be used together");
  }
  return Make(std::move(uses));
}

AdapterMixRef AdapterMixes::Make(std::vector<AdapterUse> uses) const {
  if (uses.empty()) return nullptr;
  auto mix = std::make_shared<AdapterMix>();
  std::string contents = "adapters";
  for (const AdapterUse& use : uses) {
    const Known& known = known_[static_cast<size_t>(use.adapter)];
    mix->saved.push_back({known.name, known.content, use.scale});
    char scale[sizeof(use.scale)];
    std::memcpy(scale, &use.scale, sizeof(scale));
    StrAppend(&contents, known.content.ToHex(), std::string_view(scale, sizeof(scale)));
  }
  mix->key = FingerprintOf(contents);
  const auto waiting =
      std::ranges::find_if(uses, [this](const AdapterUse& use) { return Waits(use); });
  if (waiting != uses.end()) {
    mix->invocation = known_[static_cast<size_t>(waiting->adapter)].invocation;
    std::vector<AdapterUse> others = uses;
    others.erase(others.begin() + (waiting - uses.begin()));
    mix->before = Make(std::move(others));
  }
  mix->uses = std::move(uses);
  return mix;
}

}  // namespace weft
