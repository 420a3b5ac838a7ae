// The current user's running servers on this machine: each has an entry in a directory, and weft ps
// lists them.
//
//   $XDG_RUNTIME_DIR/weft, else $XDG_STATE_HOME/weft/run, else ~/.local/state/weft/run
//     PID-TIME.lock   held as long as the server lives, however it ends
//     PID-TIME.json   the server's description of itself
//
// An entry whose lock is free belongs to a killed server: listing removes it.
#ifndef WEFT_CLI_SERVE_RUNNING_SERVERS_H_
#define WEFT_CLI_SERVE_RUNNING_SERVERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/status.h"

namespace weft::cli {

// A model that a server has in memory.
struct RunningModel {
  std::string name;
  int64_t memory_bytes = 0;
  std::vector<std::string> adapters = {};
  // Prompts of agents: how many come back, and how many of these are computed.
  int64_t agents = 0, ready_agents = 0;

  bool operator==(const RunningModel&) const = default;
};

struct RunningServer {
  int64_t pid = 0;
  std::string address;  // "http://127.0.0.1:8080"
  std::string model;
  int64_t started_s = 0;  // seconds since 1970
  int64_t sessions = 0;   // named sessions
  int64_t running = 0;    // turns
  int64_t memory_bytes = 0;
  std::vector<RunningModel> models = {};  // that are loaded

  bool operator==(const RunningServer&) const = default;
};

// The directory of the entries; empty if this user has no place for them.
std::string RunningServersFolder();

// A server's own entry, removed with this object. One thread.
class ServerEntry {
 public:
  // Creates the entry with the data known so far.
  static StatusOr<std::unique_ptr<ServerEntry>> Make(const std::string& folder,
                                                     const RunningServer& server);
  ~ServerEntry();

  // Writes the entry if it has changed.
  void Update(const RunningServer& server);

 private:
  ServerEntry(std::string stem, FileDescriptor lock)
      : stem_(std::move(stem)), lock_(std::move(lock)) {}
  Status Write(const RunningServer& server);

  const std::string stem_;  // the entry's path without ".json"
  const FileDescriptor lock_;
  RunningServer said_;
};

// The running servers, oldest first. Removes entries of dead ones.
std::vector<RunningServer> ListRunningServers(const std::string& folder);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_RUNNING_SERVERS_H_
