// A gateway's subscription to the prefixes that its caller has cached, and to the server's load.
//
// The first message clears what the gateway knew. The cached pages and all changes follow, as soon
// as they are known. In between, the load is sent when it moves, and every few seconds.
#ifndef WEFT_DOORS_GRPC_KV_EVENTS_CALL_H_
#define WEFT_DOORS_GRPC_KV_EVENTS_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/status.h"
#include "common.pb.h"
#include "doors/grpc/engine_load.h"
#include "doors/grpc/task_call.h"
#include "doors/host/prefix_reader.h"
#include "weft/prefix_events.h"

namespace weft::serve {

class KvEventsCall final : public TaskCall {
 public:
  // `tells_prefixes`: false if the caller may not know them; it then learns the load. `meter`
  // outlives the call.
  KvEventsCall(LoadMeter* meter, bool tells_prefixes, const Service& service,
               grpc::CallbackServerContext* context, RpcHead head);

 private:
  using Batch = smg::grpc::common::KvEventBatch;
  using EngineLoad = smg::grpc::common::EngineLoad;

  StatusOr<std::string> Read(grpc::ByteBuffer* message) override;
  Task<Status> Work() override;
  Task<bool> SendEvents(const std::vector<PrefixEvent>& events, bool begins);
  // False if the client is gone.
  Task<bool> SendLoadIfDue();
  Task<bool> Send(Batch batch);
  void AddLoad(EngineLoad load, bool load_only, Batch* batch);

  LoadMeter& meter_;
  const bool tells_prefixes_;
  Signal wake_;
  std::optional<PrefixReader> reader_;  // none: no prefixes are told
  uint64_t sequence_ = 0;               // the last one sent
  uint64_t event_ = 0;
  uint64_t sample_ = 0;
  EngineLoad load_;  // the last one sent
  std::chrono::steady_clock::time_point sent_at_;
  int idle_beats_ = 0;  // heartbeats with an unchanged load, one after the other
};

// The events in messages of limited size; stored pages that follow one another share one.
std::vector<smg::grpc::common::KvEventBatch> BatchesOf(const std::vector<PrefixEvent>& events,
                                                       size_t most_pages);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_KV_EVENTS_CALL_H_
