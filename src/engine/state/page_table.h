// A session's page table for one layer group: which page holds which positions.
//
// Entry i holds the positions [i * page_tokens, (i + 1) * page_tokens). The table owns only one
// reference to each of its pages. Pages are shared between tables and with the prefix index.
// A shared page is read-only: before this session writes to it, a private copy replaces
// the page:
//
//   WEFT_ASSIGN_OR_RETURN(const PageCopy copy, table.MakeWritable());
//   if (copy.needed()) WEFT_RETURN_IF_ERROR(store->CopyPage(group, copy.from, ...));
//   WEFT_RETURN_IF_ERROR(table.Append(n));
//
// A group with a window does not need pages that no later token can see: DropBefore frees them, and
// the first entries become kNoPage. The present pages always form one run that reaches the last
// entry.
//
// Threads: as PagePool. The pool must outlive the table.
#ifndef WEFT_ENGINE_STATE_PAGE_TABLE_H_
#define WEFT_ENGINE_STATE_PAGE_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/state_ids.h"
#include "base/status.h"
#include "engine/state/page_pool.h"

namespace weft {

// Shared by all tables of a layer group.
struct GroupShape {
  int page_tokens = 0;
  int64_t window = 0;  // position j is visible to i iff i - j < window; 0: all

  // The first position visible to the token at `position`.
  int64_t VisibleFrom(int64_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  // Number of pages that hold the first `n_tokens` positions.
  int64_t PagesFor(int64_t n_tokens) const { return (n_tokens + page_tokens - 1) / page_tokens; }
};

// Work for the caller: copy the first `n_tokens` positions of one page to another.
struct PageCopy {
  PageId from = kNoPage;
  PageId to = kNoPage;
  int n_tokens = 0;
  bool needed() const { return to != kNoPage; }
};

class PageTable {
 public:
  PageTable(PagePool* pool, GroupShape shape);
  ~PageTable() { Release(); }
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;

  // A table of `n_tokens` that takes a reference to each of `pages`: one per entry, kNoPage for
  // absent first ones. The last page may hold more positions than the table counts. REQUIRES: as
  // many pages as the tokens take.
  static PageTable OfPages(PagePool* pool, GroupShape shape, std::span<const PageId> pages,
                           int64_t n_tokens);

  const GroupShape& shape() const { return shape_; }
  int64_t n_tokens() const { return n_tokens_; }
  // One per entry; valid until the table changes.
  std::span<const PageId> pages() const { return pages_; }
  int64_t first_present() const { return first_present_; }
  int64_t pages_held() const { return static_cast<int64_t>(pages_.size()) - first_present_; }
  // Whether the last page is partly filled and has exactly one other holder.
  bool SharesTailWithOne() const {
    return LastIsPartial() && pages_.back() != kNoPage && pool_->use_count(pages_.back()) == 2;
  }

  // Whether everything that the token at position `n_tokens` can see is present, so that the
  // session can continue there. REQUIRES: 0 <= n_tokens <= n_tokens().
  bool Covers(int64_t n_tokens) const;

  // Pages that MakeWritable and Append(n) together will allocate.
  int64_t PagesToAppend(int64_t n) const;

  // If the last page is partly filled and shared, replaces it by a fresh one and returns the copy
  // to make; the old page remains in use by its other owners, so copy it before any of them lets
  // go. RESOURCE_EXHAUSTED: nothing changed.
  StatusOr<PageCopy> MakeWritable();
  // Restores the previous page after a failed copy. REQUIRES: MakeWritable has just returned
  // `copy`, and the other owners still hold the page.
  void UndoCopy(const PageCopy& copy);

  // Adds `n` positions, allocating their pages. All or nothing: on RESOURCE_EXHAUSTED nothing has
  // changed. REQUIRES: Covers(n_tokens()), and the last page is writable (MakeWritable).
  Status Append(int64_t n);

  // Fills an empty table with fresh pages for `n_tokens` positions, leaving entries before
  // `first_present` absent: for restoring a state without the pages that fell out of its window.
  // All or nothing, like Append. REQUIRES: the table is empty, and will cover its end.
  Status Refill(int64_t n_tokens, int64_t first_present);

  // A table of the first `n_tokens` positions that shares this one's pages (including present ones
  // before its window). O(pages), copies nothing.
  // REQUIRES: 0 <= n_tokens <= n_tokens().
  PageTable Share(int64_t n_tokens) const;

  // Releases the pages that lie wholly before `position`. REQUIRES: 0 <= position <= n_tokens().
  void DropBefore(int64_t position);
  // Releases the pages that no token from n_tokens() on can see.
  void DropBehindWindow() { DropBefore(shape_.VisibleFrom(n_tokens_)); }

  // Discards the positions from `n_tokens` on. Check Covers(n_tokens) first: a table that does not
  // cover its end cannot be appended to. REQUIRES: 0 <= n_tokens <= n_tokens().
  void TruncateTo(int64_t n_tokens);
  // Releases every page, leaving an empty table.
  void Release() { TruncateTo(0); }

  // Exchanges a page for another with the same contents, taking a reference to it. REQUIRES: the
  // entry is present and complete.
  void ReplacePage(int64_t entry, PageId page);

  // Adds this table's references to the counts by page id.
  void AddCounts(std::vector<int32_t>* counts) const;
  Status CheckIntegrity() const;

 private:
  Status AllocatePages(int64_t n);  // all or none
  bool LastIsPartial() const { return n_tokens_ % shape_.page_tokens != 0; }

  PagePool* pool_;
  GroupShape shape_;
  int64_t n_tokens_ = 0;
  int64_t first_present_ = 0;  // entries before it are kNoPage, the others are not
  std::vector<PageId> pages_;  // shape_.PagesFor(n_tokens_) entries
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PAGE_TABLE_H_
