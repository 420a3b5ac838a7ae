// The gRPC front end: the engine service that gateways know as MlxEngine, with health
// checking and reflection.
//
//   // once host.phase() is kReady, so that nobody finds an open port that cannot answer:
//   auto server = GrpcServer::Start(&host, &keys, {.host = "127.0.0.1", .port = 50051});
//   ...
//   (*server)->BeginDrain();      // first of all: gateways send no more
//   host.Drain(grace);            // turns finish or are cut, their streams end
//   (*server)->Shutdown(grace);   // what is still being sent arrives
//
// Any thread may call any method; Shutdown and the destructor belong to the owner.
#ifndef WEFT_GRPC_GRPC_SERVER_H_
#define WEFT_GRPC_GRPC_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "host/api_keys.h"
#include "host/host.h"

namespace weft::serve {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  int port = 50051;  // 0: any that is free
  // Serves without keys, whoever has to show one over HTTP. REQUIRES: CheckGrpcOpen(host).
  bool open = false;
  // Also the text of requests and answers goes to the log.
  bool log_text = false;
  // What a client may take to read a message; then its request is cut.
  std::chrono::milliseconds stall_timeout{60'000};
};

// Whether a port without keys may be opened there: INVALID_ARGUMENT unless only this machine
// can reach it.
Status CheckGrpcOpen(const std::string& host);

// How large a message may be: no larger than a prompt that fills the context, written as ids
// and as text, with room for everything beside it.
int64_t MaxMessageBytes(int64_t context_tokens);

class GrpcServer {
 public:
  // Binds, serves, and logs "gRPC server listening on HOST:PORT". `host` and `keys` must
  // outlive the server. REQUIRES: host->phase() was kReady.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(Host* host, const ApiKeys* keys,
                                                     const GrpcServerOptions& options);
  virtual ~GrpcServer() = default;  // as Shutdown(0)

  virtual int port() const = 0;
  // Health is NOT_SERVING from now on. Requests are still answered.
  virtual void BeginDrain() = 0;
  // Gives requests so long to end, cuts the rest, wakes everybody who waits and closes the
  // port. May be called again.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_GRPC_GRPC_SERVER_H_
