#include "doors/host/fleet_metrics.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>

namespace weft::serve {
namespace {

using prometheus::MetricFamily;

constexpr char kModel[] = "model";

bool IsOfServer(const MetricFamily& family) { return family.name.starts_with("weft_http_"); }

using Value = double (*)(const ModelFleet::Info&);

void AddFamily(const char* name, const char* help, prometheus::MetricType type,
               const std::vector<ModelFleet::Info>& models, Value value, MetricFamilies* families) {
  MetricFamily& family = families->emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  for (const ModelFleet::Info& info : models) {
    auto& metric = family.metric.emplace_back();
    metric.label.push_back({kModel, info.model->name});
    metric.gauge.value = metric.counter.value = value(info);  // that of the type is written
  }
}

void AddGauge(const char* name, const char* help, const std::vector<ModelFleet::Info>& models,
              Value value, MetricFamilies* families) {
  AddFamily(name, help, prometheus::MetricType::Gauge, models, value, families);
}

void AddCounter(const char* name, const char* help, const std::vector<ModelFleet::Info>& models,
                Value value, MetricFamilies* families) {
  AddFamily(name, help, prometheus::MetricType::Counter, models, value, families);
}

void AddLoadCounters(const std::vector<ModelFleet::Info>& models, MetricFamilies* families) {
  AddCounter(
      "weft_model_loads_total", "How often the model was loaded.", models,
      [](const ModelFleet::Info& info) { return static_cast<double>(info.loads); }, families);
  AddCounter(
      "weft_model_load_failures_total", "How often the model could not be loaded.", models,
      [](const ModelFleet::Info& info) { return static_cast<double>(info.failed_loads); },
      families);
  AddCounter(
      "weft_model_load_seconds_total", "How long loading the model took, all times together.",
      models,
      [](const ModelFleet::Info& info) {
        return std::chrono::duration<double>(info.load_time).count();
      },
      families);
}

}  // namespace

MetricFamilies MergeMetrics(MetricFamilies own, std::vector<ModelMetrics> models) {
  std::erase_if(own, [](const MetricFamily& family) { return !IsOfServer(family); });
  std::map<std::string, size_t> place_of;
  for (ModelMetrics& model : models) {
    for (MetricFamily& family : model.families) {
      if (IsOfServer(family)) continue;
      for (auto& metric : family.metric) {
        metric.label.insert(metric.label.begin(), {kModel, model.model});
      }
      const auto [it, is_new] = place_of.try_emplace(family.name, own.size());
      if (is_new) {
        own.push_back(std::move(family));
      } else {
        std::ranges::move(family.metric, std::back_inserter(own[it->second].metric));
      }
    }
  }
  return own;
}

void AddFleetMetrics(const std::vector<ModelFleet::Info>& models, MetricFamilies* families) {
  AddGauge(
      "weft_model_loaded", "Whether the model is loaded.", models,
      [](const ModelFleet::Info& info) {
        return info.state == ModelFleet::State::kLoaded ? 1.0 : 0.0;
      },
      families);
  AddGauge(
      "weft_model_bytes", "Memory that the model counts for.", models,
      [](const ModelFleet::Info& info) { return static_cast<double>(info.memory_bytes); },
      families);
  AddGauge(
      "weft_model_requests", "Requests over HTTP that the model answers.", models,
      [](const ModelFleet::Info& info) { return static_cast<double>(info.requests); }, families);
  AddGauge(
      "weft_model_waiting_requests", "Requests that wait until the model is loaded.", models,
      [](const ModelFleet::Info& info) { return static_cast<double>(info.waiting); }, families);
  AddLoadCounters(models, families);
}

}  // namespace weft::serve
