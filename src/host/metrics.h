// What /metrics shows: what the front ends count as it passes, and the engine's own
// numbers as they are when asked.
//
// Names under "weft_" are ours; those under "llamacpp:" are llama-server's, so that its
// dashboards work. Any thread.
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
  // Kept up to date by the HTTP server, shown as it is when asked.
  const std::shared_ptr<HttpLoad>& http_load() const;

  // Of one turn, as its consumer sees it: from submission to the first token, then
  // between tokens of one choice.
  void ObserveFirstToken(double seconds);
  void ObserveNextToken(double seconds);
  void CountFinished(FinishReason reason, const TurnUsage& usage);
  // Of a whole turn of that domain.
  void CountOwn(std::string_view domain, const TurnUsage& usage);

  // The Prometheus text format. `stats` null while there is no engine.
  std::string Render(const EngineStats* stats) const;
  // What one domain may know: its own turns, and its sessions as they are.
  std::string RenderOwn(std::string_view domain, const std::vector<SessionInfo>& sessions) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_METRICS_H_
