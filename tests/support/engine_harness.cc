#include "tests/support/engine_harness.h"
#include "tests/support/recurrent_backend.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/function_ref.h"
#include "compute/spec_tensors.h"
#include "engine/sampling/random.h"
#include "model/formats/gguf_writer.h"
#include "tools/make_encoder.h"
#include "tools/make_model.h"

namespace weft::testing {
namespace {

// Removed with its contents when the process ends. A forked child does not own it.
class TempFolder {
 public:
  TempFolder()
      : owner_(getpid()),
        path_(std::filesystem::temp_directory_path() / StrCat("weft_harness_", owner_)) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    if (getpid() == owner_) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  const pid_t owner_;
  const std::filesystem::path path_;
};

tools::ModelShape TinyShape(std::string_view architecture) {
  constexpr std::string_view kFillIn = "fill-in-";
  const bool fill_in = architecture.starts_with(kFillIn);
  if (fill_in) architecture.remove_prefix(kFillIn.size());
  constexpr std::string_view kHead = "-mtp";
  const bool has_head = architecture.ends_with(kHead);
  if (has_head) architecture.remove_suffix(kHead.size());
  const bool windowed = architecture == "gemma3";
  const bool has_experts = architecture == "glm4moe", is_hybrid = architecture == "qwen35";
  return {.name = "tiny",
          .description = "for tests",
          .architecture = architecture,
          .layers = windowed ? 6 : 2,
          .embd = 64,
          .ffn = 128,
          .heads = 2,
          .kv_heads = 1,
          .head_dim = 32,
          .vocab = kTinyVocab,
          .tied = windowed,
          .context = kTinyContext,
          .rope_base = 1e4,
          .norm_epsilon = 1e-5,
          .vocabulary = tools::VocabularyKind::kPieces,
          .pre_tokenizer = "default",
          .experts = has_experts ? 4 : 0,
          .experts_used = has_experts ? 2 : 0,
          .expert_ffn = has_experts ? 64 : 0,
          .window = windowed ? kTinyWindow : 0,
          .mixers = is_hybrid ? "da" : "",
          .conv_taps = is_hybrid ? 4 : 0,
          .state_heads = is_hybrid ? 2 : 0,
          .state_head_dim = is_hybrid ? 32 : 0,
          .state_dim = is_hybrid ? 32 : 0,
          .state_groups = is_hybrid ? 1 : 0,
          .rope_dim = is_hybrid ? 16 : 0,
          .predictors = has_head ? 1 : 0,
          .fill_in = fill_in};
}

class FaultyState : public WrappedState {
 public:
  FaultyState(std::unique_ptr<StateStore> inner, std::shared_ptr<Faults> faults)
      : WrappedState(std::move(inner)), faults_(std::move(faults)) {}

  Status GrowPages(int group, int64_t n_pages) override {
    if (faults_->fail_grow) return ResourceExhausted("the device is out of memory");
    return WrappedState::GrowPages(group, n_pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    if (faults_->fail_copy) return Internal("the copy failed");
    return WrappedState::CopyPage(group, from, to, n_tokens);
  }
  Status GrowSlots(int64_t n_slots) override {
    if (faults_->fail_grow) return ResourceExhausted("the device is out of memory");
    return WrappedState::GrowSlots(n_slots);
  }
  Status CopySlot(SlotId from, SlotId to) override {
    if (faults_->fail_copy) return Internal("the copy failed");
    return WrappedState::CopySlot(from, to);
  }

 private:
  const std::shared_ptr<Faults> faults_;
};

class FaultyExecutor : public WrappedExecutor {
 public:
  FaultyExecutor(std::unique_ptr<Executor> inner, std::shared_ptr<Faults> faults)
      : WrappedExecutor(std::move(inner)), faults_(std::move(faults)) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
    const int64_t n = ++faults_->forwards;
    if (const int64_t us = faults_->step_delay_us; us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
    WEFT_ASSIGN_OR_RETURN(auto run, WrappedExecutor::Begin(step));
    const auto after = [faults = faults_, n, step](const Status& status) -> Status {
      WEFT_RETURN_IF_ERROR(status);
      if (n == faults->fail_forward) return Internal("the device was lost");
      if (n == faults->nan_forward) {
        std::fill(step.logits.begin(), step.logits.end(), NAN);
        std::fill(step.best.begin(), step.best.end(), TokenLogit{0, NAN});
      }
      return OkStatus();
    };
    const auto between = [faults = faults_] {
      ++faults->parts;
      if (const int64_t us = faults->part_delay_us; us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(us));
      }
    };
    const auto before = [faults = faults_] {
      while (faults->hold_steps) {
        faults->is_held = true;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      faults->is_held = false;
    };
    return std::make_unique<WrappedRun>(std::move(run), after, between, before);
  }

 private:
  const std::shared_ptr<Faults> faults_;
};

class ScriptMask : public TokenMask {
 public:
  explicit ScriptMask(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}
  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override {
    if (generated.size() >= tokens_.size()) return;
    std::fill(allowed.begin(), allowed.end(), 0u);
    const auto token = static_cast<size_t>(tokens_[generated.size()]);
    allowed[token / 32] |= uint32_t{1} << (token % 32);
  }

 private:
  const std::vector<TokenId> tokens_;
};

}  // namespace

namespace {

// A model with a prediction head whose layers add nothing. A token of kind t (of 64) is followed by
// a token of the next kind: always in greedy sampling, mostly otherwise. The head predicts the
// same, half from the model's hidden values of the row before, half from the token next to it, so
// it is wrong if it gets the wrong ones.
Status MakeForeseeing(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(path));
  std::map<std::string, std::vector<float>> tensors;
  for (const TensorInfo& tensor : file->tensors()) {
    const std::string name(tensor.name);
    std::vector<float>& values = tensors[name] = ValuesOf(tensor);
    const auto width = static_cast<size_t>(tensor.dims[0]);
    const auto fill = [&](FunctionRef<bool(size_t row, size_t column)> is_one) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = is_one(i / width, i % width) ? 1 : 0;
    };
    for (const char* part : {"attn_output.", "ssm_out.", "ffn_down"}) {
      if (name.find(part) != name.npos) fill([](size_t, size_t) { return false; });
    }
    if (name == "token_embd.weight") {
      fill([&](size_t token, size_t kind) { return token % width == kind; });
    } else if (name == "output.weight") {
      fill([&](size_t token, size_t kind) { return token == width + (kind + 1) % width; });
    } else if (name.ends_with("eh_proj.weight")) {
      const size_t kinds = width / 2;
      fill([&](size_t kind, size_t from) {
        return kind == from || (from >= kinds && kind == (from - kinds + 1) % kinds);
      });
    }
  }
  GgufWriter writer;
  for (const auto& [key, value] : file->metadata()) writer.AddMeta(key, value);
  for (const TensorInfo& tensor : file->tensors()) {
    const std::vector<float>& values = tensors[std::string(tensor.name)];
    writer.AddTensor(tensor.name, DType::kF32, std::span(tensor.dims, tensor.n_dims),
                     std::as_bytes(std::span(values)));
  }
  WEFT_RETURN_IF_ERROR(writer.Write(path + ".new"));
  std::filesystem::rename(path + ".new", path);
  return OkStatus();
}

}  // namespace

std::string TinyModelFile(std::string_view architecture, uint64_t seed) {
  static TempFolder folder;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string path = folder.path() / StrCat(std::string(architecture), "-", seed, ".gguf");
  if (std::filesystem::exists(path)) return path;
  tools::MakeModelOptions options;
  options.type = "Q8_0";
  options.seed = seed;
  constexpr std::string_view kForeseeing = "foreseeing-";
  const bool foresees = architecture.starts_with(kForeseeing);
  if (foresees) architecture.remove_prefix(kForeseeing.size());
  const tools::EncoderShape* const encoder = tools::FindEncoder(architecture);
  const auto made = encoder != nullptr ? tools::MakeEncoder(*encoder, options, path)
                                       : tools::MakeModel(TinyShape(architecture), options, path);
  WEFT_CHECK(made.ok(), std::string(Message(made.status())).c_str());
  if (foresees) {
    const Status changed = MakeForeseeing(path);
    WEFT_CHECK(changed.ok(), std::string(Message(changed)).c_str());
  }
  return path;
}

std::shared_ptr<const Model> TinyModel(std::string_view architecture, uint64_t seed,
                                       const Backend* backend) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, uint64_t>, std::shared_ptr<const Model>> loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::pair<std::string, uint64_t> key(architecture, seed);
  if (backend == nullptr && loaded.contains(key)) return loaded[key];
  ModelOptions options;
  options.n_threads = 1;
  options.backend_object = backend;
  if (constexpr std::string_view kRecurrent = "recurrent-"; architecture.starts_with(kRecurrent)) {
    static const RecurrentBackend recurrent(*FindBackend("cpu"));
    architecture.remove_prefix(kRecurrent.size());
    if (backend == nullptr) options.backend_object = &recurrent;
  }
  auto model = Model::Load(TinyModelFile(architecture, seed), options);
  WEFT_CHECK(model.ok(), std::string(Message(model.status())).c_str());
  if (backend == nullptr) loaded[key] = *model;
  return *std::move(model);
}

StatusOr<std::unique_ptr<StateStore>> FaultyBackend::NewState(const Weights& weights,
                                                              const StateOptions& options) const {
  WEFT_ASSIGN_OR_RETURN(auto inner, WrappedBackend::NewState(weights, options));
  return std::make_unique<FaultyState>(std::move(inner), faults_);
}

StatusOr<std::unique_ptr<Executor>> FaultyBackend::NewExecutor(
    std::shared_ptr<const Weights> weights, StateStore* state,
    const ExecutorOptions& options) const {
  if (faults_->fail_executor) return Internal("there is no such device");
  WEFT_ASSIGN_OR_RETURN(
      auto inner, WrappedBackend::NewExecutor(std::move(weights),
                                              static_cast<FaultyState*>(state)->inner(), options));
  return std::make_unique<FaultyExecutor>(std::move(inner), faults_);
}

HeldSteps::HeldSteps(Faults* faults) : faults_(*faults) {
  faults_.hold_steps = true;
  watchdog_ = std::thread([this] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!ended_ && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    faults_.hold_steps = false;
  });
}

bool HeldSteps::WaitForOne() const {
  while (faults_.hold_steps && !faults_.is_held) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

void HeldSteps::Release() {
  ended_ = true;
  if (watchdog_.joinable()) watchdog_.join();
}

StateLayout LayoutOf(const Model& model, const EngineOptions& options) {
  StateOptions state;
  state.kv_type = options.kv_type == KvType::kF32 ? DType::kF32 : DType::kF16;
  state.page_tokens = options.page_tokens;
  const auto made = model.backend().NewState(*model.weights(), state);
  WEFT_CHECK(made.ok(), "state of the tiny model");
  return (*made)->layout();
}

int64_t PageBytes(const Model& model, const EngineOptions& options) {
  int64_t bytes = 0;
  for (const int64_t page : LayoutOf(model, options).page_bytes) bytes += page;
  return bytes;
}

int64_t StateBytes(const EngineStats& stats) {
  return stats.page_bytes + stats.slot_bytes + stats.checkpoint_bytes;
}

std::function<std::unique_ptr<TokenMask>(int)> Script(std::vector<TokenId> tokens) {
  return [tokens = std::move(tokens)](int) { return std::make_unique<ScriptMask>(tokens); };
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(3 + static_cast<unsigned char>(c));
  return tokens;
}

std::vector<TokenId> RandomTokens(int64_t n, uint64_t seed) {
  constexpr TokenId kFirst = 259;  // the ids before it are controls and bytes
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = RandomBits(seed, static_cast<uint64_t>(i));
    tokens.push_back(kFirst + static_cast<TokenId>(bits % (kTinyVocab - 2 - kFirst)));
  }
  return tokens;
}

TurnOptions Greedy(std::vector<TokenId> tokens, int64_t max_tokens) {
  TurnOptions options;
  options.tokens = std::move(tokens);
  options.max_tokens = max_tokens;
  options.sampling = SamplingOptions::Greedy();
  options.ignore_eos = true;
  return options;
}

void AddEvent(TurnEvent event, TurnOutcome* outcome) {
  const auto choice_at = [&](int choice) -> ChoiceOutcome& {
    const size_t index = static_cast<size_t>(choice);
    if (outcome->choices.size() <= index) outcome->choices.resize(index + 1);
    return outcome->choices[index];
  };
  if (auto* progress = std::get_if<ProgressEvent>(&event)) {
    outcome->progress.push_back(*progress);
  } else if (auto* started = std::get_if<StartedEvent>(&event)) {
    outcome->started = std::move(*started);
  } else if (auto* token = std::get_if<TokenEvent>(&event)) {
    ChoiceOutcome& choice = choice_at(token->choice);
    choice.tokens.push_back(token->token);
    choice.text += token->text;
    choice.events.push_back(std::move(*token));
  } else {
    DoneEvent& done = std::get<DoneEvent>(event);
    ChoiceOutcome& choice = choice_at(done.choice);
    choice.text += done.text;
    choice.done = std::move(done);
  }
}

TurnOutcome Collect(Turn* turn) {
  TurnOutcome outcome;
  while (auto event = turn->Next()) AddEvent(*std::move(event), &outcome);
  return outcome;
}

TurnOutcome RunTurn(Engine* engine, SessionId session, const TurnOptions& options) {
  auto turn = engine->Submit(session, options);
  if (turn.ok()) return Collect(turn->get());
  TurnOutcome refused;
  DoneEvent done;
  done.reason = FinishReason::kError;
  done.status = turn.status();
  AddEvent(done, &refused);
  return refused;
}

std::vector<TurnOutcome> RunAlone(std::shared_ptr<const Model> model, EngineOptions engine,
                                  std::span<const TurnOptions> turns) {
  engine.prefix_cache = false;
  engine.memory_bytes = int64_t{64} << 20;
  engine.state_dir.clear();
  engine.max_pending_events = 1 << 20;
  auto alone = Engine::Start(std::move(model), engine);
  WEFT_CHECK(alone.ok(), std::string(Message(alone.status())).c_str());
  const auto session = (*alone)->CreateSession({});
  WEFT_CHECK(session.ok(), "a session");
  std::vector<TurnOutcome> outcomes;
  for (const TurnOptions& turn : turns) outcomes.push_back(RunTurn(alone->get(), *session, turn));
  return outcomes;
}

}  // namespace weft::testing
