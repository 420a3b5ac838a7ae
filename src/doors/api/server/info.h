// Server information for clients of vLLM and SGLang: /tokenizer_info, /server_info, /model_info,
// /version, /load, and this server's own /load/history.
#ifndef WEFT_DOORS_API_SERVER_INFO_H_
#define WEFT_DOORS_API_SERVER_INFO_H_

#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterInfoApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_INFO_H_
