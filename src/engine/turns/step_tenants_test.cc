#include "engine/turns/step_tenants.h"

#include <gtest/gtest.h>

#include <list>
#include <random>
#include <utility>
#include <vector>

#include "engine/turns/active_turn.h"

namespace weft {
namespace {

// Its steps of n decoding rows take weights_us + n * row_us, and its prompt rows 0.1 ms each.
StepPlanner PlannerOf(double weights_us, double row_us) {
  StepPlanner planner({});
  for (int i = 0; i < 50; ++i) {
    for (const int64_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      const double us = weights_us + row_us * static_cast<double>(rows);
      planner.Observe({.decode_rows = rows, .total_us = static_cast<int64_t>(us)});
    }
    planner.Observe({.prompt_rows = 512, .total_us = 51'200});
  }
  return planner;
}

class Steps {
 public:
  Tenant* AddTenant(double weight, int64_t decoding, int64_t prompt_rows) {
    Tenant* const tenant = &tenants_.emplace_back(Tenant{.weight = weight});
    for (; decoding > 0; --decoding) Add(tenant, {.rows = 1, .is_decoding = true});
    if (prompt_rows > 0) Add(tenant, {.rows = prompt_rows});
    return tenant;
  }
  const std::vector<StepPart>& parts() const { return parts_; }

 private:
  void Add(Tenant* tenant, StepPart part) {
    part.turn = &turns_.emplace_back();
    part.turn->tenant = tenant;
    parts_.push_back(part);
  }

  std::list<Tenant> tenants_;
  std::list<ActiveTurn> turns_;
  std::vector<StepPart> parts_;
};

TEST(StepTenantsTest, ATenantAlonePaysTheTimeOfTheStep) {
  const StepPlanner planner = PlannerOf(10'000, 500);
  Steps steps;
  const Tenant* const tenant = steps.AddTenant(2, 8, 100);
  ChargeTenants(steps.parts(), planner);
  EXPECT_NEAR(tenant->clock_us * 2, planner.DecodeStepUs() + 10'000, 1);
}

// Reading the weights may take most of a step. A tenant with few rows pays for it like one with
// many; otherwise the one with many would get far less than half of its rate alone.
TEST(StepTenantsTest, WhatIsSavedByComputingTogetherIsSavedByAllAlike) {
  std::mt19937 random(1);
  const auto up_to = [&](int64_t high) {
    return std::uniform_int_distribution<int64_t>(1, high)(random);
  };
  for (int program = 0; program < 1000; ++program) {
    const auto weights_us = static_cast<double>(up_to(20'000));
    const auto row_us = static_cast<double>(up_to(2'000));
    const StepPlanner planner = PlannerOf(weights_us, row_us);
    Steps steps;
    std::vector<std::pair<const Tenant*, int64_t>> tenants;
    for (int64_t n = up_to(4); n >= 0; --n) {
      const int64_t rows = up_to(12);
      tenants.emplace_back(steps.AddTenant(static_cast<double>(up_to(3)), rows, 0), rows);
    }
    ChargeTenants(steps.parts(), planner);
    double all_us = 0;
    for (const auto& [tenant, rows] : tenants) all_us += tenant->clock_us * tenant->weight;
    EXPECT_NEAR(all_us, planner.DecodeStepUs(), 1e-6 * all_us);
    const auto& [one, of_one] = tenants[0];
    for (const auto& [tenant, rows] : tenants) {
      const double paid = tenant->clock_us * tenant->weight / (one->clock_us * one->weight);
      const double alone = (weights_us + row_us * static_cast<double>(rows)) /
                           (weights_us + row_us * static_cast<double>(of_one));
      EXPECT_NEAR(paid / alone, 1, 0.1) << rows << " rows and " << of_one;
    }
  }
}

}  // namespace
}  // namespace weft
