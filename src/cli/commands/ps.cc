// weft ps: the servers running on this machine.
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/serve/running_servers.h"
#include "cli/terminal/output.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct PsFlags {
  bool json = false;
};

std::string TimeText(int64_t seconds) {
  if (seconds < 60) return StrCat(seconds, " s");
  if (seconds < 3600) return StrCat(seconds / 60, " min");
  if (seconds < 48 * 3600) return StrCat(seconds / 3600, " h");
  return StrCat(seconds / (24 * 3600), " days");
}

Status Ps(const PsFlags& flags) {
  const std::string folder = RunningServersFolder();
  if (folder.empty()) {
    return FailedPrecondition(
        "cannot find servers: none of XDG_RUNTIME_DIR, XDG_STATE_HOME and HOME is set");
  }
  const int64_t now_s = WallClockMicros() / 1'000'000;
  std::vector<std::vector<std::string>> lines = {
      {"ADDRESS", "MODEL", "SESSIONS", "RUNNING", "MEMORY", "UP", "PID"}};
  for (const RunningServer& server : ListRunningServers(folder)) {
    const int64_t up_s = std::max<int64_t>(0, now_s - server.started_s);
    if (flags.json) {
      PrintJsonLine({{"address", server.address},
                     {"model", server.model},
                     {"sessions", server.sessions},
                     {"running", server.running},
                     {"memory_bytes", server.memory_bytes},
                     {"up_s", up_s},
                     {"pid", server.pid}});
      continue;
    }
    lines.push_back({Printable(server.address, 80), Printable(server.model, 60),
                     StrCat(server.sessions), StrCat(server.running),
                     HumanBytes(static_cast<uint64_t>(server.memory_bytes)), TimeText(up_s),
                     StrCat(server.pid)});
  }
  if (!flags.json) {
    if (lines.size() > 1) {
      PrintTable(lines);
    } else {
      PrintLine("no server is running; 'weft serve' starts one");
    }
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakePsCommand(CLI::App* app) {
  auto flags = std::make_shared<PsFlags>();
  app->add_flag("--json", flags->json, "Print one JSON object per server");
  app->footer(
      "\nLists this user's running servers once they are ready: address, model, number of named\n"
      "sessions, running turns, memory of the process, and uptime.");
  return [flags] { return Ps(*flags); };
}

}  // namespace weft::cli
