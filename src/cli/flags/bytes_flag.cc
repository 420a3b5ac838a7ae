#include "cli/flags/bytes_flag.h"

#include "base/strings.h"

namespace weft::cli {

bool ParseBytes(std::string_view text, int64_t* bytes) {
  int shift = 0;
  const size_t unit =
      text.empty() ? std::string_view::npos : std::string_view("KMGT").find(text.back());
  if (unit != std::string_view::npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    text.remove_suffix(1);
  }
  int64_t number = 0;
  if (!ParseInt64(text, &number) || number < 1 || number > (INT64_MAX >> shift)) return false;
  *bytes = number << shift;
  return true;
}

CLI::Option* AddBytesFlag(CLI::App* app, const char* name, int64_t* bytes, const char* help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, bytes](const std::string& text) {
            if (ParseBytes(text, bytes)) return;
            throw CLI::ValidationError(
                name, StrCat(Printable(text), " is not a number of bytes; write 800K, 20M or 1G"));
          },
          help)
      ->type_name("BYTES");
}

}  // namespace weft::cli
