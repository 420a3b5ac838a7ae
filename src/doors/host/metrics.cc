#include "doors/host/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = prometheus::Histogram::BucketBoundaries;

// From a token per millisecond on a small model to a long prompt on a large one.
const Buckets kFirstTokenSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                    1,     2.5,  5,     10,   30,  60,   120};
const Buckets kNextTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05,
                                   0.075, 0.1,    0.15,  0.25, 0.5,  1,    2.5};
const Buckets kQueueSeconds = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60};

std::string_view LabelOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kLoop:
      return "loop";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

// Metric families computed from a snapshot, one line each.
class Snapshot {
 public:
  explicit Snapshot(std::vector<MetricFamily>* out) : out_(*out) {}

  void Counter(const char* name, const char* help, double value) {
    MetricFamily& family = Family(name, help, MetricType::Counter);
    family.metric.emplace_back().counter.value = value;
  }
  void Gauge(const char* name, const char* help, double value) {
    MetricFamily& family = Family(name, help, MetricType::Gauge);
    family.metric.emplace_back().gauge.value = value;
  }
  void Gauges(const char* name, const char* help, const char* label,
              std::initializer_list<std::pair<const char*, int64_t>> values) {
    MetricFamily& family = Family(name, help, MetricType::Gauge);
    for (const auto& [kind, value] : values) {
      auto& metric = family.metric.emplace_back();
      metric.label.push_back({label, kind});
      metric.gauge.value = static_cast<double>(value);
    }
  }
  // A gauge of 1 whose labels have the numbers.
  void Info(const char* name, const char* help,
            std::initializer_list<std::pair<const char*, int64_t>> labels) {
    auto& metric = Family(name, help, MetricType::Gauge).metric.emplace_back();
    for (const auto& [label, value] : labels) metric.label.push_back({label, StrCat(value)});
    metric.gauge.value = 1;
  }
  void Counters(const char* name, const char* help, const char* label,
                std::span<const int64_t> values) {
    if (values.empty()) return;
    MetricFamily& family = Family(name, help, MetricType::Counter);
    for (size_t i = 0; i < values.size(); ++i) {
      auto& metric = family.metric.emplace_back();
      metric.label.push_back({label, StrCat(i)});
      metric.counter.value = static_cast<double>(values[i]);
    }
  }
  void Summary(const char* name, const char* help, int64_t count, double sum) {
    MetricFamily& family = Family(name, help, MetricType::Summary);
    auto& summary = family.metric.emplace_back().summary;
    summary.sample_count = static_cast<uint64_t>(count);
    summary.sample_sum = sum;
  }

 private:
  MetricFamily& Family(const char* name, const char* help, MetricType type) {
    MetricFamily& family = out_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return family;
  }

  std::vector<MetricFamily>& out_;
};

double Seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

void AddHoldings(const EngineStats& stats, Snapshot* out) {
  out->Gauge("weft_turns_queued", "Turns that wait in the queue.", stats.turns_queued);
  out->Gauge("weft_turns_running", "Turns that run.", stats.turns_running);
  out->Gauges("weft_sessions", "Sessions by state.", "state",
              {{"ready", stats.sessions_ready},
               {"running", stats.sessions_running},
               {"parked", stats.sessions_parked},
               {"poisoned", stats.sessions_poisoned}});
  out->Gauges("weft_pages", "Pages of the KV cache by holder.", "kind",
              {{"used", stats.pages_used},
               {"in_index", stats.pages_in_index},
               {"budget", stats.page_budget}});
  out->Gauges("weft_bytes", "Bytes of memory by use.", "kind",
              {{"weights", stats.weight_bytes},
               {"pages", stats.page_bytes},
               {"slots", stats.slot_bytes},
               {"checkpoints", stats.checkpoint_bytes},
               {"rows", stats.row_bytes},
               {"scratch", stats.scratch_bytes},
               {"guesses", stats.guess_bytes},
               {"watches", stats.watch_bytes},
               {"draft_weights", stats.draft_weight_bytes},
               {"draft_state", stats.draft_state_bytes},
               {"draft_scratch", stats.draft_scratch_bytes}});
  out->Gauge("weft_checkpoints", "Checkpoints of recurrent state that sessions can resume from.",
             stats.checkpoints);
  out->Gauge("weft_index_nodes", "Nodes of the prefix cache.", stats.index_nodes);
}

void AddPictures(const PictureStats& stats, Snapshot* out) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  out->Counter("weft_pictures_encoded_total", "Pictures that were encoded.", number(stats.encoded));
  out->Counter("weft_pictures_found_total", "Pictures whose embeddings were in the cache.",
               number(stats.found));
  out->Counter("weft_pictures_given_up_total",
               "Pictures whose encoding ended because all who waited for it had left.",
               number(stats.given_up));
  out->Counter("weft_pictures_shared_total",
               "Pictures that waited for another request's encoding of the same one.",
               number(stats.shared));
  out->Counter("weft_picture_encode_seconds_total", "Time that pictures were encoded.",
               Seconds(stats.encode_us));
  out->Gauge("weft_pictures_cached", "Pictures in the cache of --image-cache.",
             number(stats.cached));
  out->Gauges("weft_picture_bytes", "Bytes of memory for pictures by use.", "kind",
              {{"weights", stats.weight_bytes}, {"cache", stats.cached_bytes}});
}

void AddWork(const EngineStats& stats, Snapshot* out) {
  out->Summary("weft_step_seconds", "Engine steps and their duration.", stats.steps,
               Seconds(stats.step_us));
  out->Counter("weft_prompt_tokens_total", "Prompt tokens that were prefilled.",
               stats.prompt_tokens);
  out->Counter("weft_cached_tokens_total", "Prompt tokens found in the KV cache.",
               stats.cached_tokens);
  out->Counter("weft_disk_tokens_total", "Prompt tokens whose KV cache was read from the disk.",
               stats.disk_tokens);
  out->Counter("weft_generated_tokens_total", "Tokens that were sampled.", stats.generated_tokens);
  out->Counter("weft_guessed_tokens_total",
               "Draft tokens that were verified (speculative decoding).", stats.guessed_tokens);
  out->Counter("weft_accepted_guesses_total", "Accepted draft tokens.", stats.accepted_guesses);
  out->Summary("weft_draft_step_seconds", "Steps of the draft model and their duration.",
               stats.draft_steps, Seconds(stats.draft_us));
  out->Counter("weft_turns_refused_total", "Turns refused because the queue was full.",
               stats.turns_refused);
  out->Counter("weft_turns_failed_total", "Turns that ended with an error.", stats.turns_failed);
  out->Counter("weft_turns_cancelled_total", "Turns that were cancelled.", stats.turns_cancelled);
  out->Counter("weft_index_evicted_pages_total", "Pages of cached prefixes evicted.",
               stats.index_evicted_pages);
  out->Counter("weft_evicted_checkpoints_total", "Checkpoints of recurrent state evicted.",
               stats.evicted_checkpoints);
  out->Counter("weft_sessions_dropped_total",
               "Idle sessions whose KV cache was evicted and will be recomputed.",
               stats.sessions_dropped);
  out->Counter("weft_parks_total", "Sessions written to the state directory.", stats.parks);
  out->Counter("weft_restores_total", "Sessions read from the state directory.", stats.restores);
  out->Counter("weft_pages_copied_total", "Shared pages copied before a write.",
               stats.pages_copied);
  out->Counter("weft_preemptions_total", "Running turns that had to wait for memory.",
               stats.preemptions);
}

void AddDisk(const EngineStats& stats, Snapshot* out) {
  out->Gauge("weft_save_bytes", "Bytes of session copies whose files are being written.",
             stats.save_bytes);
  out->Counter("weft_session_files_written_bytes_total", "Bytes of session files written.",
               stats.file_written_bytes);
  out->Gauge("weft_sessions_unsaved",
             "Sessions whose last turn could not be saved and would be lost at a restart.",
             stats.sessions_unsaved);
  out->Counter("weft_session_failed_saves_total", "Writes of session files that failed.",
               stats.failed_saves);
  out->Counter("weft_store_errors_total", "Calls that the shared store did not answer.",
               stats.store_errors);
  out->Gauges("weft_state_disk_bytes",
              "Bytes in the state directory: used, of these session files, and the limit.", "kind",
              {{"used", stats.disk_bytes},
               {"session_files", stats.disk_file_bytes},
               {"budget", stats.disk_budget_bytes}});
  out->Gauge("weft_state_disk_blocks", "Blocks of the KV cache in the state directory.",
             stats.disk_blocks);
  out->Gauge("weft_state_disk_pending", "Blocks, sessions and prompts on their way to the disk.",
             stats.disk_pending);
  out->Counter("weft_state_disk_written_bytes_total", "Bytes of the KV cache written in blocks.",
               stats.disk_written_bytes);
  out->Counter("weft_state_disk_read_bytes_total", "Bytes of the KV cache read from blocks.",
               stats.disk_read_bytes);
  out->Counter(
      "weft_state_disk_skipped_bytes_total",
      "Bytes of the KV cache not written: not worth it, hourly limit reached, or write failed.",
      stats.disk_skipped_bytes);
  out->Counter("weft_state_disk_evicted_blocks_total", "Blocks removed to make room for others.",
               stats.disk_evicted_blocks);
  out->Counter("weft_state_disk_damaged_blocks_total", "Blocks found damaged.",
               stats.disk_damaged_blocks);
  out->Counter("weft_state_disk_failed_writes_total", "Blocks that could not be written.",
               stats.disk_failed_writes);
}

// vLLM's names, which routers read. Pages of the prefix cache do not count as used, since they can
// be evicted.
void AddVllm(const EngineStats& stats, Snapshot* out) {
  const auto queries = static_cast<double>(stats.prompt_tokens + stats.cached_tokens);
  const auto hits = static_cast<double>(stats.cached_tokens);
  out->Gauge("vllm:num_requests_running", "Running turns.",
             static_cast<double>(stats.turns_running));
  out->Gauge("vllm:num_requests_waiting", "Waiting turns.",
             static_cast<double>(stats.turns_queued));
  for (const char* const name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {
    out->Gauge(name, "The share of the KV cache that sessions hold, from 0 to 1.",
               stats.kv_usage());
  }
  out->Info("vllm:cache_config_info", "Tokens per page and pages of the KV cache.",
            {{"block_size", stats.page_tokens}, {"num_gpu_blocks", stats.page_budget}});
  out->Counter("vllm:prefix_cache_queries_total", "Prompt tokens.", queries);
  out->Counter("vllm:prefix_cache_hits_total", "Prompt tokens that were cached.", hits);
  out->Counter("vllm:gpu_prefix_cache_queries_total", "Prompt tokens (older name).", queries);
  out->Counter("vllm:gpu_prefix_cache_hits_total", "Cached prompt tokens (older name).", hits);
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter()
          .Name("weft_http_requests_total")
          .Help("Requests answered, by route and status.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& finished =
      prometheus::BuildCounter()
          .Name("weft_choices_finished_total")
          .Help("Finished choices of turns, by reason.")
          .Register(registry);
  prometheus::Histogram& first_token =
      Hist("weft_time_to_first_token_seconds", "From a turn's submission to its first token.",
           kFirstTokenSeconds);
  prometheus::Histogram& next_token =
      Hist("weft_inter_token_seconds", "Between two tokens of one choice.", kNextTokenSeconds);
  prometheus::Histogram& queued = Hist(
      "weft_queue_seconds", "From a turn's submission to its first computed row.", kQueueSeconds);
  std::atomic<int64_t> prompt_us{0}, decode_us{0}, max_tokens{0};

  struct Own {
    int64_t turns = 0, prompt = 0, cached = 0, generated = 0;
  };
  Mutex own_mutex;
  std::map<std::string, Own, std::less<>> own WEFT_GUARDED_BY(own_mutex);  // by domain
  const std::shared_ptr<HttpLoad> http_load = std::make_shared<HttpLoad>();

  prometheus::Histogram& Hist(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  void AddLlama(const EngineStats& stats, Snapshot* out) const;
};

// llama-server's names.
void Metrics::Impl::AddLlama(const EngineStats& stats, Snapshot* out) const {
  const double prompt_s = Seconds(prompt_us), decode_s = Seconds(decode_us);
  const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  out->Counter("llamacpp:prompt_tokens_total", "Prompt tokens that were prefilled.",
               stats.prompt_tokens);
  out->Counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens that were cached.",
               stats.cached_tokens);
  out->Counter("llamacpp:prompt_seconds_total", "Time that prompts took.", prompt_s);
  out->Counter("llamacpp:tokens_predicted_total", "Tokens that were generated.",
               stats.generated_tokens);
  out->Counter("llamacpp:tokens_predicted_seconds_total", "Time that generation took.", decode_s);
  out->Counter("llamacpp:n_decode_total", "Steps of the engine.", stats.steps);
  out->Counter("llamacpp:n_tokens_max", "The longest context so far, in tokens.", max_tokens);
  out->Counter("llamacpp:spec_decode_num_drafts_total",
               "Drafts that were verified, of one token or more.", stats.guesses);
  out->Counter("llamacpp:spec_decode_num_draft_tokens_total", "Draft tokens that were verified.",
               stats.guessed_tokens);
  out->Counter("llamacpp:spec_decode_num_accepted_tokens_total", "Accepted draft tokens.",
               stats.accepted_guesses);
  out->Counters("llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
                "Accepted draft tokens, by their position in the draft.", "position",
                stats.accepted_guesses_at);
  out->Gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second, on average.",
             rate(stats.prompt_tokens, prompt_s));
  out->Gauge("llamacpp:predicted_tokens_seconds", "Generated tokens per second, on average.",
             rate(stats.generated_tokens, decode_s));
  out->Gauge("llamacpp:requests_processing", "Running turns.", stats.turns_running);
  out->Gauge("llamacpp:requests_deferred", "Waiting turns.", stats.turns_queued);
  out->Gauge("llamacpp:n_busy_slots_per_decode", "Generated tokens per step, on average.",
             rate(stats.generated_tokens, static_cast<double>(stats.steps)));
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  // Present from the first scrape on, so that rates are correct.
  for (const auto reason : {FinishReason::kStop, FinishReason::kStopString, FinishReason::kLength,
                            FinishReason::kContext, FinishReason::kLoop, FinishReason::kCancelled,
                            FinishReason::kError}) {
    impl_->finished.Add({{"reason", std::string(LabelOf(reason))}});
  }
}

Metrics::~Metrics() = default;

void Metrics::CountRequest(std::string_view route, int status) {
  impl_->requests.Add({{"route", std::string(route)}, {"status", StrCat(status)}}).Increment();
}

const std::shared_ptr<HttpLoad>& Metrics::http_load() const { return impl_->http_load; }

void Metrics::ObserveFirstToken(double seconds) { impl_->first_token.Observe(seconds); }
void Metrics::ObserveNextToken(double seconds) { impl_->next_token.Observe(seconds); }

void Metrics::CountFinished(FinishReason reason, const TurnUsage& usage) {
  impl_->finished.Add({{"reason", std::string(LabelOf(reason))}}).Increment();
  impl_->queued.Observe(Seconds(usage.queued_us));
  impl_->prompt_us += usage.prompt_us;
  impl_->decode_us += usage.decode_us;
  const int64_t tokens = usage.prompt_tokens + usage.completion_tokens;
  int64_t most = impl_->max_tokens;
  while (most < tokens && !impl_->max_tokens.compare_exchange_weak(most, tokens)) continue;
}

void Metrics::CountOwn(std::string_view domain, const TurnUsage& usage) {
  MutexLock lock(&impl_->own_mutex);
  Impl::Own& own = impl_->own[std::string(domain)];
  ++own.turns;
  own.prompt += usage.computed_tokens;
  own.cached += usage.cached_tokens;
  own.generated += usage.completion_tokens;
}

MetricFamilies Metrics::CollectOwn(std::string_view domain,
                                   const std::vector<SessionInfo>& sessions) const {
  Impl::Own own;
  {
    MutexLock lock(&impl_->own_mutex);
    const auto it = impl_->own.find(domain);
    if (it != impl_->own.end()) own = it->second;
  }
  std::map<SessionState, int64_t> of_state;
  for (const SessionInfo& info : sessions) ++of_state[info.state];
  std::vector<MetricFamily> families;
  Snapshot out(&families);
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  out.Gauges("weft_sessions", "Sessions of this key by state.", "state",
             {{"ready", of_state[SessionState::kReady]},
              {"running", of_state[SessionState::kRunning]},
              {"parked", of_state[SessionState::kParked]},
              {"poisoned", of_state[SessionState::kPoisoned]}});
  out.Gauge("weft_turns_running", "Turns of this key's sessions that have not ended.",
            number(of_state[SessionState::kRunning]));
  out.Counter("weft_turns_finished_total", "Turns of this key that ended.", number(own.turns));
  out.Counter("weft_prompt_tokens_total", "Prompt tokens that were computed for this key.",
              number(own.prompt));
  out.Counter("weft_cached_tokens_total", "Prompt tokens found in the KV cache.",
              number(own.cached));
  out.Counter("weft_generated_tokens_total", "Tokens that were sampled for this key.",
              number(own.generated));
  return families;
}

MetricFamilies Metrics::Collect(const EngineStats* stats, const PictureStats* pictures) const {
  MetricFamilies families = impl_->registry.Collect();
  Snapshot snapshot(&families);
  const HttpLoad& load = *impl_->http_load;
  snapshot.Gauge("weft_http_waiting_requests", "Requests waiting for a thread.",
                 static_cast<double>(load.waiting));
  snapshot.Gauge("weft_http_connections", "Open connections.",
                 static_cast<double>(load.connections));
  if (stats != nullptr) {
    AddHoldings(*stats, &snapshot);
    AddWork(*stats, &snapshot);
    AddDisk(*stats, &snapshot);
    impl_->AddLlama(*stats, &snapshot);
    AddVllm(*stats, &snapshot);
  }
  if (pictures != nullptr) AddPictures(*pictures, &snapshot);
  return families;
}

std::string Metrics::Render(const EngineStats* stats) const { return TextOf(Collect(stats)); }

std::string Metrics::RenderOwn(std::string_view domain,
                               const std::vector<SessionInfo>& sessions) const {
  return TextOf(CollectOwn(domain, sessions));
}

std::string TextOf(const MetricFamilies& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace weft::serve
