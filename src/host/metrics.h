// The data for /metrics: counts kept by the front ends, and the engine's own numbers at the time of
// the request.
//
// Names starting with "weft_" are ours; "llamacpp:" ones are llama-server's, so that its dashboards
// work. Any thread.
#ifndef WEFT_HOST_METRICS_H_
#define WEFT_HOST_METRICS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/load.h"
#include "weft/engine.h"
#include "weft/events.h"

namespace weft::serve {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `route` is a route's pattern, never a path: labels must be few.
  void CountRequest(std::string_view route, int status);
  // Updated by the HTTP server, reported with its current values.
  const std::shared_ptr<HttpLoad>& http_load() const;

  // For one turn, as seen by its consumer: the time from submission to the first token, then
  // between tokens of one choice.
  void ObserveFirstToken(double seconds);
  void ObserveNextToken(double seconds);
  void CountFinished(FinishReason reason, const TurnUsage& usage);
  // Counts a whole turn for its domain.
  void CountOwn(std::string_view domain, const TurnUsage& usage);

  // The Prometheus text format. `stats` is null while there is no engine.
  std::string Render(const EngineStats* stats) const;
  // What one domain may see: its own turns, and the current state of its sessions.
  std::string RenderOwn(std::string_view domain, const std::vector<SessionInfo>& sessions) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_METRICS_H_
