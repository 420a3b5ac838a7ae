// Announces that a server is ready, its address and its sampling: on stderr, and to weft ps.
//
// One thread.
#ifndef WEFT_CLI_SERVE_ANNOUNCEMENT_H_
#define WEFT_CLI_SERVE_ANNOUNCEMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/flags/model_flags.h"
#include "cli/serve/running_servers.h"
#include "cli/serve/serve_flags.h"
#include "doors/host/host.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::cli {

std::string HttpAddress(const std::string& host, int port);

// Logs the sampling defaults and their origin.
void LogSampling(const SamplingAdvice& flags, const FlaggedModel& model);

// Says in the log who has access, if --host lets others in and no key keeps them out.
void WarnWhenOpenToAll(const ServeFlags& flags);

// Adds a loaded model to those of a server, and its figures to the server's.
void AddModel(const std::string& name, serve::Host& host, RunningServer* server);

// Announces a listening server once nothing can fail any more: the line on stderr that scripts wait
// for, and the entry in weft ps while this object lives.
class Announcement {
 public:
  // Fills in what changes: figures, and the names of models.
  using Look = std::function<void(RunningServer*)>;

  Announcement(const std::string& address, int64_t started_s, Look look);
  // REQUIRES: `host` is ready, and outlives this.
  Announcement(serve::Host& host, const std::string& address);

  // Updates the entry's figures. Call from time to time.
  void Update();

 private:
  RunningServer Now() const;

  const Look look_;
  const RunningServer known_;           // the constant parts
  std::unique_ptr<ServerEntry> entry_;  // null if there is no place for it
};

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_ANNOUNCEMENT_H_
