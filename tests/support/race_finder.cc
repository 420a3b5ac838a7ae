#include "tests/support/race_finder.h"

#include <algorithm>

#include "base/strings.h"
#include "tests/support/watched_accesses.h"

namespace weft::testing {

void RaceFinder::OnLaunch(const device::Kernel& kernel) {
  kernel_ = &kernel;
  ++launch_;
  block_ = 0;
  barrier_ = 0;
  arrived_.clear();
}

void RaceFinder::OnBlockEnd(const device::Kernel& /*kernel*/) {
  ++block_;
  passed_.clear();
  ++barrier_;
}

void RaceFinder::OnCopy(const void* from, size_t bytes, const device::emulator::Site& /*site*/) {
  OnGlobal(from, bytes, false, 0);
}

// Writes after the block's arrival are not told apart from writes before it.
void RaceFinder::OnArrival(const void* count, bool last) {
  std::vector<int64_t>& blocks = arrived_[count];
  if (last) passed_.insert(passed_.end(), blocks.begin(), blocks.end());
  blocks.push_back(block_);
}

bool RaceFinder::Meet(const Use& before, const Use& now) const {
  if (before.launch != now.launch) return false;
  if (before.block != now.block) return std::ranges::count(passed_, before.block) == 0;
  return before.barrier == now.barrier && before.thread != now.thread;
}

void RaceFinder::Byte::NoteRead(const Use& now) {
  const bool same_launch = read.launch == now.launch;
  const bool same_barrier = same_launch && read.block == now.block && read.barrier == now.barrier;
  if (!same_launch) other_blocks = false;
  if (same_launch && read.block != now.block) other_blocks = true;
  other_threads = same_barrier && (other_threads || read.thread != now.thread);
  if (!same_barrier) read = now;
}

void RaceFinder::Tell(const Use& before, const char* did, const Use& now, const char* does) {
  const std::string text = StrCat("kernel ", kernel_->name, " ", does, " at ", CodeText(now.code),
                                  " what another ", before.block == now.block ? "thread" : "block",
                                  " ", did, " at ", CodeText(before.code));
  if (std::ranges::count(races_, text) == 0) races_.push_back(text);
}

void RaceFinder::OnGlobal(const void* p, size_t bytes, bool writes, uintptr_t code) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  const Use now = {launch_, block_, barrier_, device::emulator::place.thread, code};
  for (uintptr_t at = begin; at < begin + bytes; ++at) {
    std::unique_ptr<Page>& page = pages_[at / kPage];
    if (page == nullptr) page = std::make_unique<Page>();
    Byte& byte = (*page)[at % kPage];
    if (Meet(byte.write, now)) Tell(byte.write, "writes", now, writes ? "writes" : "reads");
    if (!writes) {
      byte.NoteRead(now);
      continue;
    }
    const bool others =
        byte.read.launch == now.launch &&
        (byte.other_blocks || (byte.other_threads && byte.read.barrier == now.barrier));
    if (others || Meet(byte.read, now)) Tell(byte.read, "reads", now, "writes");
    byte.write = now;
  }
}

}  // namespace weft::testing
