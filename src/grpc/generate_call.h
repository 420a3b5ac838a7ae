// One Generate request on its way through the server, and the table of running ones.
//
// A thread of a bounded pool pumps its events, since Generation::Next blocks; the network never
// waits for that thread, nor the engine for either.
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

// The running requests, so that Abort and shutdown can find them. Any thread.
class CallTable {
 public:
  // False if the domain already has a running request with that id. Empty ids never collide.
  bool Add(const std::string& domain, const std::string& id, GenerateCall* call);
  void Remove(GenerateCall* call);
  // Aborts the request, whatever its stage; does nothing if there is none.
  void Abort(const std::string& domain, const std::string& id);
  // Waits until the table is empty, or for the deadline.
  void WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);
  // Cancels all calls and refuses every later Add.
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
  // Shared by all calls; outlives them.
  struct Service {
    Host* host;
    CallTable* table;
    HandlerPool* pumps;  // the calls' threads
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
  // Puts the request into the table and onto a thread.
  Status Begin(grpc::ByteBuffer* message);
  // Runs it to its end, on that thread.
  void Run();
  Status Generate();
  Status Pump(Generation* generation);
  Status Complete(const DoneEvent& done, Progress* progress);
  bool WriteChunk(const TokenEvent& token, const Progress& progress);
  // Waits until the message is sent. False if the client has left or does not read.
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
