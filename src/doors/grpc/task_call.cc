#include "doors/grpc/task_call.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "answer/ask.h"
#include "base/strings.h"
#include "doors/host/turn_work.h"

namespace weft::serve {

// --- the table -----------------------------------------------------------------------

bool CallTable::Add(const std::string& domain, const std::string& account, const std::string& id,
                    TaskCall* call) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  if (!id.empty() && !by_id_.emplace(Key(domain, id), call).second) return false;
  calls_.emplace(call, account);
  return true;
}

void CallTable::Remove(TaskCall* call) {
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

void TaskCall::OnMessage(grpc::ByteBuffer* message) {
  const Status status = Begin(message);
  if (!status.ok()) End(status);
}

Status TaskCall::Begin(grpc::ByteBuffer* message) {
  WEFT_ASSIGN_OR_RETURN(const std::string id, Read(message));
  SetId(id);
  CallTable& table = *service_.table;
  if (!table.Add(head().domain, head().account, id, this)) {
    if (table.closed()) return Unavailable("the server is shutting down");
    return AlreadyExists("a request with the id '", Printable(id),
                         "' is running; choose another or abort it");
  }
  const bool may_run = table.IsWithinShare(head().account, service_.max_calls);
  if (may_run && service_.pool->Post(head().account, [this] { StartTask(Run()); }))
    return OkStatus();
  table.Remove(this);
  return ResourceExhausted("too many requests at once; try again later");
}

Task<void> TaskCall::Run() {
  std::optional<Status> status = EndedBefore();
  if (!status.has_value()) {
    auto working = Work();
    status = co_await working;
  }
  service_.table->Remove(this);
  // This may be destroyed from here on.
  if (status->ok() && response_.has_value()) {
    EndWith(*std::move(response_));
  } else if (status->ok() && has_one_message()) {
    End(Cancelled("the request was aborted"));
  } else {
    End(*status);
  }
}

std::optional<std::chrono::steady_clock::time_point> TaskCall::Deadline() const {
  const auto left = context()->deadline() - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return std::nullopt;  // includes "never"
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
}

std::optional<Status> TaskCall::EndedBefore() {
  MutexLock lock(&mutex_);
  if (aborted_) return OkStatus();
  if (cancelled_) return Cancelled("the request was cancelled");
  return std::nullopt;
}

void TaskCall::SetStop(std::function<void()> stop) {
  MutexLock lock(&mutex_);
  stop_ = std::move(stop);
  if (aborted_ || cancelled_) Stop();
}

Task<StatusOr<std::unique_ptr<Generation>>> TaskCall::Submit(TurnOptions turn) {
  Ask ask{.input = Ask::Input::kPrompt, .domain = head().domain};
  ask.turn = std::move(turn);
  ask.turn.deadline = Deadline();
  ask.turn.tenant = head().account;
  TurnListener listener{.finished = [this](const TurnUsage& usage) { work_ = WorkOf(usage); }};
  PromptRecord record;
  auto submitting =
      host().answerer().Submit(std::move(ask), std::move(record), std::move(listener));
  StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (generation.ok()) SetStop([running = generation->get()] { running->Cancel(); });
  co_return std::move(generation);
}

Task<bool> TaskCall::Write(grpc::ByteBuffer message) {
  if (!BeginWrite()) co_return false;
  unsent_.Swap(&message);
  StartWrite(&unsent_);
  const auto deadline = std::chrono::steady_clock::now() + service_.stall_timeout;
  bool is_in_time = true;
  while (is_in_time && IsWriting()) is_in_time = co_await written_.WaitUntil(deadline);
  // The message must outlive its write; cancelling ends the write.
  if (IsWriting()) context()->TryCancel();
  while (IsWriting()) co_await written_.Wait();
  co_return HasWritten();
}

bool TaskCall::BeginWrite() {
  MutexLock lock(&mutex_);
  write_pending_ = !cancelled_ && !aborted_;
  return write_pending_;
}

bool TaskCall::IsWriting() {
  MutexLock lock(&mutex_);
  return write_pending_;
}

bool TaskCall::HasWritten() {
  MutexLock lock(&mutex_);
  return write_ok_;
}

void TaskCall::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    write_pending_ = false;
    write_ok_ = ok;
  }
  written_.Notify();
}

void TaskCall::OnCancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  Stop();
}

void TaskCall::Abort() {
  MutexLock lock(&mutex_);
  aborted_ = true;
  Stop();
}

void TaskCall::Cut() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    Stop();
  }
  context()->TryCancel();
}

void TaskCall::Stop() {
  if (stop_) stop_();
}

}  // namespace weft::serve
