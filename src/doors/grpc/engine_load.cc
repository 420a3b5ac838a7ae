#include "doors/grpc/engine_load.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "doors/host/turn_work.h"

namespace weft::serve {
namespace {

using smg::grpc::common::EngineLoad;

constexpr int64_t kSampleUs = 1'000'000;
// What counts as a change: of shares, and of tokens per second.
constexpr double kShareStep = 0.005;
constexpr double kRateStep = 50, kRateShare = 0.05;

double Share(int64_t part, int64_t whole) {
  return whole <= 0 ? 0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

int64_t PendingTokens(const TurnInfo& turn) {
  return turn.stage == TurnInfo::Stage::kWriting ? 0 : turn.prompt_tokens - turn.done_tokens;
}

}  // namespace

double ThroughputMeter::PerSecond(int64_t generated, int64_t now_us) {
  MutexLock lock(&mutex_);
  if (last_.at_us == 0) before_ = last_ = {now_us, generated};
  if (now_us - last_.at_us >= kSampleUs) before_ = std::exchange(last_, {now_us, generated});
  const int64_t us = now_us - before_.at_us;
  return us <= 0
             ? 0
             : static_cast<double>(generated - before_.generated) * 1e6 / static_cast<double>(us);
}

EngineLoad LoadMeter::Current(const RpcHead& head) {
  const EngineStats stats = engine_.Stats();
  const std::vector<TurnInfo> turns = engine_.Turns();
  EngineLoad load = head.sees_load ? LoadOf(stats, turns) : OwnLoadOf(turns, head.domain);
  load.set_max_running_requests(static_cast<uint32_t>(engine_.options().max_running));
  if (!head.sees_load) return load;
  load.set_gen_throughput(throughput_.PerSecond(stats.generated_tokens, NowMicros()));
  return load;
}

EngineLoad OwnLoadOf(const std::vector<TurnInfo>& turns, std::string_view domain) {
  const TurnCounts counts = CountTurns(turns, domain);
  int64_t pending_tokens = 0;
  for (const TurnInfo& turn : turns) {
    if (turn.domain == domain) pending_tokens += PendingTokens(turn);
  }
  EngineLoad load;
  load.set_running_requests(static_cast<uint32_t>(counts.running));
  load.set_waiting_requests(static_cast<uint32_t>(counts.waiting));
  load.set_prefill_pending_tokens(static_cast<uint32_t>(pending_tokens));
  return load;
}

EngineLoad LoadOf(const EngineStats& stats, const std::vector<TurnInfo>& turns) {
  int64_t pending_tokens = 0;
  for (const TurnInfo& turn : turns) pending_tokens += PendingTokens(turn);
  EngineLoad load;
  load.set_running_requests(static_cast<uint32_t>(stats.turns_running));
  load.set_waiting_requests(static_cast<uint32_t>(stats.turns_queued));
  load.set_prefill_pending_tokens(static_cast<uint32_t>(pending_tokens));
  load.set_token_usage(stats.kv_usage());
  load.set_active_token_usage(stats.kv_usage());
  load.set_cache_hit_rate(Share(stats.cached_tokens, stats.cached_tokens + stats.prompt_tokens));
  const int64_t budget = std::min<int64_t>(stats.token_budget, INT32_MAX);
  load.set_max_total_num_tokens(static_cast<int32_t>(budget));
  load.set_num_used_tokens(
      static_cast<int32_t>(std::lround(load.token_usage() * static_cast<double>(budget))));
  return load;
}

vllm::grpc::engine::SchedulerLoad SchedulerLoadOf(const EngineLoad& load) {
  vllm::grpc::engine::SchedulerLoad out;
  out.set_num_running_reqs(static_cast<int32_t>(load.running_requests()));
  out.set_num_waiting_reqs(static_cast<int32_t>(load.waiting_requests()));
  out.set_num_total_reqs(out.num_running_reqs() + out.num_waiting_reqs());
  out.set_num_used_tokens(load.num_used_tokens());
  out.set_max_total_num_tokens(load.max_total_num_tokens());
  out.set_token_usage(load.token_usage());
  out.set_gen_throughput(load.gen_throughput());
  out.set_cache_hit_rate(load.cache_hit_rate());
  out.set_utilization(Share(out.num_running_reqs(), load.max_running_requests()));
  out.set_max_running_requests(static_cast<int32_t>(load.max_running_requests()));
  return out;
}

bool HasMoved(const EngineLoad& from, const EngineLoad& to) {
  const double rate = std::abs(from.gen_throughput() - to.gen_throughput());
  const double rates = std::max(from.gen_throughput(), to.gen_throughput());
  return from.running_requests() != to.running_requests() ||
         from.waiting_requests() != to.waiting_requests() ||
         from.max_running_requests() != to.max_running_requests() ||
         std::abs(from.token_usage() - to.token_usage()) > kShareStep || rate > kRateStep ||
         rate > kRateShare * rates;
}

}  // namespace weft::serve
