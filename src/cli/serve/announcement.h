// Telling that a server is ready, where it is, and how it samples: on stderr, and to weft ps.
//
// One thread.
#ifndef WEFT_CLI_SERVE_ANNOUNCEMENT_H_
#define WEFT_CLI_SERVE_ANNOUNCEMENT_H_

#include <memory>
#include <string>

#include "cli/flags/model_flags.h"
#include "cli/serve/running_servers.h"
#include "formats/sampling_advice.h"
#include "host/host.h"

namespace weft::cli {

std::string HttpAddress(const std::string& host, int port);

// How tokens are chosen where a request does not say, and who says so.
void LogSampling(const SamplingAdvice& flags, const FlaggedModel& model);

// That a server listens, from when nothing can fail any more: the line on stderr that others wait
// for, and the entry of weft ps, for as long as this lives.
class Announcement {
 public:
  // REQUIRES: `host` is ready, and outlives this.
  Announcement(serve::Host& host, const std::string& address);

  // The entry's figures. To be called now and then.
  void Update();

 private:
  RunningServer Now() const;

  serve::Host& host_;
  RunningServer known_;                 // what does not change
  std::unique_ptr<ServerEntry> entry_;  // null where there is no place for it
};

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_ANNOUNCEMENT_H_
