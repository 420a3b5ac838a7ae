#include "serve/grpc/generate_call.h"

#include <optional>
#include <variant>

#include "serve/grpc/generate_request.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = status.code() == StatusCode::kOutOfRange
                        ? grpc::StatusCode::INVALID_ARGUMENT
                        : static_cast<grpc::StatusCode>(status.code());
  return grpc::Status(code, std::string(Message(status)));
}

// --- the table -----------------------------------------------------------------------

bool CallTable::Add(const std::string& domain, const std::string& id, GenerateCall* call) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  if (!id.empty() && !by_id_.emplace(Key(domain, id), call).second) return false;
  calls_.insert(call);
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

// The lock is held meanwhile, so that the call cannot end before.
void CallTable::Abort(const std::string& domain, const std::string& id) {
  MutexLock lock(&mutex_);
  const auto it = by_id_.find(Key(domain, id));
  if (it != by_id_.end()) it->second->Abort();
}

void CallTable::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  for (GenerateCall* const call : calls_) call->Cut();
}

bool CallTable::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

int64_t CallTable::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(calls_.size());
}

// --- one call --------------------------------------------------------------------------

struct GenerateCall::Progress {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  pb::GenerateComplete complete;  // what it will say, when nothing is streamed
};

GenerateCall::GenerateCall(Host* host, CallTable* table, grpc::CallbackServerContext* context,
                           Options options)
    : host_(*host), table_(*table), context_(context), options_(std::move(options)) {}

void GenerateCall::Run() {
  const Status status = Generate();
  table_.Remove(this);
  Finish(ToGrpcStatus(status));  // this may be gone from here on
}

Status GenerateCall::Generate() {
  {
    MutexLock lock(&mutex_);
    if (aborted_) return OkStatus();
    if (cancelled_) return Cancelled("the request was cancelled");
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Generation> generation,
                        host_.Generate(std::move(options_.request)));
  {
    MutexLock lock(&mutex_);
    generation_ = generation.get();
    if (aborted_ || cancelled_) CancelGeneration();
  }
  const Status status = Pump(generation.get());
  MutexLock lock(&mutex_);
  generation_ = nullptr;
  if (aborted_) return OkStatus();
  return status;
}

Status GenerateCall::Pump(Generation* generation) {
  Progress progress;
  progress.prompt_tokens = generation->prompt_tokens();
  bool writable = true;
  while (std::optional<TurnEvent> event = generation->Next()) {
    if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      progress.cached_tokens = started->cached_tokens;
    } else if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      ++progress.completion_tokens;
      if (!options_.stream) {
        progress.complete.add_output_ids(static_cast<uint32_t>(token->token));
        if (options_.logprobs) {
          AddLogprobs(*token, progress.complete.mutable_output_logprobs());
        }
      } else if (writable && !WriteChunk(*token, progress)) {
        writable = false;
        generation->Cancel();
      }
    } else if (writable) {
      return Complete(std::get<DoneEvent>(*event), &progress);
    }
  }
  return Cancelled("the client does not read");
}

Status GenerateCall::Complete(const DoneEvent& done, Progress* progress) {
  WEFT_RETURN_IF_ERROR(done.status);
  if (done.reason == FinishReason::kCancelled) return Cancelled("the request was cancelled");
  Response response;
  pb::GenerateComplete& complete = *response.mutable_complete();
  complete = std::move(progress->complete);
  complete.set_finish_reason(done.reason == FinishReason::kLength ? "length" : "stop");
  complete.set_prompt_tokens(static_cast<uint32_t>(progress->prompt_tokens));
  complete.set_completion_tokens(static_cast<uint32_t>(progress->completion_tokens));
  complete.set_cached_tokens(static_cast<uint32_t>(progress->cached_tokens));
  if (done.stop_token >= 0) {
    complete.set_matched_stop_token_id(static_cast<uint32_t>(done.stop_token));
  }
  {
    MutexLock lock(&mutex_);
    if (aborted_) return OkStatus();
  }
  if (!Write(response)) return Cancelled("the client does not read");
  return OkStatus();
}

bool GenerateCall::WriteChunk(const TokenEvent& token, const Progress& progress) {
  Response response;
  pb::GenerateStreamChunk& chunk = *response.mutable_chunk();
  chunk.add_token_ids(static_cast<uint32_t>(token.token));
  chunk.set_prompt_tokens(static_cast<uint32_t>(progress.prompt_tokens));
  chunk.set_completion_tokens(static_cast<uint32_t>(progress.completion_tokens));
  chunk.set_cached_tokens(static_cast<uint32_t>(progress.cached_tokens));
  if (options_.logprobs) {
    AddLogprobs(token, chunk.mutable_output_logprobs());
  }
  return Write(response);
}

bool GenerateCall::Write(const Response& response) {
  {
    MutexLock lock(&mutex_);
    if (cancelled_ || aborted_) return false;
    write_pending_ = true;
  }
  StartWrite(&response);
  const auto deadline = std::chrono::steady_clock::now() + options_.stall_timeout;
  MutexLock lock(&mutex_);
  while (write_pending_ && written_.WaitUntil(&mutex_, deadline)) continue;
  // The message must outlive its write, which cancelling ends.
  if (write_pending_) context_->TryCancel();
  while (write_pending_) written_.Wait(&mutex_);
  return write_ok_;
}

void GenerateCall::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  write_pending_ = false;
  write_ok_ = ok;
  written_.NotifyAll();
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
  context_->TryCancel();
}

void GenerateCall::CancelGeneration() {
  if (generation_ != nullptr) generation_->Cancel();
}

}  // namespace weft::serve
