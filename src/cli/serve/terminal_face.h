// A server's output at a terminal: its address and model, requests in words, and below them one
// line with its current activity.
//
// One thread, except for the log's lines.
#ifndef WEFT_CLI_SERVE_TERMINAL_FACE_H_
#define WEFT_CLI_SERVE_TERMINAL_FACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/serve/server_figures.h"
#include "doors/host/host.h"

namespace weft::cli {

class TerminalFace {
 public:
  // Logs for a person from now on.
  TerminalFace();
  ~TerminalFace();  // removes the line
  TerminalFace(const TerminalFace&) = delete;
  TerminalFace& operator=(const TerminalFace&) = delete;

  struct Address {
    std::string host;  // as given by --host
    int port = 0;
  };
  // Once the host is ready. `n_keys`: 0 means that no key is needed.
  void Introduce(serve::Host& host, const Address& address, size_t n_keys);
  // Call once a second.
  void Update(const EngineStats& stats);

 private:
  std::optional<ServerFigures> before_;
  int64_t before_us_ = 0;
};

// Whether standard error is a terminal.
bool HasTerminalFace();

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_TERMINAL_FACE_H_
