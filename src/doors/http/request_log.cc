#include "doors/http/request_log.h"

#include <cstdio>

#include "base/log.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

bool IsFailure(std::string_view status) {
  return status != "OK" && (status.empty() || status[0] > '3');
}

// What a person need not see: questions about the server that were answered.
bool IsUnremarkable(const LoggedRequest& request) {
  return request.work.empty() && request.method != "POST" && request.method != "DELETE" &&
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
  if (IsFailure(request.status)) {
    StrAppend(&line, " failed with ", request.status, ",");
  } else if (request.work.empty()) {
    StrAppend(&line, " done,");
  }
  StrAppend(&line, request.work, " in ", DurationText(request.duration_us));
  if (!request.key_name.empty()) StrAppend(&line, " for ", Printable(request.key_name, 40));
  if (request.gone) line += "; the client left";
  if (!request.warning.empty()) {
    StrAppend(&line, "; warning: ", Printable(request.warning, kLoggedWarningBytes));
  }
  // Matches the id in the client's error message.
  if (IsFailure(request.status)) StrAppend(&line, " (", request.id, ")");
  return line;
}

std::string InFields(const LoggedRequest& request) {
  char duration[32];
  std::snprintf(duration, sizeof(duration), "%.1f",
                static_cast<double>(request.duration_us) * 1e-3);
  std::string line = StrCat(Printable(request.method, 20), " ", Printable(request.path, 200), " ",
                            request.status, " ", duration, "ms", request.work);
  if (!request.key_name.empty()) StrAppend(&line, " key=", Printable(request.key_name, 40));
  if (request.gone) line += " gone";
  StrAppend(&line, " id=", request.id);
  if (!request.warning.empty()) {
    StrAppend(&line, " warning=\"", Printable(request.warning, kLoggedWarningBytes), "\"");
  }
  return line;
}

}  // namespace

void LogRequest(const LoggedRequest& request) {
  const bool is_for_person = TheLogReader() == LogReader::kPerson;
  if (is_for_person && !request.with_text && IsUnremarkable(request)) return;
  std::string line = is_for_person ? InWords(request) : InFields(request);
  if (request.with_text) {
    StrAppend(&line, " request=\"", Printable(request.request_text, kLoggedTextBytes),
              "\" answer=\"", Printable(request.answer_text, kLoggedTextBytes), "\"");
  }
  LogLine(line);
}

}  // namespace weft::serve
