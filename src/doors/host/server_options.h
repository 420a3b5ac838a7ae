// What the operator of `weft serve` decides by flags: a row of server_options.inc each. Values.
#ifndef WEFT_DOORS_HOST_SERVER_OPTIONS_H_
#define WEFT_DOORS_HOST_SERVER_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/options.h"

namespace weft::serve {

struct ServerOptions {
#define WEFT_SERVER_OPTION(type, member, otherwise, ...) type member = otherwise;
#include "doors/host/server_options.inc"
#undef WEFT_SERVER_OPTION
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_SERVER_OPTIONS_H_
