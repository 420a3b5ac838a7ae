#include "doors/kv_events/kv_event_log.h"

#include <string_view>

#include "base/clock.h"
#include "doors/host/prefix_reader.h"
#include "doors/kv_events/message_pack.h"

namespace weft::serve {
namespace {

constexpr size_t kMaxPagesOfEvent = 512;

// What a page in memory costs a turn, and one on the disk, in the words that vLLM's routers know.
std::string_view MediumOf(CacheTier tier) { return tier == CacheTier::kMemory ? "GPU" : "DISK"; }

void WriteHashes(std::span<const PrefixEvent> events, MessagePack* out) {
  out->Text("block_hashes");
  out->Array(events.size());
  for (const PrefixEvent& event : events) out->Unsigned(event.page->key);
}

void WriteMedium(const PrefixEvent& event, MessagePack* out) {
  out->Text("medium");
  out->Text(MediumOf(event.tier));
}

void WriteStored(std::span<const PrefixEvent> events, MessagePack* out) {
  const CachedPage& first = *events.front().page;
  out->Map(8);
  out->Text("type");
  out->Text("BlockStored");
  WriteHashes(events, out);
  out->Text("parent_block_hash");
  if (first.parent == 0) {
    out->Nil();
  } else {
    out->Unsigned(first.parent);
  }
  size_t n_tokens = 0;
  for (const PrefixEvent& event : events) n_tokens += event.page->tokens.size();
  out->Text("token_ids");
  out->Array(n_tokens);
  for (const PrefixEvent& event : events) {
    for (const int32_t token : event.page->tokens) out->Unsigned(static_cast<uint32_t>(token));
  }
  out->Text("block_size");
  out->Unsigned(first.tokens.size());
  WriteMedium(events.front(), out);
  // What is told holds for requests that name no adapter.
  for (const std::string_view none : {"lora_id", "lora_name"}) {
    out->Text(none);
    out->Nil();
  }
}

void WriteRemoved(std::span<const PrefixEvent> events, MessagePack* out) {
  out->Map(3);
  out->Text("type");
  out->Text("BlockRemoved");
  WriteHashes(events, out);
  WriteMedium(events.front(), out);
}

void WriteCleared(MessagePack* out) {
  out->Map(1);
  out->Text("type");
  out->Text("AllBlocksCleared");
}

std::string BatchOf(bool begins, std::span<const PrefixEvent> events) {
  std::vector<std::span<const PrefixEvent>> runs;
  while (!events.empty()) {
    const size_t n = RunLength(events, kMaxPagesOfEvent);
    runs.push_back(events.first(n));
    events = events.subspan(n);
  }
  MessagePack out;
  out.Array(3);
  out.Double(static_cast<double>(WallClockMicros()) * 1e-6);
  out.Array(runs.size() + (begins ? 1 : 0));
  if (begins) WriteCleared(&out);
  for (const auto& run : runs) {
    if (run.front().is_stored) {
      WriteStored(run, &out);
    } else {
      WriteRemoved(run, &out);
    }
  }
  out.Unsigned(0);  // the rank: there is one
  return std::move(out).Take();
}

}  // namespace

KvEventLog::KvEventLog(Limits limits) : limits_(limits) { Keep(BatchOf(/*begins=*/true, {})); }

const KvEventBatch& KvEventLog::Add(bool begins, std::span<const PrefixEvent> events) {
  if (begins) {
    pages_.clear();
    numbers_.clear();
    batches_.clear();
    bytes_ = 0;
    snapshot_ = {};
  }
  for (const PrefixEvent& event : events) Apply(event);
  Keep(BatchOf(begins, events));
  return latest();
}

KvEventBatch KvEventLog::Snapshot() {
  if (snapshot_.payload != nullptr && snapshot_.number == latest().number) return snapshot_;
  std::vector<PrefixEvent> events;
  events.reserve(pages_.size());
  for (const auto& [number, known] : pages_) events.push_back({true, known.tier, known.page});
  snapshot_ = {latest().number,
               std::make_shared<const std::string>(BatchOf(/*begins=*/true, events))};
  return snapshot_;
}

KvEventBatch KvEventLog::Get(uint64_t number) {
  const uint64_t first = batches_.front().number;
  return number < first ? Snapshot() : batches_[number - first];
}

void KvEventLog::Apply(const PrefixEvent& event) {
  const Place place(event.tier, event.page->key);
  const auto known = numbers_.find(place);
  if (!event.is_stored) {
    if (known == numbers_.end()) return;
    pages_.erase(known->second);
    numbers_.erase(known);
    return;
  }
  if (known != numbers_.end()) return;
  pages_[++last_page_] = {event.tier, event.page};
  numbers_[place] = last_page_;
}

void KvEventLog::Keep(std::string payload) {
  bytes_ += payload.size();
  batches_.push_back({next_++, std::make_shared<const std::string>(std::move(payload))});
  while (batches_.size() > 1 && (batches_.size() > limits_.batches || bytes_ > limits_.bytes)) {
    bytes_ -= batches_.front().payload->size();
    batches_.pop_front();
  }
}

}  // namespace weft::serve
