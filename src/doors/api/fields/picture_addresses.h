// The addresses at which a request's body says pictures are.
//
// A pure function; any thread.
#ifndef WEFT_DOORS_API_FIELDS_PICTURE_ADDRESSES_H_
#define WEFT_DOORS_API_FIELDS_PICTURE_ADDRESSES_H_

#include <string>
#include <string_view>
#include <vector>

namespace weft::serve {

// Whether the text is an http or https URL.
bool IsPictureAddress(std::string_view text);

// Wherever PictureReader would look for pictures in the forms of OpenAI, Anthropic, Ollama and
// llama-server; each once, and no more of them than a request may have. None if the body is not
// JSON.
std::vector<std::string> PictureAddresses(std::string_view body);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_PICTURE_ADDRESSES_H_
