#include "doors/host/fleet_metrics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

namespace weft::serve {
namespace {

using prometheus::ClientMetric;

prometheus::MetricFamily Gauge(const char* name, std::vector<ClientMetric> metrics) {
  return {name, "Help.", prometheus::MetricType::Gauge, std::move(metrics)};
}
ClientMetric Value(double value, std::vector<ClientMetric::Label> labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  return metric;
}

TEST(FleetMetricsTest, DescribesEachMetricOnceAndLabelsEachSample) {
  const MetricFamilies own = {Gauge("weft_http_up", {Value(1)}), Gauge("turns", {Value(0)})};
  const auto turns = Gauge("turns", {Value(1)});
  const auto bytes = Gauge("bytes", {Value(2, {{"kind", "a b"}}), Value(3, {{"kind", "c"}})});
  const auto http = Gauge("weft_http_up", {Value(0)});
  EXPECT_EQ(TextOf(MergeMetrics(own, {{"a", {turns, bytes, http}}, {"b\"x", {turns}}})),
            "# HELP weft_http_up Help.\n# TYPE weft_http_up gauge\nweft_http_up 1\n"
            "# HELP turns Help.\n# TYPE turns gauge\nturns{model=\"a\"} 1\n"
            "turns{model=\"b\\\"x\"} 1\n"
            "# HELP bytes Help.\n# TYPE bytes gauge\nbytes{model=\"a\",kind=\"a b\"} 2\n"
            "bytes{model=\"a\",kind=\"c\"} 3\n");
}

TEST(FleetMetricsTest, TellsWhichModelsAreLoadedAndHowManyRequestsWaitForThem) {
  const auto model = std::make_shared<FleetModel>(FleetModel{.name = "a"});
  MetricFamilies families;
  AddFleetMetrics({{.model = model,
                    .state = ModelFleet::State::kLoaded,
                    .problem = "",
                    .memory_bytes = 7,
                    .requests = 2,
                    .waiting = 1,
                    .loads = 3,
                    .failed_loads = 4,
                    .load_time = std::chrono::milliseconds(1500)}},
                  &families);
  const std::string text = TextOf(families);
  for (const char* const line :
       {"weft_model_loaded{model=\"a\"} 1\n", "weft_model_bytes{model=\"a\"} 7\n",
        "weft_model_requests{model=\"a\"} 2\n", "weft_model_waiting_requests{model=\"a\"} 1\n",
        "weft_model_loads_total{model=\"a\"} 3\n",
        "weft_model_load_failures_total{model=\"a\"} 4\n",
        "weft_model_load_seconds_total{model=\"a\"} 1.5\n"}) {
    EXPECT_NE(text.find(line), text.npos) << text;
  }
}

}  // namespace
}  // namespace weft::serve
