// An HTTP server's current load: written by the server, read by anyone. Any thread.
#ifndef WEFT_DOORS_HTTP_LOAD_H_
#define WEFT_DOORS_HTTP_LOAD_H_

#include <atomic>
#include <cstdint>

namespace weft::serve {

struct HttpLoad {
  std::atomic<int64_t> connections{0};  // open connections
  std::atomic<int64_t> waiting{0};      // requests waiting for a thread
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_LOAD_H_
