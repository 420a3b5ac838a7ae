// Why a prompt was computed again: what the engine found of it, what it could have found according
// to the most similar earlier prompt of the same tenant, and what the difference came from.
//
// A report contains text of its own tenant's prompts only. Any thread.
#ifndef WEFT_ANSWER_CACHE_REPORT_H_
#define WEFT_ANSWER_CACHE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "answer/prompt_trail.h"
#include "base/mutex.h"
#include "base/tokens.h"
#include "weft/events.h"

namespace weft::serve {

enum class CacheReason {
  kNothingMissed,  // all that earlier prompts have in common with this one was found
  kFirstPrompt,    // no earlier prompt of the tenant begins like this one
  kOtherModel,     // the same, and there is state of another model or KV type on disk
  kSystemChanged,
  kToolsChanged,  // one was added, removed or changed
  kToolsReordered,
  kMessagesChanged,
  kVariableChanged,
  kReplyChanged,  // the model's answer came back as another text
  kRenderedAnew,  // the template shows an unchanged message differently, or the date
  kEvicted,
  kNoCheckpoint,   // recurrent state: none is stored at the end of the common part
  kWindowEvicted,  // sliding windows: the pages before the end of the common part are gone
  kNotComputed,    // the earlier prompt was cancelled, or is still running
  kRecomputed,     // the request asks for results of the whole prompt
  kCacheOff,
  kNotCompared,  // the prompt is not a conversation
};
// "nothing_missed", "first_prompt", ...
std::string_view NameOf(CacheReason reason);

struct CacheReport {
  int64_t prompt_tokens = 0;
  int64_t found_tokens = 0;  // in memory or on disk
  int64_t disk_tokens = 0;   // those among them from disk
  int64_t computed_tokens = 0;
  // Tokens that the earlier prompt and this one have in common, from the beginning; the position
  // of the first that differs, or -1.
  int64_t common_tokens = 0;
  int64_t differs_at = -1;
  CacheReason reason = CacheReason::kNothingMissed;
  std::string item = {};    // "messages[7].content", "tools[3]", "system"; may be empty
  std::string name = {};    // the tool's or the variable's
  const char* change = "";  // "changed", "added", "removed", "moved"
  // The line that differs, as rendered.
  std::string before = {}, now = {};
  std::string sentence = {};  // all of it in words
  std::string brief = {};     // the same without text of the prompt, for the log
};

// What a report is made from. All of it belongs to one tenant.
struct CacheFacts {
  const PromptTrail* trail = nullptr;  // null: not a conversation
  std::span<const TokenId> tokens;     // the prompt's
  const StartedEvent* started = nullptr;
  bool has_foreign_state = false;  // on disk, of another model or KV type
};
CacheReport MakeCacheReport(const CacheFacts& facts);

// Whether an operator should hear of it: a long prompt of which much was computed again although an
// earlier one begins like it.
bool IsCostly(const CacheReport& report);

// The latest reports of each tenant and session; bounded, the least recently used are forgotten.
class CacheReports {
 public:
  // `session` may be empty.
  std::shared_ptr<const CacheReport> Add(const std::string& domain, const std::string& session,
                                         CacheReport report);
  // Null if there is none. The first: whatever the session.
  std::shared_ptr<const CacheReport> Last(const std::string& domain) const;
  std::shared_ptr<const CacheReport> OfSession(const std::string& domain,
                                               const std::string& session) const;

 private:
  static constexpr size_t kMax = 4096;
  using Key = std::pair<std::string, std::string>;  // an empty session: the tenant's last
  struct Entry {
    Key key;
    std::shared_ptr<const CacheReport> report;
  };

  void Put(const Key& key, std::shared_ptr<const CacheReport> report) WEFT_REQUIRES(mutex_);
  std::shared_ptr<const CacheReport> Find(const Key& key) const;

  mutable Mutex mutex_;
  std::list<Entry> entries_ WEFT_GUARDED_BY(mutex_);  // latest first
  std::map<Key, std::list<Entry>::iterator> places_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_CACHE_REPORT_H_
