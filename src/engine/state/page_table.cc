#include "engine/state/page_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft {

PageTable::PageTable(PagePool* pool, GroupShape shape) : pool_(pool), shape_(shape) {
  WEFT_CHECK(shape.page_tokens > 0 && shape.window >= 0, "a group's shape");
}

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_),
      shape_(other.shape_),
      n_tokens_(std::exchange(other.n_tokens_, 0)),
      first_present_(std::exchange(other.first_present_, 0)),
      pages_(std::exchange(other.pages_, {})) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this != &other) {
    Release();
    pool_ = other.pool_;
    shape_ = other.shape_;
    n_tokens_ = std::exchange(other.n_tokens_, 0);
    first_present_ = std::exchange(other.first_present_, 0);
    pages_ = std::exchange(other.pages_, {});
  }
  return *this;
}

PageTable PageTable::OfPages(PagePool* pool, GroupShape shape, std::span<const PageId> pages,
                             int64_t n_tokens) {
  WEFT_CHECK(std::ssize(pages) == shape.PagesFor(n_tokens), "one page per entry");
  PageTable table(pool, shape);
  table.pages_.assign(pages.begin(), pages.end());
  table.n_tokens_ = n_tokens;
  const auto present =
      std::find_if(pages.begin(), pages.end(), [](PageId page) { return page != kNoPage; });
  table.first_present_ = present - pages.begin();
  for (auto page = present; page != pages.end(); ++page) pool->Ref(*page);
  return table;
}

bool PageTable::Covers(int64_t n_tokens) const {
  WEFT_CHECK(n_tokens >= 0 && n_tokens <= n_tokens_, "a position inside the table");
  const int64_t first_page = shape_.VisibleFrom(n_tokens) / shape_.page_tokens;
  return first_present_ <= first_page || shape_.PagesFor(n_tokens) <= first_page;
}

int64_t PageTable::PagesToAppend(int64_t n) const {
  if (n == 0) return 0;
  const bool copies = LastIsPartial() && pool_->use_count(pages_.back()) > 1;
  return shape_.PagesFor(n_tokens_ + n) - shape_.PagesFor(n_tokens_) + (copies ? 1 : 0);
}

StatusOr<PageCopy> PageTable::MakeWritable() {
  if (!LastIsPartial()) return PageCopy{};
  WEFT_CHECK(pages_.back() != kNoPage, "the page to be written is present");
  if (pool_->use_count(pages_.back()) == 1) return PageCopy{};
  WEFT_ASSIGN_OR_RETURN(const PageId fresh, pool_->Allocate());
  const PageCopy copy{pages_.back(), fresh, static_cast<int>(n_tokens_ % shape_.page_tokens)};
  pool_->Unref(pages_.back());
  pages_.back() = fresh;
  return copy;
}

void PageTable::UndoCopy(const PageCopy& copy) {
  if (!copy.needed()) return;
  WEFT_CHECK(!pages_.empty() && pages_.back() == copy.to, "the last copy is undone");
  pool_->Ref(copy.from);
  pool_->Unref(std::exchange(pages_.back(), copy.from));
}

Status PageTable::Append(int64_t n) {
  WEFT_CHECK(n >= 0, "a count of tokens");
  if (n == 0) return OkStatus();
  WEFT_CHECK(Covers(n_tokens_), "the pages that the new tokens see are present");
  WEFT_CHECK(!LastIsPartial() || pool_->use_count(pages_.back()) == 1,
             "a shared page is not written");
  WEFT_RETURN_IF_ERROR(AllocatePages(shape_.PagesFor(n_tokens_ + n) - shape_.PagesFor(n_tokens_)));
  n_tokens_ += n;
  return OkStatus();
}

Status PageTable::AllocatePages(int64_t n) {
  if (n > pool_->available()) {
    return ResourceExhausted("need ", n, " more of ", pool_->what(), "; free are ",
                             pool_->available(), " of ", pool_->budget());
  }
  for (int64_t i = 0; i < n; ++i) {
    WEFT_ASSIGN_OR_RETURN(const PageId page, pool_->Allocate());
    pages_.push_back(page);
  }
  return OkStatus();
}

Status PageTable::Refill(int64_t n_tokens, int64_t first_present) {
  const int64_t n_pages = shape_.PagesFor(n_tokens);
  WEFT_CHECK(n_tokens_ == 0 && first_present >= 0 && first_present <= n_pages,
             "an empty table is filled");
  pages_.assign(static_cast<size_t>(first_present), kNoPage);
  if (Status status = AllocatePages(n_pages - first_present); !status.ok()) {
    pages_.clear();
    return status;
  }
  n_tokens_ = n_tokens;
  first_present_ = first_present;
  WEFT_CHECK(Covers(n_tokens), "the pages that the next token sees are present");
  return OkStatus();
}

PageTable PageTable::Share(int64_t n_tokens) const {
  WEFT_CHECK(n_tokens >= 0 && n_tokens <= n_tokens_, "a position inside the table");
  const size_t n_pages = static_cast<size_t>(shape_.PagesFor(n_tokens));
  return OfPages(pool_, shape_, std::span(pages_).first(n_pages), n_tokens);
}

void PageTable::DropBefore(int64_t position) {
  WEFT_CHECK(position >= 0 && position <= n_tokens_, "a position inside the table");
  const int64_t end = position / shape_.page_tokens;
  for (; first_present_ < end; ++first_present_) {
    PageId& page = pages_[static_cast<size_t>(first_present_)];
    pool_->Unref(page);
    page = kNoPage;
  }
}

void PageTable::TruncateTo(int64_t n_tokens) {
  WEFT_CHECK(n_tokens >= 0 && n_tokens <= n_tokens_, "a position inside the table");
  const int64_t n_pages = shape_.PagesFor(n_tokens);
  while (static_cast<int64_t>(pages_.size()) > n_pages) {
    if (pages_.back() != kNoPage) pool_->Unref(pages_.back());
    pages_.pop_back();
  }
  first_present_ = std::min(first_present_, n_pages);
  n_tokens_ = n_tokens;
}

void PageTable::ReplacePage(int64_t entry, PageId page) {
  WEFT_CHECK(entry >= first_present_ && (entry + 1) * shape_.page_tokens <= n_tokens_,
             "a present, whole page");
  pool_->Ref(page);
  pool_->Unref(std::exchange(pages_[static_cast<size_t>(entry)], page));
}

void PageTable::AddCounts(std::vector<int32_t>* counts) const {
  for (size_t i = static_cast<size_t>(first_present_); i < pages_.size(); ++i) {
    AddCount(counts, pages_[i]);
  }
}

Status PageTable::CheckIntegrity() const {
  const int64_t size = static_cast<int64_t>(pages_.size());
  if (size != shape_.PagesFor(n_tokens_) || first_present_ < 0 || first_present_ > size) {
    return Internal("page table of ", n_tokens_, " tokens has ", size, " entries, the first ",
                    first_present_, " absent");
  }
  for (int64_t i = 0; i < size; ++i) {
    const PageId page = pages_[static_cast<size_t>(i)];
    const bool held = page >= 0 && page < pool_->extent() && pool_->use_count(page) > 0;
    if (i < first_present_ ? page != kNoPage : !held) {
      return Internal("page table entry ", i, " is page ", page, ", which is not held");
    }
  }
  return OkStatus();
}

}  // namespace weft
