#include "doors/grpc/grpc_service.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "doors/grpc/embed_call.h"
#include "doors/grpc/generate_call.h"
#include "doors/grpc/generate_form.h"
#include "doors/grpc/kv_events_call.h"
#include "doors/host/presented_key.h"
#include "doors/http/request_log.h"
#include "doors/http/server.h"

namespace weft::serve {
namespace {

namespace mlx_pb = mlx::grpc::engine;
namespace vllm_pb = vllm::grpc::engine;
namespace common_pb = smg::grpc::common;

// Besides the turns that the engine takes: finished ones whose clients still read.
constexpr int kReadingCalls = 64;
// Threads read requests and compile constraints, a tenant's at most on two of them, and forward the
// engine's results, for which one is always free.
constexpr int kThreads = 4;
constexpr int kWaitingToBlock = 256;
// Subscriptions at a time, of a tenant alone.
constexpr int kMaxWatches = 64;
// Limit on the ids in one Abort, which runs on a thread that should not be held up.
constexpr int kMaxAborted = 4096;
constexpr size_t kBundleChunkBytes = 512 << 10;

std::string_view MetadataOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(name);
  if (it == metadata.end()) return {};
  return {it->second.data(), it->second.size()};
}

// A call that blocks, on a thread of the pool.
template <typename Request>
class BlockingCall : public RpcCall {
 protected:
  BlockingCall(TaskPool* pool, grpc::CallbackServerContext* context, RpcHead head)
      : RpcCall(context, std::move(head)), pool_(*pool) {}
  virtual void Run() = 0;

 private:
  void OnMessage(grpc::ByteBuffer* message) final {
    Request request;
    Status status = ParseMessage(message, &request);
    if (status.ok() && !pool_.Post(head().account, [this] { Run(); })) {
      status = ResourceExhausted("too many such requests at once; try again later");
    }
    if (!status.ok()) End(status);
  }

  TaskPool& pool_;
};

// Sends a bundle piece by piece, each after the previous one is sent; only building it blocks.
class BundleCall final : public BlockingCall<common_pb::GetTokenizerRequest> {
 public:
  // Builds the bundle, or returns the existing one.
  using GetBundle = std::function<StatusOr<std::shared_ptr<const TokenizerBundle>>()>;

  BundleCall(TaskPool* pool, GetBundle get_bundle, grpc::CallbackServerContext* context,
             RpcHead head)
      : BlockingCall(pool, context, std::move(head)), get_bundle_(std::move(get_bundle)) {
    ReadMessage();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(Cancelled("the client is gone"));
    if (sent_ == bundle_->zip.size()) return End(OkStatus());
    SendNext();
  }

 private:
  void Run() override {
    auto bundle = get_bundle_();
    if (!bundle.ok()) return End(bundle.status());
    bundle_ = *std::move(bundle);
    SendNext();
  }

  void SendNext() {
    const std::string& zip = bundle_->zip;
    const size_t bytes = std::min(kBundleChunkBytes, zip.size() - sent_);
    common_pb::GetTokenizerChunk chunk;
    chunk.set_data(zip.data() + sent_, bytes);
    sent_ += bytes;
    if (sent_ == zip.size()) chunk.set_sha256(bundle_->sha256);
    unsent_ = BytesOf(chunk);
    StartWrite(&unsent_);
  }

  const GetBundle get_bundle_;
  std::shared_ptr<const TokenizerBundle> bundle_;
  size_t sent_ = 0;
  grpc::ByteBuffer unsent_;
};

// Waits for the engine.
class FlushCall final : public BlockingCall<common_pb::FlushCacheRequest> {
 public:
  FlushCall(TaskPool* pool, Engine* engine, grpc::CallbackServerContext* context, RpcHead head)
      : BlockingCall(pool, context, std::move(head)), engine_(*engine) {
    ReadMessage();
  }

 private:
  void Run() override {
    Status status = OkStatus();
    // One of several tenants must not slow down the others.
    if (!head().is_operators) {
      status = absl::PermissionDeniedError(
          "FlushCache drops everybody's cached prefixes: use the operator's key, of "
          "--metrics-key-file, or the only key of --api-key-file");
    }
    if (status.ok()) status = engine_.DropPrefixes();
    if (!status.ok()) return End(status);
    common_pb::FlushCacheResponse response;
    response.set_success(true);
    response.set_message("cached prefixes that no session uses were dropped");
    EndWith(BytesOf(response));
  }

  Engine& engine_;
};

std::string UtcText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

int MaxCalls(const EngineOptions& options) {
  return options.max_running + options.max_queued + kReadingCalls;
}

// Health checks, which need no key and carry no data, are typed; all others are generic.
using M = mlx_pb::MlxEngine;
using MlxMethods = M::WithGenericMethod_Generate<M::WithRawCallbackMethod_HealthCheck<
    M::WithGenericMethod_Abort<M::WithGenericMethod_GetModelInfo<
        M::WithGenericMethod_GetServerInfo<M::WithGenericMethod_GetTokenizer<M::Service>>>>>>;
using V = vllm_pb::VllmEngine;
using VllmMethods =
    V::WithGenericMethod_Generate<V::WithGenericMethod_Embed<V::WithRawCallbackMethod_HealthCheck<
        V::WithGenericMethod_FlushCache<V::WithGenericMethod_StartProfile<
            V::WithGenericMethod_StopProfile<V::WithGenericMethod_Abort<
                V::WithGenericMethod_GetModelInfo<V::WithGenericMethod_GetServerInfo<
                    V::WithGenericMethod_GetLoads<V::WithGenericMethod_GetTokenizer<
                        V::WithGenericMethod_SubscribeKvEvents<V::Service>>>>>>>>>>>>;

grpc::ServerUnaryReactor* AnswerHealth(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer& health, std::string_view path,
                                       grpc::ByteBuffer* response) {
  *response = health;
  LogRequest({.method = "gRPC", .path = path, .status = "OK", .id = NewRequestId()});
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

// The address in "ipv4:192.0.2.1:5000" or "ipv6:%5B2001:db8::1%5D:5000".
std::string AddressIn(std::string peer) {
  peer.erase(std::min(peer.rfind(':'), peer.size()));
  peer.erase(0, peer.find(':') + 1);
  if (peer.starts_with("%5B") && peer.ends_with("%5D")) return peer.substr(3, peer.size() - 6);
  return peer;
}

}  // namespace

// Reflection lists only services that have a method known to gRPC.
class GrpcService::MlxListing final : public MlxMethods {
 public:
  explicit MlxListing(const GrpcService* service) : service_(*service) {}

  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    return AnswerHealth(context, BytesOf(service_.Health<mlx_pb::HealthCheckResponse>()),
                        "/mlx.grpc.engine.MlxEngine/HealthCheck", response);
  }

 private:
  const GrpcService& service_;
};

class GrpcService::VllmListing final : public VllmMethods {
 public:
  explicit VllmListing(const GrpcService* service) : service_(*service) {}

  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    return AnswerHealth(context, BytesOf(service_.Health<vllm_pb::HealthCheckResponse>()),
                        "/vllm.grpc.engine.VllmEngine/HealthCheck", response);
  }

 private:
  const GrpcService& service_;
};

// How to create the call of a method once its head has been accepted.
struct GrpcService::Method {
  std::string_view path;
  RpcCall* (*make)(GrpcService* service, grpc::CallbackServerContext* context, RpcHead head);
  bool for_operators = false;  // their key is enough

  template <typename Request, typename Response>
  static RpcCall* Unary(grpc::CallbackServerContext* context, RpcHead head,
                        typename UnaryCall<Request, Response>::Answer answer) {
    return new UnaryCall<Request, Response>(context, std::move(head), std::move(answer));
  }
  static RpcCall* Bundle(GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) {
    return new BundleCall(
        &service->blocking_, [service] { return service->Bundle(); }, context, std::move(head));
  }
  template <typename Request, typename Response>
  static RpcCall* Abort(GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) {
    return Unary<Request, Response>(
        context, std::move(head),
        [service](const RpcHead& caller, const Request& request, Response*) {
          return service->Abort(caller, request.request_ids());
        });
  }
  template <typename Request, typename Response>
  static RpcCall* ModelInfo(GrpcService* service, grpc::CallbackServerContext* context,
                            RpcHead head) {
    return Unary<Request, Response>(context, std::move(head),
                                    [service](const RpcHead&, const Request&, Response* response) {
                                      Fill(service->host_, response);
                                      return OkStatus();
                                    });
  }
  template <typename Request, typename Response>
  static RpcCall* ServerInfo(GrpcService* service, grpc::CallbackServerContext* context,
                             RpcHead head) {
    return Unary<Request, Response>(context, std::move(head),
                                    [service](const RpcHead&, const Request&, Response* response) {
                                      Fill(service->host_, service->serving(), response);
                                      return OkStatus();
                                    });
  }
  template <typename Request>
  static RpcCall* NoProfile(GrpcService*, grpc::CallbackServerContext* context, RpcHead head) {
    return Unary<Request, common_pb::ProfileResponse>(
        context, std::move(head), [](const RpcHead&, const Request&, common_pb::ProfileResponse*) {
          return Unimplemented(
              "StartProfile and StopProfile are not supported: use /metrics, or perf on the "
              "process");
        });
  }
};

const GrpcService::Method GrpcService::kMethods[] = {
    {"/mlx.grpc.engine.MlxEngine/Generate",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new GenerateCall(MlxForm(), service->requests_, context, std::move(head));
     }},
    {"/mlx.grpc.engine.MlxEngine/Abort",
     Method::Abort<mlx_pb::AbortRequest, mlx_pb::AbortResponse>},
    {"/mlx.grpc.engine.MlxEngine/GetModelInfo",
     Method::ModelInfo<mlx_pb::GetModelInfoRequest, mlx_pb::GetModelInfoResponse>},
    {"/mlx.grpc.engine.MlxEngine/GetServerInfo",
     Method::ServerInfo<mlx_pb::GetServerInfoRequest, mlx_pb::GetServerInfoResponse>},
    {"/mlx.grpc.engine.MlxEngine/GetTokenizer", Method::Bundle},
    {"/vllm.grpc.engine.VllmEngine/Generate",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new GenerateCall(VllmForm(), service->requests_, context, std::move(head));
     }},
    {"/vllm.grpc.engine.VllmEngine/Embed",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new EmbedCall(service->requests_, context, std::move(head));
     }},
    {"/vllm.grpc.engine.VllmEngine/Abort",
     Method::Abort<vllm_pb::AbortRequest, vllm_pb::AbortResponse>},
    {"/vllm.grpc.engine.VllmEngine/GetModelInfo",
     Method::ModelInfo<vllm_pb::GetModelInfoRequest, vllm_pb::GetModelInfoResponse>},
    {"/vllm.grpc.engine.VllmEngine/GetServerInfo",
     Method::ServerInfo<vllm_pb::GetServerInfoRequest, vllm_pb::GetServerInfoResponse>},
    {"/vllm.grpc.engine.VllmEngine/GetTokenizer", Method::Bundle},
    {"/vllm.grpc.engine.VllmEngine/GetLoads",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return Method::Unary<vllm_pb::GetLoadsRequest, vllm_pb::GetLoadsResponse>(
           context, std::move(head),
           [service](const RpcHead& head, const vllm_pb::GetLoadsRequest& request,
                     vllm_pb::GetLoadsResponse* response) {
             return service->GetLoads(head, request, response);
           });
     }},
    {"/vllm.grpc.engine.VllmEngine/FlushCache",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new FlushCall(&service->blocking_, &service->host_.engine(), context,
                            std::move(head));
     },
     /*for_operators=*/true},
    {"/vllm.grpc.engine.VllmEngine/StartProfile",
     Method::NoProfile<common_pb::StartProfileRequest>},
    {"/vllm.grpc.engine.VllmEngine/StopProfile", Method::NoProfile<common_pb::StopProfileRequest>},
    {"/vllm.grpc.engine.VllmEngine/SubscribeKvEvents",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new KvEventsCall(&service->meter_, service->TellsPrefixes(), service->watching_,
                               context, std::move(head));
     }},
};

GrpcService::GrpcService(Host* host, const ApiKeys* keys, const Options& options)
    : host_(*host),
      keys_(*keys),
      options_(options),
      mlx_(std::make_unique<MlxListing>(this)),
      vllm_(std::make_unique<VllmListing>(this)),
      meter_(&host->engine()),
      pool_({.max_threads = kThreads,
             .max_posted = kThreads - 1,
             .max_waiting = MaxCalls(host->engine().options())}),
      telling_({.max_threads = 1, .max_waiting = kMaxWatches}),
      blocking_({.max_threads = 1, .max_waiting = kWaitingToBlock}),
      requests_{&host_, &calls_, &pool_, MaxCalls(host->engine().options()),
                options_.stall_timeout},
      watching_{&host_, &watches_, &telling_, kMaxWatches, options_.stall_timeout} {}

GrpcService::~GrpcService() = default;

std::vector<grpc::Service*> GrpcService::listings() { return {mlx_.get(), vllm_.get()}; }

void GrpcService::Close(std::chrono::milliseconds grace) {
  watches_.Close();
  watches_.WaitUntilEmpty();
  calls_.WaitUntilEmpty(std::chrono::steady_clock::now() + grace);
  calls_.Close();
  calls_.WaitUntilEmpty();
  pool_.Stop();
  telling_.Stop();
  blocking_.Stop();
}

grpc::ServerGenericBidiReactor* GrpcService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  RpcHead head{.path = context->method(), .log_text = host_.defaults().server.log_text};
  const auto refuse = [&](const Status& status) {
    return new RefusedCall(context, std::move(head), status);
  };
  const auto* const method =
      std::find_if(std::begin(kMethods), std::end(kMethods),
                   [&](const Method& known) { return known.path == head.path; });
  if (method == std::end(kMethods)) {
    return refuse(Unimplemented("there is no method ", Printable(head.path, 200)));
  }
  const Status status = FindOwner(*context, method->for_operators, &head);
  if (!status.ok()) return refuse(status);
  return method->make(this, context, std::move(head));
}

Status GrpcService::FindOwner(const grpc::CallbackServerContext& context, bool for_operators,
                              RpcHead* head) const {
  HttpRequest request;  // as one to the HTTP server
  request.address = AddressIn(context.peer());
  head->account = request.Account();
  const std::string_view key =
      ApiKeyOf(MetadataOf(context, "authorization"), MetadataOf(context, "x-api-key"));
  const std::optional<ApiKeys::Owner> owner = keys_.Find(key);
  const bool needs_none = !keys_.required() && !options_.operators.required();
  head->is_operators =
      needs_none || (options_.operators.required() ? options_.operators.Find(key).has_value()
                                                   : owner.has_value() && keys_.size() == 1);
  head->sees_load = head->is_operators || options_.open || !keys_.required();
  const bool may_ask = options_.open || !keys_.required() || owner.has_value();
  if (!may_ask && !(head->is_operators && for_operators)) {
    return MakeStatus(StatusCode::kUnauthenticated,
                      "no valid API key: send metadata 'authorization: Bearer KEY' or 'x-api-key'");
  }
  if (options_.open || !owner.has_value()) return OkStatus();
  head->domain = request.domain = owner->domain;
  head->account = request.Account();
  head->key_name = owner->name;
  return OkStatus();
}

template <typename Response>
Response GrpcService::Health() const {
  const Status health = calls_.closed() ? Unavailable(host_.phase_reason()) : host_.MayBegin();
  Response response;
  response.set_healthy(health.ok());
  response.set_message(std::string(health.ok() ? "OK" : Message(health)));
  return response;
}

template <typename Ids>
Status GrpcService::Abort(const RpcHead& head, const Ids& request_ids) {
  if (request_ids.size() > kMaxAborted) {
    return InvalidArgument("request_ids has ", request_ids.size(), " ids, at most ", kMaxAborted,
                           " are taken");
  }
  for (const std::string& id : request_ids) calls_.Abort(head.domain, id);
  return OkStatus();
}

Serving GrpcService::serving() const {
  const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - start_;
  return {.active_requests = calls_.size(), .uptime_s = uptime.count()};
}

Status GrpcService::GetLoads(const RpcHead& head, const vllm_pb::GetLoadsRequest& request,
                             vllm_pb::GetLoadsResponse* response) {
  if (request.dp_rank() != 0) {
    return InvalidArgument("dp_rank ", request.dp_rank(), " does not exist: there is only rank 0");
  }
  response->set_timestamp(UtcText());
  response->set_version("weft-" WEFT_VERSION);
  response->set_dp_rank_count(1);
  *response->add_loads() = SchedulerLoadOf(meter_.Current(head));
  return OkStatus();
}

bool GrpcService::TellsPrefixes() const {
  return !host_.engine().options().share_prefixes_across_domains || !keys_.required();
}

StatusOr<std::shared_ptr<const TokenizerBundle>> GrpcService::Bundle() {
  MutexLock lock(&bundle_mutex_);
  if (bundle_ == nullptr) {
    const Model& model = host_.model();
    WEFT_ASSIGN_OR_RETURN(TokenizerBundle bundle,
                          BuildTokenizerBundle(model.file(), host_.chat().chat_template().source(),
                                               model.context_tokens()));
    bundle_ = std::make_shared<const TokenizerBundle>(std::move(bundle));
  }
  return bundle_;
}

}  // namespace weft::serve
