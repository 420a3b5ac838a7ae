#include "answer/cache_report.h"

#include <algorithm>
#include <array>

#include "base/strings.h"

namespace weft::serve {
namespace {

using Item = ItemChange::Item;
using Kind = ItemChange::Kind;

// The last token of a reply is never computed, and partly filled pages may be missing.
constexpr int64_t kSlackTokens = 16;

constexpr int64_t kCostlyTokens = 1000;
constexpr int64_t kAlikeTokens = 100;

CacheReason ReasonOf(const ItemChange& cause) {
  switch (cause.kind) {
    case Kind::kReply:
      return CacheReason::kReplyChanged;
    case Kind::kRendered:
      return CacheReason::kRenderedAnew;
    case Kind::kMoved:
      return CacheReason::kToolsReordered;
    case Kind::kChanged:
    case Kind::kAdded:
    case Kind::kRemoved:
      break;
  }
  switch (cause.item) {
    case Item::kVariable:
      return CacheReason::kVariableChanged;
    case Item::kTool:
      return CacheReason::kToolsChanged;
    case Item::kSystem:
      return CacheReason::kSystemChanged;
    case Item::kMessage:
      break;
  }
  return CacheReason::kMessagesChanged;
}

const char* ChangeOf(Kind kind) {
  switch (kind) {
    case Kind::kAdded:
      return "added";
    case Kind::kRemoved:
      return "removed";
    case Kind::kMoved:
      return "moved";
    case Kind::kChanged:
    case Kind::kRendered:
    case Kind::kReply:
      break;
  }
  return "changed";
}

std::string PathOf(const ItemChange& cause, const ClientList& list) {
  switch (cause.item) {
    case Item::kVariable:
      return StrCat("variables.", cause.name);
    case Item::kTool:
      return StrCat("tools[", cause.index, "]");
    case Item::kSystem:
      return "system";
    case Item::kMessage:
      break;
  }
  return StrCat(list.PathOf(cause.index), cause.part.empty() ? "" : ".", cause.part);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWord(char c) {
  return IsDigit(c) || (AsciiLower(c) >= 'a' && AsciiLower(c) <= 'z') || c == '_' || c == '.';
}

// 2026-11-28, 28.11.2026, 09:15, November 28, 28 Nov.
bool HasDate(std::string_view line) {
  constexpr std::string_view kMonths = "jan feb mar apr may jun jul aug sep oct nov dec";
  const std::string lower = AsciiLower(line);
  for (size_t i = 1; i + 1 < lower.size(); ++i) {
    const bool is_joint = std::string_view("-/.:").find(lower[i]) != std::string_view::npos;
    if (is_joint && IsDigit(lower[i - 1]) && IsDigit(lower[i + 1])) return true;
  }
  for (size_t month = 0; month < kMonths.size(); month += 4) {
    const size_t at = lower.find(kMonths.substr(month, 3));
    if (at == std::string::npos) continue;
    const size_t next = lower.find_first_of(" ,", at);
    if (next != std::string::npos && next + 1 < lower.size() && IsDigit(lower[next + 1])) {
      return true;
    }
    if (at >= 2 && lower[at - 1] == ' ' && IsDigit(lower[at - 2])) return true;
  }
  return false;
}

// /home/me/project, ~/project, C:\\project
bool HasPath(std::string_view line) {
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    const bool begins = i == 0 || !IsWord(line[i - 1]);
    if (begins && line[i] == '/' && IsWord(line[i + 1])) return true;
    if (line[i] == '~' && line[i + 1] == '/') return true;
    if (i > 0 && line[i] == ':' && line[i + 1] == '\\' && IsWord(line[i - 1])) return true;
  }
  return false;
}

// What kind of text in two lines differs, if it is one that changes by itself.
const char* KindOfText(const std::string& before, const std::string& now) {
  if (HasDate(before) && HasDate(now)) return "date";
  return HasPath(before) && HasPath(now) ? "path" : nullptr;
}

std::string Lines(const CacheReport& report) {
  return StrCat(": before \"", Printable(report.before, 400), "\", now \"",
                Printable(report.now, 400), "\"");
}

std::string WhatDiffers(const CacheReport& report, const PromptDifference& difference) {
  const ItemChange& cause = difference.cause;
  const char* const text = KindOfText(report.before, report.now);
  switch (report.reason) {
    case CacheReason::kSystemChanged:
      if (cause.kind != Kind::kChanged) return StrCat("the system prompt was ", report.change);
      if (text != nullptr) return StrCat("a ", text, " in the system prompt changed");
      return "the system prompt changed";
    case CacheReason::kToolsReordered:
      return StrCat("the tools are in another order: ", report.item, " was \"", cause.former,
                    "\" and is \"", report.name, "\"");
    case CacheReason::kToolsChanged:
      if (cause.kind == Kind::kChanged && cause.former != cause.name) {
        return StrCat("the tool ", report.item, " was \"", cause.former, "\" and is \"",
                      report.name, "\"");
      }
      return StrCat("the tool ", report.item, " \"", report.name, "\" was ", report.change);
    case CacheReason::kVariableChanged:
      return StrCat("the template's variable \"", report.name, "\" was ", report.change);
    case CacheReason::kReplyChanged:
      return StrCat("the model's reply came back as another text, in ", report.item);
    case CacheReason::kRenderedAnew:
      if (text != nullptr) return StrCat("the template writes another ", text);
      return StrCat("the template shows ", report.item,
                    " differently than before, although the request did not change it");
    default:
      break;
  }
  if (cause.kind == Kind::kChanged && text != nullptr) {
    return StrCat("a ", text, " in ", report.item, " changed");
  }
  return StrCat(report.item, " was ", report.change);
}

std::string WhyLost(CacheReason reason) {
  switch (reason) {
    case CacheReason::kEvicted:
      return "their KV cache was evicted from memory, and is not on disk";
    case CacheReason::kNoCheckpoint:
      return "the model has recurrent state, and no checkpoint is stored closer to the end of the "
             "common part";
    case CacheReason::kWindowEvicted:
      return "the pages that its sliding windows need there were evicted";
    case CacheReason::kNotComputed:
      return "the earlier prompt was cancelled before it was computed, or is still running";
    case CacheReason::kRecomputed:
      return "the request asks for results of every prompt token";
    case CacheReason::kCacheOff:
      return "the prefix cache is off";
    default:
      return "";
  }
}

// The position of the first token that differs; the shorter length if there is none.
int64_t CommonTokens(const PromptTrail& trail, std::span<const TokenId> tokens) {
  const auto submitted = std::span(trail.earlier.prompt->context.tokens())
                             .first(static_cast<size_t>(trail.earlier.submitted.end_tokens));
  const auto end = std::mismatch(submitted.begin(), submitted.end(), tokens.begin(), tokens.end());
  return end.first - submitted.begin();
}

std::optional<CacheReason> ReasonForLoss(const CacheFacts& facts, int64_t lost) {
  const StartedEvent& started = *facts.started;
  const bool is_compared = facts.trail != nullptr && facts.trail->earlier.prompt != nullptr;
  if (is_compared && lost <= kSlackTokens) return std::nullopt;
  if (started.loss == PrefixLoss::kRecomputed) return CacheReason::kRecomputed;
  if (started.loss == PrefixLoss::kCacheOff) return CacheReason::kCacheOff;
  if (started.known_tokens - started.cached_tokens > kSlackTokens) {
    if (started.loss == PrefixLoss::kNoCheckpoint) return CacheReason::kNoCheckpoint;
    if (started.loss == PrefixLoss::kNoWindow) return CacheReason::kWindowEvicted;
  }
  if (!is_compared) return std::nullopt;
  return facts.trail->earlier.submitted.has_reply ? CacheReason::kEvicted
                                                  : CacheReason::kNotComputed;
}

void SetDifference(const PromptTrail& trail, CacheReport* report) {
  const PromptDifference& difference = *trail.difference;
  report->reason = ReasonOf(difference.cause);
  report->item = PathOf(difference.cause, trail.list);
  report->name = difference.cause.name;
  report->change = ChangeOf(difference.cause.kind);
  report->before = difference.before;
  report->now = difference.now;
}

std::string Counts(const CacheReport& report) {
  std::string text = StrCat(report.found_tokens, " of ", report.prompt_tokens, " tokens found");
  if (report.disk_tokens > 0) StrAppend(&text, " (", report.disk_tokens, " of them on disk)");
  return StrCat(text, ", ", report.computed_tokens, " computed");
}

// Without an earlier prompt to compare with.
void ConcludeAlone(const CacheFacts& facts, CacheReport* report) {
  const bool found_none = report->found_tokens <= kSlackTokens;
  if (const auto loss = ReasonForLoss(facts, 0)) {
    report->reason = *loss;
    report->brief = StrCat(Counts(*report), ": ", WhyLost(*loss), ".");
  } else if (facts.trail == nullptr) {
    report->reason = CacheReason::kNotCompared;
    report->brief =
        StrCat(Counts(*report), ". Only conversations are compared with earlier prompts.");
  } else {
    report->reason = facts.has_foreign_state && found_none ? CacheReason::kOtherModel
                                                           : CacheReason::kFirstPrompt;
    report->brief = StrCat(Counts(*report),
                           ". No earlier prompt of this API key begins like it since the server "
                           "started; what other keys computed is not used.");
  }
  if (report->reason == CacheReason::kOtherModel) {
    report->brief +=
        " The state directory has state of another model or KV type, which this one cannot use.";
  }
  report->sentence = report->brief;
}

void ConcludeCompared(const CacheFacts& facts, CacheReport* report) {
  const PromptTrail& trail = *facts.trail;
  report->common_tokens = CommonTokens(trail, facts.tokens);
  const int64_t possible = std::min(report->common_tokens, report->prompt_tokens - 1);
  const int64_t lost = possible - report->found_tokens;
  std::string differs, lines, lost_text;
  if (trail.difference.has_value()) {
    report->differs_at = report->common_tokens;
    SetDifference(trail, report);
    differs =
        StrCat(" From token ", report->differs_at,
               " on it differs from an earlier one: ", WhatDiffers(*report, *trail.difference));
    lines = Lines(*report);
  }
  const int64_t diverged =
      std::min(trail.earlier.submitted.end_tokens, report->prompt_tokens) - report->common_tokens;
  const auto loss = ReasonForLoss(facts, lost);
  const bool is_loss = loss.has_value() && (differs.empty() || lost > diverged);
  if (loss.has_value()) {
    lost_text = StrCat(" ", lost, " tokens that an earlier prompt has in common with it were ",
                       "computed again: ", WhyLost(*loss), ".");
  }
  if (is_loss) report->reason = *loss;
  const auto conclude = [&](const std::string& difference) {
    if (differs.empty() && lost_text.empty()) {
      return StrCat(Counts(*report),
                    ". Everything that earlier prompts have in common with it was found.");
    }
    return StrCat(Counts(*report), ".", is_loss ? lost_text : difference,
                  is_loss ? difference : lost_text);
  };
  report->sentence = conclude(differs.empty() ? "" : StrCat(differs, lines, "."));
  report->brief = conclude(differs.empty() ? "" : StrCat(differs, "."));
}

}  // namespace

std::string_view NameOf(CacheReason reason) {
  constexpr std::array<std::string_view, 17> kNames = {
      "nothing_missed",  "first_prompt",     "other_model",      "system_changed", "tools_changed",
      "tools_reordered", "messages_changed", "variable_changed", "reply_changed",  "rendered_anew",
      "evicted",         "no_checkpoint",    "window_evicted",   "not_computed",   "recomputed",
      "cache_off",       "not_compared"};
  return kNames[static_cast<size_t>(reason)];
}

CacheReport MakeCacheReport(const CacheFacts& facts) {
  const StartedEvent& started = *facts.started;
  CacheReport report{.prompt_tokens = started.prompt_tokens,
                     .found_tokens = started.cached_tokens,
                     .disk_tokens = started.disk_tokens,
                     .computed_tokens = started.prompt_tokens - started.cached_tokens};
  if (facts.trail == nullptr || facts.trail->earlier.prompt == nullptr) {
    ConcludeAlone(facts, &report);
  } else {
    ConcludeCompared(facts, &report);
  }
  return report;
}

bool IsCostly(const CacheReport& report) {
  return report.prompt_tokens > kCostlyTokens && report.common_tokens >= kAlikeTokens &&
         report.found_tokens * 10 < report.prompt_tokens * 9 &&
         report.reason != CacheReason::kNothingMissed;
}

std::shared_ptr<const CacheReport> CacheReports::Add(const std::string& domain,
                                                     const std::string& session,
                                                     CacheReport report) {
  const auto shared = std::make_shared<const CacheReport>(std::move(report));
  MutexLock lock(&mutex_);
  if (!session.empty()) Put({domain, session}, shared);
  Put({domain, ""}, shared);
  while (entries_.size() > kMax) {
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return shared;
}

void CacheReports::Put(const Key& key, std::shared_ptr<const CacheReport> report) {
  if (const auto known = places_.find(key); known != places_.end()) entries_.erase(known->second);
  entries_.push_front({key, std::move(report)});
  places_[key] = entries_.begin();
}

std::shared_ptr<const CacheReport> CacheReports::Find(const Key& key) const {
  MutexLock lock(&mutex_);
  const auto found = places_.find(key);
  return found != places_.end() ? found->second->report : nullptr;
}

std::shared_ptr<const CacheReport> CacheReports::Last(const std::string& domain) const {
  return Find({domain, ""});
}

std::shared_ptr<const CacheReport> CacheReports::OfSession(const std::string& domain,
                                                           const std::string& session) const {
  return session.empty() ? nullptr : Find({domain, session});
}

}  // namespace weft::serve
