#include "engine/sessions/state_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace weft {
namespace {

// Recomputing this many tokens takes no noticeable time; recomputing more does.
constexpr int64_t kMinCheckpointTokens = 256;
constexpr int64_t kMaxCheckpointTokens = 1024;

// A planned checkpoint costs a step and the copy of a slot. It is worth that kMinGain tokens after
// the last existing state, and kMinApart tokens after another one that is taken anyway.
constexpr int64_t kMinGain = 16;
constexpr int64_t kMinApart = 4;

// The distance at which checkpoints take no more memory than the pages between them, within these
// bounds.
int64_t CheckpointTokens(const StateLayout& layout, int64_t wanted) {
  if (wanted == 0) {
    int64_t page_bytes = 0;
    for (const int64_t bytes : layout.page_bytes) page_bytes += bytes;
    wanted = layout.slot_bytes / std::max<int64_t>(1, page_bytes) * layout.page_tokens;
    wanted = std::clamp(wanted, kMinCheckpointTokens, kMaxCheckpointTokens);
  }
  return (wanted + layout.page_tokens - 1) / layout.page_tokens * layout.page_tokens;
}

int32_t MaxIds(int64_t budget_bytes, int64_t bytes) {
  return static_cast<int32_t>(
      std::min<int64_t>(budget_bytes / bytes, std::numeric_limits<int32_t>::max()));
}

}  // namespace

StateMemory::StateMemory(const ModelSpec& spec, StateStore* store, const Options& options)
    : store_(store),
      layout_(store->layout()),
      budget_bytes_(options.budget_bytes),
      prefix_cache_(options.prefix_cache && KeepsState(spec)) {
  PrefixIndexOptions index;
  index.page_tokens = layout_.page_tokens;
  index.share_across_domains = options.share_across_domains;
  index.rows = &rows_;
  for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
    shapes_.push_back({.page_tokens = layout_.page_tokens, .window = spec.kv_groups[g].window});
    pools_.push_back(std::make_unique<PagePool>(StrCat("page of layer group ", g),
                                                MaxIds(budget_bytes_, layout_.page_bytes[g])));
    index.groups.push_back({.pool = pools_.back().get(), .window = spec.kv_groups[g].window});
  }
  if (layout_.slot_bytes > 0) {
    slots_ = std::make_unique<SlotPool>("slot", MaxIds(budget_bytes_, layout_.slot_bytes));
    index.slots = slots_.get();
    checkpoint_tokens_ = CheckpointTokens(layout_, options.checkpoint_tokens);
    const double share = options.checkpoint_share * static_cast<double>(budget_bytes_);
    max_checkpoints_ = static_cast<int64_t>(share) / layout_.slot_bytes;
  }
  index_ = std::make_unique<PrefixIndex>(std::move(index));
  keepers_.resize(n_groups());
}

StatusOr<std::unique_ptr<StateMemory>> StateMemory::Create(const ModelSpec& spec, StateStore* store,
                                                           const Options& options) {
  int64_t least = store->layout().slot_bytes;
  for (const int64_t bytes : store->layout().page_bytes) least += bytes;
  if (options.budget_bytes < least) {
    return ResourceExhausted(
        "the memory budget of ", HumanBytes(options.budget_bytes),
        " does not hold one page of every layer group and the recurrent state (",
        HumanBytes(static_cast<uint64_t>(least)), "); increase --memory");
  }
  return std::unique_ptr<StateMemory>(new StateMemory(spec, store, options));
}

void StateMemory::EnsureTables(Session* session) const {
  if (!session->state.tables_.empty()) return;
  for (size_t g = 0; g < n_groups(); ++g) {
    session->state.tables_.emplace_back(pools_[g].get(), shapes_[g]);
  }
}

std::vector<PageTable*> StateMemory::TablesOf(Session* session) const {
  std::vector<PageTable*> tables;
  for (PageTable& table : session->state.tables_) tables.push_back(&table);
  return tables;
}

void StateMemory::Reuse(Session* session, int64_t limit) {
  if (!prefix_cache_) return;
  ReuseIn(session->DomainOf(limit), limit, session);
  // Turns without the adapter may have computed more of the tokens before it acts.
  if (limit > session->invoked_at) ReuseIn(session->DomainOf(0), session->invoked_at, session);
}

void StateMemory::ReuseIn(const std::string& domain, int64_t limit, Session* session) {
  if (limit <= session->computed()) return;
  if (index_->MatchLength(domain, session->tokens, limit) <= session->computed()) return;
  PrefixMatch match = index_->Match(domain, session->tokens, limit);
  index_->NoteUse(session->DomainOf(0), session->state.begun_);
  session->state.tables_ = std::move(match.tables);
  session->state.slot_ = std::move(match.checkpoint);
  session->state.computed_ = session->state.prepared_ = session->state.indexed_ = match.n_tokens;
}

StateMemory::KnownPrefix StateMemory::KnownOf(const Session& session, int64_t limit) const {
  if (!keeps_prefixes()) return {session.computed(), PrefixLoss::kCacheOff};
  const int64_t known = KnownLength(session, limit);
  if (known <= session.computed()) return {session.computed(), PrefixLoss::kNone};
  return {known, slots_ != nullptr ? PrefixLoss::kNoCheckpoint : PrefixLoss::kNoWindow};
}

int64_t StateMemory::KnownLength(const Session& session, int64_t limit) const {
  const int64_t known = index_->KnownLength(session.DomainOf(limit), session.tokens, limit);
  if (limit <= session.invoked_at) return known;
  const int64_t before = session.invoked_at;
  return std::max(known, index_->KnownLength(session.DomainOf(0), session.tokens, before));
}

void StateMemory::TakeOver(const Session& from, int64_t n_tokens, Session* to) const {
  to->state.tables_.clear();
  for (const PageTable& table : from.state.tables_)
    to->state.tables_.push_back(table.Share(n_tokens));
  for (PageTable& table : to->state.tables_) table.DropBehindWindow();
  if (n_tokens > 0) to->state.slot_ = from.state.slot_.Share();
  to->state.computed_ = to->state.prepared_ = n_tokens;
  to->state.indexed_ = std::min(from.state.indexed_, n_tokens / page_tokens() * page_tokens());
}

void StateMemory::ReuseFrom(const Session& other, int64_t common, Session* session) {
  const int64_t n_tokens = std::min(common, other.computed());
  if (!prefix_cache_ || n_tokens <= session->computed() || !HoldsStateAt(other, n_tokens)) return;
  TakeOver(other, n_tokens, session);
}

// --- room -----------------------------------------------------------------------------

void StateMemory::GiveBackTail(Session* session, bool at_any_price) {
  const auto shares = [](const PageTable& table) { return table.SharesTailWithOne(); };
  if (std::none_of(session->state.tables_.begin(), session->state.tables_.end(), shares)) return;
  const auto tokens = std::span(session->tokens).first(static_cast<size_t>(session->computed()));
  index_->GiveBackTail(session->DomainOf(session->computed()), tokens, TablesOf(session),
                       at_any_price);
}

Status StateMemory::EvictFor(const Session& session, int64_t n) {
  return MakeRoom(AmountToPrepare(session, n));
}

Status StateMemory::MakeRoom(const Amount& amount) {
  const int64_t wanted = BytesOf(amount);
  const int64_t missing = wanted - free_bytes();
  if (missing <= 0) return OkStatus();
  // First free the needed amount of each kind.
  const auto part_of = [&](int64_t count, int64_t bytes) -> int64_t {
    if (count == 0) return 0;
    const double part = static_cast<double>(missing) * static_cast<double>(count * bytes) /
                        static_cast<double>(wanted);
    return static_cast<int64_t>(part) / bytes + 1;
  };
  EvictionWish wish;
  for (size_t g = 0; g < n_groups(); ++g) {
    wish.pages.push_back(part_of(amount.pages[g], layout_.page_bytes[g]));
  }
  wish.slots = part_of(amount.slots, layout_.slot_bytes);
  index_->EvictLru(wish);
  // One kind may have nothing left to free; any other helps as well.
  const auto missing_of = [&](int64_t bytes) {
    return std::max<int64_t>(0, wanted - free_bytes() + bytes - 1) / bytes;
  };
  for (size_t g = 0; g < n_groups(); ++g) {
    EvictionWish rest{std::vector<int64_t>(n_groups())};
    rest.pages[g] = missing_of(layout_.page_bytes[g]);
    index_->EvictLru(rest);
  }
  if (slots_ != nullptr) {
    index_->EvictLru({std::vector<int64_t>(n_groups()), missing_of(layout_.slot_bytes)});
  }
  if (wanted > free_bytes()) {
    return ResourceExhausted(
        "the memory for sessions is used up: ", HumanBytes(static_cast<uint64_t>(used_bytes())),
        " of ", HumanBytes(static_cast<uint64_t>(limit_bytes())), " are held and ",
        HumanBytes(static_cast<uint64_t>(wanted)), " more are needed");
  }
  return OkStatus();
}

Status StateMemory::MakeRoomForRows(int64_t bytes) {
  const int64_t most = max_row_bytes();
  const auto fits = [&] { return rows_.bytes() + bytes <= most; };
  if (!fits()) index_->EvictRows(fits);
  if (fits()) return OkStatus();
  return ResourceExhausted("input embeddings take up to ", HumanBytes(static_cast<uint64_t>(most)),
                           ", half of the memory for sessions; with these they would take ",
                           HumanBytes(static_cast<uint64_t>(rows_.bytes() + bytes)));
}

// Makes the table's pages usable, from an entry on.
Status StateMemory::GrowFor(size_t group, const PageTable& table, size_t first_entry) {
  const int64_t had = store_->n_pages(static_cast<int>(group));
  int64_t needed = had;
  for (size_t i = first_entry; i < table.pages().size(); ++i) {
    needed = std::max<int64_t>(needed, table.pages()[i] + 1);
  }
  if (needed == had) return OkStatus();
  return store_->GrowPages(static_cast<int>(group), needed);
}

Status StateMemory::AppendAll(Session* session, int64_t n) {
  for (size_t g = 0; g < n_groups(); ++g) {
    PageTable& table = session->state.tables_[g];
    const size_t last = table.pages().empty() ? 0 : table.pages().size() - 1;
    WEFT_ASSIGN_OR_RETURN(const PageCopy copy, table.MakeWritable());
    Status status = GrowFor(g, table, last);
    if (status.ok() && copy.needed()) {
      ++pages_copied_;
      status = store_->CopyPage(static_cast<int>(g), copy.from, copy.to, copy.n_tokens);
    }
    if (!status.ok()) {
      table.UndoCopy(copy);
      return status;
    }
    WEFT_RETURN_IF_ERROR(table.Append(n));
    WEFT_RETURN_IF_ERROR(GrowFor(g, table, last));
  }
  return OkStatus();
}

// A slot backed by memory, contents undefined.
StatusOr<PoolRef> StateMemory::NewSlot() {
  WEFT_ASSIGN_OR_RETURN(const SlotId id, slots_->Allocate());
  PoolRef fresh = PoolRef::Adopt(slots_.get(), id);
  if (id >= store_->n_slots()) WEFT_RETURN_IF_ERROR(store_->GrowSlots(id + 1));
  return fresh;
}

// Gives the session a fresh slot if it has none, or a copy if others share its slot.
Status StateMemory::OwnSlot(Session* session) {
  if (slots_ == nullptr) return OkStatus();
  if (session->state.slot_ && slots_->use_count(session->state.slot_.id()) == 1) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(PoolRef fresh, NewSlot());
  if (session->state.slot_) {
    ++slots_copied_;
    WEFT_RETURN_IF_ERROR(store_->CopySlot(session->state.slot_.id(), fresh.id()));
  } else {
    WEFT_RETURN_IF_ERROR(store_->ClearSlot(fresh.id()));
  }
  session->state.slot_ = std::move(fresh);
  return OkStatus();
}

Status StateMemory::Prepare(Session* session, int64_t n) {
  EnsureTables(session);
  if (n > 0) GiveBackTail(session, /*at_any_price=*/false);
  const Amount amount = AmountToPrepare(*session, n);
  Status status = MakeRoom(amount);
  if (!status.ok() && BytesOf(amount) - BytesToCopy(*session) <= free_bytes()) {
    // A tail or checkpoint that the index does not hold here need not be copied.
    GiveBackTail(session, /*at_any_price=*/true);
    ForgetCheckpoint(*session, session->computed());
    status = MakeRoom(AmountToPrepare(*session, n));
  }
  WEFT_RETURN_IF_ERROR(status);
  status = TakeRoom(session, n);
  if (status.code() == StatusCode::kResourceExhausted) {
    // The backend can refuse what the budget allowed; prefixes then make room as if it had not.
    ShrinkBy(AmountToPrepare(*session, n));
    ReturnFreed();
    status = TakeRoom(session, n);
  }
  WEFT_RETURN_IF_ERROR(status);
  session->state.prepared_ = session->computed() + n;
  return OkStatus();
}

Status StateMemory::TakeRoom(Session* session, int64_t n) {
  Status status = OwnSlot(session);
  if (status.ok()) status = AppendAll(session, n);
  if (status.ok()) return status;
  // Positions may have been appended to some of the groups.
  for (PageTable& table : session->state.tables_) table.TruncateTo(session->computed());
  if (session->computed() == 0) session->state.slot_.Reset();
  return status;
}

void StateMemory::TakeBack(Session* session) {
  if (session->state.slot_before_guesses_)
    session->state.slot_ = std::move(session->state.slot_before_guesses_);
  for (PageTable& table : session->state.tables_) table.TruncateTo(session->computed());
  if (session->computed() == 0) session->state.slot_.Reset();
  session->state.prepared_ = session->computed();
}

bool StateMemory::PrepareGuessed(Session* session, int64_t n, int64_t spare_bytes) {
  if (slots_ != nullptr && !session->state.slot_) return false;
  if (slots_ != nullptr) session->state.slot_before_guesses_ = session->state.slot_.Share();
  if (BytesToPrepare(*session, n) + spare_bytes <= free_bytes() && Prepare(session, n).ok()) {
    return true;
  }
  session->state.slot_before_guesses_.Reset();
  return false;
}

void StateMemory::ReturnFreed() {
  for (size_t g = 0; g < n_groups(); ++g) {
    const int group = static_cast<int>(g);
    std::vector<int32_t> freed = pools_[g]->TakeFreed();
    // The backend never had pages for which it had no memory.
    std::erase_if(freed, [&](int32_t page) { return page >= store_->n_pages(group); });
    if (!freed.empty()) store_->DiscardPages(group, freed);
  }
  if (slots_ == nullptr) return;
  for (const SlotId slot : slots_->TakeFreed()) {
    // If the backend cannot clear the slot, it reports that when the slot is reused.
    if (slot < store_->n_slots()) (void)store_->ClearSlot(slot);
  }
}

// --- computed state ---------------------------------------------------------------------

void StateMemory::Commit(Session* session) {
  session->state.slot_before_guesses_.Reset();
  session->state.computed_ = session->state.prepared_;
  const int64_t whole = session->computed() / page_tokens() * page_tokens();
  const bool due = slots_ == nullptr ? whole > session->state.indexed_ : IsCheckpoint(*session);
  if (keeps_prefixes() && due) AddToIndex(session);
  for (PageTable& table : session->state.tables_) table.DropBehindWindow();
}

void StateMemory::CommitFirst(Session* session, int64_t n) {
  if (session->computed() + n == session->state.prepared_) return Commit(session);
  if (slots_ != nullptr) return GoBackBeforeGuesses(session);
  for (PageTable& table : session->state.tables_) table.TruncateTo(session->computed() + n);
  session->state.prepared_ = session->computed() + n;
  Commit(session);
}

void StateMemory::GoBackBeforeGuesses(Session* session) {
  for (PageTable& table : session->state.tables_) table.TruncateTo(session->computed());
  session->state.prepared_ = session->computed();
  session->state.slot_ = std::move(session->state.slot_before_guesses_);
}

// Checkpoints of what a turn generates lie at the ends of whole pages.
int64_t StateMemory::RowsToGuess(const Session& session) const {
  if (slots_ == nullptr || !keeps_prefixes()) return session.RowsAlike(session.computed());
  return std::min(RowsToCheckpoint(session), page_tokens() - session.computed() % page_tokens());
}

void StateMemory::KeepTail(Session* session) {
  if (!keeps_prefixes() || session->computed() <= session->state.indexed_) return;
  if (slots_ != nullptr && session->state.prepared_ != session->computed()) return;
  InsertComputed(session, session->computed());
  if (slots_ == nullptr) return;
  // The one that marks the turn's progress stays: a history that comes back may end a little
  // earlier, for example where a stop string cut the text.
  const int64_t former = std::exchange(session->state.tail_checkpoint_, 0);
  if (former > 0 && session->computed() - former < kMinApart) ForgetCheckpoint(*session, former);
  index_->LimitCheckpoints(max_checkpoints_);
}

void StateMemory::ForgetCheckpoint(const Session& session, int64_t n_tokens) {
  index_->ForgetCheckpoint(session.DomainOf(n_tokens),
                           std::span(session.tokens).first(static_cast<size_t>(n_tokens)));
}

void StateMemory::InsertComputed(Session* session, int64_t n_tokens) {
  index_->Insert(session->DomainOf(n_tokens), session->tokens, n_tokens, TablesOf(session),
                 /*adopt=*/true, session->state.slot_.id());
  index_->NoteUse(session->DomainOf(0), session->state.begun_);
  session->state.indexed_ = n_tokens;
}

void StateMemory::AddToIndex(Session* session) {
  const int64_t n =
      slots_ != nullptr ? session->computed() : session->computed() / page_tokens() * page_tokens();
  InsertComputed(session, n);
  if (slots_ == nullptr) return;
  // A checkpoint that only marks the turn's progress is dropped when the next one exists.
  const int64_t former =
      std::exchange(session->state.tail_checkpoint_, IsPlanned(*session, n) ? 0 : n);
  if (former > 0 && former != n) ForgetCheckpoint(*session, former);
  index_->LimitCheckpoints(max_checkpoints_);
}

void StateMemory::PlanCheckpoints(Session* session, std::span<const int64_t> marks) const {
  if (!keeps_prefixes() || blocks_stand_alone()) return;
  session->state.tail_checkpoint_ = 0;
  const int64_t end = std::ssize(session->tokens) - 1;
  std::vector<int64_t> positions(marks.begin(), marks.end());
  positions.push_back(KnownLength(*session, end));
  // A step ends there anyway.
  if (session->invoked_at < end) positions.push_back(session->invoked_at);
  positions.push_back(end);
  std::sort(positions.begin(), positions.end());
  session->state.checkpoints_wanted_.clear();
  // It left the others here.
  if (session->computed() > 0) session->state.checkpoints_wanted_.push_back(session->computed());
  int64_t next = session->computed() + kMinGain;
  for (const int64_t position : positions) {
    if (position < next || position > end) continue;
    session->state.checkpoints_wanted_.push_back(position);
    next = position + kMinApart;
  }
}

void StateMemory::WantCheckpoint(Session* session, int64_t n_tokens) const {
  std::vector<int64_t>& wanted = session->state.checkpoints_wanted_;
  if (slots_ != nullptr && std::find(wanted.begin(), wanted.end(), n_tokens) == wanted.end()) {
    wanted.push_back(n_tokens);
  }
}

bool StateMemory::IsPlanned(const Session& session, int64_t n_tokens) const {
  const auto& wanted = session.state.checkpoints_wanted_;
  return n_tokens % checkpoint_tokens_ == 0 ||
         std::find(wanted.begin(), wanted.end(), n_tokens) != wanted.end();
}

bool StateMemory::IsCheckpoint(const Session& session) const {
  const int64_t n = session.computed();
  // What a turn generates may end after any whole page.
  const bool progress = n % page_tokens() == 0 && n >= std::ssize(session.tokens);
  return n > 0 && (progress || IsPlanned(session, n));
}

int64_t StateMemory::RowsToCheckpoint(const Session& session) const {
  const int64_t from = session.computed();
  if (slots_ == nullptr || !keeps_prefixes()) return session.RowsAlike(from);
  int64_t next = (from / checkpoint_tokens_ + 1) * checkpoint_tokens_;
  for (const int64_t wanted : session.state.checkpoints_wanted_) {
    if (wanted > from) next = std::min(next, wanted);
  }
  return std::min(next - from, session.RowsAlike(from));
}

// --- turns --------------------------------------------------------------------------------

void StateMemory::EndTurn(const Session& session, int64_t n_prompt, uint64_t turn,
                          SessionId owner) {
  // A turn that was preempted last has less; and the part that an adapter computes is no other
  // conversation's.
  const int64_t n_tokens = std::min(std::max(session.computed(), n_prompt), session.invoked_at);
  index_->EndTurn(session.DomainOf(0),
                  std::span(session.tokens).first(static_cast<size_t>(n_tokens)),
                  std::min(n_prompt, n_tokens), session.state.begun_, turn, owner.value);
}

void StateMemory::ForEachParent(const Session& session,
                                FunctionRef<void(SessionId, PrefixIndex::Tokens)> visit) const {
  index_->ForEachParent(
      session.DomainOf(0), session.state.begun_,
      [&](uint64_t owner, PrefixIndex::Tokens tokens) { visit(SessionId{owner}, tokens); });
}

void StateMemory::Mark(const Session& session, int64_t n_tokens, std::chrono::seconds keep_for) {
  const int64_t now_us = NowMicros();
  n_tokens = std::min(n_tokens, session.invoked_at);
  index_->Mark(session.DomainOf(0), std::span(session.tokens).first(static_cast<size_t>(n_tokens)),
               now_us, now_us + std::chrono::microseconds(keep_for).count());
}

// --- going back and sharing -----------------------------------------------------------

bool StateMemory::HoldsPagesAt(const Session& session, int64_t n_tokens) {
  return std::all_of(session.state.tables_.begin(), session.state.tables_.end(),
                     [n_tokens](const PageTable& table) { return table.Covers(n_tokens); });
}

bool StateMemory::HoldsStateAt(const Session& session, int64_t n_tokens) const {
  const bool exact =
      n_tokens == session.computed() && session.state.prepared_ == session.computed();
  return (slots_ == nullptr || exact) && HoldsPagesAt(session, n_tokens);
}

void StateMemory::Truncate(Session* session, int64_t n_tokens) {
  if (session->state.slot_before_guesses_) GoBackBeforeGuesses(session);
  n_tokens = std::min(n_tokens, session->computed());
  const int64_t kept = HoldsStateAt(*session, n_tokens) ? n_tokens : 0;
  for (PageTable& table : session->state.tables_) table.TruncateTo(kept);
  if (kept == 0) session->state.slot_.Reset();
  session->state.computed_ = session->state.prepared_ = kept;
  session->state.indexed_ = std::min(session->state.indexed_, kept / page_tokens() * page_tokens());
  Reuse(session, n_tokens);
}

void StateMemory::Share(const Session& from, int64_t n_tokens, Session* to) {
  WEFT_CHECK(to->computed() == 0, "sharing state with a session that has its own");
  to->state.begun_ = from.state.begun_;
  n_tokens = std::min(n_tokens, from.computed());
  if (HoldsStateAt(from, n_tokens)) TakeOver(from, n_tokens, to);
  Reuse(to, n_tokens);
}

}  // namespace weft
