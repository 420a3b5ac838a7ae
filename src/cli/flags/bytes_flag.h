// Byte counts on a command line: "800M", "16G".
#ifndef WEFT_CLI_FLAGS_BYTES_FLAG_H_
#define WEFT_CLI_FLAGS_BYTES_FLAG_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::cli {

// At least 1; K, M, G and T are powers of 1024. False for an invalid number.
bool ParseBytes(std::string_view text, int64_t* bytes);

// Adds an option with such a value.
CLI::Option* AddBytesFlag(CLI::App* app, const char* name, int64_t* bytes, const char* help);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_BYTES_FLAG_H_
