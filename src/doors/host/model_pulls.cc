#include "doors/host/model_pulls.h"

#include <utility>

#include "base/clock.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

using Happening = ModelFleet::Happening;

constexpr int kMaxPulls = 4;
// Between two events of one download.
constexpr int64_t kTellUs = 100'000;

}  // namespace

ModelPulls::ModelPulls(ModelFleet* fleet, Pull pull, std::stop_token draining)
    : fleet_(*fleet),
      pull_(std::move(pull)),
      draining_(std::move(draining)),
      threads_(
          {.max_threads = kMaxPulls + 1, .max_posted = kMaxPulls + 1, .max_waiting = kMaxPulls}) {}

ModelPulls::~ModelPulls() {
  ending_.request_stop();
  threads_.Stop();
}

Status ModelPulls::Begin(const std::string& account, const std::string& name) {
  if (!pull_) return Unimplemented("this server does not download models; use 'weft pull NAME'");
  WEFT_RETURN_IF_ERROR(fleet_.MayAdd(name));
  {
    MutexLock lock(&mutex_);
    if (!under_way_.insert(name).second) {
      return absl::AlreadyExistsError("the model is being downloaded already");
    }
  }
  if (threads_.Post(account, [this, name] { Run(name); })) return OkStatus();
  MutexLock lock(&mutex_);
  under_way_.erase(name);
  return ResourceExhausted("too many models are being downloaded; try again later");
}

void ModelPulls::Run(const std::string& name) {
  int64_t told_us = 0;
  const auto tell = [&](int64_t done_bytes, int64_t total_bytes) {
    if (NowMicros() < told_us + kTellUs && done_bytes < total_bytes) return;
    told_us = NowMicros();
    fleet_.NoteDownload({.model = name,
                         .what = Happening::kDownloading,
                         .done_bytes = done_bytes,
                         .total_bytes = total_bytes});
  };
  const auto is_wanted = [this] {
    return !ending_.stop_requested() && !draining_.stop_requested();
  };
  tell(0, 0);
  StatusOr<FleetModel> model = pull_(name, tell, is_wanted);
  Status status = model.status();
  if (status.ok()) {
    model->is_added = true;
    status = fleet_.Add(*std::move(model));
  }
  ModelFleet::Event end{.model = name, .what = Happening::kDownloaded};
  if (!status.ok()) end.what = Happening::kDownloadFailed;
  end.problem = Message(status);
  MutexLock lock(&mutex_);
  under_way_.erase(name);
  fleet_.NoteDownload(std::move(end));
}

}  // namespace weft::serve
