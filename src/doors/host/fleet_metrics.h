// The metrics of several models as one text in the Prometheus format: each sample gets the label
// `model`, and each metric is described once.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_HOST_FLEET_METRICS_H_
#define WEFT_DOORS_HOST_FLEET_METRICS_H_

#include <string>
#include <utility>
#include <vector>

#include "doors/host/model_fleet.h"

namespace weft::serve {

struct ModelMetrics {
  std::string model;
  std::string text;  // of its Metrics
};

// `own`: the server's, of which those of HTTP and of the models as such count. They keep their
// labels, and are left out of the models' metrics: requests come through the server.
std::string MergeMetrics(const std::string& own, const std::vector<ModelMetrics>& models);

// Which models are loaded, and the memory that each counts for.
std::string FleetMetrics(const std::vector<ModelFleet::Info>& models);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_FLEET_METRICS_H_
