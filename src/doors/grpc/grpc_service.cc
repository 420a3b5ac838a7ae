#include "doors/grpc/grpc_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "doors/host/model_host.h"
#include "doors/host/presented_key.h"
#include "doors/http/request_log.h"
#include "doors/http/server.h"
#include "model/hugging_face_names.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;
using smg::grpc::common::GetTokenizerChunk;
using smg::grpc::common::GetTokenizerRequest;

// Besides the turns that the engine takes: finished ones whose clients still read.
constexpr int kReadingCalls = 64;
// For all calls: threads only forward the engine's results. A tenant gets at most two.
constexpr int kThreads = 3;
constexpr std::string_view kHealthCheck = "/mlx.grpc.engine.MlxEngine/HealthCheck";
constexpr int kWaitingForBundle = 256;
// Limit on the ids in one Abort, which runs on a thread that should not be held up.
constexpr int kMaxAborted = 4096;
constexpr size_t kBundleChunkBytes = 512 << 10;

std::string_view MetadataOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(name);
  if (it == metadata.end()) return {};
  return {it->second.data(), it->second.size()};
}

// Sends a bundle piece by piece, each after the previous one is sent; blocks no thread.
class BundleCall final : public RpcCall {
 public:
  // Builds the bundle, or returns the existing one; blocks.
  using GetBundle = std::function<StatusOr<std::shared_ptr<const TokenizerBundle>>()>;

  BundleCall(TaskPool* bundlers, GetBundle get_bundle, grpc::CallbackServerContext* context,
             RpcHead head)
      : RpcCall(context, std::move(head)),
        bundlers_(*bundlers),
        get_bundle_(std::move(get_bundle)) {
    ReadMessage();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(Cancelled("the client is gone"));
    if (sent_ == bundle_->zip.size()) return End(OkStatus());
    SendNext();
  }

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    GetTokenizerRequest request;
    Status status = ParseMessage(message, &request);
    if (status.ok() && !bundlers_.Post(head().account, [this] { Begin(get_bundle_()); })) {
      status = ResourceExhausted("too many requests for the tokenizer at once; try again later");
    }
    if (!status.ok()) End(status);
  }

  void Begin(StatusOr<std::shared_ptr<const TokenizerBundle>> bundle) {
    if (!bundle.ok()) return End(bundle.status());
    bundle_ = *std::move(bundle);
    SendNext();
  }

  void SendNext() {
    const std::string& zip = bundle_->zip;
    const size_t bytes = std::min(kBundleChunkBytes, zip.size() - sent_);
    GetTokenizerChunk chunk;
    chunk.set_data(zip.data() + sent_, bytes);
    sent_ += bytes;
    if (sent_ == zip.size()) chunk.set_sha256(bundle_->sha256);
    unsent_ = BytesOf(chunk);
    StartWrite(&unsent_);
  }

  TaskPool& bundlers_;
  const GetBundle get_bundle_;
  std::shared_ptr<const TokenizerBundle> bundle_;
  size_t sent_ = 0;
  grpc::ByteBuffer unsent_;
};

int MaxCalls(const EngineOptions& options) {
  return options.max_running + options.max_queued + kReadingCalls;
}

// Health checks, which need no key and carry no data, are typed; all others are generic.
using E = pb::MlxEngine;
using MostlyGeneric = E::WithGenericMethod_Generate<E::WithRawCallbackMethod_HealthCheck<
    E::WithGenericMethod_Abort<E::WithGenericMethod_GetModelInfo<
        E::WithGenericMethod_GetServerInfo<E::WithGenericMethod_GetTokenizer<E::Service>>>>>>;

// The address in "ipv4:192.0.2.1:5000" or "ipv6:%5B2001:db8::1%5D:5000".
std::string AddressIn(std::string peer) {
  peer.erase(std::min(peer.rfind(':'), peer.size()));
  peer.erase(0, peer.find(':') + 1);
  if (peer.starts_with("%5B") && peer.ends_with("%5D")) return peer.substr(3, peer.size() - 6);
  return peer;
}

}  // namespace

// Reflection lists only services that have a method known to gRPC.
class GrpcService::Listing final : public MostlyGeneric {
 public:
  explicit Listing(const GrpcService* service) : service_(*service) {}

  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    *response = BytesOf(service_.Health());
    LogRequest({.method = "gRPC", .path = kHealthCheck, .status = "OK", .id = NewRequestId()});
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const GrpcService& service_;
};

// How to create the call of a method once its head has been accepted.
struct GrpcService::Method {
  std::string_view path;
  RpcCall* (*make)(GrpcService* service, grpc::CallbackServerContext* context, RpcHead head);
};

const GrpcService::Method GrpcService::kMethods[] = {
    {"/mlx.grpc.engine.MlxEngine/Generate",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new GenerateCall(service->generate_, context, std::move(head));
     }},
    {"/mlx.grpc.engine.MlxEngine/Abort",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new UnaryCall<pb::AbortRequest, pb::AbortResponse>(
           context, std::move(head),
           [service](const RpcHead& caller, const pb::AbortRequest& request, pb::AbortResponse*) {
             return service->Abort(caller, request);
           });
     }},
    {"/mlx.grpc.engine.MlxEngine/GetModelInfo",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new UnaryCall<pb::GetModelInfoRequest, pb::GetModelInfoResponse>(
           context, std::move(head),
           [service](const RpcHead&, const pb::GetModelInfoRequest&,
                     pb::GetModelInfoResponse* response) {
             return service->GetModelInfo(response);
           });
     }},
    {"/mlx.grpc.engine.MlxEngine/GetServerInfo",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new UnaryCall<pb::GetServerInfoRequest, pb::GetServerInfoResponse>(
           context, std::move(head),
           [service](const RpcHead&, const pb::GetServerInfoRequest&,
                     pb::GetServerInfoResponse* response) {
             return service->GetServerInfo(response);
           });
     }},
    {"/mlx.grpc.engine.MlxEngine/GetTokenizer",
     [](GrpcService* service, grpc::CallbackServerContext* context, RpcHead head) -> RpcCall* {
       return new BundleCall(
           &service->bundlers_, [service] { return service->Bundle(); }, context, std::move(head));
     }},
};

GrpcService::GrpcService(Host* host, const ApiKeys* keys, const Options& options)
    : host_(*host),
      keys_(*keys),
      options_(options),
      listing_(std::make_unique<Listing>(this)),
      pool_({.max_threads = kThreads,
             .max_posted = kThreads,
             .max_waiting = MaxCalls(host->engine().options())}),
      bundlers_({.max_threads = 1, .max_waiting = kWaitingForBundle}),
      generate_{&host_, &calls_, &pool_, MaxCalls(host->engine().options()),
                options_.stall_timeout} {}

GrpcService::~GrpcService() = default;

grpc::Service* GrpcService::listing() { return listing_.get(); }

void GrpcService::Close(std::chrono::milliseconds grace) {
  calls_.WaitUntilEmpty(std::chrono::steady_clock::now() + grace);
  calls_.Close();
  calls_.WaitUntilEmpty();
  pool_.Stop();
  bundlers_.Stop();
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
  const Status status = FindOwner(*context, &head);
  if (!status.ok()) return refuse(status);
  return method->make(this, context, std::move(head));
}

Status GrpcService::FindOwner(const grpc::CallbackServerContext& context, RpcHead* head) const {
  HttpRequest request;  // as one to the HTTP server
  request.address = AddressIn(context.peer());
  head->account = request.Account();
  if (options_.open || !keys_.required()) return OkStatus();
  const std::optional<ApiKeys::Owner> owner =
      keys_.Find(ApiKeyOf(MetadataOf(context, "authorization"), MetadataOf(context, "x-api-key")));
  if (!owner.has_value()) {
    return MakeStatus(StatusCode::kUnauthenticated,
                      "no valid API key: send metadata 'authorization: Bearer KEY' or 'x-api-key'");
  }
  head->domain = request.domain = owner->domain;
  head->account = request.Account();
  head->key_name = owner->name;
  return OkStatus();
}

pb::HealthCheckResponse GrpcService::Health() const {
  const Status health = calls_.closed() ? Unavailable(host_.phase_reason()) : host_.MayBegin();
  pb::HealthCheckResponse response;
  response.set_healthy(health.ok());
  response.set_message(std::string(health.ok() ? "OK" : Message(health)));
  return response;
}

Status GrpcService::Abort(const RpcHead& head, const pb::AbortRequest& request) {
  if (request.request_ids_size() > kMaxAborted) {
    return InvalidArgument("request_ids has ", request.request_ids_size(), " ids, at most ",
                           kMaxAborted, " are taken");
  }
  for (const std::string& id : request.request_ids()) calls_.Abort(head.domain, id);
  return OkStatus();
}

Status GrpcService::GetModelInfo(pb::GetModelInfoResponse* response) const {
  const Model& model = host_.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  const HuggingFaceNames names = HuggingFaceNamesOf(model.file());
  const auto id_or_zero = [](TokenId id) { return static_cast<uint32_t>(std::max(id, 0)); };
  response->set_model_path(ModelFileName(model));
  response->set_is_generation(true);
  response->set_max_context_length(static_cast<uint32_t>(model.context_tokens()));
  response->set_vocab_size(static_cast<uint32_t>(model.n_vocab()));
  response->set_served_model_name(ServedName(host_.model_id()));
  response->set_model_type(std::string(names.model_type));
  response->add_architectures(std::string(names.class_name));
  for (const TokenId id : tokenizer.EndsOfGeneration()) {
    response->add_eos_token_ids(static_cast<uint32_t>(id));
  }
  response->set_pad_token_id(id_or_zero(tokenizer.padding()));
  response->set_bos_token_id(id_or_zero(tokenizer.bos()));
  // A prompt must leave room for one token.
  response->set_max_req_input_len(static_cast<uint32_t>(model.context_tokens() - 1));
  return OkStatus();
}

Status GrpcService::GetServerInfo(pb::GetServerInfoResponse* response) const {
  const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - start_;
  response->set_server_type("mlx-grpc");
  response->set_active_requests(static_cast<uint32_t>(calls_.size()));
  response->set_uptime_seconds(uptime.count());
  return OkStatus();
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

std::string ServedName(std::string_view model_id) {
  std::string name;
  for (const char c : model_id) {
    if (c != ' ') {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name;
}

}  // namespace weft::serve
