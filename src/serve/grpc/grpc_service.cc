#include "serve/grpc/grpc_service.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "model/model_spec.h"
#include "serve/grpc/generate_request.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;
using smg::grpc::common::GetTokenizerChunk;

// Beyond the turns that the engine takes: finished ones whose clients still read.
constexpr int kReadingCalls = 64;
constexpr int kWaitingForBundle = 256;
constexpr size_t kBundleChunkBytes = 512 << 10;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// The key of "authorization: Bearer KEY" or "x-api-key: KEY"; empty when there is none.
std::string_view KeyOf(const grpc::CallbackServerContext& context) {
  constexpr std::string_view kScheme = "bearer ";
  const auto& metadata = context.client_metadata();
  if (const auto it = metadata.find("authorization"); it != metadata.end()) {
    const std::string_view value = View(it->second);
    const bool bearer =
        value.size() > kScheme.size() &&
        std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                   [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
    if (bearer) return value.substr(kScheme.size());
  }
  const auto it = metadata.find("x-api-key");
  return it == metadata.end() ? std::string_view() : View(it->second);
}

// When the client no longer waits, on the engine's clock.
std::optional<std::chrono::steady_clock::time_point> DeadlineOf(
    const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return std::nullopt;  // also "never"
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A stream that is refused.
template <typename Message>
grpc::ServerWriteReactor<Message>* Refuse(const Status& status) {
  class Refusal : public grpc::ServerWriteReactor<Message> {
   public:
    explicit Refusal(const Status& status) { this->Finish(ToGrpcStatus(status)); }
    void OnDone() override { delete this; }
  };
  return new Refusal(status);
}

// Sends a bundle piece by piece, each when the one before is sent; no thread waits.
class BundleCall : public grpc::ServerWriteReactor<GetTokenizerChunk> {
 public:
  // Called once, from any thread.
  void Begin(StatusOr<std::shared_ptr<const TokenizerBundle>> bundle) {
    if (!bundle.ok()) return Finish(ToGrpcStatus(bundle.status()));
    bundle_ = *std::move(bundle);
    SendNext();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone"));
    if (sent_ == bundle_->zip.size()) return Finish(grpc::Status::OK);
    SendNext();
  }
  void OnDone() override { delete this; }

 private:
  void SendNext() {
    const std::string& zip = bundle_->zip;
    const size_t bytes = std::min(kBundleChunkBytes, zip.size() - sent_);
    chunk_.set_data(zip.data() + sent_, bytes);
    sent_ += bytes;
    if (sent_ == zip.size()) chunk_.set_sha256(bundle_->sha256);
    StartWrite(&chunk_);
  }

  std::shared_ptr<const TokenizerBundle> bundle_;
  size_t sent_ = 0;
  GetTokenizerChunk chunk_;
};

int MostPumps(const EngineOptions& options) {
  return options.max_running + options.max_queued + kReadingCalls;
}

}  // namespace

GrpcService::GrpcService(Host* host, const ApiKeys* keys, std::chrono::milliseconds stall_timeout)
    : host_(*host),
      keys_(*keys),
      stall_timeout_(stall_timeout),
      pumps_(MostPumps(host->engine().options()), /*max_waiting=*/0),
      bundlers_(/*max_threads=*/1, kWaitingForBundle) {}

void GrpcService::Close(std::chrono::milliseconds grace) {
  calls_.WaitUntilEmpty(std::chrono::steady_clock::now() + grace);
  calls_.Close();
  pumps_.Stop();
  bundlers_.Stop();
}

StatusOr<std::string> GrpcService::DomainOf(const grpc::CallbackServerContext& context) const {
  if (!keys_.required()) return std::string();
  const std::optional<ApiKeys::Owner> owner = keys_.Find(KeyOf(context));
  if (owner.has_value()) return owner->domain;
  return MakeStatus(StatusCode::kUnauthenticated,
                    "no valid API key: send metadata 'authorization: Bearer KEY' or 'x-api-key'");
}

grpc::ServerWriteReactor<pb::GenerateResponse>* GrpcService::Generate(
    grpc::CallbackServerContext* context, const pb::GenerateRequest* request) {
  const StatusOr<std::string> domain = DomainOf(*context);
  if (!domain.ok()) return Refuse<pb::GenerateResponse>(domain.status());
  StatusOr<TurnOptions> turn = TurnOptionsOf(*request);
  if (!turn.ok()) return Refuse<pb::GenerateResponse>(turn.status());
  turn->deadline = DeadlineOf(*context);
  turn->label = request->request_id();
  const bool logprobs = turn->top_logprobs >= 0;
  auto call = std::make_unique<GenerateCall>(
      &host_, &calls_, context,
      GenerateCall::Options{.request = {.domain = *domain, .turn = *std::move(turn)},
                            .stream = request->stream(),
                            .logprobs = logprobs,
                            .stall_timeout = stall_timeout_});
  if (!calls_.Add(*domain, request->request_id(), call.get())) {
    if (calls_.closed()) {
      return Refuse<pb::GenerateResponse>(Unavailable("the server is shutting down"));
    }
    return Refuse<pb::GenerateResponse>(AlreadyExists("a request with the id '",
                                                      Printable(request->request_id()),
                                                      "' is running; choose another or abort it"));
  }
  GenerateCall* const running = call.get();
  if (!pumps_.Post([running] { running->Run(); })) {
    calls_.Remove(running);
    return Refuse<pb::GenerateResponse>(
        ResourceExhausted("too many requests at once; try again later"));
  }
  return call.release();
}

grpc::ServerUnaryReactor* GrpcService::HealthCheck(grpc::CallbackServerContext* context,
                                                   const pb::HealthCheckRequest* request,
                                                   pb::HealthCheckResponse* response) {
  const bool healthy = host_.phase() == Phase::kReady && !calls_.closed();
  response->set_healthy(healthy);
  response->set_message(healthy ? "OK" : host_.phase_reason());
  return Answer(context, OkStatus());
}

grpc::ServerUnaryReactor* GrpcService::Abort(grpc::CallbackServerContext* context,
                                             const pb::AbortRequest* request,
                                             pb::AbortResponse* response) {
  const StatusOr<std::string> domain = DomainOf(*context);
  if (!domain.ok()) return Answer(context, domain.status());
  for (const std::string& id : request->request_ids()) calls_.Abort(*domain, id);
  return Answer(context, OkStatus());
}

grpc::ServerUnaryReactor* GrpcService::GetModelInfo(grpc::CallbackServerContext* context,
                                                    const pb::GetModelInfoRequest* request,
                                                    pb::GetModelInfoResponse* response) {
  const StatusOr<std::string> domain = DomainOf(*context);
  if (!domain.ok()) return Answer(context, domain.status());
  const Model& model = host_.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  const auto id_or_zero = [](TokenId id) { return static_cast<uint32_t>(std::max(id, 0)); };
  response->set_model_path(model.path());
  response->set_is_generation(true);
  response->set_max_context_length(static_cast<uint32_t>(model.context_tokens()));
  response->set_vocab_size(static_cast<uint32_t>(model.n_vocab()));
  response->set_served_model_name(host_.model_id());
  response->set_model_type(model.spec().architecture);
  response->add_architectures(model.spec().architecture);
  for (const TokenId id : tokenizer.EndsOfGeneration()) {
    response->add_eos_token_ids(static_cast<uint32_t>(id));
  }
  response->set_pad_token_id(id_or_zero(tokenizer.padding()));
  response->set_bos_token_id(id_or_zero(tokenizer.bos()));
  // A prompt must leave room for one token.
  response->set_max_req_input_len(static_cast<uint32_t>(model.context_tokens() - 1));
  return Answer(context, OkStatus());
}

grpc::ServerUnaryReactor* GrpcService::GetServerInfo(grpc::CallbackServerContext* context,
                                                     const pb::GetServerInfoRequest* request,
                                                     pb::GetServerInfoResponse* response) {
  const StatusOr<std::string> domain = DomainOf(*context);
  if (!domain.ok()) return Answer(context, domain.status());
  const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - start_;
  response->set_server_type("mlx-grpc");
  response->set_active_requests(static_cast<uint32_t>(calls_.size()));
  response->set_uptime_seconds(uptime.count());
  return Answer(context, OkStatus());
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

grpc::ServerWriteReactor<GetTokenizerChunk>* GrpcService::GetTokenizer(
    grpc::CallbackServerContext* context, const smg::grpc::common::GetTokenizerRequest* request) {
  const StatusOr<std::string> domain = DomainOf(*context);
  if (!domain.ok()) return Refuse<GetTokenizerChunk>(domain.status());
  auto call = std::make_unique<BundleCall>();
  BundleCall* const running = call.get();
  if (!bundlers_.Post([this, running] { running->Begin(Bundle()); })) {
    return Refuse<GetTokenizerChunk>(
        ResourceExhausted("too many requests for the tokenizer at once; try again later"));
  }
  return call.release();
}

}  // namespace weft::serve
