#include "doors/host/turn_work.h"

#include "base/log.h"
#include "base/strings.h"

namespace weft::serve {

TurnCounts CountTurns(std::span<const TurnInfo> turns, std::string_view domain) {
  TurnCounts counts;
  for (const TurnInfo& turn : turns) {
    if (turn.domain != domain) continue;
    ++(turn.stage == TurnInfo::Stage::kQueued ? counts.waiting : counts.running);
  }
  return counts;
}

HttpWork WorkOf(const TurnUsage& usage) {
  return {{"in", usage.prompt_tokens},
          {"cached", usage.cached_tokens},
          {"disk", usage.disk_tokens},
          {"computed", usage.computed_tokens},
          {"out", usage.completion_tokens}};
}

std::string WorkText(HttpWork work) {
  if (work["in"] == 0) return "";
  if (TheLogReader() == LogReader::kPerson) {
    std::string words = StrCat(" read ", work["in"], " tokens,");
    if (work["cached"] > 0) StrAppend(&words, " found ", work["cached"], " of them,");
    return StrCat(words, " wrote ", work["out"]);
  }
  std::string text = StrCat(" in=", work["in"], " cached=", work["cached"]);
  if (work["disk"] > 0) StrAppend(&text, " disk=", work["disk"]);
  // Less than the prompt if a turn ended during it.
  const bool is_whole = work["cached"] + work["computed"] >= work["in"];
  if (!is_whole) StrAppend(&text, " computed=", work["computed"]);
  return StrCat(text, " out=", work["out"]);
}

}  // namespace weft::serve
