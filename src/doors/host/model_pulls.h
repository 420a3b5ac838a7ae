// Downloads models, a few at a time, and adds them to the fleet. The fleet's events tell how far
// each is.
//
// Any thread.
#ifndef WEFT_DOORS_HOST_MODEL_PULLS_H_
#define WEFT_DOORS_HOST_MODEL_PULLS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <stop_token>
#include <string>

#include "async/task_pool.h"
#include "base/mutex.h"
#include "base/status.h"
#include "doors/host/model_fleet.h"

namespace weft::serve {

class ModelPulls {
 public:
  using Tell = std::function<void(int64_t done_bytes, int64_t total_bytes)>;
  // Downloads the model unless it is here, and opens it. Blocks. Gives up when `is_wanted` returns
  // false.
  using Pull = std::function<StatusOr<FleetModel>(const std::string& name, const Tell& tell,
                                                  const std::function<bool()>& is_wanted)>;

  // `fleet` outlives it. Gives up when `draining` is requested.
  ModelPulls(ModelFleet* fleet, Pull pull, std::stop_token draining);
  ~ModelPulls();  // cancels downloads and waits for their threads

  // Starts a download on a thread of its own. ALREADY_EXISTS if the model is served or being
  // downloaded, RESOURCE_EXHAUSTED if too many are. `account` is who asks.
  Status Begin(const std::string& account, const std::string& name);

 private:
  void Run(const std::string& name);

  ModelFleet& fleet_;
  const Pull pull_;
  const std::stop_token draining_;
  std::stop_source ending_;
  Mutex mutex_;
  std::set<std::string> under_way_ WEFT_GUARDED_BY(mutex_);
  TaskPool threads_;  // ends first
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_MODEL_PULLS_H_
