// The Host of a server: loads the model on a thread of its own, so that a front end can
// answer "loading" meanwhile, starts the engine on it, and drains it at the end.
//
//   ModelHost host({.load = ..., .engine = ..., .loaded = ...});
//   ... front ends begin to serve with it: "loading" ...
//   host.StartLoading();
//   host.Drain(std::chrono::seconds(30));
//
// The front ends must be gone before the host. Drain may be called from any thread, a
// second time with less grace while the first still waits. While the model is loading it
// waits for that, because loading cannot be cut short.
#ifndef WEFT_HOST_MODEL_HOST_H_
#define WEFT_HOST_MODEL_HOST_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "host/host.h"

namespace weft::serve {

class ModelHost : public Host {
 public:
  struct Options {
    // Runs once, on the loading thread.
    std::function<StatusOr<std::shared_ptr<const Model>>()> load;
    EngineOptions engine;
    // A Jinja template in place of the model's own; empty: the model's.
    std::string template_source;
    std::string model_id;  // empty: DefaultModelId of the model's name
    RequestDefaults defaults;
    // Called once, on the loading thread: OK when phase() has become kReady, else why it
    // has become kFailed.
    std::function<void(const Status&)> loaded;
    PromptMemory::Limits prompt_memory;
  };

  explicit ModelHost(Options options);
  ~ModelHost() override;  // as Drain(0)

  // Once.
  void StartLoading();

  Phase phase() const override;
  std::string phase_reason() const override;
  Engine& engine() override { return *engine_; }
  const Model& model() const override { return *model_; }
  const ChatFormat& chat() const override { return *chat_; }
  std::vector<int32_t> EncodeChat(std::string_view domain, std::string_view text) override;
  StatusOr<std::unique_ptr<Generation>> Generate(GenerationRequest request) override;
  const std::string& model_id() const override { return model_id_; }
  int64_t created_s() const override { return created_s_; }
  Metrics& metrics() override { return metrics_; }
  const RequestDefaults& defaults() const override { return defaults_; }

  // Readiness goes false and nothing more is admitted; running turns finish until the
  // deadline, the rest is cut, named sessions are parked when there is a state directory.
  // Waits for all that; the status tells whether every session is safe.
  Status Drain(std::chrono::milliseconds grace);

 private:
  class CountedGeneration;

  void Load();
  Status TryLoad();

  const Options options_;
  const int64_t created_s_;
  Metrics metrics_;
  std::atomic<Phase> phase_{Phase::kLoading};
  mutable Mutex mutex_;
  CondVar load_end_;
  bool is_loading_ WEFT_GUARDED_BY(mutex_) = false;

  // Written by the loading thread before phase_ becomes kReady, then constant.
  std::string model_id_;
  RequestDefaults defaults_;  // but for `ends`, constant from the beginning
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const ChatFormat> chat_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<PromptMemory> memory_;
  std::thread loader_;
};

// A name as ids are: letters, digits, '.', '_' and '-'; what stands between those becomes one
// '-'. Clients put ids into URLs, into command lines and into lists.
std::string DefaultModelId(std::string_view name);
// Without its folder: where files lie here is no client's business.
std::string ModelFileName(const Model& model);

}  // namespace weft::serve

#endif  // WEFT_HOST_MODEL_HOST_H_
