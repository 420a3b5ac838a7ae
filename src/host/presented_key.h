// The API key that a request shows, whichever way it came in. A pure function; any thread.
#ifndef WEFT_HOST_PRESENTED_KEY_H_
#define WEFT_HOST_PRESENTED_KEY_H_

#include <string_view>

namespace weft::serve {

// That of "Bearer KEY", the word in any case and white space around the key left out; else
// `x_api_key`. Both are empty where the client sends no such header.
std::string_view ApiKeyOf(std::string_view authorization, std::string_view x_api_key);

}  // namespace weft::serve

#endif  // WEFT_HOST_PRESENTED_KEY_H_
