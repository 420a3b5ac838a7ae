// The gRPC ports of weft serve.
//
// The services' requests name no model, and a gateway takes each address for one model. So with
// several models each has a port of its own, and what a gateway learns there (the model's name, its
// tokenizer, cached pages and load) is that model's. A gateway cannot tell a model that is unloaded
// from a server that is gone, so a model with a port stays loaded.
#ifndef WEFT_CLI_SERVE_GRPC_DOOR_H_
#define WEFT_CLI_SERVE_GRPC_DOOR_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/serve/serve_flags.h"
#include "doors/grpc/grpc_server.h"
#include "doors/host/api_keys.h"
#include "doors/host/model_fleet.h"

namespace weft::cli {

// A value of --grpc-port.
struct GrpcPort {
  std::string model;  // empty: the only one
  int port = 0;
};
StatusOr<GrpcPort> ParseGrpcPort(const std::string& text);

// INVALID_ARGUMENT unless the flags fit a server of one model.
Status CheckGrpcOfOne(const ServeFlags& flags);
// The same for several: each port names one that can be loaded, which is pinned from now on.
Status PinForGrpc(const ServeFlags& flags, std::vector<serve::FleetModel>* models);

// The options of all ports. `operators`: the keys of operators.
serve::GrpcServerOptions GrpcOptions(const ServeFlags& flags, const serve::ApiKeys& operators);

// The ports of a server with several models. One thread. Destroy it before the fleet.
class FleetGrpcDoor {
 public:
  FleetGrpcDoor(const ServeFlags& flags, const serve::ApiKeys* keys,
                const serve::ApiKeys& operators, serve::ModelFleet* fleet);
  ~FleetGrpcDoor() { Shutdown(std::chrono::milliseconds(0)); }

  // Call once the fleet has started. FAILED_PRECONDITION if a model could not be loaded.
  Status Open();
  // Call from time to time: a model may have been replaced when the models were read again. Its
  // port is closed then, until the new one is loaded.
  void Look();
  void BeginDrain();
  void Shutdown(std::chrono::milliseconds grace);

 private:
  struct Door {
    std::string model;
    serve::GrpcServerOptions options;
    std::shared_ptr<const serve::FleetModel> served = nullptr;
    serve::ModelLease lease = nullptr;
    std::unique_ptr<serve::GrpcServer> server = nullptr;  // destroyed before the lease
  };
  Status Open(Door* door);
  static void Close(Door* door, std::chrono::milliseconds grace);

  const serve::ApiKeys& keys_;
  serve::ModelFleet& fleet_;
  std::vector<Door> doors_;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_GRPC_DOOR_H_
