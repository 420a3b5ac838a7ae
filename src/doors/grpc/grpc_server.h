// The gRPC front end: the engine services known to gateways as VllmEngine and MlxEngine, with
// health checking and reflection.
//
//   // once host.phase() is kReady, so that an open port can always answer:
//   auto server = GrpcServer::Start(&host, &keys, {.host = "127.0.0.1", .port = 50051});
//   ...
//   (*server)->BeginDrain();      // first: gateways stop sending
//   host.Drain(grace);            // turns finish or are cut off, their streams end
//   (*server)->Shutdown(grace);   // pending output is delivered
//
// Any thread may call any method; Shutdown and the destructor are for the owner.
#ifndef WEFT_DOORS_GRPC_GRPC_SERVER_H_
#define WEFT_DOORS_GRPC_GRPC_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "doors/host/api_keys.h"
#include "doors/host/host.h"

namespace weft::serve {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  int port = 50051;  // 0: any free port
  // Serve without keys, even if HTTP requires them. REQUIRES: CheckGrpcOpen(host).
  bool open = false;
  ApiKeys operators = {};  // whose keys may ask for what concerns everybody
  // How long a client may take to read a message before its request is cut off.
  std::chrono::milliseconds stall_timeout{60'000};
};

// Whether a port without keys may be opened there: INVALID_ARGUMENT unless only this machine can
// reach it.
Status CheckGrpcOpen(const std::string& host);

// The maximum message size: a prompt that fills the context, written as ids and as text, plus room
// for the other fields.
int64_t MaxMessageBytes(int64_t context_tokens);

class GrpcServer {
 public:
  // Binds, serves, and logs "gRPC server listening on HOST:PORT". `host` and `keys` must outlive
  // the server. REQUIRES: host->phase() has been kReady.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(Host* host, const ApiKeys* keys,
                                                     const GrpcServerOptions& options);
  virtual ~GrpcServer() = default;  // same as Shutdown(0)

  virtual int port() const = 0;
  // Health becomes NOT_SERVING. Requests are still answered.
  virtual void BeginDrain() = 0;
  // Waits up to `grace` for requests to end, cuts off the rest, wakes all waiters and closes the
  // port. May be called again.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GRPC_SERVER_H_
