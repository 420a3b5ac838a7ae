#include "cli/serve/server_flags.h"

#include <chrono>
#include <string>
#include <vector>

#include "cli/flags/bytes_flag.h"
#include "cli/flags/duration_flag.h"

namespace weft::cli {
namespace {

CLI::Option* AddValue(CLI::App* app, const ServerFlag& row, bool* value) {
  if (row.words.yes != nullptr) {
    return app
        ->add_option_function<std::string>(
            row.flag,
            [value, yes = row.words.yes](const std::string& word) { *value = word == yes; },
            row.help)
        ->check(CLI::IsMember({row.words.yes, row.words.no}))
        ->default_str(*value ? row.words.yes : row.words.no);
  }
  if (!*value) return app->add_flag(row.flag, *value, row.help);
  return app->add_flag_callback(
      row.flag, [value] { *value = false; }, row.help);
}

template <typename Integer>
CLI::Option* AddNumber(CLI::App* app, const ServerFlag& row, Integer* value) {
  return app->add_option(row.flag, *value, row.help)
      ->check(CLI::Range(static_cast<Integer>(row.min), static_cast<Integer>(row.max)));
}

CLI::Option* AddValue(CLI::App* app, const ServerFlag& row, int* value) {
  return AddNumber(app, row, value);
}

CLI::Option* AddValue(CLI::App* app, const ServerFlag& row, int64_t* value) {
  switch (row.unit) {
    case OptionUnit::kBytes:
      return AddBytesFlag(app, row.flag, value, row.help);
    case OptionUnit::kDuration:
      return AddDurationFlag(app, row.flag, value, row.help);
    case OptionUnit::kNone:
      break;
  }
  return AddNumber(app, row, value);
}

// In seconds.
CLI::Option* AddValue(CLI::App* app, const ServerFlag& row, std::chrono::milliseconds* value) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*value).count();
  return app
      ->add_option_function<int>(
          row.flag, [value](int given) { *value = std::chrono::seconds(given); }, row.help)
      ->check(CLI::Range(static_cast<int>(row.min), static_cast<int>(row.max)))
      ->default_str(std::to_string(seconds));
}

CLI::Option* AddValue(CLI::App* app, const ServerFlag& row, std::string* value) {
  CLI::Option* const option = app->add_option(row.flag, *value, row.help);
  if (row.is_folder) option->check(CLI::ExistingDirectory);
  return option;
}

CLI::Option* AddValue(CLI::App* app, const ServerFlag& row, std::vector<std::string>* value) {
  CLI::Option* const option = app->add_option(row.flag, *value, row.help);
  if (row.delimiter != 0) option->delimiter(row.delimiter);
  return option;
}

template <typename Value>
void AddServerFlag(CLI::App* app, const ServerFlag& row, Value* value) {
  CLI::Option* const option = AddValue(app, row, value);
  if (row.shows_default && option->get_default_str().empty()) option->capture_default_str();
  if (row.type_name != nullptr) option->type_name(row.type_name);
  if (row.needs != nullptr) option->needs(app->get_option(row.needs));
  if (row.excludes != nullptr) option->excludes(app->get_option(row.excludes));
}

}  // namespace

void AddServerFlags(CLI::App* app, serve::ServerOptions* options) {
#define WEFT_SERVER_OPTION(type, member, otherwise, flag_, help_, ...) \
  AddServerFlag(app, {.flag = flag_, .help = help_, __VA_ARGS__}, &options->member);
#include "doors/host/server_options.inc"
#undef WEFT_SERVER_OPTION
}

}  // namespace weft::cli
