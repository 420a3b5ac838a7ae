#include "doors/grpc/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "doors/grpc/grpc_service.h"
#include "doors/http/guard.h"

namespace weft::serve {
namespace {

constexpr const char* kServiceNames[] = {"mlx.grpc.engine.MlxEngine",
                                         "vllm.grpc.engine.VllmEngine"};
// A token takes up to five bytes as an id, and most take fewer as text.
constexpr int64_t kMessageBytesPerToken = 64;
constexpr int64_t kMinMessageBytes = 4 << 20;
constexpr int64_t kMaxMessageBytes = 256 << 20;
// Buffer for a call whose message has not been requested yet.
constexpr int kUnreadBytes = 1 << 20;
constexpr size_t kMaxTransportBytes = size_t{1} << 30;
// Only reflection uses blocking threads; it never gets more than these.
constexpr int kMaxReflectionThreads = 16;
// Time for clients that watch health or hold a stream to be told of the end.
constexpr std::chrono::milliseconds kGoodbye{200};

// Gateways ping every 30 seconds, even when idle, and faster pings are accepted. Our own pings
// detect half-open connections.
void SetTransport(int64_t context_tokens, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(MaxMessageBytes(context_tokens)));
  builder->SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kUnreadBytes);
  // A port in use is an error instead of being shared.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  grpc::ResourceQuota quota("weft");
  quota.Resize(kMaxTransportBytes);
  quota.SetMaxThreads(kMaxReflectionThreads);
  builder->SetResourceQuota(quota);
}

class ServerImpl : public GrpcServer {
 public:
  ServerImpl(Host* host, const ApiKeys* keys, const GrpcServerOptions& options)
      : host_(*host),
        context_tokens_(host->model().context_tokens()),
        service_(host, keys,
                 {.open = options.open,
                  .operators = options.operators,
                  .stall_timeout = options.stall_timeout}) {}

  Status Listen(const GrpcServerOptions& options) {
    static std::once_flag plugins;
    std::call_once(plugins, [] {
      grpc::EnableDefaultHealthCheckService(true);
      grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    });
    const bool is_ipv6 = options.host.find(':') != std::string::npos && options.host[0] != '[';
    const std::string host = is_ipv6 ? StrCat("[", options.host, "]") : options.host;
    grpc::ServerBuilder builder;
    SetTransport(context_tokens_, &builder);
    for (grpc::Service* const listing : service_.listings()) builder.RegisterService(listing);
    builder.RegisterCallbackGenericService(&service_);
    builder.AddListeningPort(StrCat(host, ":", options.port), grpc::InsecureServerCredentials(),
                             &port_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return Unavailable("cannot listen for gRPC on ", Printable(host), ":", options.port,
                         "; is the port in use?");
    }
    for (const char* const name : kServiceNames) {
      server_->GetHealthCheckService()->SetServingStatus(name, true);
    }
    drain_watch_ = host_.drain_switch()->Watch(
        [this](bool is_on) { server_->GetHealthCheckService()->SetServingStatus(!is_on); });
    LogLine(StrCat("gRPC server listening on ", Printable(host), ":", port_));
    return OkStatus();
  }

  ~ServerImpl() override { Shutdown(std::chrono::milliseconds(0)); }

  int port() const override { return port_; }
  void BeginDrain() override {
    drain_watch_.reset();
    server_->GetHealthCheckService()->SetServingStatus(false);
  }
  void Shutdown(std::chrono::milliseconds grace) override {
    if (server_ == nullptr || shut_down_) return;
    shut_down_ = true;
    BeginDrain();
    service_.Close(grace);
    server_->Shutdown(std::chrono::system_clock::now() + kGoodbye);
    server_->Wait();
  }

 private:
  Host& host_;
  const int64_t context_tokens_;
  GrpcService service_;
  int port_ = 0;
  bool shut_down_ = false;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<void> drain_watch_;
};

}  // namespace

Status CheckGrpcOpen(const std::string& host) {
  if (IsLoopbackHost(host)) return OkStatus();
  return InvalidArgument(
      "--grpc-open serves without keys, which is only allowed on this machine, and ",
      Printable(host, 100), " can be reached from other machines; add --grpc-host 127.0.0.1");
}

int64_t MaxMessageBytes(int64_t context_tokens) {
  return std::min(kMinMessageBytes + context_tokens * kMessageBytesPerToken, kMaxMessageBytes);
}

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(Host* host, const ApiKeys* keys,
                                                        const GrpcServerOptions& options) {
  auto server = std::make_unique<ServerImpl>(host, keys, options);
  WEFT_RETURN_IF_ERROR(server->Listen(options));
  if (!keys->required() && !IsLoopbackHost(options.host)) {
    LogLine(StrCat("anyone who can reach ", Printable(options.host, 100), ":", server->port(),
                   " has access over gRPC, because there is no --api-key-file"));
  }
  return server;
}

}  // namespace weft::serve
