#include "http/request_log.h"

#include <cstdio>

#include "base/log.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

std::string TokensText(const TurnTokens& tokens) {
  if (tokens.prompt == 0) return "";
  std::string text = StrCat(" in=", tokens.prompt, " cached=", tokens.cached);
  if (tokens.disk > 0) StrAppend(&text, " disk=", tokens.disk);
  const bool is_whole = tokens.cached + tokens.computed >= tokens.prompt;
  if (!is_whole) StrAppend(&text, " computed=", tokens.computed);
  return StrCat(text, " out=", tokens.completion);
}

}  // namespace

void LogRequest(const LoggedRequest& request) {
  char duration[32];
  std::snprintf(duration, sizeof(duration), "%.1f",
                static_cast<double>(request.duration_us) * 1e-3);
  std::string line = StrCat(Printable(request.method, 20), " ", Printable(request.path, 200), " ",
                            request.status, " ", duration, "ms", TokensText(request.tokens));
  if (!request.key_name.empty()) StrAppend(&line, " key=", Printable(request.key_name, 40));
  if (request.gone) line += " gone";
  StrAppend(&line, " id=", request.id);
  if (!request.warning.empty()) {
    StrAppend(&line, " warning=\"", Printable(request.warning, kLoggedWarningBytes), "\"");
  }
  if (request.with_text) {
    StrAppend(&line, " request=\"", Printable(request.request_text, kLoggedTextBytes),
              "\" answer=\"", Printable(request.answer_text, kLoggedTextBytes), "\"");
  }
  LogLine(line);
}

}  // namespace weft::serve
