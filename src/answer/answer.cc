#include "answer/answer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/new_id.h"

namespace weft::serve {

struct Answer::Choice {
  explicit Choice(int index) : index(index) {}

  const int index;
  std::unique_ptr<ReplyParser> parser;
  bool has_begun = false;
  bool in_reasoning = false;
  int calls_ended = 0;
  bool cut = false;  // its last call is complete: drop what follows
  // AnswerPlan::ends_at_repeat: the previous call, and the current one with its held pieces.
  std::string last_name, last_arguments;
  std::string name, arguments;
  bool may_repeat = false;
  std::vector<ReplyDelta> held;
  bool done = false;
  std::vector<TokenEvent> unreported;
  std::optional<SaidReply> said;  // so far; absent if nobody wants it, or once it is told
};

Answer::Answer(std::shared_ptr<Generation> generation, AnswerPlan plan)
    : generation_(std::move(generation)),
      plan_(std::move(plan)),
      n_context_before_(plan_.context ? plan_.context->size() : 0),
      submitted_us_(NowMicros()),
      told_us_(submitted_us_) {
  usage_.prompt_tokens = generation_->prompt_tokens();
  for (int i = 0; i < plan_.n_choices; ++i) {
    auto choice = std::make_unique<Choice>(i);
    if (!plan_.parsers.empty()) {
      choice->parser = std::move(plan_.parsers[static_cast<size_t>(i)]);
    }
    choice->in_reasoning = plan_.reasoning_is_open;
    if (plan_.on_said) choice->said.emplace();
    choices_.push_back(std::move(choice));
  }
}

Answer::~Answer() {
  if (!ended_) generation_->Cancel();
}

Task<Status> Answer::Start() {
  std::optional<TurnEvent> event = co_await NextEvent();
  while (event && std::holds_alternative<ProgressEvent>(*event)) {
    const auto& progress = std::get<ProgressEvent>(*event);
    usage_.waits_behind_tokens = progress.waits_behind_tokens;
    if (plan_.reader.on_progress) {
      plan_.reader.on_progress(progress);
      Told();
    }
    event = co_await NextEvent();
  }
  if (!event) co_return Internal("the generation ended without a result");
  if (const auto* done = std::get_if<DoneEvent>(&*event)) {
    ended_ = true;
    if (!done->status.ok()) co_return done->status;
    co_return Unavailable("the request was cancelled before it started");
  }
  WEFT_CHECK(std::holds_alternative<StartedEvent>(*event), "a turn begins with Started");
  started_ = std::get<StartedEvent>(std::move(*event));
  usage_.prompt_tokens = started_.prompt_tokens;
  usage_.cached_tokens = started_.cached_tokens;
  usage_.disk_tokens = started_.disk_tokens;
  usage_.prompt_us = NowMicros() - submitted_us_;  // until the engine's own number arrives
  Told();                                          // the door begins its answer now
  co_return OkStatus();
}

Task<std::optional<AnswerPiece>> Answer::Next() {
  while (ready_.empty()) {
    if (ended_) co_return std::nullopt;
    std::optional<TurnEvent> event = co_await NextEvent();
    if (event) {
      Take(std::move(*event));
    } else {
      ended_ = true;
      EndOpenChoices();
    }
  }
  AnswerPiece piece = std::move(ready_.front());
  ready_.pop_front();
  Told();
  co_return piece;
}

// Events may arrive without anything to report: hidden reasoning, held-back text.
Task<std::optional<TurnEvent>> Answer::NextEvent() {
  const SignsOfLife& signs = plan_.reader.signs;
  if (plan_.reader.room) co_await plan_.reader.room();
  while (signs.send) {
    const auto patience = has_told_ ? signs.interval : signs.begin;
    if (patience.count() <= 0) break;
    const int64_t left_us = told_us_ + 1000 * patience.count() - NowMicros();
    if (left_us > 0) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(left_us);
      const bool is_ready = co_await generation_->WaitUntil(deadline);
      if (is_ready) break;
      continue;
    }
    signs.send(usage());
    Told();
    if (plan_.reader.room) co_await plan_.reader.room();
  }
  std::optional<TurnEvent> event = co_await generation_->Next();
  co_return event;
}

void Answer::Told() {
  has_told_ = true;
  told_us_ = NowMicros();
}

AnswerUsage Answer::usage() const {
  AnswerUsage usage = usage_;
  usage.decode_us = std::max(usage.decode_us, last_token_us_ - first_token_us_);
  if (plan_.tells_cache_report) usage.cache_report = cache_report();
  return usage;
}

Answer::Choice& Answer::At(int index) {
  WEFT_CHECK(index >= 0 && index < static_cast<int>(choices_.size()), "a choice of this turn");
  return *choices_[static_cast<size_t>(index)];
}

void Answer::Take(TurnEvent event) {
  if (auto* token = std::get_if<TokenEvent>(&event)) TakeToken(std::move(*token));
  if (auto* done = std::get_if<DoneEvent>(&event)) TakeDone(*done);
}

void Answer::TakeToken(TokenEvent event) {
  Choice& choice = At(event.choice);
  last_token_us_ = NowMicros();
  if (first_token_us_ == 0) first_token_us_ = last_token_us_;
  ++usage_.completion_tokens;
  if (!std::exchange(choice.has_begun, true)) ++usage_.first_tokens;
  if (plan_.context) plan_.context->push_back(event.token);
  if (choice.said) choice.said->tokens.push_back(event.token);
  if (choice.cut) return;
  const std::string text = std::move(event.text);
  event.text.clear();
  if (plan_.wants_logprobs) choice.unreported.push_back(std::move(event));
  const bool was_reasoning = choice.in_reasoning;
  TakeText(&choice, text);
  if (was_reasoning || choice.in_reasoning) ++usage_.reasoning_tokens;
}

void Answer::TakeText(Choice* choice, std::string_view text) {
  if (text.empty() || choice->cut) return;
  if (choice->parser != nullptr) {
    TakeDeltas(choice, choice->parser->Push(text));
  } else {
    Emit(choice, {{.text = std::string(text)}});
  }
}

void Answer::TakeDeltas(Choice* choice, std::vector<ReplyDelta> deltas) {
  for (ReplyDelta& delta : deltas) TakeDelta(choice, std::move(delta));
}

void Answer::TakeDelta(Choice* choice, ReplyDelta delta) {
  if (choice->cut) return;
  if (plan_.ends_at_repeat && MayRepeat(choice, delta)) {
    choice->held.push_back(std::move(delta));
    return;
  }
  for (ReplyDelta& held : std::exchange(choice->held, {})) Give(choice, std::move(held));
  if (!choice->cut) Give(choice, std::move(delta));
}

// Whether this piece belongs to a call that equals the one before it so far. Where all of it does,
// the choice is cut.
bool Answer::MayRepeat(Choice* choice, const ReplyDelta& delta) {
  switch (delta.kind) {
    case ReplyDelta::Kind::kCallBegin:
      choice->name = delta.name;
      choice->arguments.clear();
      choice->may_repeat = choice->calls_ended > 0 && delta.name == choice->last_name;
      return choice->may_repeat;
    case ReplyDelta::Kind::kCallArguments:
      choice->arguments += delta.text;
      choice->may_repeat =
          choice->may_repeat && choice->last_arguments.starts_with(choice->arguments);
      return choice->may_repeat;
    case ReplyDelta::Kind::kCallEnd:
      if (choice->may_repeat && choice->arguments == choice->last_arguments) {
        Cut(choice);
        return true;
      }
      choice->may_repeat = false;
      choice->last_name = choice->name;
      choice->last_arguments = choice->arguments;
      return false;
    default:
      choice->last_name.clear();  // no longer directly after it
      return false;
  }
}

void Answer::Cut(Choice* choice) {
  choice->cut = true;
  // What ends by itself ends with the marks that close the call, which are part of it.
  if (plan_.ends_itself) return;
  TellSaid(choice, /*done=*/nullptr);
  if (plan_.n_choices == 1) generation_->Cancel();
}

void Answer::Give(Choice* choice, ReplyDelta delta) {
  choice->in_reasoning = delta.kind == ReplyDelta::Kind::kReasoning;
  if (delta.kind == ReplyDelta::Kind::kCallBegin && delta.id.empty()) {
    delta.id = NewId(plan_.call_id_prefix, plan_.call_id_random);
  }
  if (choice->said) Note(delta, &*choice->said);
  if (delta.kind == ReplyDelta::Kind::kReasoning && !plan_.show_reasoning) {
    choice->unreported.clear();  // they would reveal the hidden text
    return;
  }
  if (delta.kind == ReplyDelta::Kind::kCallEnd) ++choice->calls_ended;
  Emit(choice, {std::move(delta)});
  if (plan_.single_call && choice->calls_ended > 0) Cut(choice);
}

void Answer::Note(const ReplyDelta& delta, SaidReply* said) {
  switch (delta.kind) {
    case ReplyDelta::Kind::kReasoning:
      said->reasoning += delta.text;
      break;
    case ReplyDelta::Kind::kContent:
      said->content += delta.text;
      break;
    case ReplyDelta::Kind::kCallBegin:
      // The arguments are text until the call ends.
      said->calls.push_back({.id = delta.id, .name = delta.name, .arguments = ""});
      break;
    case ReplyDelta::Kind::kCallArguments:
      said->calls.back().arguments.get_ref<std::string&>() += delta.text;
      break;
    case ReplyDelta::Kind::kCallEnd: {
      ToolCall& call = said->calls.back();
      call.arguments = CallArguments(call.arguments.get_ref<const std::string&>());
      break;
    }
    case ReplyDelta::Kind::kEnd:
      break;
  }
}

// `done` is null for a choice that was cut: its tokens do not close its last call, or are those of
// a call that the client does not see.
void Answer::TellSaid(Choice* choice, const DoneEvent* done) {
  if (!choice->said) return;
  SaidReply said = *std::exchange(choice->said, std::nullopt);
  // Tokens of a stop string are not in the text, which may end in the middle of one.
  said.is_whole = done != nullptr && done->reason != FinishReason::kStopString;
  const bool has_end =
      done != nullptr && !said.tokens.empty() && said.tokens.back() == done->stop_token;
  if (has_end) said.tokens.pop_back();
  plan_.on_said(std::move(said));
}

void Answer::TakeDone(const DoneEvent& done) {
  Choice& choice = At(done.choice);
  if (choice.done) return;
  TakeText(&choice, done.text);
  if (choice.parser != nullptr) {
    const ReplyEnd end = IsCut(done.reason) ? ReplyEnd::kCut : ReplyEnd::kWhole;
    TakeDeltas(&choice, choice.parser->Finish(end));
  }
  AddUsage(done.usage);
  choice.done = true;
  AnswerPiece end{{.kind = AnswerPiece::Kind::kEnd}};
  if (done.reason == FinishReason::kError) {
    end.status = done.status;
  } else if (done.reason == FinishReason::kCancelled && !choice.cut) {
    end.status =
        Unavailable("the generation was cancelled: its session was closed, or the server stops");
  }
  end.end = EndOf(choice, done);
  if (end.status.ok()) TellSaid(&choice, &done);
  if (plan_.expects_results && end.end.by_calls) generation_->ExpectMore();
  Emit(&choice, std::move(end));
  ended_ = std::all_of(choices_.begin(), choices_.end(), [](const auto& c) { return c->done; });
}

AnswerEnd Answer::EndOf(const Choice& choice, const DoneEvent& done) const {
  if (choice.cut || (choice.calls_ended > 0 && !IsCut(done.reason))) return {.by_calls = true};
  if (done.reason != FinishReason::kStopString) return {.reason = done.reason};
  const auto& format_stops = plan_.format_stops;
  const bool is_formats =
      std::find(format_stops.begin(), format_stops.end(), done.stop_string) != format_stops.end();
  if (is_formats) return {};
  return {.reason = FinishReason::kStopString, .stop_string = done.stop_string};
}

void Answer::AddUsage(const TurnUsage& usage) {
  usage_.prompt_tokens = std::max(usage_.prompt_tokens, usage.prompt_tokens);
  if (usage.prompt_us > 0) usage_.prompt_us = usage.prompt_us;
  usage_.decode_us = std::max(usage_.decode_us, usage.decode_us);
  usage_.queued_us = std::max(usage_.queued_us, usage.queued_us);
  usage_.guessed_tokens += usage.guessed_tokens;
  usage_.accepted_guesses += usage.accepted_guesses;
  usage_.kept_prediction += usage.kept_prediction;
  usage_.lost_prediction += usage.lost_prediction;
}

void Answer::Emit(Choice* choice, AnswerPiece piece) {
  piece.choice = choice->index;
  piece.tokens = std::move(choice->unreported);
  choice->unreported.clear();
  ready_.push_back(std::move(piece));
}

void Answer::EndOpenChoices() {
  for (const auto& choice : choices_) {
    if (choice->done) continue;
    choice->done = true;
    AnswerPiece end{{.kind = AnswerPiece::Kind::kEnd}};
    end.status = Internal("the generation ended without a result");
    Emit(choice.get(), std::move(end));
  }
}

std::string Reply::Joined(ReplyBlock::Kind kind) const {
  std::string text;
  for (const ReplyBlock& block : blocks) {
    if (block.kind == kind) text += block.text;
  }
  return text;
}

namespace {

void AddText(ReplyBlock::Kind kind, std::string_view text, Reply* reply) {
  if (reply->blocks.empty() || reply->blocks.back().kind != kind) {
    reply->blocks.push_back({.kind = kind});
  }
  reply->blocks.back().text += text;
}

void AddPiece(AnswerPiece piece, Reply* reply) {
  for (TokenEvent& token : piece.tokens) reply->tokens.push_back(std::move(token));
  switch (piece.kind) {
    case AnswerPiece::Kind::kReasoning:
      return AddText(ReplyBlock::Kind::kReasoning, piece.text, reply);
    case AnswerPiece::Kind::kContent:
      return AddText(ReplyBlock::Kind::kContent, piece.text, reply);
    case AnswerPiece::Kind::kCallBegin:
      reply->blocks.push_back({.kind = ReplyBlock::Kind::kCall,
                               .text = "",
                               .call_id = std::move(piece.id),
                               .name = std::move(piece.name),
                               .is_cut = true});
      return;
    case AnswerPiece::Kind::kCallArguments:
      reply->blocks.back().text += piece.text;
      return;
    case AnswerPiece::Kind::kCallEnd:
      reply->blocks.back().is_cut = false;
      return;
    case AnswerPiece::Kind::kEnd:
      reply->end = std::move(piece.end);
  }
}

}  // namespace

Task<StatusOr<std::vector<Reply>>> CollectReplies(Answer* answer, int n_choices) {
  std::vector<Reply> replies(static_cast<size_t>(n_choices));
  while (true) {
    std::optional<AnswerPiece> piece = co_await answer->Next();
    if (!piece) co_return replies;
    if (!piece->status.ok()) co_return piece->status;
    Reply& reply = replies[static_cast<size_t>(piece->choice)];
    AddPiece(std::move(*piece), &reply);
  }
}

}  // namespace weft::serve
