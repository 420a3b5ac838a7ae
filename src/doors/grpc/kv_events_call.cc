#include "doors/grpc/kv_events_call.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"

namespace weft::serve {
namespace {

using smg::grpc::common::KvBlock;
using smg::grpc::common::KvBlocksRemoved;
using smg::grpc::common::KvBlocksStored;
using smg::grpc::common::KvCacheTier;
using smg::grpc::common::KvEventBatch;
using std::chrono::milliseconds;

// In one message.
constexpr size_t kMaxPages = 512;
// How often the load is looked at, how long silence lasts, and how long while nothing moves.
constexpr milliseconds kTick{100}, kBeat{1000}, kIdleBeat{5000};
constexpr int kBeatsUntilIdle = 2;

KvCacheTier TierOf(CacheTier tier) {
  return tier == CacheTier::kMemory ? smg::grpc::common::KV_CACHE_TIER_DEVICE
                                    : smg::grpc::common::KV_CACHE_TIER_DISK;
}

int32_t LevelOf(CacheTier tier) { return tier == CacheTier::kMemory ? 0 : 2; }

void AddStored(const PrefixEvent& event, KvBlocksStored* stored) {
  const CachedPage& page = *event.page;
  if (stored->blocks().empty()) {
    if (page.parent != 0) stored->set_parent_block_hash(static_cast<int64_t>(page.parent));
    stored->set_tier(TierOf(event.tier));
  }
  KvBlock* const block = stored->add_blocks();
  block->set_block_hash(static_cast<int64_t>(page.key));
  block->set_block_size(static_cast<int32_t>(page.tokens.size()));
  block->set_cache_level(LevelOf(event.tier));
  block->mutable_token_ids()->Assign(page.tokens.begin(), page.tokens.end());
}

void AddRemoved(const PrefixEvent& event, KvBlocksRemoved* removed) {
  removed->set_tier(TierOf(event.tier));
  removed->set_cache_level(LevelOf(event.tier));
  removed->add_block_hashes(static_cast<int64_t>(event.page->key));
}

}  // namespace

std::vector<KvEventBatch> BatchesOf(const std::vector<PrefixEvent>& events, size_t most_pages) {
  std::vector<KvEventBatch> batches;
  std::span<const PrefixEvent> left = events;
  size_t room = 0;  // how many more pages the last batch takes
  while (!left.empty()) {
    if (room == 0) {
      batches.emplace_back();
      room = most_pages;
    }
    const auto run = left.first(RunLength(left, room));
    auto* const event = batches.back().add_events();
    for (const PrefixEvent& page : run) {
      if (page.is_stored) {
        AddStored(page, event->mutable_stored());
      } else {
        AddRemoved(page, event->mutable_removed());
      }
    }
    room -= run.size();
    left = left.subspan(run.size());
  }
  return batches;
}

KvEventsCall::KvEventsCall(LoadMeter* meter, bool tells_prefixes, const Service& service,
                           grpc::CallbackServerContext* context, RpcHead head)
    : TaskCall(service, context, std::move(head)), meter_(*meter), tells_prefixes_(tells_prefixes) {
  ReadMessage();
}

StatusOr<std::string> KvEventsCall::Read(grpc::ByteBuffer* message) {
  smg::grpc::common::SubscribeKvEventsRequest request;
  WEFT_RETURN_IF_ERROR(ParseMessage(message, &request));
  sequence_ = request.start_sequence_number();
  return std::string();
}

Task<Status> KvEventsCall::Work() {
  SetStop(wake_.Notifier());
  if (tells_prefixes_) reader_.emplace(&host(), head().domain, wake_.Notifier());
  bool is_there = true;
  bool begins = true;
  while (is_there && !EndedBefore().has_value()) {
    std::vector<PrefixEvent> events;
    if (reader_) {
      const StatusOr<bool> taken = reader_->Take(&events);
      if (!taken.ok()) co_return taken.status();
      begins = *taken;
    }
    if (begins || !events.empty()) {
      auto sending = SendEvents(events, begins);
      is_there = co_await sending;
      begins = false;
      continue;
    }
    (void)co_await wake_.WaitUntil(std::chrono::steady_clock::now() + kTick);
    auto sending = SendLoadIfDue();
    is_there = co_await sending;
  }
  co_return EndedBefore().value_or(Cancelled("the client does not read"));
}

Task<bool> KvEventsCall::SendEvents(const std::vector<PrefixEvent>& events, bool begins) {
  std::vector<Batch> batches = BatchesOf(events, kMaxPages);
  if (begins) {
    Batch first;
    first.add_events()->mutable_cleared();
    if (!batches.empty()) first.MergeFrom(batches.front());
    batches.resize(std::max<size_t>(batches.size(), 1));
    auto* const snapshot = first.mutable_snapshot();
    snapshot->set_count(1);
    snapshot->set_blocks(std::min(events.size(), kMaxPages));
    batches.front() = std::move(first);
  }
  for (Batch& batch : batches) {
    batch.set_sequence_number(++sequence_);
    if (!batch.has_snapshot()) {
      for (auto& event : *batch.mutable_events()) event.set_event_id(++event_);
    }
    AddLoad(meter_.Current(head()), /*load_only=*/false, &batch);
    auto sending = Send(std::move(batch));
    const bool is_sent = co_await sending;
    if (!is_sent) co_return false;
  }
  co_return true;
}

Task<bool> KvEventsCall::SendLoadIfDue() {
  EngineLoad now = meter_.Current(head());
  const bool moved = HasMoved(load_, now);
  const auto silence = idle_beats_ >= kBeatsUntilIdle ? kIdleBeat : kBeat;
  if (!moved && std::chrono::steady_clock::now() - sent_at_ < silence) co_return true;
  Batch batch;
  batch.set_sequence_number(sequence_);
  const int beats = moved ? 0 : idle_beats_ + 1;
  AddLoad(std::move(now), /*load_only=*/true, &batch);
  auto sending = Send(std::move(batch));
  const bool is_sent = co_await sending;
  idle_beats_ = beats;
  co_return is_sent;
}

void KvEventsCall::AddLoad(EngineLoad now, bool load_only, Batch* batch) {
  load_ = std::move(now);
  auto* const load = batch->mutable_load();
  *load = load_;
  load->set_sample(++sample_);
  load->set_load_only(load_only);
  if (load_only || sample_ == 1) return;
  load->clear_cache_hit_rate();
  load->clear_num_used_tokens();
  load->clear_max_total_num_tokens();
}

Task<bool> KvEventsCall::Send(Batch batch) {
  batch.set_timestamp(static_cast<double>(WallClockMicros()) * 1e-6);
  sent_at_ = std::chrono::steady_clock::now();
  idle_beats_ = 0;
  auto writing = Write(BytesOf(batch));
  const bool is_written = co_await writing;
  co_return is_written;
}

}  // namespace weft::serve
