// Any text as the file of --models: refused with one line that names a line of it, or models that
// have names of their own and values with keys.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cli/serve/models_file.h"

namespace {

void Require(bool holds, const char* what) { WEFT_CHECK(holds, what); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tables = weft::cli::ParseModelsFile(text);
  if (!tables.ok()) {
    const std::string_view message = weft::Message(tables.status());
    Require(message.find('\n') == message.npos && message.size() < 2000, "not one line");
    Require(message.find("line ") != message.npos, "no line is named");
    return 0;
  }
  std::set<std::string> names;
  for (const weft::cli::ModelTable& table : *tables) {
    Require(!table.name.empty() && names.insert(table.name).second, "a name is missing or twice");
    int line = table.line;
    for (const auto& value : table.values) {
      Require(!value.key.empty(), "a key is missing");
      Require(value.is_array || value.items.size() == 1, "a value is not one");
      Require(value.line > line, "lines go back");
      line = value.line;
    }
  }
  return 0;
}
