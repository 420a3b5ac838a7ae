// An answer as a stream of pieces: a turn's events split into reasoning, content and tool calls,
// with the ids, counts and times that every door reports.
//
//   auto answer = co_await answerer.Begin(ask, reader);
//   const Status status = co_await answer->Start();  // until here an error is a plain reply
//   while (true) {
//     auto piece = co_await answer->Next();           // the last ones are one kEnd per choice
//     if (!piece) break;
//
// One task reads it. The generation is shared with the code that cancels it when the client leaves.
#ifndef WEFT_ANSWER_ANSWER_H_
#define WEFT_ANSWER_ANSWER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/conversation.h"
#include "answer/generation.h"
#include "answer/reply/reply.h"
#include "async/task.h"
#include "base/status.h"
#include "weft/events.h"

namespace weft::serve {

// How a choice ended.
struct AnswerEnd {
  FinishReason reason = FinishReason::kStop;
  bool by_calls = false;    // so that tools are called; `reason` is kStop
  std::string stop_string;  // kStopString: the client's own
};

struct AnswerPiece : ReplyDelta {
  int choice = 0;
  // The tokens sampled since the choice's last piece, if log-probabilities are requested; excludes
  // end tokens.
  std::vector<TokenEvent> tokens = {};
  // kEnd
  AnswerEnd end = {};
  Status status = {};  // not OK: the choice failed
};

// Summed over all choices.
struct AnswerUsage : TurnUsage {
  int64_t first_tokens = 0;  // the first token of each choice, which decode_us excludes
  int64_t reasoning_tokens = 0;
  // TurnInfo::waits_behind_tokens, as of the turn's last report.
  int64_t waits_behind_tokens = 0;
  std::shared_ptr<const CacheReport> cache_report = nullptr;  // if the ask asks for it

  // The prompt tokens that were computed and that an equal prompt would find: all but the last one,
  // which is always computed. Together with it and cached_tokens they are the prompt.
  int64_t written_tokens() const { return std::max<int64_t>(prompt_tokens - cached_tokens - 1, 0); }
};

// Keep-alive signals while a stream has nothing to report: clients and proxies give up after
// minutes, and a long prompt takes longer.
struct SignsOfLife {
  // Called by Start and Next with the usage so far. Empty: no signals.
  std::function<void(const AnswerUsage&)> send;
  // When to send the first one, and then after how much silence to repeat (0: never).
  std::chrono::milliseconds begin{500};
  std::chrono::milliseconds interval{10'000};
};

// What one choice said, for those who remember it.
struct SaidReply {
  std::string reasoning;  // also if the client does not see it
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<int32_t> tokens;  // without an end token
  // The tokens are what the client got, and all of it.
  bool is_whole = true;
};

// How the one who reads an answer hears of it besides its pieces.
struct AnswerReader : TurnListener {
  // Called by Start while the prompt is computed. May be empty.
  std::function<void(const ProgressEvent&)> on_progress = {};
  SignsOfLife signs = {};
  // Waits while there is no room to write the answer; the generation is not read meanwhile. May be
  // empty.
  std::function<Task<void>()> room = {};
};

// How the answerer sets up an answer.
struct AnswerPlan {
  int n_choices = 1;
  // one per choice; empty: all text is content
  std::vector<std::unique_ptr<ReplyParser>> parsers;
  bool reasoning_is_open = false;  // the reply begins with reasoning
  bool show_reasoning = true;
  bool wants_logprobs = false;
  // End the choice after its first tool call.
  bool single_call = false;
  // After tool calls, another turn of the conversation is expected (Turn::ExpectMore).
  bool expects_results = false;
  // The constraint ends the reply after that call: nothing is to be cancelled.
  bool ends_itself = false;
  // End the choice where it repeats a call: the same function with the same arguments, directly
  // after it. A call is held back while it equals the one before it; the first never is.
  bool ends_at_repeat = false;
  // Stop strings of the chat format, reported to clients as an ordinary end.
  std::vector<std::string> format_stops;
  // Called once for each choice that ends without an error, before its kEnd. May be empty.
  std::function<void(SaidReply)> on_said;
  // The prompt's tokens, to which the reply's are appended. Only with one choice.
  std::optional<std::vector<int32_t>> context;
  bool tells_cache_report = false;  // in usage()
  std::string call_id_prefix = "call_";
  int call_id_random = 24;  // letters and digits after the prefix
  AnswerReader reader;
};

class Answer {
 public:
  Answer(std::shared_ptr<Generation> generation, AnswerPlan plan);
  ~Answer();  // cancels the generation if it still runs

  // For those who cancel it.
  const std::shared_ptr<Generation>& generation() const { return generation_; }
  // Waits until the prompt is computed, and returns the error of a turn that failed before.
  Task<Status> Start();
  // REQUIRES: Start returned OK.
  const StartedEvent& started() const { return started_; }
  // May be null.
  std::shared_ptr<const CacheReport> cache_report() const { return generation_->cache_report(); }
  // Waits for the next piece; nullopt after the last choice's kEnd.
  Task<std::optional<AnswerPiece>> Next();
  // So far; final after the last kEnd.
  AnswerUsage usage() const;
  // If the plan keeps them: the tokens of the prompt and the reply so far, including its end token.
  const std::vector<int32_t>& context() const { return *plan_.context; }
  // The reply's part of them.
  std::span<const int32_t> reply_tokens() const {
    return std::span(context()).subspan(n_context_before_);
  }

 private:
  struct Choice;

  Task<std::optional<TurnEvent>> NextEvent();
  void Told();
  Choice& At(int index);
  void Take(TurnEvent event);
  void TakeToken(TokenEvent event);
  void TakeDone(const DoneEvent& done);
  void TakeText(Choice* choice, std::string_view text);
  void TakeDeltas(Choice* choice, std::vector<ReplyDelta> deltas);
  void TakeDelta(Choice* choice, ReplyDelta delta);
  static void Note(const ReplyDelta& delta, SaidReply* said);
  void TellSaid(Choice* choice, const DoneEvent* done);
  bool MayRepeat(Choice* choice, const ReplyDelta& delta);
  void Give(Choice* choice, ReplyDelta delta);
  void Cut(Choice* choice);
  void Emit(Choice* choice, AnswerPiece piece);
  void EndOpenChoices();
  AnswerEnd EndOf(const Choice& choice, const DoneEvent& done) const;
  void AddUsage(const TurnUsage& usage);

  const std::shared_ptr<Generation> generation_;
  AnswerPlan plan_;
  const size_t n_context_before_;  // the prompt's part of the plan's context
  std::vector<std::unique_ptr<Choice>> choices_;
  std::deque<AnswerPiece> ready_;
  const int64_t submitted_us_;
  int64_t told_us_;  // when there was last something to report
  bool has_told_ = false;
  StartedEvent started_;
  AnswerUsage usage_;
  int64_t first_token_us_ = 0;
  int64_t last_token_us_ = 0;
  bool ended_ = false;
};

// --- complete replies -------------------------------------------------------------

// A contiguous part: a stretch of reasoning or content, or one call.
struct ReplyBlock {
  enum class Kind { kReasoning, kContent, kCall };
  Kind kind = Kind::kContent;
  std::string text;  // for a call, its arguments
  std::string call_id;
  std::string name;
  bool is_cut = false;  // a call whose arguments are not all there
};

struct Reply {
  std::vector<ReplyBlock> blocks;  // in text order
  std::vector<TokenEvent> tokens;
  AnswerEnd end;

  std::string Joined(ReplyBlock::Kind kind) const;
};

// One per choice; or the error of the first choice that failed.
Task<StatusOr<std::vector<Reply>>> CollectReplies(Answer* answer, int n_choices);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ANSWER_H_
