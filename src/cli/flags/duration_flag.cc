#include "cli/flags/duration_flag.h"

#include <map>

namespace weft::cli {

CLI::Option* AddDurationFlag(CLI::App* app, const std::string& name, int64_t* seconds,
                             const std::string& help) {
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  constexpr int64_t kMax = 100 * 365 * kDay;
  const std::map<std::string, int64_t> units = {
      {"s", 1}, {"m", kMinute}, {"h", kHour}, {"d", kDay}};
  return app->add_option(name, *seconds, help)
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "DURATION"))
      ->check(CLI::Range(int64_t{1}, kMax));
}

}  // namespace weft::cli
