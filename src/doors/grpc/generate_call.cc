#include "doors/grpc/generate_call.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/strings.h"
#include "doors/grpc/generate_request.h"
#include "doors/host/turn_work.h"
#include "doors/http/request_log.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;

// The client's deadline, on the engine's clock.
std::optional<std::chrono::steady_clock::time_point> DeadlineOf(
    const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return std::nullopt;  // includes "never"
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
}

}  // namespace

// --- the table -----------------------------------------------------------------------

bool CallTable::Add(const std::string& domain, const std::string& account, const std::string& id,
                    GenerateCall* call) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  if (!id.empty() && !by_id_.emplace(Key(domain, id), call).second) return false;
  calls_.emplace(call, account);
  return true;
}

void CallTable::Remove(GenerateCall* call) {
  MutexLock lock(&mutex_);
  calls_.erase(call);
  std::erase_if(by_id_, [call](const auto& entry) { return entry.second == call; });
  removed_.NotifyAll();
}

void CallTable::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (!calls_.empty() && removed_.WaitUntil(&mutex_, deadline)) continue;
}

void CallTable::WaitUntilEmpty() {
  MutexLock lock(&mutex_);
  while (!calls_.empty()) removed_.Wait(&mutex_);
}

// Holds the lock, so that the call cannot end meanwhile.
void CallTable::Abort(const std::string& domain, const std::string& id) {
  MutexLock lock(&mutex_);
  const auto it = by_id_.find(Key(domain, id));
  if (it != by_id_.end()) it->second->Abort();
}

void CallTable::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  for (const auto& [call, account] : calls_) call->Cut();
}

bool CallTable::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

int64_t CallTable::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(calls_.size());
}

bool CallTable::IsWithinShare(const std::string& account, int64_t max_calls) const {
  MutexLock lock(&mutex_);
  std::map<std::string_view, int64_t> n_calls = {{account, 0}};
  for (const auto& [call, its_account] : calls_) ++n_calls[its_account];
  const int64_t share = max_calls / std::ssize(n_calls);
  return n_calls[account] <= std::max<int64_t>(share, 1);
}

// --- one call --------------------------------------------------------------------------

struct GenerateCall::Progress {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  pb::GenerateComplete complete;  // its final message, if nothing is streamed
};

GenerateCall::GenerateCall(const Service& service, grpc::CallbackServerContext* context,
                           RpcHead head)
    : RpcCall(context, std::move(head)), service_(service) {
  ReadMessage();
}

void GenerateCall::OnMessage(grpc::ByteBuffer* message) {
  const Status status = Begin(message);
  if (!status.ok()) End(status);
}

Status GenerateCall::Begin(grpc::ByteBuffer* message) {
  pb::GenerateRequest request;
  WEFT_RETURN_IF_ERROR(ParseMessage(message, &request));
  SetId(request.request_id());
  WEFT_ASSIGN_OR_RETURN(ask_.turn, TurnOptionsOf(request, service_.host->defaults()));
  ask_.turn.deadline = DeadlineOf(*context());
  ask_.turn.label = request.request_id();
  ask_.turn.end_loops = service_.host->defaults().end_loops;
  ask_.domain = head().domain;
  ask_.turn.tenant = head().account;
  streams_ = request.stream();
  wants_logprobs_ = ask_.turn.top_logprobs >= 0;
  if (head().log_text) {
    const std::span<const int32_t> tokens = ask_.turn.tokens;
    request_text_ = service_.host->model().Decode(
        tokens.first(std::min(tokens.size(), kLoggedTextBytes)), /*render_special=*/true);
  }
  CallTable& table = *service_.table;
  if (!table.Add(head().domain, head().account, request.request_id(), this)) {
    if (table.closed()) return Unavailable("the server is shutting down");
    return AlreadyExists("a request with the id '", Printable(request.request_id()),
                         "' is running; choose another or abort it");
  }
  const bool may_run = table.IsWithinShare(head().account, service_.max_calls);
  if (may_run && service_.pool->Post(head().account, [this] { StartTask(Run()); }))
    return OkStatus();
  table.Remove(this);
  return ResourceExhausted("too many requests at once; try again later");
}

Task<void> GenerateCall::Run() {
  const Status status = co_await Generate();
  service_.table->Remove(this);
  End(status);  // this may be destroyed from here on
}

std::optional<Status> GenerateCall::EndedBefore() {
  MutexLock lock(&mutex_);
  if (aborted_) return OkStatus();
  if (cancelled_) return Cancelled("the request was cancelled");
  return std::nullopt;
}

Task<Status> GenerateCall::Generate() {
  const std::optional<Status> before = EndedBefore();
  if (before.has_value()) co_return *before;
  TurnListener listener{.finished = [this](const TurnUsage& usage) { work_ = WorkOf(usage); }};
  PromptRecord record;
  auto submitting =
      service_.host->answerer().Submit(std::move(ask_), std::move(record), std::move(listener));
  StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (!generation.ok()) co_return generation.status();
  {
    MutexLock lock(&mutex_);
    generation_ = generation->get();
    if (aborted_ || cancelled_) CancelGeneration();
  }
  Status status = co_await Pump(generation->get());
  {
    MutexLock lock(&mutex_);
    generation_ = nullptr;
    if (aborted_) status = OkStatus();
  }
  co_return status;
}

Task<Status> GenerateCall::Pump(Generation* generation) {
  Progress progress;
  progress.prompt_tokens = generation->prompt_tokens();
  bool writable = true;
  while (true) {
    const std::optional<TurnEvent> event = co_await generation->Next();
    if (!event.has_value()) break;
    if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      progress.cached_tokens = started->cached_tokens;
    } else if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      ++progress.completion_tokens;
      if (head().log_text && answer_text_.size() <= kLoggedTextBytes) answer_text_ += token->text;
      if (!streams_) {
        progress.complete.add_output_ids(static_cast<uint32_t>(token->token));
        if (wants_logprobs_) {
          AddLogprobs(*token, progress.complete.mutable_output_logprobs());
        }
      } else if (writable) {
        writable = co_await WriteChunk(*token, progress);
        if (!writable) generation->Cancel();
      }
    } else if (writable) {
      const Status status = co_await Complete(std::get<DoneEvent>(*event), &progress);
      co_return status;
    }
  }
  co_return Cancelled("the client does not read");
}

Task<Status> GenerateCall::Complete(const DoneEvent& done, Progress* progress) {
  if (!done.status.ok()) co_return done.status;
  if (done.reason == FinishReason::kCancelled) co_return Cancelled("the request was cancelled");
  Response response;
  pb::GenerateComplete& complete = *response.mutable_complete();
  complete = std::move(progress->complete);
  complete.set_finish_reason(IsCut(done.reason) ? "length" : "stop");
  complete.set_prompt_tokens(static_cast<uint32_t>(progress->prompt_tokens));
  complete.set_completion_tokens(static_cast<uint32_t>(progress->completion_tokens));
  complete.set_cached_tokens(static_cast<uint32_t>(progress->cached_tokens));
  if (done.stop_token >= 0) {
    complete.set_matched_stop_token_id(static_cast<uint32_t>(done.stop_token));
  }
  const std::optional<Status> before = EndedBefore();
  if (before.has_value() && before->ok()) co_return OkStatus();
  const bool is_written = co_await Write(response);
  if (!is_written) co_return Cancelled("the client does not read");
  co_return OkStatus();
}

Task<bool> GenerateCall::WriteChunk(const TokenEvent& token, const Progress& progress) {
  Response response;
  pb::GenerateStreamChunk& chunk = *response.mutable_chunk();
  chunk.add_token_ids(static_cast<uint32_t>(token.token));
  chunk.set_prompt_tokens(static_cast<uint32_t>(progress.prompt_tokens));
  chunk.set_completion_tokens(static_cast<uint32_t>(progress.completion_tokens));
  chunk.set_cached_tokens(static_cast<uint32_t>(progress.cached_tokens));
  if (wants_logprobs_) {
    AddLogprobs(token, chunk.mutable_output_logprobs());
  }
  const bool is_written = co_await Write(response);
  co_return is_written;
}

Task<bool> GenerateCall::Write(const Response& response) {
  if (!BeginWrite()) co_return false;
  unsent_ = BytesOf(response);
  StartWrite(&unsent_);
  const auto deadline = std::chrono::steady_clock::now() + service_.stall_timeout;
  bool is_in_time = true;
  while (is_in_time && IsWriting()) is_in_time = co_await written_.WaitUntil(deadline);
  // The message must outlive its write; cancelling ends the write.
  if (IsWriting()) context()->TryCancel();
  while (IsWriting()) co_await written_.Wait();
  co_return HasWritten();
}

bool GenerateCall::BeginWrite() {
  MutexLock lock(&mutex_);
  write_pending_ = !cancelled_ && !aborted_;
  return write_pending_;
}

bool GenerateCall::IsWriting() {
  MutexLock lock(&mutex_);
  return write_pending_;
}

bool GenerateCall::HasWritten() {
  MutexLock lock(&mutex_);
  return write_ok_;
}

void GenerateCall::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    write_pending_ = false;
    write_ok_ = ok;
  }
  written_.Notify();
}

void GenerateCall::OnCancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  CancelGeneration();
}

void GenerateCall::Abort() {
  MutexLock lock(&mutex_);
  aborted_ = true;
  CancelGeneration();
}

void GenerateCall::Cut() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    CancelGeneration();
  }
  context()->TryCancel();
}

void GenerateCall::CancelGeneration() {
  if (generation_ != nullptr) generation_->Cancel();
}

}  // namespace weft::serve
