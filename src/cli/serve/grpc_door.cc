#include "cli/serve/grpc_door.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/strings.h"

namespace weft::cli {
namespace {

// For requests to a model that was replaced.
constexpr std::chrono::milliseconds kReplacedGrace{5000};
constexpr int kMaxPort = 65535;

}  // namespace

StatusOr<GrpcPort> ParseGrpcPort(const std::string& text) {
  const size_t equals = text.rfind('=');
  const std::string_view number =
      std::string_view(text).substr(equals == text.npos ? 0 : equals + 1);
  GrpcPort port;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), port.port);
  const bool is_port = error == std::errc() && end == number.data() + number.size() &&
                       port.port >= 0 && port.port <= kMaxPort;
  if (!is_port || equals == 0) {
    return InvalidArgument(Printable(text, 200),
                           " is no port: write 50051, or NAME=50051 with several models");
  }
  if (equals != text.npos) port.model = text.substr(0, equals);
  return port;
}

Status CheckGrpcOfOne(const ServeFlags& flags) {
  const std::vector<std::string>& ports = flags.server.grpc_ports;
  if (ports.empty()) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const GrpcPort port, ParseGrpcPort(ports[0]));
  if (ports.size() == 1 && port.model.empty()) return OkStatus();
  return InvalidArgument("with one model, write --grpc-port ", port.port,
                         " once; NAME=PORT is for several");
}

Status PinForGrpc(const ServeFlags& flags, std::vector<serve::FleetModel>* models) {
  std::vector<std::string> names;
  for (const serve::FleetModel& model : *models) names.push_back(Printable(model.name, 100));
  for (const std::string& text : flags.server.grpc_ports) {
    WEFT_ASSIGN_OR_RETURN(const GrpcPort port, ParseGrpcPort(text));
    const auto named = std::ranges::find(*models, port.model, &serve::FleetModel::name);
    if (named == models->end()) {
      return InvalidArgument("with several models, write --grpc-port NAME=PORT, such as ",
                             names.front(), "=50051, not ", Printable(text, 200), "; there are ",
                             StrJoin(names, ", "));
    }
    if (!named->problem.empty()) {
      return InvalidArgument("--grpc-port ", Printable(text, 200),
                             ": the model cannot be loaded: ", named->problem);
    }
    named->pinned = true;
  }
  return OkStatus();
}

serve::GrpcServerOptions GrpcOptions(const ServeFlags& flags, const serve::ApiKeys& operators) {
  serve::GrpcServerOptions options;
  options.host = flags.server.grpc_host.empty() ? flags.server.host : flags.server.grpc_host;
  options.open = flags.server.grpc_open;
  options.operators = operators;
  return options;
}

FleetGrpcDoor::FleetGrpcDoor(const ServeFlags& flags, const serve::ApiKeys* keys,
                             const serve::ApiKeys& operators, serve::ModelFleet* fleet)
    : keys_(*keys), fleet_(*fleet) {
  for (const std::string& text : flags.server.grpc_ports) {
    StatusOr<GrpcPort> port = ParseGrpcPort(text);
    if (!port.ok()) continue;  // PinForGrpc refused it
    Door& door = doors_.emplace_back();
    door.model = std::move(port->model);
    door.options = GrpcOptions(flags, operators);
    door.options.port = port->port;
  }
}

Status FleetGrpcDoor::Open() {
  for (Door& door : doors_) WEFT_RETURN_IF_ERROR(Open(&door));
  return OkStatus();
}

Status FleetGrpcDoor::Open(Door* door) {
  WEFT_ASSIGN_OR_RETURN(const serve::ModelFleet::Info info, fleet_.FindExactly(door->model));
  const std::string name = Printable(door->model, 200);
  serve::ModelLease lease = fleet_.Keep(door->model);
  if (lease == nullptr) {
    return FailedPrecondition("the model ", name, " has a gRPC port, and is not loaded",
                              info.problem.empty() ? "" : ": ", Printable(info.problem, 500));
  }
  WEFT_ASSIGN_OR_RETURN(door->server,
                        serve::GrpcServer::Start(&lease->host(), &keys_, door->options));
  door->lease = std::move(lease);
  door->served = info.model;
  door->options.port = door->server->port();  // the same after it was closed
  LogLine(StrCat("the model ", name, " is served over gRPC on port ", door->options.port,
                 " and stays loaded"));
  return OkStatus();
}

void FleetGrpcDoor::Look() {
  for (Door& door : doors_) {
    const auto info = fleet_.FindExactly(door.model);
    if (info.ok() && info->model == door.served) continue;
    if (door.server != nullptr) Close(&door, kReplacedGrace);
    if (!info.ok() || info->state != serve::ModelFleet::State::kLoaded) continue;
    if (const Status status = Open(&door); !status.ok()) LogLine(Message(status));
  }
}

void FleetGrpcDoor::BeginDrain() {
  for (Door& door : doors_) {
    if (door.server != nullptr) door.server->BeginDrain();
  }
}

void FleetGrpcDoor::Shutdown(std::chrono::milliseconds grace) {
  // One grace for all, however many ports there are.
  const auto end = std::chrono::steady_clock::now() + grace;
  for (Door& door : doors_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    Close(&door, std::max(left, std::chrono::milliseconds(0)));
  }
}

void FleetGrpcDoor::Close(Door* door, std::chrono::milliseconds grace) {
  if (door->server != nullptr) door->server->Shutdown(grace);
  door->server.reset();
  door->lease.reset();
}

}  // namespace weft::cli
