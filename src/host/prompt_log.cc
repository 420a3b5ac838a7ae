#include "host/prompt_log.h"

#include <cstdio>
#include <string>

#include "base/status.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

constexpr int64_t kEveryUs = 10'000'000;

std::string Whose(const TurnInfo& turn) {
  std::string text;
  if (!turn.session_name.empty()) text = StrCat(" session=", Printable(turn.session_name, 200));
  if (!turn.label.empty()) StrAppend(&text, " id=", Printable(turn.label, 200));
  return text;
}

std::string ProgressLine(const TurnInfo& turn) {
  char figures[64];
  std::snprintf(figures, sizeof(figures), "%.1f tokens/s, %.0f s left",
                turn.PromptTokensPerSecond(), turn.PromptSecondsLeft());
  return StrCat("prompt: ", turn.done_tokens, " of ", turn.prompt_tokens, " tokens, ", figures,
                Whose(turn));
}

bool IsLong(const TurnInfo& turn) {
  const bool begun = turn.stage == TurnInfo::Stage::kReading;
  return begun && turn.prompt_tokens - turn.cached_tokens > kLongPromptTokens;
}

}  // namespace

void PromptLog::Look(std::span<const TurnInfo> turns, int64_t now_us) {
  std::map<uint64_t, int64_t> next_us;
  for (const TurnInfo& turn : turns) {
    const auto known = next_us_.find(turn.id);
    const bool is_known = known != next_us_.end();
    // A prompt that waits midway, for another one or for memory, is logged again later.
    const bool goes_on = is_known && turn.stage == TurnInfo::Stage::kWaiting;
    if (!IsLong(turn) && !goes_on) continue;
    int64_t& due_us = next_us[turn.id];
    due_us = is_known ? known->second : now_us;
    if (now_us < due_us) continue;
    due_us = now_us + kEveryUs;
    write_(is_known ? ProgressLine(turn)
                    : StrCat("prompt: begins, ", turn.prompt_tokens - turn.cached_tokens, " of ",
                             turn.prompt_tokens, " tokens to compute", Whose(turn)));
  }
  next_us_.swap(next_us);
}

}  // namespace weft::serve
