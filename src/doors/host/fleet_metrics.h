// The metrics of a server that has several models: those of its models with the label `model`, each
// metric described once.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_HOST_FLEET_METRICS_H_
#define WEFT_DOORS_HOST_FLEET_METRICS_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "doors/host/metrics.h"
#include "doors/host/model_fleet.h"

namespace weft::serve {

struct ModelMetrics {
  std::string model;
  MetricFamilies families;  // from its Metrics
};

// `own`: the server's. Its HTTP metrics keep their labels, and those of the models are left out,
// because all requests come through the server.
MetricFamilies MergeMetrics(MetricFamilies own, std::vector<ModelMetrics> models);

// Adds which models are loaded, and each model's memory.
void AddFleetMetrics(const std::vector<ModelFleet::Info>& models, MetricFamilies* families);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_FLEET_METRICS_H_
