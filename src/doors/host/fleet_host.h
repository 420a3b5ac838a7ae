// The Host of what belongs to no model, where a server has several: the HTTP server's metrics, the
// defaults, and whether it is shutting down. It never becomes ready, because it has no model: what
// needs one takes that of a lease.
//
// Any thread.
#ifndef WEFT_DOORS_HOST_FLEET_HOST_H_
#define WEFT_DOORS_HOST_FLEET_HOST_H_

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "doors/host/drain_switch.h"
#include "doors/host/host.h"

namespace weft::serve {

class FleetHost : public Host {
 public:
  FleetHost(RequestDefaults defaults, std::shared_ptr<DrainSwitch> drain)
      : Host(std::move(drain)), defaults_(std::move(defaults)) {}

  void BeginDrain() {
    is_draining_ = true;
    draining_.request_stop();
  }

  Phase phase() const override { return is_draining_ ? Phase::kDraining : Phase::kLoading; }
  std::string phase_reason() const override {
    return is_draining_ ? "the server is shutting down" : "Loading model";
  }
  std::stop_token draining() const override { return draining_.get_token(); }
  Answerer& answerer() const override {
    CheckFailed(__FILE__, __LINE__, "answerer()", "a route without a lease asked for a model");
  }
  const std::string& model_id() const override { return no_id_; }
  int64_t created_s() const override { return created_s_; }
  Metrics& metrics() override { return metrics_; }
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  const RequestDefaults defaults_;
  const int64_t created_s_ = WallClockMicros() / 1'000'000;
  const std::string no_id_;
  Metrics metrics_;
  std::atomic<bool> is_draining_{false};
  std::stop_source draining_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_FLEET_HOST_H_
