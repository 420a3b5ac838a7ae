// The data for /metrics: counts kept by the front ends, and the engine's own numbers at the time of
// the request.
//
// Names starting with "weft_" are ours; "llamacpp:" ones are llama-server's, so that its dashboards
// work, and "vllm:" ones are vLLM's, for routers. Any thread.
#ifndef WEFT_DOORS_HOST_METRICS_H_
#define WEFT_DOORS_HOST_METRICS_H_

#include <prometheus/metric_family.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/generation.h"
#include "answer/picture_stats.h"
#include "doors/http/load.h"
#include "weft/engine.h"

namespace weft::serve {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
// In the Prometheus text format.
std::string TextOf(const MetricFamilies& families);

class Metrics : public TurnObserver {
 public:
  Metrics();
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `route` is a route's pattern, never a path: labels must be few.
  void CountRequest(std::string_view route, int status);
  // Updated by the HTTP server, reported with its current values.
  const std::shared_ptr<HttpLoad>& http_load() const;

  void ObserveFirstToken(double seconds) override;
  void ObserveNextToken(double seconds) override;
  void CountFinished(FinishReason reason, const TurnUsage& usage) override;
  void CountOwn(std::string_view domain, const TurnUsage& usage) override;

  // `stats` is null while there is no engine, `pictures` if the model sees none.
  MetricFamilies Collect(const EngineStats* stats, const PictureStats* pictures = nullptr) const;
  std::string Render(const EngineStats* stats) const;  // in the Prometheus text format
  // What one domain may see: its own turns, and the current state of its sessions.
  MetricFamilies CollectOwn(std::string_view domain,
                            const std::vector<SessionInfo>& sessions) const;
  std::string RenderOwn(std::string_view domain, const std::vector<SessionInfo>& sessions) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_METRICS_H_
