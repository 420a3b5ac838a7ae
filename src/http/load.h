// How busy an HTTP server is at this moment: written by the server, read by whoever wants to
// know. Any thread.
#ifndef WEFT_HTTP_LOAD_H_
#define WEFT_HTTP_LOAD_H_

#include <atomic>
#include <cstdint>

namespace weft::serve {

struct HttpLoad {
  std::atomic<int64_t> connections{0};  // open
  std::atomic<int64_t> waiting{0};      // requests that wait for a thread
};

}  // namespace weft::serve

#endif  // WEFT_HTTP_LOAD_H_
