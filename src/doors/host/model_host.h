// A server's Host: loads the model on a separate thread, so that a front end can answer "loading"
// meanwhile, starts the engine on it, and drains it at the end.
//
//   ModelHost host({.load = ..., .engine = ..., .loaded = ...});
//   ... front ends begin to serve with it: "loading" ...
//   host.StartLoading();
//   host.Drain(std::chrono::seconds(30));
//
// Destroy the front ends before the host. Drain may be called from any thread, and a second time
// with less grace while the first call still waits. While the model is loading it waits for that,
// because loading cannot be interrupted.
#ifndef WEFT_DOORS_HOST_MODEL_HOST_H_
#define WEFT_DOORS_HOST_MODEL_HOST_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "answer/agent_prompts.h"
#include "answer/prompt_warmer.h"
#include "answer/reply_log.h"
#include "answer/turn_activity.h"
#include "base/mutex.h"
#include "doors/host/drain_switch.h"
#include "doors/host/host.h"
#include "weft/step_gate.h"

namespace weft::vision {
class PictureEncoder;
}

namespace weft::serve {

class ModelHost : public Host {
 public:
  struct Options {
    // Runs once, on the loading thread.
    std::function<StatusOr<std::shared_ptr<const Model>>()> load;
    // Loads the model's draft model, or returns null for none; may be empty.
    std::function<StatusOr<std::shared_ptr<const Model>>(const Model&)> load_draft = {};
    // Loads the encoder of the model's pictures, or returns null for none; may be empty.
    std::function<StatusOr<std::shared_ptr<const vision::PictureEncoder>>(const Model&)>
        load_encoder = {};
    // The gate at which the model's engine waits for its turn; may be empty, and return null.
    std::function<std::shared_ptr<StepGate>(const Model&)> gate_for = {};
    EngineOptions engine;
    // A Jinja template instead of the model's own; empty: the model's.
    std::string template_source;
    std::string model_id;  // empty: DefaultModelId of the model's name
    RequestDefaults defaults;
    // Called once, on the loading thread: OK if phase() has become kReady, otherwise why it has
    // become kFailed.
    std::function<void(const Status&)> loaded;
    std::shared_ptr<DrainSwitch> drain = nullptr;  // the server's; null: of its own
    std::shared_ptr<TurnActivity> activity = std::make_shared<TurnActivity>();  // the server's
    PromptMemory::Limits prompt_memory;
    size_t reply_memory_bytes = size_t{64} << 20;
  };

  explicit ModelHost(Options options);
  ~ModelHost() override;  // same as Drain(0)

  // Call once.
  void StartLoading();

  Phase phase() const override;
  std::string phase_reason() const override;
  std::stop_token draining() const override { return draining_.get_token(); }
  Answerer& answerer() const override { return *answerer_; }
  const std::string& model_id() const override { return model_id_; }
  int64_t created_s() const override { return created_s_; }
  Metrics& metrics() override { return metrics_; }
  const RequestDefaults& defaults() const override { return defaults_; }

  // Turns readiness off and admits nothing more; running turns finish until the deadline, the rest
  // are cut off, and named sessions are parked if there is a state directory. Waits for all of
  // that; the status says whether every session is safe.
  Status Drain(std::chrono::milliseconds grace);

 private:
  void Load();
  Status TryLoad();
  Answerer::Parts PartsFor(std::shared_ptr<const ChatFormat> chat,
                           std::shared_ptr<Pictures> pictures,
                           std::shared_ptr<AgentPrompts> agents);
  Status KeepReplies();
  StatusOr<std::shared_ptr<AgentPrompts>> OpenAgents(const ChatFormat& chat) const;
  Status StartWarmer();

  const Options options_;
  const int64_t created_s_;
  Metrics metrics_;
  std::atomic<Phase> phase_{Phase::kLoading};
  std::stop_source draining_;
  mutable Mutex mutex_;
  CondVar load_end_;
  bool is_loading_ WEFT_GUARDED_BY(mutex_) = false;

  // Written by the loading thread before phase_ becomes kReady, constant afterwards.
  std::string model_id_;
  RequestDefaults defaults_;  // except for `ends`, constant from the beginning
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Answerer> answerer_;
  std::unique_ptr<ReplyLog> reply_log_;
  std::unique_ptr<PromptWarmer> warmer_;  // null: no agents' prompts are kept
  std::thread loader_;
};

// Converts a name to an id of letters, digits, '.', '_' and '-'; each run of other characters
// becomes one '-'. Clients put ids into URLs, command lines and lists.
std::string DefaultModelId(std::string_view name);
// Without its directory: clients need not know where files are stored.
std::string ModelFileName(const Model& model);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_MODEL_HOST_H_
