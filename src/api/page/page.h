// The page for people at /: the files that web/ builds, embedded in the binary.
//
// They are the same for everybody and hold no secret, so they need no API key: what the
// page asks the APIs for carries the one that its user entered. Any thread.
#ifndef WEFT_API_PAGE_PAGE_H_
#define WEFT_API_PAGE_PAGE_H_

#include "http/router.h"

namespace weft::serve {

// GET / and /page/{file}. Whoever asks at / as clients of Ollama do is answered as one.
void RegisterPage(Router& router);

}  // namespace weft::serve

#endif  // WEFT_API_PAGE_PAGE_H_
