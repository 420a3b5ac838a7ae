// weft sessions: the conversations of a running server.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/flags/duration_flag.h"
#include "cli/terminal/output.h"
#include "doors/http/client.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SessionsFlags {
  std::string server = "http://127.0.0.1:8080";
  std::string api_key;
  bool json = false;
  std::string id;
  std::string new_id;
  int64_t position = -1;
  int64_t idle_s = 0;
};

// The message of an error answer.
Status ErrorOf(const serve::HttpAnswer& answer, const Json& body) {
  std::string message = StrCat("the server answered ", answer.status);
  if (body.is_object() && body.contains("error") && body["error"].is_object()) {
    message = body["error"].value("message", message);
  }
  return FailedPrecondition(Printable(message, 500));
}

// Calls a path below /v1/sessions, possibly with a query.
StatusOr<Json> CallPath(const SessionsFlags& flags, std::string method, std::string_view path,
                        const Json& body) {
  serve::HttpCall call{.server = flags.server,
                       .method = std::move(method),
                       .path = StrCat("/v1/sessions", path),
                       .api_key = flags.api_key};
  if (!body.is_null()) call.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  WEFT_ASSIGN_OR_RETURN(const serve::HttpAnswer answer, serve::CallHttp(call));
  Json read = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (answer.status < 200 || answer.status > 299) return ErrorOf(answer, read);
  if (!read.is_object()) {
    return Internal("cannot understand the server's answer; is ", Printable(flags.server, 200),
                    " a weft server?");
  }
  return read;
}

StatusOr<Json> Call(const SessionsFlags& flags, std::string method, std::string_view id,
                    std::string_view action, const Json& body) {
  std::string path;
  if (!id.empty()) StrAppend(&path, "/", serve::PercentEncode(id));
  if (!action.empty()) StrAppend(&path, "/", action);
  return CallPath(flags, std::move(method), path, body);
}

int64_t Number(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

std::string Text(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? Printable(it->get<std::string>(), 128) : "";
}

std::vector<std::string> CellsOf(const Json& session) {
  return {Text(session, "id"),
          Text(session, "state"),
          StrCat(Number(session, "tokens")),
          StrCat(Number(session, "computed_tokens")),
          StrCat(Number(session, "pages")),
          HumanBytes(static_cast<uint64_t>(Number(session, "state_bytes"))),
          StrCat(Number(session, "idle_ms") / 1000, " s"),
          Text(session, "note")};
}

Status PrintSessions(const SessionsFlags& flags, const Json& sessions) {
  std::vector<std::vector<std::string>> lines = {
      {"ID", "STATE", "TOKENS", "COMPUTED", "PAGES", "BYTES", "IDLE", "NOTE"}};
  for (const Json& session : sessions) {
    if (flags.json) {
      PrintJsonLine(session);
    } else if (session.is_object()) {
      lines.push_back(CellsOf(session));
    }
  }
  if (!flags.json) PrintTable(lines);
  return FlushStdout();
}

Status ListSessions(const SessionsFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Json answer, Call(flags, "GET", "", "", nullptr));
  const auto data = answer.find("data");
  if (data == answer.end() || !data->is_array()) {
    return Internal("cannot understand the server's list");
  }
  return PrintSessions(flags, *data);
}

// Prints a session like a line of the list.
Status PrintOne(const SessionsFlags& flags, const Json& session) {
  return PrintSessions(flags, Json::array({session}));
}

Status ShowSession(const SessionsFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Json session, Call(flags, "GET", flags.id, "", nullptr));
  return PrintOne(flags, session);
}

Status ForkSession(const SessionsFlags& flags) {
  Json body = Json::object();
  if (!flags.new_id.empty()) body["session_id"] = flags.new_id;
  if (flags.position >= 0) body["position"] = flags.position;
  WEFT_ASSIGN_OR_RETURN(const Json session, Call(flags, "POST", flags.id, "fork", body));
  return PrintOne(flags, session);
}

Status CleanSessions(const SessionsFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Json answer,
                        CallPath(flags, "DELETE", StrCat("?idle_seconds=", flags.idle_s), nullptr));
  if (flags.json) {
    PrintJsonLine(answer);
  } else {
    PrintLine(StrCat(Number(answer, "closed"), " sessions deleted"));
  }
  return FlushStdout();
}

Status Act(const SessionsFlags& flags, const char* method, const char* action, const char* done) {
  WEFT_ASSIGN_OR_RETURN(const Json answer, Call(flags, method, flags.id, action, nullptr));
  if (flags.json) {
    PrintJsonLine(answer);
  } else {
    PrintLine(StrCat(Printable(flags.id, 128), " ", done));
  }
  return FlushStdout();
}

Status DeleteSession(const SessionsFlags& flags) {
  // The server answers alike for one that is not there, so that clients may repeat the request.
  WEFT_RETURN_IF_ERROR(Call(flags, "GET", flags.id, "", nullptr).status());
  return Act(flags, "DELETE", "", "is deleted");
}

}  // namespace

CommandBody MakeSessionsCommand(CLI::App* app) {
  auto flags = std::make_shared<SessionsFlags>();
  auto body = std::make_shared<CommandBody>();
  app->require_subcommand(1);
  const auto add = [&](const char* name, const char* summary,
                       std::function<Status(const SessionsFlags&)> run) {
    CLI::App* const sub = app->add_subcommand(name, summary);
    sub->add_option("--server", flags->server, "The server's address")->capture_default_str();
    sub->add_option("--api-key", flags->api_key, "The API key that owns the sessions")
        ->envname("WEFT_API_KEY");
    sub->add_flag("--json", flags->json, "Print one JSON object per session");
    sub->callback(
        [flags, body, run = std::move(run)] { *body = [flags, run] { return run(*flags); }; });
    return sub;
  };
  const auto add_one = [&](const char* name, const char* summary,
                           std::function<Status(const SessionsFlags&)> run) {
    CLI::App* const sub = add(name, summary, std::move(run));
    sub->add_option("ID", flags->id, "The session")->required();
    return sub;
  };
  add("list", "List the sessions of this key", ListSessions);
  add_one("show", "One session", ShowSession);
  CLI::App* const fork = add_one(
      "fork", "Create a session with the same beginning, without recomputation", ForkSession);
  fork->add_option("NEW", flags->new_id, "Name of the new session (default: an unused one)");
  fork->add_option("--position", flags->position, "Copy this many tokens (default: all)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  add_one("park", "Save a session to the state directory and free its memory",
          [](const SessionsFlags& f) { return Act(f, "POST", "park", "is parked"); });
  add_one("restore", "Load a session into memory again; its next turn would do so automatically",
          [](const SessionsFlags& f) { return Act(f, "POST", "restore", "is restored"); });
  add_one("move", "Give a session up to the next server of a shared store",
          [](const SessionsFlags& f) { return Act(f, "POST", "move", "is given up"); });
  add_one("delete", "Delete a session and its file; also drop", DeleteSession)->alias("drop");
  CLI::App* const clean =
      add("clean", "Delete sessions that have not been used for a while, and their files",
          CleanSessions);
  AddDurationFlag(clean, "--idle", &flags->idle_s,
                  "Minimum time since their last use: 90m, 12h or 7d")
      ->required();
  app->footer(
      "\nThe key can also be given in WEFT_API_KEY.\n\n"
      "Example:\n"
      "  weft sessions fork kitchen garden --server http://127.0.0.1:8080");
  return [body] { return (*body)(); };
}

}  // namespace weft::cli
