#include "cli/serve/announcement.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "answer/agent_prompts.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/serve/server_figures.h"
#include "doors/http/guard.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::cli {

std::string HttpAddress(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != host.npos;
  return StrCat("http://", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", port);
}

void LogSampling(const SamplingAdvice& flags, const FlaggedModel& model) {
  LogLine(StrCat("default sampling: ", DescribeSampling(flags, model.advice, model.advice_by)));
  if (model.advice.left_out.empty()) return;
  LogLine(StrCat("the model also recommends ", Printable(StrJoin(model.advice.left_out, ", "), 300),
                 ", which is not supported"));
}

void WarnWhenOpenToAll(const ServeFlags& flags) {
  if (serve::IsLoopbackHost(flags.server.host) || !flags.server.api_key_file.empty()) return;
  LogLine(StrCat("without --api-key-file, anyone who can reach ", Printable(flags.server.host, 100),
                 " has access"));
}

void AddModel(const std::string& name, serve::Host& host, RunningServer* server) {
  const EngineStats stats = host.engine().Stats();
  const ServerFigures figures = FiguresOf(stats);
  server->sessions += stats.sessions_ready + stats.sessions_running + stats.sessions_parked +
                      stats.sessions_poisoned;
  server->running += stats.turns_running;
  RunningModel& model = server->models.emplace_back();
  model.name = name;
  model.memory_bytes = figures.weight_bytes + figures.state_bytes + figures.other_bytes;
  server->memory_bytes += model.memory_bytes;
  if (const auto& agents = host.answerer().parts().agents; agents != nullptr) {
    const auto counts = agents->counts();
    model.agents = counts.known;
    model.ready_agents = counts.ready;
  }
  const auto& adapters = host.defaults().adapters;
  if (adapters == nullptr) return;
  for (const auto& adapter : adapters->List()) model.adapters.push_back(adapter.name);
}

Announcement::Announcement(serve::Host& host, const std::string& address)
    : Announcement(address, host.created_s(), [&host](RunningServer* server) {
        server->model = host.model_id();
        AddModel(host.model_id(), host, server);
      }) {}

Announcement::Announcement(const std::string& address, int64_t started_s, Look look)
    : look_(std::move(look)),
      known_{.pid = getpid(), .address = address, .model = "", .started_s = started_s} {
  std::fprintf(stderr, "listening on %s\n", address.c_str());
  const std::string folder = RunningServersFolder();
  if (folder.empty()) return;
  auto entry = ServerEntry::Make(folder, Now());
  if (entry.ok()) {
    entry_ = *std::move(entry);
  } else {
    LogLine(StrCat("'weft ps' will not list this server: ", Message(entry.status())));
  }
}

void Announcement::Update() {
  if (entry_ != nullptr) entry_->Update(Now());
}

RunningServer Announcement::Now() const {
  RunningServer server = known_;
  look_(&server);
  return server;
}

}  // namespace weft::cli
