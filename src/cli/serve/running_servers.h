// The servers that run on this machine, of one user: each has an entry in a folder, and weft ps
// lists them.
//
//   $XDG_RUNTIME_DIR/weft, else $XDG_STATE_HOME/weft/run, else ~/.local/state/weft/run
//     PID-TIME.lock   held as long as the server lives, however it ends
//     PID-TIME.json   what it says of itself
//
// An entry whose lock is free is one of a server that was killed: whoever lists removes it.
#ifndef WEFT_CLI_SERVE_RUNNING_SERVERS_H_
#define WEFT_CLI_SERVE_RUNNING_SERVERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace weft::cli {

struct RunningServer {
  int64_t pid = 0;
  std::string address;  // "http://127.0.0.1:8080"
  std::string model;
  int64_t started_s = 0;  // seconds since 1970
  int64_t sessions = 0;   // kept by name
  int64_t running = 0;    // turns
  int64_t memory_bytes = 0;

  bool operator==(const RunningServer&) const = default;
};

// Where the entries are; empty where this user has no place for them.
std::string RunningServersFolder();

// A server's own entry, gone with this object. One thread.
class ServerEntry {
 public:
  // With what is known of the server so far.
  static StatusOr<std::unique_ptr<ServerEntry>> Make(const std::string& folder,
                                                     const RunningServer& server);
  ~ServerEntry();

  // Written where it differs from what was said last.
  void Update(const RunningServer& server);

 private:
  ServerEntry(std::string stem, FileDescriptor lock)
      : stem_(std::move(stem)), lock_(std::move(lock)) {}
  Status Write(const RunningServer& server);

  const std::string stem_;  // the entry's path without ".json"
  const FileDescriptor lock_;
  RunningServer said_;
};

// Those that live, the oldest first. Entries of others are removed.
std::vector<RunningServer> ListRunningServers(const std::string& folder);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_RUNNING_SERVERS_H_
