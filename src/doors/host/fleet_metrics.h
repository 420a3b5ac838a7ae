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
  MetricFamilies families;  // of its Metrics
};

// `own`: the server's, of which those of HTTP count. They keep their labels, and are left out of
// the models' metrics: requests come through the server.
MetricFamilies MergeMetrics(MetricFamilies own, std::vector<ModelMetrics> models);

// Adds which models are loaded, and the memory that each counts for.
void AddFleetMetrics(const std::vector<ModelFleet::Info>& models, MetricFamilies* families);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_FLEET_METRICS_H_
