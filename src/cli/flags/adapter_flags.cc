#include "cli/flags/adapter_flags.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/strings.h"

namespace weft::cli {
namespace {

// A scale after the last colon; the file's name may have colons itself.
std::optional<float> TakeScale(std::string_view* file) {
  const size_t colon = file->rfind(':');
  if (colon == file->npos) return std::nullopt;
  const std::string_view text = file->substr(colon + 1);
  double scale = 0;
  if (!ParseDouble(text, &scale) || !std::isfinite(scale)) return std::nullopt;
  *file = file->substr(0, colon);
  return static_cast<float>(scale);
}

}  // namespace

StatusOr<AdapterFlag> ParseAdapterFlag(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == text.npos || name.empty() || name.find(':') != name.npos) {
    return InvalidArgument("write NAME=FILE or NAME=FILE:SCALE, with a name without colons, not ",
                           Printable(text, 200));
  }
  std::string_view file = text.substr(equals + 1);
  AdapterFlag flag{.name = std::string(name)};
  flag.scale = TakeScale(&file);
  flag.path = std::string(file);
  std::error_code error;
  if (!std::filesystem::is_regular_file(flag.path, error)) {
    return InvalidArgument("there is no file ", Printable(flag.path, 300));
  }
  return flag;
}

void AddAdapterFlags(CLI::App* app, ModelFlags* flags, const std::string& meaning) {
  const auto set = [flags](const std::vector<std::string>& texts) {
    flags->adapters.clear();
    for (const std::string& text : texts) {
      auto flag = ParseAdapterFlag(text);
      if (!flag.ok()) throw CLI::ValidationError("--lora", std::string(Message(flag.status())));
      flags->adapters.push_back(*std::move(flag));
    }
  };
  app->add_option_function<std::vector<std::string>>(
         "--lora", set,
         StrCat("A LoRA adapter of the model in GGUF form, as NAME=FILE or NAME=FILE:SCALE",
                meaning, "; may be repeated"))
      ->type_name("NAME=FILE[:SCALE]")
      ->allow_extra_args(false);
}

std::vector<AdapterScale> AdaptersInUse(const ModelFlags& flags) {
  std::vector<AdapterScale> scales;
  for (const AdapterFlag& flag : flags.adapters) {
    scales.push_back({flag.name, flag.scale.value_or(1)});
  }
  return scales;
}

std::string DescribeAdapters(std::vector<AdapterScale> adapters) {
  std::ranges::sort(adapters, {}, &AdapterScale::name);
  std::vector<std::string> parts;
  for (const AdapterScale& adapter : adapters) {
    if (adapter.scale == 0) continue;
    parts.push_back(StrCat(Printable(adapter.name, 100), " at ", adapter.scale));
  }
  return parts.empty() ? "no adapter" : StrJoin(parts, ", ");
}

std::shared_ptr<serve::Adapters> OfferedAdapters(const ModelFlags& flags) {
  if (flags.adapters.empty()) return nullptr;
  std::vector<serve::Adapters::Adapter> adapters;
  for (const AdapterFlag& flag : flags.adapters) {
    adapters.push_back({.name = flag.name,
                        .file_name = std::filesystem::path(flag.path).filename().string(),
                        .own_scale = flag.scale.value_or(1),
                        .scale = flag.scale.value_or(0)});
  }
  return std::make_shared<serve::Adapters>(std::move(adapters));
}

}  // namespace weft::cli
