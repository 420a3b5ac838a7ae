// One Generate request on its way through the server, and the table of those that run.
//
// A call is a reactor: gRPC owns it from the moment the handler returns it until OnDone,
// where it deletes itself. Its events are pumped by one thread of a bounded pool, as
// Generation::Next waits; the network never waits for that thread, nor the engine for
// either.
#ifndef WEFT_SERVE_GRPC_GENERATE_CALL_H_
#define WEFT_SERVE_GRPC_GENERATE_CALL_H_

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
#include "mlx_engine.pb.h"
#include "serve/host.h"

namespace weft::serve {

// The same status as gRPC has it: codes are equal numbers. A prompt longer than the
// context is the client's mistake there.
grpc::Status ToGrpcStatus(const Status& status);

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

class GenerateCall : public grpc::ServerWriteReactor<mlx::grpc::engine::GenerateResponse> {
 public:
  struct Options {
    GenerationRequest request;
    bool stream = false;
    bool logprobs = false;
    std::chrono::milliseconds stall_timeout{60'000};
  };
  // `table` and `host` must outlive the call; `context` does.
  GenerateCall(Host* host, CallTable* table, grpc::CallbackServerContext* context, Options options);

  // Runs the request to its end, on a thread of the pool. REQUIRES: the table has it.
  void Run();
  // The client's wish: the stream ends, without a completion and without an error.
  void Abort();
  // The server's: the stream is cut.
  void Cut();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  using Response = mlx::grpc::engine::GenerateResponse;
  struct Progress;

  Status Generate();
  Status Pump(Generation* generation);
  Status Complete(const DoneEvent& done, Progress* progress);
  bool WriteChunk(const TokenEvent& token, const Progress& progress);
  // Waits until the message is sent. False when the client is gone or does not read.
  bool Write(const Response& response);
  void CancelGeneration() WEFT_REQUIRES(mutex_);

  Host& host_;
  CallTable& table_;
  grpc::CallbackServerContext* const context_;
  Options options_;

  Mutex mutex_;
  CondVar written_;
  Generation* generation_ WEFT_GUARDED_BY(mutex_) = nullptr;  // while it runs
  bool write_pending_ WEFT_GUARDED_BY(mutex_) = false;
  bool write_ok_ WEFT_GUARDED_BY(mutex_) = true;
  bool aborted_ WEFT_GUARDED_BY(mutex_) = false;
  bool cancelled_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_GRPC_GENERATE_CALL_H_
