// Server information for clients of vLLM and SGLang: /tokenizer_info, /server_info, /model_info,
// /version, /load, and this server's own /load/history.
#ifndef WEFT_API_SERVER_INFO_H_
#define WEFT_API_SERVER_INFO_H_

#include "host/host.h"
#include "http/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterInfoApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_API_SERVER_INFO_H_
