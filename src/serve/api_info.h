// What a server tells of itself to the clients of vLLM and SGLang: /tokenizer_info,
// /server_info, /model_info, /version, /load.
#ifndef WEFT_SERVE_API_INFO_H_
#define WEFT_SERVE_API_INFO_H_

#include "serve/host.h"
#include "serve/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterInfoApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_INFO_H_
