#include "tests/support/memory_checker.h"

#include <algorithm>

#include "base/strings.h"
#include "tests/support/watched_accesses.h"

namespace weft::testing {

MemoryChecker::Allocation* MemoryChecker::Find(const void* p, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return nullptr;
  Allocation& found = (--next)->second;
  return at - found.begin + bytes <= found.written.size() ? &found : nullptr;
}

void MemoryChecker::Tell(const char* what, const std::string& where) {
  const std::string text = StrCat("kernel ", kernel_->name, " ", what, " at ", where);
  if (std::ranges::count(faults_, text) == 0) faults_.push_back(text);
}

void MemoryChecker::OnAllocation(const void* p, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  allocations_[begin] = {begin, std::vector<bool>(bytes)};
}
void MemoryChecker::OnFree(const void* p) { allocations_.erase(reinterpret_cast<uintptr_t>(p)); }

void MemoryChecker::OnDeviceCopy(const void* to, const void* from, size_t bytes) {
  Allocation* const target = Find(to, bytes);
  if (target == nullptr) return;
  const auto first = target->written.begin() +
                     static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(to) - target->begin);
  const Allocation* const source = from == nullptr ? nullptr : Find(from, bytes);
  if (source == nullptr) {
    std::fill_n(first, bytes, true);
    return;
  }
  std::copy_n(source->written.begin() +
                  static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(from) - source->begin),
              bytes, first);
}

// The source of a copy to shared memory need not be initialized: a kernel may copy a whole page but
// use only some of its positions.
void MemoryChecker::OnCopy(const void* from, size_t bytes, const device::emulator::Site& site) {
  ++n_accesses_;
  if (Find(from, bytes) != nullptr) return;
  Tell("copies what is not allocated", StrCat(site.file_name(), ":", site.line()));
}

void MemoryChecker::OnGlobal(const void* p, size_t bytes, bool writes, uintptr_t code) {
  ++n_accesses_;
  Allocation* const found = Find(p, bytes);
  if (found == nullptr) {
    Tell(writes ? "writes what is not allocated" : "reads what is not allocated", CodeText(code));
    return;
  }
  const auto first = found->written.begin() +
                     static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(p) - found->begin);
  const auto n = static_cast<std::ptrdiff_t>(bytes);
  if (writes) {
    std::fill_n(first, n, true);
  } else if (std::find(first, first + n, false) != first + n) {
    Tell("reads what nobody has written", CodeText(code));
  }
}

}  // namespace weft::testing
