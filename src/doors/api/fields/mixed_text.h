// llama-server's form of a text: a string, or strings and token ids one after the other.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_MIXED_TEXT_H_
#define WEFT_DOORS_API_FIELDS_MIXED_TEXT_H_

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace weft::serve {

// Converts text to tokens; `at_start`: nothing precedes it.
using TextEncoder = std::function<std::vector<int32_t>(std::string_view text, bool at_start)>;

// A text, or an array that mixes texts and token ids. False for anything else.
bool ReadMixedText(const nlohmann::ordered_json& value, int64_t n_vocab, const TextEncoder& encode,
                   std::vector<int32_t>* tokens);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_MIXED_TEXT_H_
