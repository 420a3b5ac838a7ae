// Finds the running server that an agent is for, and asks it for what the agent must know.
//
// Blocks; any thread.
#ifndef WEFT_CLI_LAUNCH_SERVER_H_
#define WEFT_CLI_LAUNCH_SERVER_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/launch/plan.h"
#include "cli/serve/running_servers.h"

namespace weft::cli {

// An address as agents need it: without a path or a slash at its end, and one that can be connected
// to if the server listens on all.
std::string ReachableAddress(std::string address);

// The address of the only running server; an error names them if there are several.
StatusOr<std::string> OnlyServer(const std::vector<RunningServer>& servers);

// Waits while the server loads its model.
StatusOr<ServerFacts> AskServer(const std::string& address, const std::string& key);

}  // namespace weft::cli

#endif  // WEFT_CLI_LAUNCH_SERVER_H_
