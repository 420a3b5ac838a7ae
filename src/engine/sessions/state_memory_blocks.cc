// Session state in blocks, one page of positions each, for the disk tier.
#include <algorithm>

#include "base/check.h"
#include "engine/sessions/state_memory.h"

namespace weft {
namespace {

// After a position where others are likely to branch off, this many tokens may still be equal.
constexpr int64_t kLikelyMore = 8;

}  // namespace

uint64_t StateMemory::groups_always_needed() const {
  uint64_t groups = 0;
  for (size_t g = 0; g < n_groups(); ++g) {
    if (shapes_[g].window == 0) groups |= uint64_t{1} << g;
  }
  return groups;
}

bool StateMemory::blocks_stand_alone() const {
  return slots_ == nullptr &&
         std::ranges::all_of(shapes_, [](const GroupShape& shape) { return shape.window == 0; });
}

PageId StateMemory::PageAt(const Session& session, size_t group, int64_t entry) const {
  const auto pages = session.state.tables_[group].pages();
  if (entry < std::ssize(pages) && pages[static_cast<size_t>(entry)] != kNoPage) {
    return pages[static_cast<size_t>(entry)];
  }
  const int64_t end = (entry + 1) * page_tokens();
  const auto is_seen = [&](int64_t position) {
    // The next tokens, such as the header of a message, may still be the same.
    return end > shapes_[group].VisibleFrom(position) &&
           entry * page_tokens() < position + kLikelyMore;
  };
  if (end > session.computed() ||
      std::ranges::none_of(session.state.checkpoints_wanted_, is_seen)) {
    return kNoPage;
  }
  const auto known = index_->PagesAtEnd(session.DomainOf(end),
                                        std::span(session.tokens).first(static_cast<size_t>(end)));
  return known.empty() ? kNoPage : known[group];
}

uint64_t StateMemory::GroupsAt(const Session& session, int64_t entry) const {
  uint64_t groups = 0;
  for (size_t g = 0; g < session.state.tables_.size(); ++g) {
    if (PageAt(session, g, entry) != kNoPage) groups |= uint64_t{1} << g;
  }
  return groups;
}

StatusOr<std::vector<std::byte>> StateMemory::ReadBlock(const Session& session, int64_t entry,
                                                        uint64_t groups) const {
  std::vector<std::byte> bytes;
  const auto n_tokens = static_cast<int>(
      std::min<int64_t>(page_tokens(), session.computed() - entry * page_tokens()));
  for (size_t g = 0; g < n_groups(); ++g) {
    if ((groups >> g & 1) == 0) continue;
    const size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(layout_.page_bytes[g]));
    WEFT_RETURN_IF_ERROR(store_->ReadPage(static_cast<int>(g), PageAt(session, g, entry), n_tokens,
                                          std::span(bytes).subspan(at)));
  }
  return bytes;
}

StatusOr<std::vector<std::byte>> StateMemory::ReadSlot(SlotId slot) const {
  std::vector<std::byte> bytes(static_cast<size_t>(layout_.slot_bytes));
  WEFT_RETURN_IF_ERROR(store_->ReadSlot(slot, bytes));
  return bytes;
}

std::vector<PrefixIndex::Checkpoint> StateMemory::CheckpointsToKeep(const Session& session) const {
  if (slots_ == nullptr || !keeps_prefixes() || session.computed() == 0) return {};
  std::vector<PrefixIndex::Checkpoint> chosen = CheckpointsToSave(session);
  const auto known = KnownCheckpoints(session, session.computed());
  if (known.empty() || !HoldsPagesAt(session, known.back().n_tokens)) return chosen;
  chosen.push_back(known.back());
  const auto& wanted = session.state.checkpoints_wanted_;
  std::vector<PrefixIndex::Checkpoint> planned;
  for (const PrefixIndex::Checkpoint& checkpoint : known) {
    if (std::ranges::count(wanted, checkpoint.n_tokens) > 0) planned.push_back(checkpoint);
  }
  if (!planned.empty()) chosen.insert(chosen.end(), {planned.front(), planned.back()});
  const auto before = [](const PrefixIndex::Checkpoint& a, const PrefixIndex::Checkpoint& b) {
    return a.n_tokens < b.n_tokens;
  };
  const auto same = [](const PrefixIndex::Checkpoint& a, const PrefixIndex::Checkpoint& b) {
    return a.n_tokens == b.n_tokens;
  };
  std::sort(chosen.begin(), chosen.end(), before);
  chosen.erase(std::unique(chosen.begin(), chosen.end(), same), chosen.end());
  return chosen;
}

Status StateMemory::AppendBlocks(Session* session, int64_t n, std::span<const BlockPages> blocks) {
  const int64_t first = session->computed() / page_tokens();
  WEFT_RETURN_IF_ERROR(Prepare(session, n));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t entry = static_cast<size_t>(first) + i;
    size_t at = 0;
    for (size_t g = 0; g < n_groups(); ++g) {
      if ((blocks[i].groups >> g & 1) == 0) continue;
      const auto size = static_cast<size_t>(layout_.page_bytes[g]);
      WEFT_CHECK(at + size <= blocks[i].bytes.size(), "a block holds its groups' pages");
      const Status status =
          store_->WritePage(static_cast<int>(g), session->state.tables_[g].pages()[entry],
                            blocks[i].bytes.subspan(at, size));
      if (!status.ok()) {
        Drop(session);
        return status;
      }
      at += size;
    }
  }
  if (blocks_stand_alone()) {
    Commit(session);
    return OkStatus();
  }
  // Nothing goes to the index before the last block: pages before a window were not read.
  session->state.computed_ = session->state.prepared_;
  for (PageTable& table : session->state.tables_) table.DropBehindWindow();
  return OkStatus();
}

Status StateMemory::FinishBlocks(Session* session, std::span<const std::byte> slot) {
  if (blocks_stand_alone()) return OkStatus();
  if (slots_ != nullptr) {
    const Status status = store_->WriteSlot(session->state.slot_.id(), slot);
    if (!status.ok()) {
      Drop(session);
      return status;
    }
  }
  const int64_t n =
      slots_ != nullptr ? session->computed() : session->computed() / page_tokens() * page_tokens();
  if (keeps_prefixes() && n > 0) {
    InsertComputed(session, n);
    if (slots_ != nullptr) index_->LimitCheckpoints(max_checkpoints_);
  }
  return OkStatus();
}

}  // namespace weft
