// The engine's load, as gateways read it from GetLoads and with cached prefixes. Any thread.
#ifndef WEFT_DOORS_GRPC_ENGINE_LOAD_H_
#define WEFT_DOORS_GRPC_ENGINE_LOAD_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "common.pb.h"
#include "doors/grpc/rpc_call.h"
#include "vllm_engine.pb.h"
#include "weft/engine.h"

namespace weft::serve {

// Tokens per second over the last seconds.
class ThroughputMeter {
 public:
  // `generated`: tokens since the start.
  double PerSecond(int64_t generated, int64_t now_us);

 private:
  struct Sample {
    int64_t at_us = 0;
    int64_t generated = 0;
  };
  Mutex mutex_;
  Sample before_ WEFT_GUARDED_BY(mutex_), last_ WEFT_GUARDED_BY(mutex_);
};

class LoadMeter {
 public:
  // `engine` outlives the object.
  explicit LoadMeter(Engine* engine) : engine_(*engine) {}

  // Everything that the caller may know but what numbers it within a stream.
  smg::grpc::common::EngineLoad Current(const RpcHead& head);

 private:
  Engine& engine_;
  ThroughputMeter throughput_;
};

// Without the throughput and the limits, which the stats do not have.
smg::grpc::common::EngineLoad LoadOf(const EngineStats& stats, const std::vector<TurnInfo>& turns);

// What a key may know: its own turns.
smg::grpc::common::EngineLoad OwnLoadOf(const std::vector<TurnInfo>& turns,
                                        std::string_view domain);

vllm::grpc::engine::SchedulerLoad SchedulerLoadOf(const smg::grpc::common::EngineLoad& load);

// Whether the load has changed so much that it deserves a message of its own.
bool HasMoved(const smg::grpc::common::EngineLoad& from, const smg::grpc::common::EngineLoad& to);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_ENGINE_LOAD_H_
