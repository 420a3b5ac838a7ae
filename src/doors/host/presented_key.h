// The API key presented by a request, through any front end. A pure function; any thread.
#ifndef WEFT_DOORS_HOST_PRESENTED_KEY_H_
#define WEFT_DOORS_HOST_PRESENTED_KEY_H_

#include <string_view>

namespace weft::serve {

// The key in "Bearer KEY" (the word in any case, white space ignored), otherwise `x_api_key`. Each
// argument is empty if the client does not send that header.
std::string_view ApiKeyOf(std::string_view authorization, std::string_view x_api_key);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_PRESENTED_KEY_H_
