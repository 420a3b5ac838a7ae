#include "doors/host/fleet_metrics.h"

#include <gtest/gtest.h>

namespace weft::serve {
namespace {

TEST(FleetMetricsTest, DescribesEachMetricOnceAndLabelsEachSample) {
  const std::string text = "# HELP turns Turns.\n# TYPE turns gauge\nturns 1\n";
  const std::string kinds =
      "# HELP bytes Bytes.\n# TYPE bytes gauge\nbytes{kind=\"a b\"} 2\nbytes{kind=\"c\"} 3\n";
  EXPECT_EQ(MergeMetrics("# HELP weft_http_up Up.\n# TYPE weft_http_up gauge\nweft_http_up 1\n",
                         {{"a", text + kinds}, {"b\"x", text}}),
            "# HELP weft_http_up Up.\n# TYPE weft_http_up gauge\nweft_http_up 1\n"
            "# HELP turns Turns.\n# TYPE turns gauge\nturns{model=\"a\"} 1\n"
            "turns{model=\"b\\\"x\"} 1\n"
            "# HELP bytes Bytes.\n# TYPE bytes gauge\nbytes{model=\"a\",kind=\"a b\"} 2\n"
            "bytes{model=\"a\",kind=\"c\"} 3\n");
}

TEST(FleetMetricsTest, TellsOfHttpOnceAndOfTurnsByModel) {
  const std::string http = "# HELP weft_http_x X.\n# TYPE weft_http_x gauge\nweft_http_x 1\n";
  const std::string turns = "# HELP turns Turns.\n# TYPE turns gauge\nturns 0\n";
  EXPECT_EQ(MergeMetrics(http + turns, {{"a", http}}), http);
}

TEST(FleetMetricsTest, TellsWhichModelsAreLoaded) {
  const FleetModel model{.name = "a"};
  const std::string text = FleetMetrics(
      {{.model = &model, .state = ModelFleet::State::kLoaded, .problem = "", .memory_bytes = 7}});
  EXPECT_NE(text.find("weft_model_loaded{model=\"a\"} 1\n"), text.npos);
  EXPECT_NE(text.find("weft_model_bytes{model=\"a\"} 7\n"), text.npos);
}

}  // namespace
}  // namespace weft::serve
