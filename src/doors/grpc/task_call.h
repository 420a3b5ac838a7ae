// A call that runs as a task for as long as it takes: a request on its way through the engine, or a
// stream of events. And the table of running ones, in which Abort and shutdown find them.
//
// The task holds no thread while it waits for the engine or for the network.
#ifndef WEFT_DOORS_GRPC_TASK_CALL_H_
#define WEFT_DOORS_GRPC_TASK_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "answer/generation.h"
#include "async/signal.h"
#include "async/task.h"
#include "async/task_pool.h"
#include "base/mutex.h"
#include "base/status.h"
#include "doors/grpc/rpc_call.h"
#include "doors/host/host.h"
#include "weft/options.h"

namespace weft::serve {

class TaskCall;

// The running requests. Any thread.
class CallTable {
 public:
  // False if the domain already has a running request with that id. Empty ids never collide.
  // `account`: the tenant.
  bool Add(const std::string& domain, const std::string& account, const std::string& id,
           TaskCall* call);
  void Remove(TaskCall* call);
  // Aborts the request, whatever its stage; does nothing if there is none.
  void Abort(const std::string& domain, const std::string& id);
  // Waits until the table is empty, the first at most until the deadline.
  void WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);
  void WaitUntilEmpty();
  // Cancels all calls and refuses every later Add.
  void Close();
  bool closed() const;
  int64_t size() const;
  // Whether the account's calls are at most its share: an equal one of `max_calls` for each account
  // with calls, and at least one call.
  bool IsWithinShare(const std::string& account, int64_t max_calls) const;

 private:
  using Key = std::pair<std::string, std::string>;

  mutable Mutex mutex_;
  CondVar removed_;
  std::map<TaskCall*, std::string> calls_ WEFT_GUARDED_BY(mutex_);  // and their accounts
  std::map<Key, TaskCall*> by_id_ WEFT_GUARDED_BY(mutex_);
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
};

class TaskCall : public RpcCall {
 public:
  // Shared by all calls; outlives them.
  struct Service {
    Host* host;
    CallTable* table;
    TaskPool* pool;
    int64_t max_calls;  // at a time, of a tenant alone
    std::chrono::milliseconds stall_timeout;
  };
  TaskCall(const Service& service, grpc::CallbackServerContext* context, RpcHead head)
      : RpcCall(context, std::move(head)), service_(service) {}

  // At the client's request: the stream ends without a completion or an error.
  void Abort();
  // At the server's request: the stream is cut off.
  void Cut();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;

 protected:
  // Parses the message; returns the request's id. Must be quick.
  virtual StatusOr<std::string> Read(grpc::ByteBuffer* message) = 0;
  // Runs the call to its end.
  virtual Task<Status> Work() = 0;
  // Whether the call has one message and no stream; it is given to Respond, and sent if Work
  // succeeds.
  virtual bool has_one_message() const { return false; }
  void Respond(const grpc::ByteBuffer& response) { response_ = response; }

  // Why it cannot be run any more; nullopt: it can.
  std::optional<Status> EndedBefore();
  // `stop` is called when the client or the server ends the call, at once if that is over; it must
  // do nothing but wake or cancel. Null: nothing is to be called any more.
  void SetStop(std::function<void()> stop);
  // Begins a turn of the caller's on a prompt; the call's end cancels it until SetStop is called,
  // and the log counts it.
  Task<StatusOr<std::unique_ptr<Generation>>> Submit(TurnOptions turn);
  // Waits until the message is sent. False if the client has left or does not read.
  Task<bool> Write(grpc::ByteBuffer message);

  Host& host() const { return *service_.host; }

 private:
  // When the client's deadline is, on the engine's clock.
  std::optional<std::chrono::steady_clock::time_point> Deadline() const;
  void OnMessage(grpc::ByteBuffer* message) final;
  // Puts the request into the table and onto the pool.
  Status Begin(grpc::ByteBuffer* message);
  Task<void> Run();
  bool BeginWrite();
  bool IsWriting();
  bool HasWritten();
  void Stop() WEFT_REQUIRES(mutex_);

  const Service& service_;
  std::optional<grpc::ByteBuffer> response_;
  grpc::ByteBuffer unsent_;  // while it is being written

  Signal written_;
  Mutex mutex_;
  std::function<void()> stop_ WEFT_GUARDED_BY(mutex_);
  bool write_pending_ WEFT_GUARDED_BY(mutex_) = false;
  bool write_ok_ WEFT_GUARDED_BY(mutex_) = true;
  bool aborted_ WEFT_GUARDED_BY(mutex_) = false;
  bool cancelled_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_TASK_CALL_H_
