// The disk tier in the life of turns and sessions: what is kept when they end or grow, and what is
// read back when a prompt or a restored session can use it.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"

namespace weft {
namespace {

// A prompt of this length is worth keeping even if it was used only once.
constexpr int64_t kLongPromptTokens = 1000;
// Time between two checks of what running turns have computed, and the growth worth keeping.
constexpr int64_t kGrowthMicros = 2 * int64_t{1'000'000};
constexpr int64_t kGrowthPages = 8;
// Read at once, unless a single block is larger.
constexpr int64_t kRunBytes = int64_t{8} << 20;

}  // namespace

Status EngineCore::OpenDisk(const std::string& layout) {
  if (options_.state_disk_bytes >= 0 && memory_->keeps_prefixes()) {
    DiskTier::Options disk;
    disk.path = StrCat(store_->path(), "/blocks");
    disk.identity = StrCat(model_->fingerprint(), " ", layout, " bits ", kBitsVersion);
    disk.layout = memory_->layout();
    for (const GroupShape& shape : memory_->shapes()) disk.windows.push_back(shape.window);
    disk.share_across_domains = options_.share_prefixes_across_domains;
    disk.budget_bytes = options_.state_disk_bytes;
    disk.bytes_per_hour = options_.state_disk_bytes_per_hour;
    disk.file_bytes = store_->file_bytes();
    disk.notice = options_.on_notice;
    WEFT_ASSIGN_OR_RETURN(disk_, DiskTier::Open(std::move(disk), store_->worker(), post_back_));
    store_->WatchFileBytes([disk = disk_.get()](int64_t bytes) { disk->SetFileBytes(bytes); });
  }
  keeper_ = std::make_unique<StateKeeper>(memory_.get(), &sessions_, store_.get(), disk_.get(),
                                          [this](Session* session) { Touch(session); });
  return OkStatus();
}

// --- keeping ----------------------------------------------------------------------------

// Called after a turn has ended, while its computed state still exists.
void EngineCore::KeepAfterTurn(const ActiveTurn& turn) {
  Session* const session = turn.session;
  // A turn that was never admitted changed nothing; a parked session's tokens exist only on disk.
  const bool unchanged = turn.usage.prompt_tokens == 0;
  if (keeper_ == nullptr || unchanged || session->is_parked()) return;
  ++session->changes;
  session->kept_tokens = 0;
  if (session->stage == SessionStage::kPoisoned) return;
  if (!session->name.empty()) {
    keeper_->KeepSession(session);
  } else if (turn.usage.prompt_tokens > kLongPromptTokens) {
    keeper_->KeepState(session, session->computed);
  } else if (turn.usage.cached_tokens - turn.usage.disk_tokens >= memory_->page_tokens()) {
    // An earlier prompt began the same way: these tokens recur.
    keeper_->KeepState(session, turn.usage.cached_tokens);
  }
  keeper_->Pump();
}

void EngineCore::KeepIfNamed(Session* session) {
  if (keeper_ != nullptr && !session->name.empty()) keeper_->KeepSession(session);
}

void EngineCore::WriteInstead(Session* session, std::vector<TokenId> tokens, const Reply& reply) {
  const SessionId id = session->id;
  keeper_->Forget(session);
  session->keep_again = false;
  BeginFileWork(session, FileWork::kChanging);
  keeper_->WriteTokens(session, std::move(tokens), [this, id, reply](const Status& status) {
    EndFileWork(id);
    reply(status);
    if (Session* const self = sessions_.Find(id)) RestoreForTurn(self);
  });
}

// Keeps the complete pages of long turns while they run.
void EngineCore::KeepRunning() {
  const int64_t now_us = NowMicros();
  if (now_us - kept_running_us_ < kGrowthMicros) return;
  kept_running_us_ = now_us;
  const int64_t page = memory_->page_tokens();
  for (const auto& turn : running_) {
    Session* const session = turn->session;
    if (session->is_at_work()) continue;
    const int64_t whole = session->computed / page * page;
    const int64_t least = session->name.empty() ? kLongPromptTokens : 0;
    if (whole <= least || whole - session->kept_tokens < kGrowthPages * page) continue;
    session->kept_tokens = whole;
    keeper_->KeepState(session, whole);
  }
}

bool EngineCore::PumpDisk() {
  if (disk_ == nullptr) return false;
  KeepRunning();
  return keeper_->Pump();
}

// How many of the reused tokens came from disk.
void EngineCore::TellDiskTokens(ActiveTurn* turn, Session* session) {
  const int64_t n = std::min(turn->usage.cached_tokens, std::exchange(session->from_disk, 0));
  turn->started.disk_tokens = turn->usage.disk_tokens = n;
  stats_.disk_tokens += n;
}

// --- reading ----------------------------------------------------------------------------

// A turn with more of its prompt on disk than in memory waits until that is read; others go on.
void EngineCore::LookOnDisk() {
  if (disk_ == nullptr) return;
  for (const auto& turn : running_) {
    if (turn->looked_on_disk || turn->stage != TurnStage::kReading) continue;
    Lane& lane = *turn->lanes[0];
    if (lane.stage != LaneStage::kReady || turn->session->is_at_work()) continue;
    turn->looked_on_disk = true;
    if (turn->wants_prompt_rows()) continue;
    const SessionId id = turn->session->id;
    if (StartLoad(lane.session, lane.session->n_tokens() - 1, [this, id] { EndLookOnDisk(id); })) {
      lane.stage.Become(LaneStage::kWaitsForDisk);
    }
  }
}

void EngineCore::EndLookOnDisk(SessionId id) {
  Session* const session = sessions_.Find(id);
  if (session == nullptr || session->turn == nullptr || session->turn->lanes.empty()) return;
  Lane& lane = *session->turn->lanes[0];
  if (lane.stage != LaneStage::kWaitsForDisk) return;
  lane.stage.Become(LaneStage::kReady);
  // Others may have computed more of it meanwhile.
  ReuseComputed(session);
  PlanCheckpoints(session);
}

// Starts reading what the disk has beyond the session's state; calls `done` once it is in memory or
// has turned out to be unavailable. False, without calling `done`, if there is nothing.
bool EngineCore::StartLoad(Session* session, int64_t max_tokens, std::function<void()> done) {
  if (disk_ == nullptr) return false;
  DiskLoad load;
  load.match = disk_->Match(session->domain, session->tokens, max_tokens);
  if (load.match.n_tokens <= session->computed) return false;
  disk_->Use(load.match);
  load.serial = ++next_load_;
  load.max_tokens = max_tokens;
  load.from = load.computed = session->computed;
  load.done = std::move(done);
  BeginFileWork(session, FileWork::kLoading);
  loads_[session->id.value] = std::move(load);
  ReadRun(session->id);
  return true;
}

// Requests the next blocks.
void EngineCore::ReadRun(SessionId id) {
  DiskLoad& load = loads_.at(id.value);
  const int64_t page = memory_->page_tokens();
  const int64_t run =
      std::max<int64_t>(1, kRunBytes / std::max<int64_t>(1, memory_->LeastBytes(1)));
  std::vector<Fingerprint> keys;
  const int64_t first = load.computed / page;
  const int64_t n_pages = std::ssize(load.match.pages);
  for (int64_t i = first; i < std::min(first + run, n_pages); ++i) {
    keys.push_back(load.match.pages[static_cast<size_t>(i)]);
  }
  load.pages_asked = std::ssize(keys);
  const bool last = first + load.pages_asked == n_pages;
  if (last && load.match.slot.has_value()) keys.push_back(*load.match.slot);
  disk_->Read(
      sessions_.Find(id)->domain, keys,
      [this, id, serial = load.serial, n = keys.size()](std::vector<DiskTier::Loaded> blocks) {
        const auto found = loads_.find(id.value);
        if (found == loads_.end() || found->second.serial != serial) return;
        TakeRun(id, std::move(blocks), n);
      });
}

// Blocks have arrived, fewer than requested if one was damaged.
void EngineCore::TakeRun(SessionId id, std::vector<DiskTier::Loaded> blocks, size_t n_asked) {
  DiskLoad& load = loads_.at(id.value);
  Session* const session = sessions_.Find(id);
  Touch(session);
  // Its memory was taken for others meanwhile.
  if (session->computed != load.computed) return EndLoad(id);
  const bool whole = blocks.size() == n_asked;
  std::vector<std::byte> slot;
  if (whole && static_cast<int64_t>(blocks.size()) > load.pages_asked) {
    slot = std::move(blocks.back().payload);
    blocks.pop_back();
  }
  if (whole || (memory_->blocks_stand_alone() && !blocks.empty())) {
    const int64_t first = load.computed / memory_->page_tokens();
    const int64_t end =
        std::min((first + std::ssize(blocks)) * memory_->page_tokens(), load.match.n_tokens);
    std::vector<StateMemory::BlockPages> pages;
    for (const auto& block : blocks) pages.push_back({block.info.groups, block.payload});
    Status status = memory_->AppendBlocks(session, end - load.computed, pages);
    while (status.code() == StatusCode::kResourceExhausted && GiveUpIdleState()) {
      status = memory_->AppendBlocks(session, end - load.computed, pages);
    }
    if (status.ok() && end == load.match.n_tokens) status = memory_->FinishBlocks(session, slot);
    if (!status.ok()) {
      // The tokens remain; the state is recomputed.
      if (!memory_->blocks_stand_alone()) memory_->Drop(session);
      return EndLoad(id);
    }
    load.computed = session->computed;
    if (end == load.match.n_tokens) return EndLoad(id);
    if (whole) return ReadRun(id);
  }
  // A damaged block has been forgotten: try again without it.
  if (!memory_->blocks_stand_alone()) memory_->Drop(session);
  load.match = disk_->Match(session->domain, session->tokens, load.max_tokens);
  load.computed = session->computed;
  load.from = std::min(load.from, load.computed);
  if (load.match.n_tokens <= load.computed) return EndLoad(id);
  ReadRun(id);
}

// Waiters continue without it.
void EngineCore::AbandonLoad(Session* session) {
  const auto found = loads_.find(session->id.value);
  if (found == loads_.end()) return;
  const bool begun = session->computed != found->second.from;
  if (begun && !memory_->blocks_stand_alone()) memory_->Drop(session);
  loads_.erase(found);
  EndFileWork(session->id);
}

void EngineCore::EndLoad(SessionId id) {
  const auto found = loads_.find(id.value);
  if (found == loads_.end()) return;
  const DiskLoad load = std::move(found->second);
  loads_.erase(found);
  Session* const session = sessions_.Find(id);
  session->from_disk += std::max<int64_t>(0, session->computed - load.from);
  EndFileWork(id);
  load.done();
}

}  // namespace weft
