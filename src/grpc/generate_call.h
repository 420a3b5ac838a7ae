// One Generate request on its way through the server, and the table of those that run.
//
// Its events are pumped by one thread of a bounded pool, as Generation::Next waits; the
// network never waits for that thread, nor the engine for either.
#ifndef WEFT_GRPC_GENERATE_CALL_H_
#define WEFT_GRPC_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "grpc/rpc_call.h"
#include "host/host.h"
#include "http/handler_pool.h"

namespace weft::serve {

class GenerateCall;

// The requests that run, so that Abort and the server's end find them. Any thread.
class CallTable {
 public:
  // False when the domain has a running request of that id. An empty id is nobody's.
  bool Add(const std::string& domain, const std::string& id, GenerateCall* call);
  void Remove(GenerateCall* call);
  // Aborts the request, wherever it is; nothing when there is none.
  void Abort(const std::string& domain, const std::string& id);
  // Waits until there is none, or the deadline.
  void WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);
  // Cancels all there are; every later Add is refused.
  void Close();
  bool closed() const;
  int64_t size() const;

 private:
  using Key = std::pair<std::string, std::string>;

  mutable Mutex mutex_;
  CondVar removed_;
  std::set<GenerateCall*> calls_ WEFT_GUARDED_BY(mutex_);
  std::map<Key, GenerateCall*> by_id_ WEFT_GUARDED_BY(mutex_);
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
};

class GenerateCall final : public RpcCall {
 public:
  // What calls share; outlives them.
  struct Service {
    Host* host;
    CallTable* table;
    HandlerPool* pumps;  // their threads
    std::chrono::milliseconds stall_timeout;
  };
  GenerateCall(const Service& service, grpc::CallbackServerContext* context, RpcHead head);

  // The client's wish: the stream ends, without a completion and without an error.
  void Abort();
  // The server's: the stream is cut.
  void Cut();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;

 private:
  using Response = mlx::grpc::engine::GenerateResponse;
  struct Progress;

  void OnMessage(grpc::ByteBuffer* message) override;
  // Puts the request into the table and onto a thread.
  Status Begin(grpc::ByteBuffer* message);
  // Runs it to its end, on that thread.
  void Run();
  Status Generate();
  Status Pump(Generation* generation);
  Status Complete(const DoneEvent& done, Progress* progress);
  bool WriteChunk(const TokenEvent& token, const Progress& progress);
  // Waits until the message is sent. False when the client is gone or does not read.
  bool Write(const Response& response);
  void CancelGeneration() WEFT_REQUIRES(mutex_);

  const Service& service_;
  GenerationRequest request_;
  bool streams_ = false;
  bool wants_logprobs_ = false;
  grpc::ByteBuffer unsent_;  // while it is being written

  Mutex mutex_;
  CondVar written_;
  Generation* generation_ WEFT_GUARDED_BY(mutex_) = nullptr;  // while it runs
  bool write_pending_ WEFT_GUARDED_BY(mutex_) = false;
  bool write_ok_ WEFT_GUARDED_BY(mutex_) = true;
  bool aborted_ WEFT_GUARDED_BY(mutex_) = false;
  bool cancelled_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_GRPC_GENERATE_CALL_H_
