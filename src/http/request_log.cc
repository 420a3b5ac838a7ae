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

bool IsFailure(std::string_view status) {
  return status != "OK" && (status.empty() || status[0] > '3');
}

// What a person need not see: questions about the server that were answered.
bool IsUnremarkable(const LoggedRequest& request) {
  return request.tokens.prompt == 0 && request.method != "POST" && request.method != "DELETE" &&
         !IsFailure(request.status) && request.warning.empty();
}

// "850 ms" or "2.2 s".
std::string DurationText(int64_t duration_us) {
  const int64_t ms = duration_us / 1000;
  if (ms < 1000) return StrCat(ms, " ms");
  return StrCat(ms / 1000, ".", ms / 100 % 10, " s");
}

// "/v1/chat/completions: read 901 tokens, found 512 of them, wrote 24 in 2.2 s".
std::string InWords(const LoggedRequest& request) {
  std::string line = StrCat(Printable(request.path, 200), ":");
  const TurnTokens& tokens = request.tokens;
  if (IsFailure(request.status)) {
    StrAppend(&line, " failed with ", request.status, ",");
  } else if (tokens.prompt == 0) {
    StrAppend(&line, " done,");
  }
  if (tokens.prompt > 0) {
    StrAppend(&line, " read ", tokens.prompt, " tokens,");
    if (tokens.cached > 0) StrAppend(&line, " found ", tokens.cached, " of them,");
    StrAppend(&line, " wrote ", tokens.completion);
  }
  StrAppend(&line, " in ", DurationText(request.duration_us));
  if (!request.key_name.empty()) StrAppend(&line, " for ", Printable(request.key_name, 40));
  if (request.gone) line += "; the client left";
  if (!request.warning.empty()) {
    StrAppend(&line, "; warning: ", Printable(request.warning, kLoggedWarningBytes));
  }
  // To find it again in what the client was told.
  if (IsFailure(request.status)) StrAppend(&line, " (", request.id, ")");
  return line;
}

}  // namespace

void LogRequest(const LoggedRequest& request) {
  if (TheLogReader() == LogReader::kPerson && !request.with_text) {
    if (!IsUnremarkable(request)) LogLine(InWords(request));
    return;
  }
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
