// weft top: what a running server is doing, again and again.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/serve/running_servers.h"
#include "cli/terminal/full_screen.h"
#include "cli/terminal/output.h"
#include "cli/top/server_view.h"
#include "cli/top/top_screen.h"

namespace weft::cli {
namespace {

struct TopFlags {
  std::string server;
  std::string api_key;
  bool once = false;
  double interval_s = 1;
};

// The server that is meant: the one given, else the oldest of this user's, else the usual address.
std::string ServerOf(const TopFlags& flags) {
  if (!flags.server.empty()) return flags.server;
  const std::string folder = RunningServersFolder();
  const auto servers = folder.empty() ? std::vector<RunningServer>() : ListRunningServers(folder);
  return servers.empty() ? "http://127.0.0.1:8080" : servers.front().address;
}

// Whether the terminal's character set is UTF-8.
bool HasWideCharacters() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return std::strstr(value, "UTF-8") != nullptr || std::strstr(value, "utf8") != nullptr;
  }
  return false;
}

Status PrintOnce(const ServerAddress& address, TopScreen* screen) {
  WEFT_ASSIGN_OR_RETURN(const ServerView view, FetchServerView(address));
  screen->Add(view, NowMicros());
  constexpr size_t kColumns = 100, kAllRows = 100'000;
  for (const std::string& line : screen->Lines(kColumns, kAllRows)) PrintLine(line);
  return FlushStdout();
}

Status Top(const TopFlags& flags) {
  const ServerAddress address = {.url = ServerOf(flags), .api_key = flags.api_key};
  WEFT_ASSIGN_OR_RETURN(const std::string model, FetchModelName(address));
  TopScreen screen(StrCat(model, " at ", Printable(address.url, 100)),
                   /*plain=*/!HasWideCharacters());
  if (flags.once || !FullScreen::IsPossible()) return PrintOnce(address, &screen);
  WEFT_ASSIGN_OR_RETURN(ServerView view, FetchServerView(address));
  FullScreen full;
  std::string problem;
  while (true) {
    screen.Add(view, NowMicros());
    const WindowSize size = FullScreen::GetSize();
    std::vector<std::string> lines = screen.Lines(size.columns, size.rows - 1);
    lines.push_back(problem.empty() ? "q ends" : StrCat("no answer: ", problem, "; q ends"));
    full.Draw(lines);
    if (!full.Wait(static_cast<int>(flags.interval_s * 1000))) return OkStatus();
    auto next = FetchServerView(address);
    problem = next.ok() ? "" : Message(next.status());
    if (next.ok()) view = *std::move(next);
  }
}

}  // namespace

CommandBody MakeTopCommand(CLI::App* app) {
  auto flags = std::make_shared<TopFlags>();
  app->add_option("--server", flags->server,
                  "The server's address (default: this user's oldest running one)");
  app->add_option("--api-key", flags->api_key,
                  "An API key; the operator's shows the whole server, others their own")
      ->envname("WEFT_API_KEY");
  app->add_option("--interval", flags->interval_s, "Seconds between two readings")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app->add_flag("--once", flags->once, "Print one reading; so does a pipe");
  app->footer(
      "\nShows tokens per second, memory by kind, five minutes of history, and for each\n"
      "conversation the progress of its prefill, its cached tokens, and the turn that it waits\n"
      "for. q ends it.");
  return [flags] { return Top(*flags); };
}

}  // namespace weft::cli
