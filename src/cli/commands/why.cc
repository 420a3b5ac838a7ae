// weft why: what a running server found of a prompt, and why it computed the rest again.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/strings.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "doors/http/client.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

struct WhyFlags {
  std::string server = "http://127.0.0.1:8080";
  std::string api_key;
  bool json = false;
  std::string session = "LAST";
};

StatusOr<Json> FetchReport(const WhyFlags& flags) {
  const bool is_last = flags.session == "LAST";
  const serve::HttpCall call{
      .server = flags.server,
      .path =
          is_last ? "/v1/cache/last" : StrCat("/v1/sessions/", serve::PercentEncode(flags.session)),
      .api_key = flags.api_key};
  WEFT_ASSIGN_OR_RETURN(const serve::HttpAnswer answer, serve::CallHttp(call));
  const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (answer.status != 200) {
    std::string message = StrCat("the server answered ", answer.status);
    if (body.is_object() && body.contains("error") && body["error"].is_object()) {
      message = body["error"].value("message", message);
    }
    return FailedPrecondition(Printable(message, 500));
  }
  const auto report = body.is_object() ? body.find("cache_report") : body.end();
  if (report != body.end() && report->is_object()) return *report;
  if (!body.is_object() || !body.contains("id")) {
    return Internal("cannot understand the server's answer; is ", Printable(flags.server, 200),
                    " a weft server?");
  }
  return NotFound("session \"", Printable(flags.session, 128),
                  "\" has computed no prompt since the server started");
}

std::string TextOr(const Json& object, const char* name, std::string_view otherwise) {
  const auto it = object.find(name);
  return Printable(it != object.end() && it->is_string() ? it->get<std::string>() : otherwise,
                   1000);
}

void PrintReport(const Json& report) {
  PrintWrapped(TextOr(report, "sentence", "The server gives no reason."));
  const auto difference = report.find("difference");
  if (difference == report.end() || !difference->is_object()) return;
  PrintLine("");
  PrintWrapped(StrCat(TextOr(*difference, "item", ""), " ",
                      TextOr(*difference, "change", "changed"), ", from token ",
                      difference->value("token", int64_t{0}), " on:"));
  PrintWrapped(StrCat("- ", TextOr(*difference, "before", "")));
  PrintWrapped(StrCat("+ ", TextOr(*difference, "now", "")));
}

Status Why(const WhyFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Json report, FetchReport(flags));
  if (flags.json) {
    PrintJsonLine(report);
  } else {
    PrintReport(report);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeWhyCommand(CLI::App* app) {
  auto flags = std::make_shared<WhyFlags>();
  app->add_option("SESSION", flags->session,
                  "The session whose last prompt is explained; LAST: the latest prompt of the key")
      ->capture_default_str();
  app->add_option("--server", flags->server, "The server's address")->capture_default_str();
  app->add_option("--api-key", flags->api_key, "The API key that sent the prompt")
      ->envname("WEFT_API_KEY");
  app->add_flag("--json", flags->json, "Print the report as one JSON object");
  app->footer(
      "\nTells how many tokens of the prompt were found in memory or on disk, how many were\n"
      "computed, and the first difference from the most similar earlier prompt of the same key.\n\n"
      "Example:\n"
      "  weft why kitchen --server http://127.0.0.1:8080");
  return [flags] { return Why(*flags); };
}

}  // namespace weft::cli
