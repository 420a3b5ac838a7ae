#include "worker/worker.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "answer/answer_ends.h"
#include "answer/reply_mask.h"
#include "base/clock.h"
#include "base/strings.h"
#include "sampling/sampling_parameters.h"

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

// The result of a turn.
struct JsonlWorker::Outcome {
  int64_t cached_tokens = 0;
  std::vector<int32_t> tokens;  // without the end token
  DoneEvent done;
};

JsonlWorker::JsonlWorker(Engine* engine, WorkerOptions options, WriteLine write_line)
    : engine_(*engine), options_(std::move(options)), write_line_(std::move(write_line)) {}

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
      return Answer(*request, "opened");
    }
    case WorkerRequest::Op::kClose: {
      const auto it = named_.find(request->session_id);
      if (it != named_.end()) {
        (void)engine_.Close(it->second.id, /*forget=*/true);
        named_.erase(it);
      }
      return Answer(*request, "closed");
    }
    case WorkerRequest::Op::kReset: {
      const auto it = named_.find(request->session_id);
      if (it != named_.end()) {
        const Status status = Reset(&it->second);
        if (!status.ok()) {
          return WriteFailure({.error = "session reset failed",
                               .session_id = request->session_id,
                               .detail = std::string(Message(status))});
        }
      }
      return Answer(*request, "reset");
    }
  }
  return OkStatus();
}

Status JsonlWorker::Answer(const WorkerRequest& request, const char* done_key) {
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
  const StatusOr<SessionId> id = engine_.CreateSession({});
  if (!id.ok()) {
    failure->detail = std::string(Message(id.status()));
    return nullptr;
  }
  *failure = Failure();
  return &named_.emplace(name, Session{.id = *id, .resident = {}}).first->second;
}

Status JsonlWorker::Reset(Session* session) {
  const Status status = engine_.Reset(session->id);
  session->dirty = !status.ok();
  if (status.ok()) session->resident.clear();
  return status;
}

// --- generating ------------------------------------------------------------------------

namespace {

// Whether a prompt ends within a thought. Read from its end, so that what came as tokens becomes
// text only if no text after it has one of the marks.
bool EndsInThought(const std::vector<int32_t>& prefix, const WorkerRequest& request,
                   const Model& model, const ThoughtMarks& marks) {
  std::string end;
  const auto has_mark = [&] {
    return end.find(marks.open) != end.npos || end.find(marks.close) != end.npos;
  };
  for (auto segment = request.prompt.rbegin(); segment != request.prompt.rend(); ++segment) {
    const auto* const text = std::get_if<std::string>(&*segment);
    end.insert(0, text != nullptr ? *text
                                  : model.Decode(std::get<std::vector<int32_t>>(*segment),
                                                 /*render_special=*/true));
    if (has_mark()) break;
  }
  if (!has_mark()) end.insert(0, model.Decode(prefix, /*render_special=*/true));
  const size_t open = end.rfind(marks.open);
  return open != end.npos && end.find(marks.close, open) == end.npos;
}

}  // namespace

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

  TurnOptions turn;
  turn.tokens_are_whole_context = true;
  SetSampling(request, &turn);
  if (!EncodePrompt(request, &turn.tokens, &failure) ||
      !LimitTokens(request, static_cast<int64_t>(turn.tokens.size()), &turn, &failure)) {
    return WriteFailure(failure);
  }
  if (!Restrict(request, &turn, &failure)) return WriteFailure(failure);

  const bool warm = is_named && options_.warm_resume;
  const WorkerResume resume =
      warm ? PlanResume(session->resident, turn.tokens, session->dirty) : WorkerResume();
  // Other turns may still share the common part of the session, unless that is not wanted or its
  // state is not sound.
  if (is_named && (session->dirty || !options_.warm_resume)) {
    const Status status = Reset(session);
    if (!status.ok()) {
      return WriteFailure(
          {.error = "session reset failed", .detail = std::string(Message(status))});
    }
  }

  Outcome outcome;
  Status written;
  session->dirty = true;
  if (!RunTurn(session, turn, &outcome, &failure, &written)) {
    WEFT_RETURN_IF_ERROR(written);
    return WriteFailure(failure);
  }
  const bool trimmed = outcome.done.reason == FinishReason::kStopString;
  session->dirty = trimmed;
  session->resident = turn.tokens;
  session->resident.insert(session->resident.end(), outcome.tokens.begin(), outcome.tokens.end());
  WEFT_RETURN_IF_ERROR(Write(DoneLine(outcome, resume, NowMicros() - begin_us)));
  if (warm && IsCut(outcome.done.reason)) ComputeLastToken(*session);
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

bool JsonlWorker::Restrict(const WorkerRequest& request, TurnOptions* turn,
                           Failure* failure) const {
  if (options_.thought.tokens < 0 && !request.answer) return true;
  const Model& model = engine_.model();
  const ChatFormat* const chat = options_.chat.get();
  const bool thinks_already =
      chat != nullptr && chat->has_reasoning() &&
      EndsInThought(options_.prompt_prefix, request, model, chat->thought_marks());
  auto mask = MaskOfReply(model, chat, thinks_already, options_.thought, request.answer);
  if (!mask.ok()) {
    *failure = {.error = std::string(Message(mask.status())), .detail = ""};
    return false;
  }
  turn->token_mask = *std::move(mask);
  return true;
}

// Writes the text as it arrives. False with `failure` set, or with `written` if the answers cannot
// be written.
bool JsonlWorker::RunTurn(Session* session, const TurnOptions& turn, Outcome* outcome,
                          Failure* failure, Status* written) {
  auto submitted =
      session->id == SessionId() ? engine_.SubmitOnce("", turn) : engine_.Submit(session->id, turn);
  if (!submitted.ok()) {
    const bool invalid = submitted.status().code() == StatusCode::kInvalidArgument;
    const std::string message(Message(submitted.status()));
    *failure = {.error = invalid ? message : "prefill failed", .detail = invalid ? "" : message};
    // The session is unchanged.
    if (submitted.status().code() != StatusCode::kFailedPrecondition) session->dirty = false;
    return false;
  }
  const std::shared_ptr<Turn> running = *std::move(submitted);
  {
    MutexLock lock(&mutex_);
    running_ = running;
    if (stopped_) running->Cancel();
  }
  bool started = false;
  while (std::optional<TurnEvent> event = running->Next()) {
    std::string text;
    if (const auto* start = std::get_if<StartedEvent>(&*event)) {
      started = true;
      outcome->cached_tokens = start->cached_tokens;
    } else if (auto* token = std::get_if<TokenEvent>(&*event)) {
      outcome->tokens.push_back(token->token);
      text = std::move(token->text);
    } else {
      outcome->done = std::get<DoneEvent>(*std::move(event));
      text = outcome->done.text;
    }
    if (!text.empty() && written->ok()) {
      *written = Write({{"token", text}});
      if (!written->ok()) running->Cancel();
    }
  }
  {
    MutexLock lock(&mutex_);
    running_ = nullptr;
  }
  if (outcome->done.reason == FinishReason::kStop) outcome->tokens.pop_back();
  if (outcome->done.reason == FinishReason::kCancelled) {
    failure->error = "the worker is shutting down";
  } else if (outcome->done.reason == FinishReason::kError) {
    *failure = {.error = started ? "decode failed" : "prefill failed",
                .detail = std::string(Message(outcome->done.status))};
  }
  return failure->error.empty() && written->ok();
}

Json JsonlWorker::DoneLine(const Outcome& outcome, const WorkerResume& resume,
                           int64_t total_us) const {
  const TurnUsage& usage = outcome.done.usage;
  // The session's state may have been dropped since, when memory was short.
  const int64_t reused = std::min(resume.reused_tokens, outcome.cached_tokens);
  const int64_t prefilled = usage.prompt_tokens - reused;
  const auto n_tokens = static_cast<int64_t>(outcome.tokens.size());
  Json done = {{"done", true},
               {"prompt_tokens", usage.prompt_tokens},
               {"completion_tokens", n_tokens},
               {"finish_reason", IsCut(outcome.done.reason) ? "length" : "stop"},
               {"reused_prompt_tokens", reused},
               {"prefilled_prompt_tokens", prefilled},
               {"session_reset_reason", resume.reason},
               {"prefill_ms", Millis(usage.prompt_us)},
               {"decode_ms", Millis(usage.decode_us)},
               {"total_ms", Millis(total_us)},
               {"prefill_tok_s", Rate(prefilled, usage.prompt_us)},
               {"decode_tok_s", Rate(n_tokens, usage.decode_us)},
               {"cached_tokens", outcome.cached_tokens}};
  if (outcome.done.reason == FinishReason::kContext) done["stop_reason"] = "context";
  // If the client saw only a part of the tokens' text, returning all of them would put words it
  // never read into its next prompt.
  if (outcome.done.reason != FinishReason::kStopString)
    done["generated_token_ids"] = outcome.tokens;
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
