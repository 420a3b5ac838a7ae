// One Generate request on its way through the server, and the table of running ones.
//
// A task sends its events on, and holds no thread while it waits for one or for the network.
#ifndef WEFT_DOORS_GRPC_GENERATE_CALL_H_
#define WEFT_DOORS_GRPC_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "async/signal.h"
#include "async/task.h"
#include "async/task_pool.h"
#include "base/mutex.h"
#include "base/status.h"
#include "doors/grpc/rpc_call.h"
#include "doors/host/host.h"

namespace weft::serve {

class GenerateCall;

// The running requests, so that Abort and shutdown can find them. Any thread.
class CallTable {
 public:
  // False if the domain already has a running request with that id. Empty ids never collide.
  // `account`: the tenant.
  bool Add(const std::string& domain, const std::string& account, const std::string& id,
           GenerateCall* call);
  void Remove(GenerateCall* call);
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
  std::map<GenerateCall*, std::string> calls_ WEFT_GUARDED_BY(mutex_);  // and their accounts
  std::map<Key, GenerateCall*> by_id_ WEFT_GUARDED_BY(mutex_);
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
};

class GenerateCall final : public RpcCall {
 public:
  // Shared by all calls; outlives them.
  struct Service {
    Host* host;
    CallTable* table;
    TaskPool* pool;
    int64_t max_calls;  // at a time, of a tenant alone
    std::chrono::milliseconds stall_timeout;
  };
  GenerateCall(const Service& service, grpc::CallbackServerContext* context, RpcHead head);

  // At the client's request: the stream ends without a completion or an error.
  void Abort();
  // At the server's request: the stream is cut off.
  void Cut();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;

 private:
  using Response = mlx::grpc::engine::GenerateResponse;
  struct Progress;

  void OnMessage(grpc::ByteBuffer* message) override;
  // Puts the request into the table and onto the pool.
  Status Begin(grpc::ByteBuffer* message);
  // Runs it to its end.
  Task<void> Run();
  // Why it cannot be run any more; nullopt: it can.
  std::optional<Status> EndedBefore();
  Task<Status> Generate();
  Task<Status> Pump(Generation* generation);
  Task<Status> Complete(const DoneEvent& done, Progress* progress);
  Task<bool> WriteChunk(const TokenEvent& token, const Progress& progress);
  // Waits until the message is sent. False if the client has left or does not read.
  Task<bool> Write(const Response& response);
  bool BeginWrite();
  bool IsWriting();
  bool HasWritten();
  void CancelGeneration() WEFT_REQUIRES(mutex_);

  const Service& service_;
  Ask ask_{.input = Ask::Input::kPrompt};
  bool streams_ = false;
  bool wants_logprobs_ = false;
  grpc::ByteBuffer unsent_;  // while it is being written

  Signal written_;
  Mutex mutex_;
  Generation* generation_ WEFT_GUARDED_BY(mutex_) = nullptr;  // while it runs
  bool write_pending_ WEFT_GUARDED_BY(mutex_) = false;
  bool write_ok_ WEFT_GUARDED_BY(mutex_) = true;
  bool aborted_ WEFT_GUARDED_BY(mutex_) = false;
  bool cancelled_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GENERATE_CALL_H_
