#include "engine/storage/state_loader.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// Read at once, unless a single block is larger.
constexpr int64_t kRunBytes = int64_t{8} << 20;

}  // namespace

bool StateLoader::Start(Session* session, int64_t max_tokens, std::function<void()> done) {
  Load load;
  load.max_tokens = max_tokens;
  Match(*session, &load);
  const bool is_on_disk = load.match.n_tokens > session->computed();
  load.serial = ++next_load_;
  const bool fetches = shared_ != nullptr && Fetch(*session, load);
  if (!is_on_disk && !fetches) return false;
  load.from = load.computed = session->computed();
  load.done = std::move(done);
  works_->Begin(session, FileWork::kLoading);
  disk_->Use(load.match);
  loads_[session->id.value] = std::move(load);
  if (!fetches) ReadRun(session->id);
  return true;
}

bool StateLoader::Fetch(const Session& session, const Load& load) {
  const int64_t page = memory_->page_tokens();
  const int64_t known = std::ssize(session.tokens.before_rows());
  const int64_t end = session.taken_tokens > 0 ? session.taken_tokens : known;
  const int64_t wanted = std::min({load.max_tokens, known, end});
  if (page == 0 || wanted <= session.computed()) return false;
  SharedBlocks::Wish wish;
  wish.domain = session.DomainOf(load.max_tokens);
  const auto tokens = session.tokens.before_rows().first(static_cast<size_t>(wanted));
  wish.tokens.assign(tokens.begin(), tokens.end());
  wish.n_pages = load.domain == wish.domain ? load.match.n_tokens / page : 0;
  wish.ends_here = wanted == session.taken_tokens;
  wish.needs_slot = memory_->layout().slot_bytes > 0;
  return shared_->Fetch(wish, [this, id = session.id, serial = load.serial] {
    const auto found = loads_.find(id.value);
    if (found != loads_.end() && found->second.serial == serial) ReadFetched(id);
  });
}

void StateLoader::ReadFetched(SessionId id) {
  Load& load = loads_.at(id.value);
  Session* const session = sessions_.Find(id);
  Match(*session, &load);
  load.from = load.computed = session->computed();
  if (load.match.n_tokens <= load.computed) return End(id);
  disk_->Use(load.match);
  ReadRun(id);
}

void StateLoader::Match(const Session& session, Load* load) const {
  load->domain = session.DomainOf(load->max_tokens);
  load->match = disk_->Match(load->domain, session.tokens.before_rows(), load->max_tokens);
  if (load->max_tokens <= session.invoked_at) return;
  BlockMatch before =
      disk_->Match(session.DomainOf(0), session.tokens.before_rows(), session.invoked_at);
  if (before.n_tokens <= load->match.n_tokens) return;
  load->domain = session.DomainOf(0);
  load->match = std::move(before);
}

// Requests the next blocks.
void StateLoader::ReadRun(SessionId id) {
  Load& load = loads_.at(id.value);
  const int64_t page = memory_->page_tokens();
  const int64_t run = std::max<int64_t>(1, kRunBytes / std::max<int64_t>(1, memory_->MinBytes(1)));
  std::vector<Fingerprint> keys;
  const int64_t first = load.computed / page;
  const int64_t n_pages = std::ssize(load.match.pages);
  for (int64_t i = first; i < std::min(first + run, n_pages); ++i) {
    keys.push_back(load.match.pages[static_cast<size_t>(i)]);
  }
  load.pages_asked = std::ssize(keys);
  const bool last = first + load.pages_asked == n_pages;
  if (last && load.match.slot.has_value()) keys.push_back(*load.match.slot);
  const Session& session = *sessions_.Find(id);
  disk_->Read(session.tenant, load.domain, keys,
              [this, id, serial = load.serial, n = keys.size()](
                  std::vector<DiskTier::Loaded> blocks, const Status& status) {
                const auto found = loads_.find(id.value);
                if (found == loads_.end() || found->second.serial != serial) return;
                TakeRun(id, std::move(blocks), n, status);
              });
}

// Blocks have arrived, fewer than requested if one was damaged or could not be read.
void StateLoader::TakeRun(SessionId id, std::vector<DiskTier::Loaded> blocks, size_t n_asked,
                          const Status& read) {
  Load& load = loads_.at(id.value);
  Session* const session = sessions_.Find(id);
  publisher_->Touch(session);
  // Its memory was taken for others meanwhile.
  if (session->computed() != load.computed) return End(id);
  const bool whole = blocks.size() == n_asked;
  if (whole || (memory_->blocks_stand_alone() && !blocks.empty())) {
    if (!Append(session, &load, std::move(blocks), whole).ok()) {
      // The tokens remain; the state is recomputed.
      if (!memory_->blocks_stand_alone()) memory_->Drop(session);
      return End(id);
    }
    if (load.computed == load.match.n_tokens) return End(id);
    if (whole) return ReadRun(id);
  }
  if (read.ok() || read.code() == StatusCode::kDataLoss) return TryWithoutDamage(session, &load);
  // The block would be found again, and fail again: the rest is recomputed.
  if (!memory_->blocks_stand_alone()) memory_->Drop(session);
  End(id);
}

Status StateLoader::Append(Session* session, Load* load, std::vector<DiskTier::Loaded> blocks,
                           bool whole) {
  std::vector<std::byte> slot;
  if (whole && std::ssize(blocks) > load->pages_asked) {
    slot = std::move(blocks.back().payload);
    blocks.pop_back();
  }
  const int64_t first = load->computed / memory_->page_tokens();
  const int64_t end =
      std::min((first + std::ssize(blocks)) * memory_->page_tokens(), load->match.n_tokens);
  std::vector<StateMemory::BlockPages> pages;
  pages.reserve(blocks.size());
  for (const auto& block : blocks) pages.push_back({block.info.groups, block.payload});
  Status status = memory_->AppendBlocks(session, end - load->computed, pages);
  while (status.code() == StatusCode::kResourceExhausted && make_room_()) {
    status = memory_->AppendBlocks(session, end - load->computed, pages);
  }
  if (status.ok() && end == load->match.n_tokens) status = memory_->FinishBlocks(session, slot);
  if (status.ok()) load->computed = end;
  return status;
}

// A damaged block has been forgotten: matches again without it.
void StateLoader::TryWithoutDamage(Session* session, Load* load) {
  const SessionId id = session->id;
  if (!memory_->blocks_stand_alone()) memory_->Drop(session);
  Match(*session, load);
  load->computed = session->computed();
  load->from = std::min(load->from, load->computed);
  if (load->match.n_tokens <= load->computed) return End(id);
  ReadRun(id);
}

void StateLoader::Abandon(Session* session) {
  const auto found = loads_.find(session->id.value);
  if (found == loads_.end()) return;
  const bool begun = session->computed() != found->second.from;
  if (begun && !memory_->blocks_stand_alone()) memory_->Drop(session);
  loads_.erase(found);
  works_->End(session->id);
}

void StateLoader::End(SessionId id) {
  const auto found = loads_.find(id.value);
  if (found == loads_.end()) return;
  const Load load = std::move(found->second);
  loads_.erase(found);
  Session* const session = sessions_.Find(id);
  session->from_disk += std::max<int64_t>(0, session->computed() - load.from);
  works_->End(id);
  load.done();
}

}  // namespace weft
