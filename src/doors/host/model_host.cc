#include "doors/host/model_host.h"

#include <new>
#include <system_error>
#include <utility>

#include "answer/answer_ends.h"
#include "answer/chat/own_reply.h"
#include "answer/pictures.h"
#include "base/clock.h"
#include "base/strings.h"
#include "engine/kv_type.h"

namespace weft::serve {

std::string DefaultModelId(std::string_view name) {
  std::string id;
  bool is_gap = false;
  for (const char c : name) {
    const bool is_kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (is_kept) {
      if (is_gap && !id.empty() && id.back() != '-' && c != '-') id.push_back('-');
      id.push_back(c);
    }
    is_gap = !is_kept;
  }
  // A name in another script leaves nothing; "." and ".." have a special meaning in paths.
  if (id.find_first_not_of("._-") == id.npos) return "model";
  return id;
}

ModelHost::ModelHost(Options options)
    : Host(options.drain),
      options_(std::move(options)),
      created_s_(WallClockMicros() / 1'000'000),
      model_id_(options_.model_id),
      defaults_(options_.defaults) {}

ModelHost::~ModelHost() {
  (void)Drain(std::chrono::milliseconds(0));
  if (loader_.joinable()) loader_.join();
}

void ModelHost::StartLoading() {
  {
    MutexLock lock(&mutex_);
    is_loading_ = true;
  }
  loader_ = std::thread([this] { Load(); });
}

void ModelHost::Load() {
  Status status;
  try {
    status = TryLoad();
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("out of memory while loading; use a smaller model or --memory");
  }
  // If Drain came first, the phase stays kDraining.
  Phase loading = Phase::kLoading;
  phase_.compare_exchange_strong(loading, status.ok() ? Phase::kReady : Phase::kFailed);
  {
    MutexLock lock(&mutex_);
    is_loading_ = false;
    load_end_.NotifyAll();
  }
  if (options_.loaded) options_.loaded(status);
}

Status ModelHost::TryLoad() {
  WEFT_ASSIGN_OR_RETURN(model_, options_.load());
  std::string source = options_.template_source;
  if (source.empty()) source = std::string(model_->chat_template());
  auto chat = ChatFormat::Create(std::move(source), model_->tokenizer());
  if (!chat.ok()) return Annotate(chat.status(), "the chat template: ");
  defaults_.ends = EndsOf(defaults_.advice, *model_->tokenizer());
  if (model_id_.empty()) model_id_ = DefaultModelId(model_->name());
  EngineOptions engine = options_.engine;
  if (options_.gate_for) engine.gate = options_.gate_for(*model_);
  if (options_.load_draft) {
    WEFT_ASSIGN_OR_RETURN(engine.draft_model, options_.load_draft(*model_));
  }
  std::shared_ptr<const vision::PictureEncoder> encoder;
  if (options_.load_encoder) {
    WEFT_ASSIGN_OR_RETURN(encoder, options_.load_encoder(*model_));
  }
  if (encoder != nullptr) AdmitPictures(encoder->spec(), *model_, &engine);
  WEFT_ASSIGN_OR_RETURN(engine_, Engine::Start(model_, engine));
  std::shared_ptr<Pictures> pictures;
  if (encoder != nullptr) {
    pictures = std::make_shared<Pictures>(std::move(encoder), engine_.get(),
                                          defaults_.server.image_cache_bytes);
  }
  // The engine now owns the state directory.
  const auto tell = [&engine](const Status& kept) {
    if (!kept.ok() && engine.on_notice) engine.on_notice(std::string(Message(kept)));
  };
  std::shared_ptr<AgentPrompts> agents;
  if (!engine.state_dir.empty() && defaults_.server.warm_prompts > 0) {
    auto opened = OpenAgents(**chat);
    tell(opened.status());
    if (opened.ok()) agents = *std::move(opened);
  }
  answerer_ = std::make_unique<Answerer>(PartsFor(*std::move(chat), std::move(pictures), agents));
  if (!engine.state_dir.empty() && defaults_.server.restore_reasoning) tell(KeepReplies());
  if (agents != nullptr) tell(StartWarmer());
  return OkStatus();
}

StatusOr<std::shared_ptr<AgentPrompts>> ModelHost::OpenAgents(const ChatFormat& chat) const {
  const EngineOptions& engine = engine_->options();
  std::string form = StrCat("weft ", WEFT_VERSION, ", model ", model_->fingerprint(), ", ",
                            model_->backend().name(), ", kv ", KvNameOf(engine), ", template ",
                            HashOfPrompt(chat.chat_template().source()));
  if (defaults_.adapters != nullptr) {
    for (const AdapterScale& each : defaults_.adapters->Defaults()) {
      StrAppend(&form, ", ", each.name, " ", each.scale);
    }
  }
  // Nothing survives this process.
  if (engine.state_disk_bytes == 0) StrAppend(&form, ", start ", WallClockMicros());
  return AgentPrompts::Open({.directory = options_.engine.state_dir, .form = std::move(form)});
}

Status ModelHost::StartWarmer() {
  try {
    warmer_ = std::make_unique<PromptWarmer>(
        answerer_.get(), answerer_->parts().agents.get(), options_.activity,
        PromptWarmer::Options{.tokens_per_hour = defaults_.server.warm_prompts,
                              .on_notice = options_.engine.on_notice});
  } catch (const std::system_error&) {
    return ResourceExhausted("no thread to prefill the prompts of agents");
  }
  return OkStatus();
}

Answerer::Parts ModelHost::PartsFor(std::shared_ptr<const ChatFormat> chat,
                                    std::shared_ptr<Pictures> pictures,
                                    std::shared_ptr<AgentPrompts> agents) {
  PromptMaker::Options prompts{.memory = options_.prompt_memory,
                               .reply_memory_bytes = options_.reply_memory_bytes,
                               .restore_reasoning = defaults_.server.restore_reasoning};
  return {.model = model_,
          .chat = chat,
          .prompts = std::make_shared<PromptMaker>(model_, chat, prompts),
          .reports = std::make_shared<CacheReports>(),
          .agents = std::move(agents),
          .activity = options_.activity,
          .engine = engine_.get(),
          .observer = &metrics_,
          .pictures = std::move(pictures),
          .policy = defaults_.policy(),
          .may_run =
              [this](bool is_begun) {
                return is_begun && phase() == Phase::kReady ? OkStatus() : MayBegin();
              },
          .has_foreign_state = engine_->Stats().disk_foreign_blocks > 0,
          .default_adapters =
              [adapters = defaults_.adapters] {
                return adapters != nullptr ? adapters->Defaults() : std::vector<AdapterScale>();
              }};
}

Status ModelHost::KeepReplies() {
  ReplyMemory& replies = answerer_->prompts().replies();
  ReplyLog::Options options{.directory = options_.engine.state_dir,
                            .model = model_->fingerprint(),
                            .all = [&replies] { return replies.All(); },
                            .on_notice = options_.engine.on_notice};
  if (!options.on_notice) options.on_notice = [](const std::string&) {};
  std::vector<ReplyMemory::Record> found;
  WEFT_ASSIGN_OR_RETURN(reply_log_, ReplyLog::Open(std::move(options), &found));
  for (ReplyMemory::Record& record : found) {
    OwnReply reply = *record.reply;
    for (const TokenId token : reply.tokens) {
      reply.text += model_->tokenizer()->Piece(token, /*render_special=*/true);
    }
    record.reply = std::make_shared<const OwnReply>(std::move(reply));
    replies.Remember(std::move(record));
  }
  replies.SetListener(
      {.remembered = [log = reply_log_.get()](const auto& record) { log->Append(record); },
       .forgotten = [log = reply_log_.get()](
                        std::string_view domain,
                        std::string_view session) { log->AppendDeletion(domain, session); }});
  return OkStatus();
}

// Monitoring must see at once that the server can no longer answer.
Phase ModelHost::phase() const {
  const Phase phase = phase_.load(std::memory_order_acquire);
  return phase == Phase::kReady && !model_->CheckFile().ok() ? Phase::kFailed : phase;
}

std::string ModelHost::phase_reason() const {
  switch (phase()) {
    case Phase::kLoading:
      return "Loading model";
    case Phase::kReady:
      return "";
    case Phase::kDraining:
      return "the server is shutting down";
    case Phase::kFailed:
      return phase_.load(std::memory_order_acquire) == Phase::kReady
                 ? std::string(Message(model_->CheckFile()))
                 : "the model could not be loaded; see the server's log";
  }
  return "";
}

Status ModelHost::Drain(std::chrono::milliseconds grace) {
  if (phase_.exchange(Phase::kDraining) == Phase::kFailed) phase_ = Phase::kFailed;
  draining_.request_stop();
  {
    MutexLock lock(&mutex_);
    while (is_loading_) load_end_.Wait(&mutex_);
  }
  if (warmer_ != nullptr) warmer_->Stop(grace);
  return engine_ == nullptr ? OkStatus() : engine_->Shutdown(grace);
}

std::string ModelFileName(const Model& model) {
  return model.path().substr(model.path().find_last_of('/') + 1);
}

}  // namespace weft::serve
