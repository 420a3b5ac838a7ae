#include "doors/worker/worker.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "answer/answer_ends.h"
#include "async/wait_for_task.h"
#include "base/clock.h"
#include "base/strings.h"
#include "doors/host/shared_sessions.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

double Rate(int64_t n, int64_t us) {
  return us > 0 ? static_cast<double>(n) * 1e6 / static_cast<double>(us) : 0;
}
double Millis(int64_t us) { return static_cast<double>(us) * 1e-3; }

void Log(std::string_view line) {
  std::fprintf(stderr, "weft worker: %.*s\n", static_cast<int>(line.size()), line.data());
}

// Empty for errors that have nothing to do with a shared store.
std::string TroubleCode(const Status& status) { return std::string(CodeOf(TroubleOf(status))); }

}  // namespace

WorkerResume PlanResume(std::span<const int32_t> resident, std::span<const int32_t> prompt,
                        bool dirty) {
  if (dirty) return {0, "dirty"};
  if (resident.empty()) return {0, "new"};
  if (prompt.size() < resident.size() ||
      !std::equal(resident.begin(), resident.end(), prompt.begin())) {
    return {0, "mismatch"};
  }
  if (prompt.size() == resident.size()) return {0, "equal"};
  return {static_cast<int64_t>(resident.size()), "exact_prefix"};
}

JsonlWorker::JsonlWorker(Answerer* answerer, WorkerOptions options, WriteLine write_line)
    : answerer_(*answerer),
      engine_(answerer->engine()),
      options_(std::move(options)),
      write_line_(std::move(write_line)) {}

Status JsonlWorker::Start() {
  Json ready = {{"ready", true},
                {"max_sessions", options_.max_sessions},
                {"max_named_sessions", max_named()}};
  if (options_.tells_no_images) ready["supports_image"] = false;
  return Write(ready);
}

Status JsonlWorker::Write(const Json& answer) {
  return write_line_(answer.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status JsonlWorker::WriteFailure(const Failure& failure) {
  Json answer = {{"error", failure.error}};
  if (!failure.code.empty()) answer["code"] = failure.code;
  if (!failure.session_id.empty()) answer["session_id"] = failure.session_id;
  if (!failure.detail.empty()) answer["detail"] = failure.detail;
  return Write(answer);
}

Status JsonlWorker::Handle(std::string_view line) {
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return OkStatus();
  {
    MutexLock lock(&mutex_);
    if (stopped_) return WriteFailure({.error = "the worker is shutting down"});
  }
  const StatusOr<WorkerRequest> request = ParseWorkerRequest(line);
  if (!request.ok()) return WriteFailure({.error = std::string(Message(request.status()))});
  if (!request->unknown.empty()) {
    Log(StrCat("ignored the unknown fields ", Printable(StrJoin(request->unknown, ", "), 300)));
  }
  switch (request->op) {
    case WorkerRequest::Op::kGenerate:
      return Generate(*request);
    case WorkerRequest::Op::kOpen: {
      Failure failure;
      if (OpenNamed(request->session_id, &failure) == nullptr) return WriteFailure(failure);
      return Confirm(*request, "opened");
    }
    case WorkerRequest::Op::kClose: {
      const auto it = named_.find(request->session_id);
      if (it != named_.end()) {
        (void)engine_.Close(it->second.id, /*forget=*/true);
        named_.erase(it);
      }
      return Confirm(*request, "closed");
    }
    case WorkerRequest::Op::kReset: {
      const auto it = named_.find(request->session_id);
      if (it != named_.end()) {
        const Status status = Reset(&it->second);
        if (!status.ok()) {
          return WriteFailure({.error = "session reset failed",
                               .code = TroubleCode(status),
                               .session_id = request->session_id,
                               .detail = std::string(Message(status))});
        }
      }
      return Confirm(*request, "reset");
    }
  }
  return OkStatus();
}

Status JsonlWorker::Confirm(const WorkerRequest& request, const char* done_key) {
  return Write({{done_key, true}, {"session_id", request.session_id}});
}

void JsonlWorker::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  if (running_ != nullptr) running_->Cancel();
}

// --- sessions ------------------------------------------------------------------------

JsonlWorker::Session* JsonlWorker::OpenNamed(const std::string& name, Failure* failure) {
  const auto it = named_.find(name);
  if (it != named_.end()) return &it->second;
  *failure = {.error = "cannot open session", .session_id = name};
  if (max_named() == 0) {
    failure->code = "unsupported_session";
    return nullptr;
  }
  failure->code = "capacity_exhausted";
  if (static_cast<int>(named_.size()) >= max_named()) return nullptr;
  std::string own_name = StrCat(++n_named_);
  const StatusOr<SessionId> id = engine_.CreateSession({.name = own_name});
  if (!id.ok()) {
    if (TroubleOf(id.status()) != SessionTrouble::kNone) failure->code = TroubleCode(id.status());
    failure->detail = std::string(Message(id.status()));
    return nullptr;
  }
  *failure = Failure();
  return &named_.emplace(name, Session{.id = *id, .name = std::move(own_name)}).first->second;
}

Status JsonlWorker::Reset(Session* session) {
  const Status status = engine_.Reset(session->id);
  session->dirty = !status.ok();
  if (status.ok()) session->resident.clear();
  return status;
}

// --- generating ------------------------------------------------------------------------

// Whether the prompt ends within a thought. Read from its end, so that what came as tokens becomes
// text only if no text after it has one of the marks.
bool JsonlWorker::EndsInThought(const WorkerRequest& request) const {
  if (!answerer_.chat().has_reasoning()) return false;
  const ThoughtMarks marks = answerer_.chat().thought_marks();
  std::string end;
  const auto has_mark = [&] {
    return end.find(marks.open) != end.npos || end.find(marks.close) != end.npos;
  };
  const auto text_of = [&](const std::vector<int32_t>& tokens) {
    return engine_.model().Decode(tokens, /*render_special=*/true);
  };
  for (auto segment = request.prompt.rbegin(); segment != request.prompt.rend(); ++segment) {
    const auto* const text = std::get_if<std::string>(&*segment);
    end.insert(0, text != nullptr ? *text : text_of(std::get<std::vector<int32_t>>(*segment)));
    if (has_mark()) break;
  }
  if (!has_mark()) end.insert(0, text_of(options_.prompt_prefix));
  const size_t open = end.rfind(marks.open);
  return open != end.npos && end.find(marks.close, open) == end.npos;
}

bool JsonlWorker::EncodePrompt(const WorkerRequest& request, std::vector<int32_t>* tokens,
                               Failure* failure) const {
  const Model& model = engine_.model();
  *tokens = options_.prompt_prefix;
  for (const WorkerRequest::Segment& segment : request.prompt) {
    if (const auto* text = std::get_if<std::string>(&segment)) {
      const std::vector<int32_t> ids =
          model.Encode(*text, /*add_special=*/false, /*parse_special=*/true);
      tokens->insert(tokens->end(), ids.begin(), ids.end());
      continue;
    }
    for (const int32_t id : std::get<std::vector<int32_t>>(segment)) {
      if (id >= model.n_vocab()) {
        failure->error =
            StrCat("token ", id, " is outside the vocabulary of ", model.n_vocab(), " tokens");
        return false;
      }
      tokens->push_back(id);
    }
  }
  if (!tokens->empty()) return true;
  failure->error = "empty prompt";
  return false;
}

bool JsonlWorker::LimitTokens(const WorkerRequest& request, int64_t prompt_tokens,
                              TurnOptions* turn, Failure* failure) const {
  const int64_t room = engine_.model().context_tokens() - prompt_tokens;
  if (room <= 0) {
    failure->error = "prompt fills the context window; no room to generate";
    return false;
  }
  const bool limited = request.max_new_tokens > 0 && request.max_new_tokens < room;
  turn->max_tokens = limited ? request.max_new_tokens : room;
  return true;
}

Status JsonlWorker::Generate(const WorkerRequest& request) {
  const int64_t begin_us = NowMicros();
  Failure failure;
  const bool is_named = !request.session_id.empty();
  Session anonymous;
  Session* const session = is_named ? OpenNamed(request.session_id, &failure) : &anonymous;
  if (session == nullptr) return WriteFailure(failure);

  Ask ask{.input = Ask::Input::kRendered,
          .session = {.name = session->name, .required = true},
          .keeps_context = true,
          .answer = request.answer,
          .thought = options_.thought};
  SetSampling(request, &ask.turn);
  std::vector<int32_t>& prompt = ask.turn.tokens;
  if (!EncodePrompt(request, &prompt, &failure) ||
      !LimitTokens(request, static_cast<int64_t>(prompt.size()), &ask.turn, &failure)) {
    return WriteFailure(failure);
  }
  if (ask.answer || ask.thought.tokens >= 0) ask.ends_in_thought = EndsInThought(request);

  const bool warm = is_named && options_.warm_resume;
  const WorkerResume resume =
      warm ? PlanResume(session->resident, prompt, session->dirty) : WorkerResume();
  // Other turns may still share the common part of the session, unless that is not wanted or its
  // state is not sound.
  if (is_named && (session->dirty || !options_.warm_resume)) {
    const Status status = Reset(session);
    if (!status.ok()) {
      return WriteFailure({.error = "session reset failed",
                           .code = TroubleCode(status),
                           .detail = std::string(Message(status))});
    }
  }

  std::vector<int32_t> resident = prompt;
  session->dirty = true;
  const Outcome outcome = WaitForTask(pool_, RunTurn(std::move(ask)));
  // A refused turn leaves the session unchanged.
  if (!outcome.begun.ok() && outcome.begun.code() != StatusCode::kFailedPrecondition) {
    session->dirty = false;
  }
  WEFT_RETURN_IF_ERROR(outcome.written);
  if (const auto failed = FailureOf(outcome)) return WriteFailure(*failed);
  session->dirty = outcome.end.reason == FinishReason::kStopString;
  resident.insert(resident.end(), outcome.tokens.begin(), outcome.tokens.end());
  session->resident = std::move(resident);
  WEFT_RETURN_IF_ERROR(Write(DoneLine(outcome, resume, NowMicros() - begin_us)));
  if (warm && IsCut(outcome.end.reason)) ComputeLastToken(*session);
  return OkStatus();
}

void JsonlWorker::SetSampling(const WorkerRequest& request, TurnOptions* turn) const {
  turn->stop_tokens = options_.stop_tokens;
  AddEndTokens(options_.ends.tokens, turn);
  turn->stop_strings = request.stop.empty() ? options_.ends.texts : request.stop;
  turn->end_loops = options_.end_loops;
  SamplingOptions& sampling = turn->sampling;
  sampling = UnchangedSampling();
  sampling.temperature = 0;
  sampling.seed = options_.seed;
  sampling = Advised(Advised(sampling, options_.advice), request.sampling);
  if (request.seed != 0) sampling.seed = request.seed;
}

Task<JsonlWorker::Outcome> JsonlWorker::RunTurn(Ask ask) {
  Outcome outcome;
  AnswerReader reader;
  auto beginning = answerer_.Begin(std::move(ask), std::move(reader));
  const StatusOr<std::unique_ptr<serve::Answer>> answer = co_await beginning;
  outcome.begun = answer.status();
  if (!answer.ok()) co_return outcome;
  SetRunning((*answer)->generation());
  outcome.started = co_await (*answer)->Start();
  if (outcome.started.ok()) co_await Relay(**answer, outcome);
  SetRunning(nullptr);
  co_return outcome;
}

Task<void> JsonlWorker::Relay(serve::Answer& answer, Outcome& outcome) {
  while (true) {
    std::optional<AnswerPiece> piece = co_await answer.Next();
    if (!piece) break;
    if (piece->kind == AnswerPiece::Kind::kEnd) {
      outcome.ended = piece->status;
      outcome.end = std::move(piece->end);
    } else if (outcome.written.ok()) {
      outcome.written = Write({{"token", piece->text}});
      if (!outcome.written.ok()) answer.generation()->Cancel();
    }
  }
  outcome.usage = answer.usage();
  const auto tokens = answer.reply_tokens();
  outcome.tokens.assign(tokens.begin(), tokens.end());
  if (outcome.ended.ok() && outcome.end.reason == FinishReason::kStop) outcome.tokens.pop_back();
}

void JsonlWorker::SetRunning(std::shared_ptr<Generation> running) {
  MutexLock lock(&mutex_);
  running_ = std::move(running);
  if (stopped_ && running_ != nullptr) running_->Cancel();
}

std::optional<JsonlWorker::Failure> JsonlWorker::FailureOf(const Outcome& outcome) {
  if (outcome.begun.code() == StatusCode::kInvalidArgument) {
    return Failure{.error = std::string(Message(outcome.begun))};
  }
  Status status = outcome.begun;
  status.Update(outcome.started);
  status.Update(outcome.ended);
  if (status.ok()) return std::nullopt;
  MutexLock lock(&mutex_);
  if (stopped_) return Failure{.error = "the worker is shutting down"};
  return Failure{.error = outcome.ended.ok() ? "prefill failed" : "decode failed",
                 .code = TroubleCode(status),
                 .detail = std::string(Message(status))};
}

Json JsonlWorker::DoneLine(const Outcome& outcome, const WorkerResume& resume,
                           int64_t total_us) const {
  const AnswerUsage& usage = outcome.usage;
  // The session's state may have been dropped since, when memory was short.
  const int64_t reused = std::min(resume.reused_tokens, usage.cached_tokens);
  const int64_t prefilled = usage.prompt_tokens - reused;
  const auto n_tokens = static_cast<int64_t>(outcome.tokens.size());
  Json done = {{"done", true},
               {"prompt_tokens", usage.prompt_tokens},
               {"completion_tokens", n_tokens},
               {"finish_reason", IsCut(outcome.end.reason) ? "length" : "stop"},
               {"reused_prompt_tokens", reused},
               {"prefilled_prompt_tokens", prefilled},
               {"session_reset_reason", resume.reason},
               {"prefill_ms", Millis(usage.prompt_us)},
               {"decode_ms", Millis(usage.decode_us)},
               {"total_ms", Millis(total_us)},
               {"prefill_tok_s", Rate(prefilled, usage.prompt_us)},
               {"decode_tok_s", Rate(n_tokens, usage.decode_us)},
               {"cached_tokens", usage.cached_tokens}};
  if (outcome.end.reason == FinishReason::kContext) done["stop_reason"] = "context";
  // If the client saw only a part of the tokens' text, returning all of them would put words it
  // never read into its next prompt.
  if (outcome.end.reason != FinishReason::kStopString) done["generated_token_ids"] = outcome.tokens;
  return done;
}

// If its length ended a reply, its last token is not computed yet. Computing it between requests
// costs nobody time, and the next prompt finds the whole reply.
void JsonlWorker::ComputeLastToken(const Session& session) {
  const auto turn = engine_.Submit(session.id, {.max_tokens = 0});
  if (!turn.ok()) return;
  while ((*turn)->Next()) continue;
}

}  // namespace weft::serve
