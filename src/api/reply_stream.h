// A generation as an API tells of it: its events taken apart into reasoning, content and
// tool calls, with the ids, the counts and the times that every API reports.
//
//   ReplyStream stream(generation, plan);
//   WEFT_RETURN_IF_ERROR(stream.Start());        // until here an error is a plain answer
//   while (auto piece = stream.Next()) { ... }   // ends with one kEnd per choice
//
// One consumer thread. The generation is shared with whoever cancels it when the client
// goes away.
#ifndef WEFT_API_REPLY_STREAM_H_
#define WEFT_API_REPLY_STREAM_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "host/host.h"
#include "reply/reply.h"
#include "weft/events.h"

namespace weft::serve {

enum class ReplyFinish { kStop, kStopString, kLength, kLoop, kToolCalls };

// Whether the reply would have gone on. APIs call that a length.
inline bool IsCut(ReplyFinish finish) {
  return finish == ReplyFinish::kLength || finish == ReplyFinish::kLoop;
}

struct ReplyPiece {
  enum class Kind { kReasoning, kContent, kCallBegin, kCallArguments, kCallEnd, kEnd };
  Kind kind = Kind::kContent;
  int choice = 0;
  std::string text;  // kReasoning, kContent, kCallArguments: never empty
  int call = -1;
  std::string call_id;  // kCallBegin
  std::string name;     // kCallBegin
  // The tokens sampled since the choice's last piece, where log-probabilities are asked
  // for; an end token is not among them.
  std::vector<TokenEvent> tokens;
  // kEnd
  ReplyFinish finish = ReplyFinish::kStop;
  std::string stop_string;  // the client's own, for kStopString
  Status status;            // not OK: the choice failed
};

struct ReplyUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t disk_tokens = 0;        // of these, read from the disk
  int64_t completion_tokens = 0;  // of all choices
  int64_t first_tokens = 0;       // of these, the first of their choice, which decode_us has not
  int64_t reasoning_tokens = 0;
  int64_t queued_us = 0;  // from its submission to its first computed row
  int64_t prompt_us = 0;
  int64_t decode_us = 0;
};

// What a stream says while there is nothing to tell, so that nobody gives it up: clients and
// proxies wait for minutes at most, and a long prompt takes longer.
struct SignsOfLife {
  // Called on the consumer's thread, with what is known of the usage. Empty: none.
  std::function<void(const ReplyUsage&)> send;
  // For the first time after so long, then whenever nothing was told for so long (0: never).
  std::chrono::milliseconds begin{500};
  std::chrono::milliseconds interval{10'000};
};

struct ReplyPlan {
  int n_choices = 1;
  // One for each choice; empty: all text is content.
  std::vector<std::unique_ptr<ReplyParser>> parsers;
  bool reasoning_is_open = false;  // the reply begins with reasoning
  bool show_reasoning = true;
  bool wants_logprobs = false;
  // The choice ends with its first tool call.
  bool single_call = false;
  // Stop strings of the chat format: to clients an ordinary end.
  std::vector<std::string> format_stops;
  // Called by Start as the prompt is computed, where the turn reports it.
  std::function<void(const ProgressEvent&)> on_progress;
  SignsOfLife signs;
  // The prompt's tokens, behind which those of the reply are kept. With one choice.
  std::optional<std::vector<int32_t>> context;
  std::string call_id_prefix = "call_";
  int call_id_random = 24;  // letters and digits behind the prefix
};

class ReplyStream {
 public:
  ReplyStream(std::shared_ptr<Generation> generation, ReplyPlan plan);
  ~ReplyStream();  // cancels what still runs

  // Waits until the prompt is computed. The error of a turn that failed before.
  Status Start();
  // REQUIRES: Start was OK.
  const StartedEvent& started() const { return started_; }
  // The next piece, waiting for it; nullopt after the last choice's kEnd.
  std::optional<ReplyPiece> Next();
  // So far; final after the last kEnd.
  ReplyUsage usage() const;
  // Of a plan that keeps it: the prompt and the reply so far, its end token too.
  const std::vector<int32_t>& context() const { return *plan_.context; }

 private:
  struct Choice;

  std::optional<TurnEvent> NextEvent();
  void Told();
  Choice& At(int index);
  void Take(TurnEvent event);
  void TakeToken(TokenEvent event);
  void TakeDone(DoneEvent done);
  void TakeText(Choice* choice, std::string_view text);
  void TakeDeltas(Choice* choice, std::vector<ReplyDelta> deltas);
  void TakeDelta(Choice* choice, ReplyDelta delta);
  void Emit(Choice* choice, ReplyPiece piece);
  void EndOpenChoices();

  const std::shared_ptr<Generation> generation_;
  ReplyPlan plan_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::deque<ReplyPiece> ready_;
  const int64_t submitted_us_;
  int64_t told_us_;  // when there was last something to tell
  bool has_told_ = false;
  StartedEvent started_;
  TurnUsage turn_usage_;
  int64_t completion_tokens_ = 0;
  int64_t first_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  int64_t first_token_us_ = 0;
  int64_t last_token_us_ = 0;
  bool ended_ = false;
};

// --- a reply read to its end ------------------------------------------------------

// What stands together: a stretch of reasoning or of content, or one call.
struct ReplyBlock {
  enum class Kind { kReasoning, kContent, kCall };
  Kind kind = Kind::kContent;
  std::string text;  // a call's arguments
  std::string call_id;
  std::string name;
};

struct Reply {
  std::vector<ReplyBlock> blocks;  // in the order of the text
  std::vector<TokenEvent> tokens;
  ReplyFinish finish = ReplyFinish::kStop;
  std::string stop_string;

  std::string Joined(ReplyBlock::Kind kind) const;
};

// One per choice. The error of the first choice that failed.
StatusOr<std::vector<Reply>> CollectReplies(ReplyStream* stream, int n_choices);

}  // namespace weft::serve

#endif  // WEFT_API_REPLY_STREAM_H_
