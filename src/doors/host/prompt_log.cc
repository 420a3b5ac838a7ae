#include "doors/host/prompt_log.h"

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

std::string WaitLine(const TurnInfo& turn) {
  return StrCat("prompt: waits for ", turn.waits_behind_tokens, " tokens of others, ",
                turn.done_tokens, " of ", turn.prompt_tokens, " done", Whose(turn));
}

std::string FirstLine(const TurnInfo& turn) {
  return StrCat("prompt: prefill begins, ", turn.prompt_tokens - turn.cached_tokens, " of ",
                turn.prompt_tokens, " tokens to prefill", Whose(turn));
}

bool IsLong(const TurnInfo& turn) {
  if (turn.waits_behind_tokens > kLongPromptTokens) return true;
  const bool begun = turn.stage == TurnInfo::Stage::kReading || turn.waits_behind_tokens > 0;
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
    if (turn.waits_behind_tokens > 0) {
      write_(WaitLine(turn));
    } else {
      write_(is_known ? ProgressLine(turn) : FirstLine(turn));
    }
  }
  next_us_.swap(next_us);
}

}  // namespace weft::serve
