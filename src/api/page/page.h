// The web page at /: the files built in web/, embedded in the binary.
//
// They are the same for everybody and contain no secrets, so they need no API key: the page's own
// API requests carry the key that the user entered. Any thread.
#ifndef WEFT_API_PAGE_PAGE_H_
#define WEFT_API_PAGE_PAGE_H_

#include "http/router.h"

namespace weft::serve {

// GET / and /page/{file}. Requests to / from Ollama's clients get Ollama's answer.
void RegisterPage(Router& router);

}  // namespace weft::serve

#endif  // WEFT_API_PAGE_PAGE_H_
