// weft ps: the servers running on this machine.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/serve/running_servers.h"
#include "cli/terminal/full_screen.h"
#include "cli/terminal/output.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct PsFlags {
  bool json = false;
  bool watch = false;
};

std::string TimeText(int64_t seconds) {
  if (seconds < 60) return StrCat(seconds, " s");
  if (seconds < 3600) return StrCat(seconds / 60, " min");
  if (seconds < 48 * 3600) return StrCat(seconds / 3600, " h");
  return StrCat(seconds / (24 * 3600), " days");
}

int64_t UptimeSeconds(const RunningServer& server) {
  return std::max<int64_t>(0, WallClockMicros() / 1'000'000 - server.started_s);
}

void PrintJson(const std::string& folder) {
  for (const RunningServer& server : ListRunningServers(folder)) {
    nlohmann::json models = nlohmann::json::array();
    for (const RunningModel& model : server.models) {
      models.push_back({{"name", model.name},
                        {"memory_bytes", model.memory_bytes},
                        {"adapters", model.adapters},
                        {"agents", model.agents},
                        {"ready_agents", model.ready_agents}});
    }
    PrintJsonLine({{"address", server.address},
                   {"model", server.model},
                   {"sessions", server.sessions},
                   {"running", server.running},
                   {"memory_bytes", server.memory_bytes},
                   {"models", std::move(models)},
                   {"up_s", UptimeSeconds(server)},
                   {"pid", server.pid}});
  }
}

// A line for each model of a server that has several, or adapters, or agents that came back.
void AddModels(const RunningServer& server, std::vector<std::vector<std::string>>* table) {
  for (const RunningModel& model : server.models) {
    if (server.models.size() == 1 && model.adapters.empty() && model.agents == 0) continue;
    std::string name = StrCat("- ", Printable(model.name, 60));
    if (!model.adapters.empty()) {
      StrAppend(&name, " with ", Printable(StrJoin(model.adapters, ", "), 60));
    }
    if (model.agents > 0) {
      StrAppend(&name, ", ", model.ready_agents, " of ", model.agents, " agent prompts prefilled");
    }
    table->push_back({"", std::move(name), "", "",
                      HumanBytes(static_cast<uint64_t>(model.memory_bytes)), "", ""});
  }
}

std::vector<std::string> Lines(const std::string& folder) {
  std::vector<std::vector<std::string>> table = {
      {"ADDRESS", "MODEL", "SESSIONS", "RUNNING", "MEMORY", "UP", "PID"}};
  for (const RunningServer& server : ListRunningServers(folder)) {
    table.push_back({Printable(server.address, 80), Printable(server.model, 60),
                     StrCat(server.sessions), StrCat(server.running),
                     HumanBytes(static_cast<uint64_t>(server.memory_bytes)),
                     TimeText(UptimeSeconds(server)), StrCat(server.pid)});
    AddModels(server, &table);
  }
  if (table.size() == 1) return {"no server is running; 'weft serve' starts one"};
  return TableLines(table, OutputColumns());
}

Status Ps(const PsFlags& flags) {
  const std::string folder = RunningServersFolder();
  if (folder.empty()) {
    return FailedPrecondition(
        "cannot find servers: none of XDG_RUNTIME_DIR, XDG_STATE_HOME and HOME is set");
  }
  if (flags.watch && FullScreen::IsPossible()) {
    FullScreen full;
    do {
      std::vector<std::string> lines = Lines(folder);
      lines.push_back("q ends; weft top shows what a server is doing");
      full.Draw(lines);
    } while (full.Wait(1000));
    return OkStatus();
  }
  if (flags.json) {
    PrintJson(folder);
  } else {
    for (const std::string& line : Lines(folder)) PrintLine(line);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakePsCommand(CLI::App* app) {
  auto flags = std::make_shared<PsFlags>();
  auto* const json = app->add_flag("--json", flags->json, "Print one JSON object per server");
  app->add_flag("--watch", flags->watch, "Show the list anew each second, on a terminal")
      ->excludes(json);
  app->footer(
      "\nLists this user's running servers once they are ready: address, model, number of named\n"
      "sessions, running turns, memory (weights, conversations and working space), and uptime.\n"
      "If a server has several models, adapters or prompts of agents (see 'weft serve\n"
      "--warm-prompts'), a line for each loaded model follows.");
  return [flags] { return Ps(*flags); };
}

}  // namespace weft::cli
