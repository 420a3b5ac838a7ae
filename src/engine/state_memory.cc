#include "engine/state_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace weft {

StateMemory::StateMemory(const ModelSpec& spec, Executor* executor, const Options& options)
    : executor_(executor),
      layout_(executor->layout()),
      budget_bytes_(options.budget_bytes),
      prefix_cache_(options.prefix_cache) {
  PrefixIndexOptions index;
  index.page_tokens = layout_.page_tokens;
  index.share_across_domains = options.share_across_domains;
  for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
    shapes_.push_back({.page_tokens = layout_.page_tokens, .window = spec.kv_groups[g].window});
    const int64_t most = std::min<int64_t>(budget_bytes_ / layout_.page_bytes[g],
                                           std::numeric_limits<int32_t>::max());
    pools_.push_back(
        std::make_unique<PagePool>(StrCat("page of layer group ", g), static_cast<int32_t>(most)));
    index.groups.push_back({.pool = pools_.back().get(), .window = spec.kv_groups[g].window});
  }
  index_ = std::make_unique<PrefixIndex>(std::move(index));
  grown_.resize(n_groups());
}

StatusOr<std::unique_ptr<StateMemory>> StateMemory::Create(const ModelSpec& spec,
                                                           Executor* executor,
                                                           const Options& options) {
  int64_t least = 0;
  for (const int64_t bytes : executor->layout().page_bytes) least += bytes;
  if (options.budget_bytes < least) {
    return ResourceExhausted("the memory budget of ", HumanBytes(options.budget_bytes),
                             " does not hold one page of every layer group (",
                             HumanBytes(static_cast<uint64_t>(least)), "); give --memory more");
  }
  return std::unique_ptr<StateMemory>(new StateMemory(spec, executor, options));
}

void StateMemory::EnsureTables(Session* session) const {
  if (!session->tables.empty()) return;
  for (size_t g = 0; g < n_groups(); ++g) {
    session->tables.emplace_back(pools_[g].get(), shapes_[g]);
  }
}

std::vector<PageTable*> StateMemory::TablesOf(Session* session) const {
  std::vector<PageTable*> tables;
  for (PageTable& table : session->tables) tables.push_back(&table);
  return tables;
}

void StateMemory::Reuse(Session* session, int64_t limit) {
  if (!prefix_cache_ || limit <= session->computed) return;
  if (index_->MatchLength(session->domain, session->tokens, limit) <= session->computed) return;
  PrefixMatch match = index_->Match(session->domain, session->tokens, limit);
  session->tables = std::move(match.tables);
  session->computed = match.n_tokens;
  session->indexed = match.n_tokens;
}

std::vector<int64_t> StateMemory::PagesToPrepare(const Session& session, int64_t n) const {
  std::vector<int64_t> pages;
  for (size_t g = 0; g < n_groups(); ++g) {
    pages.push_back(session.tables.empty() ? shapes_[g].PagesFor(n)
                                           : session.tables[g].PagesToAppend(n));
  }
  return pages;
}

Status StateMemory::EvictFor(const Session& session, int64_t n) {
  return MakeRoom(PagesToPrepare(session, n));
}

int64_t StateMemory::LeastBytes(int64_t n_tokens) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < n_groups() && n_tokens > 0; ++g) {
    const int64_t gone = shapes_[g].VisibleFrom(n_tokens - 1) / page_tokens();
    bytes += (shapes_[g].PagesFor(n_tokens) - gone) * layout_.page_bytes[g];
  }
  return bytes;
}

Status StateMemory::MakeRoom(std::span<const int64_t> pages) {
  int64_t wanted = 0;
  for (size_t g = 0; g < n_groups(); ++g) wanted += pages[g] * layout_.page_bytes[g];
  const int64_t missing = wanted - free_bytes();
  if (missing <= 0) return OkStatus();
  // First as much of each group as it needs itself.
  EvictionWish wish;
  for (size_t g = 0; g < n_groups(); ++g) {
    const int64_t total = std::max<int64_t>(1, wanted);
    const int64_t share = pages[g] * layout_.page_bytes[g];
    const double bytes =
        static_cast<double>(missing) * static_cast<double>(share) / static_cast<double>(total);
    wish.pages.push_back(static_cast<int64_t>(bytes) / layout_.page_bytes[g] +
                         (pages[g] > 0 ? 1 : 0));
  }
  index_->EvictLru(wish);
  // A group may have nothing left to give; the pages of any other help as well.
  for (size_t g = 0; g < n_groups() && wanted > free_bytes(); ++g) {
    EvictionWish rest{std::vector<int64_t>(n_groups())};
    const int64_t bytes = layout_.page_bytes[g];
    rest.pages[g] = (wanted - free_bytes() + bytes - 1) / bytes;
    index_->EvictLru(rest);
  }
  if (wanted > free_bytes()) {
    return ResourceExhausted(
        "the memory for sessions is used up: ", HumanBytes(static_cast<uint64_t>(used_bytes())),
        " of ", HumanBytes(static_cast<uint64_t>(budget_bytes_)), " are held and ",
        HumanBytes(static_cast<uint64_t>(wanted)), " more are needed");
  }
  return OkStatus();
}

// Makes the pages of the table usable, from an entry on.
Status StateMemory::GrowFor(size_t group, const PageTable& table, size_t first_entry) {
  int64_t needed = grown_[group];
  for (size_t i = first_entry; i < table.pages().size(); ++i) {
    needed = std::max<int64_t>(needed, table.pages()[i] + 1);
  }
  if (needed == grown_[group]) return OkStatus();
  WEFT_RETURN_IF_ERROR(executor_->GrowPages(static_cast<int>(group), needed));
  grown_[group] = needed;
  return OkStatus();
}

Status StateMemory::AppendAll(Session* session, int64_t n) {
  for (size_t g = 0; g < n_groups(); ++g) {
    PageTable& table = session->tables[g];
    const size_t last = table.pages().empty() ? 0 : table.pages().size() - 1;
    WEFT_ASSIGN_OR_RETURN(const PageCopy copy, table.MakeWritable());
    WEFT_RETURN_IF_ERROR(GrowFor(g, table, last));
    if (copy.needed()) {
      ++pages_copied_;
      WEFT_RETURN_IF_ERROR(
          executor_->CopyPage(static_cast<int>(g), copy.from, copy.to, copy.n_tokens));
    }
    WEFT_RETURN_IF_ERROR(table.Append(n));
    WEFT_RETURN_IF_ERROR(GrowFor(g, table, last));
  }
  return OkStatus();
}

Status StateMemory::Prepare(Session* session, int64_t n) {
  EnsureTables(session);
  WEFT_RETURN_IF_ERROR(MakeRoom(PagesToPrepare(*session, n)));
  const Status status = AppendAll(session, n);
  // The backend can refuse what the budget allowed. Positions appended to some groups
  // only are taken back, and so is the last page where it is partly filled: it may be
  // a private one that its contents were not copied to.
  if (!status.ok()) {
    for (PageTable& table : session->tables) table.TruncateTo(session->computed);
    Truncate(session, session->computed / page_tokens() * page_tokens());
  }
  return status;
}

void StateMemory::Commit(Session* session) {
  if (!session->tables.empty()) session->computed = session->tables[0].n_tokens();
  const int64_t whole = session->computed / page_tokens() * page_tokens();
  if (prefix_cache_ && whole > session->indexed) {
    const std::vector<PageTable*> tables = TablesOf(session);
    index_->Insert(session->domain, session->tokens, whole, tables, /*adopt=*/true);
    session->indexed = whole;
  }
  for (PageTable& table : session->tables) table.DropBehindWindow();
}

void StateMemory::Truncate(Session* session, int64_t n_tokens) {
  n_tokens = std::min(n_tokens, session->computed);
  for (const PageTable& table : session->tables) {
    if (!table.Covers(n_tokens)) n_tokens = 0;
  }
  for (PageTable& table : session->tables) table.TruncateTo(n_tokens);
  session->computed = n_tokens;
  session->indexed = std::min(session->indexed, n_tokens / page_tokens() * page_tokens());
}

void StateMemory::Share(const Session& from, int64_t n_tokens, Session* to) {
  WEFT_CHECK(to->computed == 0, "sharing state with a session that has its own");
  n_tokens = std::min(n_tokens, from.computed);
  for (const PageTable& table : from.tables) {
    if (!table.Covers(n_tokens)) n_tokens = 0;
  }
  to->tables.clear();
  for (const PageTable& table : from.tables) to->tables.push_back(table.Share(n_tokens));
  for (PageTable& table : to->tables) table.DropBehindWindow();
  to->computed = n_tokens;
  to->indexed = std::min(from.indexed, n_tokens / page_tokens() * page_tokens());
}

int64_t StateMemory::BytesOf(const Session& session) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < session.tables.size(); ++g) {
    bytes += session.tables[g].pages_held() * layout_.page_bytes[g];
  }
  return bytes;
}

int64_t StateMemory::PagesOf(const Session& session) const {
  int64_t pages = 0;
  for (const PageTable& table : session.tables) pages += table.pages_held();
  return pages;
}

int64_t StateMemory::SharedPagesOf(const Session& session) const {
  int64_t pages = 0;
  for (const PageTable& table : session.tables) pages += table.SharedPages();
  return pages;
}

StatusOr<std::vector<StateMemory::GroupPages>> StateMemory::ReadPages(const Session& session) {
  std::vector<GroupPages> groups(session.tables.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const PageTable& table = session.tables[g];
    groups[g].first_page = table.first_present();
    const int64_t n_pages = static_cast<int64_t>(table.pages().size());
    for (int64_t i = table.first_present(); i < n_pages; ++i) {
      const int64_t tokens = std::min<int64_t>(page_tokens(), session.computed - i * page_tokens());
      std::vector<std::byte> bytes(static_cast<size_t>(layout_.page_bytes[g]));
      WEFT_RETURN_IF_ERROR(executor_->ReadPage(static_cast<int>(g),
                                               table.pages()[static_cast<size_t>(i)],
                                               static_cast<int>(tokens), bytes));
      groups[g].pages.push_back(std::move(bytes));
    }
  }
  return groups;
}

Status StateMemory::WritePages(Session* session, int64_t n_tokens,
                               std::span<const GroupPages> groups) {
  WEFT_CHECK(session->computed == 0, "restoring over a session that has state");
  session->tables.clear();
  EnsureTables(session);
  if (groups.size() != n_groups()) {
    return DataLoss("the saved state has ", groups.size(), " layer groups, the model has ",
                    n_groups());
  }
  std::vector<int64_t> pages;
  for (size_t g = 0; g < n_groups(); ++g) {
    const int64_t entries = shapes_[g].PagesFor(n_tokens);
    const int64_t count = static_cast<int64_t>(groups[g].pages.size());
    if (groups[g].first_page < 0 || groups[g].first_page + count != entries ||
        groups[g].first_page * page_tokens() > shapes_[g].VisibleFrom(n_tokens)) {
      return DataLoss("the saved pages of layer group ", g, " do not fit ", n_tokens, " tokens");
    }
    for (const auto& page : groups[g].pages) {
      if (static_cast<int64_t>(page.size()) != layout_.page_bytes[g]) {
        return DataLoss("a saved page of layer group ", g, " has ", page.size(), " bytes, not ",
                        layout_.page_bytes[g]);
      }
    }
    pages.push_back(count);
  }
  WEFT_RETURN_IF_ERROR(MakeRoom(pages));
  const auto fill = [&]() -> Status {
    for (size_t g = 0; g < n_groups(); ++g) {
      PageTable& table = session->tables[g];
      WEFT_RETURN_IF_ERROR(table.Refill(n_tokens, groups[g].first_page));
      WEFT_RETURN_IF_ERROR(GrowFor(g, table, static_cast<size_t>(groups[g].first_page)));
      for (size_t i = 0; i < groups[g].pages.size(); ++i) {
        const PageId page = table.pages()[static_cast<size_t>(groups[g].first_page) + i];
        WEFT_RETURN_IF_ERROR(executor_->WritePage(static_cast<int>(g), page, groups[g].pages[i]));
      }
    }
    return OkStatus();
  };
  const Status status = fill();
  if (!status.ok()) {
    session->tables.clear();
    return status;
  }
  session->computed = n_tokens;
  session->indexed = 0;
  return OkStatus();
}

int64_t StateMemory::used_bytes() const {
  int64_t bytes = 0;
  for (size_t g = 0; g < n_groups(); ++g) bytes += pools_[g]->in_use() * layout_.page_bytes[g];
  return bytes;
}

int64_t StateMemory::pages_used() const {
  int64_t pages = 0;
  for (const auto& pool : pools_) pages += pool->in_use();
  return pages;
}

int64_t StateMemory::page_budget() const {
  int64_t bytes = 0;
  for (const int64_t page : layout_.page_bytes) bytes += page;
  return bytes == 0 ? 0 : budget_bytes_ / bytes * static_cast<int64_t>(n_groups());
}

int64_t StateMemory::pages_in_index() const {
  int64_t pages = 0;
  for (const int64_t n : index_->Stats().pages) pages += n;
  return pages;
}

int64_t StateMemory::index_nodes() const { return index_->Stats().nodes; }
int64_t StateMemory::index_evicted_pages() const { return index_->Stats().evicted_pages; }

void StateMemory::ReturnFreed() {
  for (size_t g = 0; g < n_groups(); ++g) {
    std::vector<int32_t> freed = pools_[g]->TakeFreed();
    // The backend never heard of those that it had no memory for.
    std::erase_if(freed, [&](int32_t page) { return page >= grown_[g]; });
    if (!freed.empty()) executor_->DiscardPages(static_cast<int>(g), freed);
  }
}

Status StateMemory::CheckIntegrity(const SessionTable& sessions) const {
  Status status = index_->CheckIntegrity();
  sessions.ForEach([&](Session* session) {
    if (!status.ok()) return;
    for (const PageTable& table : session->tables) {
      if (status.ok()) status = table.CheckIntegrity();
      if (status.ok() && table.n_tokens() != session->computed) {
        status = Internal("a session computed ", session->computed, " tokens, but a table holds ",
                          table.n_tokens());
      }
    }
    if (session->computed > static_cast<int64_t>(session->tokens.size())) {
      status = Internal("a session computed more tokens than it has");
    }
  });
  for (size_t g = 0; g < n_groups() && status.ok(); ++g) {
    std::vector<int32_t> counts;
    index_->AddPageCounts(static_cast<int>(g), &counts);
    sessions.ForEach([&](Session* session) {
      if (!session->tables.empty()) session->tables[g].AddCounts(&counts);
    });
    status = pools_[g]->CheckIntegrity(counts);
  }
  return status;
}

}  // namespace weft
