// weft launch: a coding agent, set up for a running server or for one that ends with it.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/launch/agents.h"
#include "cli/launch/plan.h"
#include "cli/launch/server.h"
#include "cli/launch/settings_writer.h"
#include "cli/launch/supervisor.h"
#include "cli/serve/running_servers.h"
#include "cli/terminal/output.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// What a shell says too.
constexpr int kNotFoundCode = 127;

struct LaunchFlags {
  std::string agent;  // empty: list them
  std::string server;
  std::string api_key;
  bool print = false;
  bool write = false;
  bool json = false;
  ModelFlags model;
  std::string state_dir;
  std::string log;
  std::vector<const CLI::Option*> for_serve;  // the options that a started server gets
};

// The options among `flags.for_serve` that were given, as arguments.
std::vector<std::string> ServeArguments(const LaunchFlags& flags) {
  std::vector<std::string> all;
  for (const CLI::Option* option : flags.for_serve) {
    if (option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (option->get_items_expected_max() == 0) {
      all.push_back(name);
      continue;
    }
    for (const std::string& value : option->results()) all.push_back(StrCat(name, "=", value));
  }
  return all;
}

Status CheckFlags(const LaunchFlags& flags) {
  const bool starts = !flags.model.path.empty();
  const std::vector<std::string> serve_arguments = ServeArguments(flags);
  if (!starts && (!serve_arguments.empty() || !flags.log.empty())) {
    const std::string name = serve_arguments.empty() ? "--log" : serve_arguments[0];
    return InvalidArgument(Printable(name.substr(0, name.find('=')), 100),
                           " needs a server to start: name its model with -m");
  }
  if (starts && !flags.server.empty()) {
    return InvalidArgument("--server uses a running server, -m starts one: give one of them");
  }
  if (starts && (flags.print || flags.write)) {
    return InvalidArgument(flags.print ? "--print" : "--write",
                           " needs a running server, which knows the context: start it with 'weft "
                           "serve -m MODEL'");
  }
  if (flags.json && !flags.agent.empty() && !flags.print && !flags.write) {
    return InvalidArgument("--json needs --print or --write: what an agent prints is its own");
  }
  return OkStatus();
}

Status ListAgents(const LaunchFlags& flags) {
  std::vector<std::vector<std::string>> lines = {{"AGENT", "NAME", "PROGRAM"}};
  for (const Agent& agent : Agents()) {
    const std::string program = FindProgram(agent.program);
    if (flags.json) {
      PrintJsonLine(
          {{"agent", agent.name},
           {"name", agent.title},
           {"program", program.empty() ? nlohmann::json(nullptr) : nlohmann::json(program)},
           {"install", agent.install}});
    }
    lines.push_back(
        {agent.name, agent.title,
         program.empty() ? StrCat("not installed: ", agent.install) : Printable(program, 200)});
  }
  if (!flags.json) PrintTable(lines);
  return FlushStdout();
}

Status WriteAgent(const LaunchFlags& flags, const Agent& agent, const ServerFacts& server) {
  umask(077);  // a key may be among the settings
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> done,
      WriteSettings(MakeSettings(
          agent, server, [](const char* name) -> const char* { return std::getenv(name); })));
  const std::string start = WithFacts(agent.start, agent, server);
  if (flags.json) {
    PrintJsonLine({{"agent", agent.name}, {"done", done}, {"start", start}});
  } else {
    for (const std::string& line : done) PrintLine(line);
    PrintLine(StrCat("start it with: ", Printable(start, 300)));
  }
  return FlushStdout();
}

Status PrintAgent(const LaunchFlags& flags, const Agent& agent, const ServerFacts& server) {
  if (flags.json) {
    PrintJsonLine(
        PlanJson(agent, server, MakePlan(agent, server, "$dir", TheInvocation().passed_on)));
  } else {
    PrintText(ShellText(agent, server, TheInvocation().passed_on));
  }
  return FlushStdout();
}

// A folder for the agent's files, removed with this object.
class Folder {
 public:
  static StatusOr<std::unique_ptr<Folder>> Make() {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "weft-launch-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return ErrnoStatus(errno, "cannot make a temporary folder");
    }
    return std::unique_ptr<Folder>(new Folder(std::move(path)));
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

void TellStart(const Agent& agent, const ServerFacts& server) {
  if (server.context_tokens < agent.opening_tokens) {
    std::fprintf(
        stderr,
        "weft: %s opens with about %lld tokens, and the server's context is %lld: a larger "
        "--ctx or fewer tools may be needed\n",
        agent.title, static_cast<long long>(agent.opening_tokens),
        static_cast<long long>(server.context_tokens));
  }
  if (isatty(STDERR_FILENO) != 1) return;
  std::fprintf(stderr, "%s with %s at %s: context of %lld tokens, answers of up to %lld\n",
               agent.title, Printable(server.model, 100).c_str(), server.url.c_str(),
               static_cast<long long>(server.context_tokens),
               static_cast<long long>(MaxOutputTokens(server.context_tokens)));
}

// The facts of the started server at `address` or, if that is empty, of the running one.
StatusOr<ServerFacts> AskAt(std::string address, const LaunchFlags& flags) {
  if (address.empty()) address = flags.server;
  if (address.empty()) {
    WEFT_ASSIGN_OR_RETURN(address, OnlyServer(ListRunningServers(RunningServersFolder())));
  }
  return AskServer(ReachableAddress(std::move(address)), flags.api_key);
}

StatusOr<std::string> StartServer(const LaunchFlags& flags, Supervisor* supervisor) {
  const std::string weft = FindProgram(TheInvocation().program);
  if (weft.empty()) return NotFound("cannot find the program weft, which would start the server");
  std::vector<std::string> arguments = {"serve", "--port=0"};
  for (std::string& argument : ServeArguments(flags)) arguments.push_back(std::move(argument));
  return supervisor->StartServer(weft, arguments, flags.log);
}

Status RunAgent(const LaunchFlags& flags, const Agent& agent) {
  const std::string program = FindProgram(agent.program);
  if (program.empty()) {
    return WithExitCode(NotFound(agent.title, " is not installed, or '", agent.program,
                                 "' is not on PATH: ", agent.install),
                        kNotFoundCode);
  }
  // The supervisor keeps signals from ending this program, which would leave the server behind.
  // While a running server loads its model they may.
  std::unique_ptr<Supervisor> supervisor;
  std::string address;
  if (!flags.model.path.empty()) {
    WEFT_ASSIGN_OR_RETURN(supervisor, Supervisor::Create());
    WEFT_ASSIGN_OR_RETURN(address, StartServer(flags, supervisor.get()));
  }
  WEFT_ASSIGN_OR_RETURN(const ServerFacts server, AskAt(address, flags));
  if (supervisor == nullptr) {
    WEFT_ASSIGN_OR_RETURN(supervisor, Supervisor::Create());
  }
  TellStart(agent, server);
  WEFT_ASSIGN_OR_RETURN(const auto folder, Folder::Make());
  const LaunchPlan plan = MakePlan(agent, server, folder->path(), TheInvocation().passed_on);
  for (const auto& [name, content] : plan.files) {
    WEFT_RETURN_IF_ERROR(
        WriteFile(StrCat(folder->path(), "/", name), std::as_bytes(std::span(content))));
  }
  WEFT_ASSIGN_OR_RETURN(const int code, supervisor->RunAgent(program, plan));
  return code == 0 ? OkStatus() : SilentExit(code);
}

Status Launch(const LaunchFlags& flags) {
  WEFT_RETURN_IF_ERROR(CheckFlags(flags));
  if (flags.agent.empty()) return ListAgents(flags);
  const Agent& agent = *FindAgent(flags.agent);
  if (!flags.print && !flags.write) return RunAgent(flags, agent);
  WEFT_ASSIGN_OR_RETURN(const ServerFacts server, AskAt("", flags));
  return flags.write ? WriteAgent(flags, agent, server) : PrintAgent(flags, agent, server);
}

void AddServerFlags(CLI::App* app, LaunchFlags* flags) {
  const size_t n_before = app->get_options().size();
  AddModelFlag(app, &flags->model);
  AddContextFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  app->add_option("--state-dir", flags->state_dir,
                  "The started server saves what it computes in this directory");
  const std::vector<CLI::Option*> all = app->get_options();
  flags->for_serve.assign(all.begin() + static_cast<ptrdiff_t>(n_before), all.end());
  app->add_option("--log", flags->log, "Append the started server's log to this file");
}

}  // namespace

CommandBody MakeLaunchCommand(CLI::App* app) {
  auto flags = std::make_shared<LaunchFlags>();
  std::vector<std::string> names;
  for (const Agent& agent : Agents()) names.emplace_back(agent.name);
  app->add_option("AGENT", flags->agent,
                  "The agent (default: list them); its own arguments follow --")
      ->check(CLI::IsMember(names));
  app->add_option("--server", flags->server,
                  "Address of a running server (default: the only one that 'weft ps' lists)");
  app->add_option("--api-key", flags->api_key, "The API key for the server")
      ->envname("WEFT_API_KEY");
  auto* const print = app->add_flag("--print", flags->print,
                                    "Show what would be set, as shell commands, and start nothing");
  app->add_flag("--write", flags->write,
                "Write the settings to the agent's own files instead, and start nothing")
      ->excludes(print);
  app->add_flag("--json", flags->json, "With --print, --write or no agent: print JSON");
  AddServerFlags(app, flags.get());
  app->footer(
      "\nTells the agent the server's address, model, context and longest answer, through "
      "variables,\n"
      "arguments and temporary files; files of the user's change only with --write. Without -m "
      "the\n"
      "server is one that runs. With -m one is started, on a free port, and ends with the agent. "
      "The\n"
      "agent has the terminal, and its exit code is passed on (127: it is not installed).\n\n"
      "Examples:\n"
      "  weft launch claude\n"
      "  weft launch codex -m model.gguf --ctx 32768 --state-dir ~/.weft\n"
      "  weft launch claude --server http://10.0.0.5:8080 -- -p 'What does main.c do?'\n"
      "  weft launch opencode --print");
  return [flags] { return Launch(*flags); };
}

}  // namespace weft::cli
