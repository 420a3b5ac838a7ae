// --lora: the adapters of a model.
#ifndef WEFT_CLI_FLAGS_ADAPTER_FLAGS_H_
#define WEFT_CLI_FLAGS_ADAPTER_FLAGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/flags/model_flags.h"
#include "doors/host/adapters.h"
#include "weft/options.h"

namespace weft::cli {

// Reads NAME=FILE[:SCALE]. INVALID_ARGUMENT if the text has another form.
StatusOr<AdapterFlag> ParseAdapterFlag(std::string_view text);

// `meaning`: what SCALE does.
void AddAdapterFlags(CLI::App* app, ModelFlags* flags, const std::string& meaning);

// What a command with one conversation uses: all of them, at 1 or as the flags say.
std::vector<AdapterScale> AdaptersInUse(const ModelFlags& flags);
// "law at 1, rhyme at 0.5", equal for equal ones in any order.
std::string DescribeAdapters(std::vector<AdapterScale> adapters);
// What a server offers: requests choose, and get without a choice those whose flags give a scale.
// Null: none.
std::shared_ptr<serve::Adapters> OfferedAdapters(const ModelFlags& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_ADAPTER_FLAGS_H_
