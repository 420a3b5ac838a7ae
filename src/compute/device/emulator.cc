#include "compute/device/emulator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "compute/device/stack_switch.h"

namespace weft::device::emulator {

constinit thread_local ThreadPlace place;
constinit thread_local int64_t n_tiles = 0;
constinit thread_local Observer* observer = nullptr;

namespace {

constexpr int kSharedWords = kSharedBytes / 4;
constexpr uint32_t kRubbish = 0x7FC0DEAD;  // a NaN

enum class Stage { kReady, kAtBarrier, kAtExchange, kDone };

struct Thread {
  Stage stage = Stage::kReady;
  Site site;            // the place where it waits
  LaneWords given;      // contribution to an exchange
  int shared_used = 0;  // words requested so far
};

// The threads that used a word of shared memory since the last barrier.
struct WordUse {
  static constexpr int kNobody = -1, kSeveral = -2;
  int epoch = -1;
  int writer = kNobody;
  int reader = kNobody;
};

// Four words that a thread is copying from global memory.
struct Copy {
  int word;
  const void* from;
  int group;  // the thread's copy group
  Site site;
};
struct Copies {
  std::vector<Copy> under_way;
  int n_groups = 0;  // committed
};

// The launch that runs on this thread, and the first rule that it broke.
struct Launch {
  const Kernel* kernel = nullptr;
  const void* args = nullptr;
  Status status;

  void Complain(std::string_view what, int thread, const Site& site) {
    if (!status.ok()) return;
    status = Internal("kernel ", kernel->name, ", block (", place.block_x, ", ", place.block_y,
                      ", ", place.block_z, "), thread ", thread, ": ", what, " at ",
                      site.file_name(), ":", site.line());
  }
};
thread_local Launch launch;

// Runs the blocks of a launch one at a time, on the calling thread's stack and its fibers'.
class Block {
 public:
  // Errors are reported in `launch`.
  void Run(int n_threads, Order order);

  void WaitForBlock(const Site& site) { Stop(Stage::kAtBarrier, site); }
  const LaneWords* Exchange(const LaneWords& words, const Site& site);
  int TakeShared(int n_words, const Site& site);
  int TakeDynamic(int first, int n_words, const Site& site);
  uint32_t Read(int word, const Site& site);
  void Write(int word, uint32_t value, const Site& site);
  void CheckFour(int word, const Site& site);
  void BeginCopy(int word, const void* from, const Site& site);
  void CommitCopies() { ++copies().n_groups; }
  void WaitCopies(int n_left);
  // Whether the address is on the running thread's stack or in a warp's exchanged words.
  bool Holds(const void* p) const {
    const auto at = reinterpret_cast<uintptr_t>(p);
    return fibers_[static_cast<size_t>(place.thread)]->Holds(p) ||
           at - reinterpret_cast<uintptr_t>(taken_.data()) < taken_.size() * sizeof(LaneWords);
  }

 private:
  static void Body(void* self);
  void Stop(Stage stage, const Site& site);
  // Resumes every ready thread until it waits or ends.
  void RunReady(Order order);
  // Makes threads ready whose exchange or barrier is complete; false if there are none.
  bool Release();
  bool ReleaseWarp(int first);
  bool ReleaseBlock();
  void Reset(int n_threads);
  // Whether the word exists. It may not if a rule was broken before.
  bool IsWord(int word, const Site& site);
  WordUse& UseOf(int word);
  void NoteWrite(int word, const Site& site);
  void CheckCopies();
  Thread& current() { return threads_[static_cast<size_t>(place.thread)]; }
  Copies& copies() { return copies_[static_cast<size_t>(place.thread)]; }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Thread> threads_;
  std::vector<LaneWords> taken_;  // each thread's contribution to its warp's last exchange
  std::vector<Copies> copies_;    // per thread
  std::array<uint32_t, kSharedWords> shared_;
  std::array<WordUse, kSharedWords> uses_;
  // Whether a copy into the word is pending.
  std::array<bool, kSharedWords> awaited_ = {};
  int n_awaited_ = 0;
  int n_rubbish_ = kSharedWords;  // number of words that a block may have written
  int epoch_ = 0;
};

// One per thread, created at its first cooperative launch. `running` is null while none runs.
thread_local std::unique_ptr<Block> own_block;
thread_local Block* running = nullptr;

void Block::Body(void* self) {
  Block* const block = static_cast<Block*>(self);
  launch.kernel->body(launch.args);
  block->CheckCopies();
  block->Stop(Stage::kDone, Site());
}

void Block::Stop(Stage stage, const Site& site) {
  Thread& thread = current();
  thread.stage = stage;
  thread.site = site;
  fibers_[static_cast<size_t>(place.thread)]->Suspend();
}

const LaneWords* Block::Exchange(const LaneWords& words, const Site& site) {
  current().given = words;
  Stop(Stage::kAtExchange, site);
  return &taken_[static_cast<size_t>(place.thread / kWarpLanes * kWarpLanes)];
}

int Block::TakeShared(int n_words, const Site& site) {
  Thread& thread = current();
  const int first = launch.kernel->dynamic_bytes / 4 + thread.shared_used;
  thread.shared_used += (n_words + 3) / 4 * 4;
  const int end = launch.kernel->dynamic_bytes / 4 + thread.shared_used;
  n_rubbish_ = std::max(n_rubbish_, std::min(end, kSharedWords));
  if (end <= kSharedWords && thread.shared_used <= kStaticSharedBytes / 4) return first;
  launch.Complain("more shared memory than a block has", place.thread, site);
  thread.shared_used = 0;
  return 0;
}

int Block::TakeDynamic(int first, int n_words, const Site& site) {
  if (first % 4 == 0 && 4 * (first + n_words) <= launch.kernel->dynamic_bytes) return first;
  launch.Complain("more shared memory than the kernel is launched with, or not aligned",
                  place.thread, site);
  return 0;
}

bool Block::IsWord(int word, const Site& site) {
  if (word >= 0 && word < kSharedWords) return true;
  launch.Complain("uses shared memory that the block does not have", place.thread, site);
  return false;
}

WordUse& Block::UseOf(int word) {
  WordUse& use = uses_[static_cast<size_t>(word)];
  if (use.epoch != epoch_) use = {epoch_, WordUse::kNobody, WordUse::kNobody};
  return use;
}

uint32_t Block::Read(int word, const Site& site) {
  if (!IsWord(word, site)) return kRubbish;
  WordUse& use = UseOf(word);
  const int me = place.thread;
  if (use.writer != WordUse::kNobody && use.writer != me) {
    launch.Complain("reads shared memory that another thread wrote since the last barrier", me,
                    site);
  }
  if (awaited_[static_cast<size_t>(word)]) {
    launch.Complain("reads shared memory before the copy into it was waited for", me, site);
  }
  if (use.reader != me) use.reader = use.reader == WordUse::kNobody ? me : WordUse::kSeveral;
  return shared_[static_cast<size_t>(word)];
}

void Block::NoteWrite(int word, const Site& site) {
  WordUse& use = UseOf(word);
  const int me = place.thread;
  if (use.writer != WordUse::kNobody && use.writer != me) {
    launch.Complain("writes shared memory that another thread wrote since the last barrier", me,
                    site);
  }
  if (use.reader != WordUse::kNobody && use.reader != me) {
    launch.Complain("writes shared memory that another thread read since the last barrier", me,
                    site);
  }
  if (awaited_[static_cast<size_t>(word)]) {
    launch.Complain("writes shared memory before the copy into it was waited for", me, site);
  }
  use.writer = me;
}

void Block::Write(int word, uint32_t value, const Site& site) {
  if (!IsWord(word, site)) return;
  NoteWrite(word, site);
  shared_[static_cast<size_t>(word)] = value;
}

void Block::CheckFour(int word, const Site& site) {
  if (word % 4 == 0) return;
  launch.Complain("uses four words of shared memory that are not aligned", place.thread, site);
}

void Block::BeginCopy(int word, const void* from, const Site& site) {
  CheckFour(word, site);
  if (!IsWord(word, site) || !IsWord(word + 3, site)) return;
  for (int i = word; i < word + 4; ++i) {
    NoteWrite(i, site);
    awaited_[static_cast<size_t>(i)] = true;
  }
  n_awaited_ += 4;
  copies().under_way.push_back({word, from, copies().n_groups, site});
}

// Completes copies. Waiting makes them visible to this thread; for the race check, others see them
// as writes made now.
void Block::WaitCopies(int n_left) {
  std::vector<Copy>& under_way = copies().under_way;
  const int end = copies().n_groups - n_left;
  const auto left = std::ranges::find_if(under_way, [&](const Copy& c) { return c.group >= end; });
  for (auto copy = under_way.begin(); copy != left; ++copy) {
    std::memcpy(&shared_[static_cast<size_t>(copy->word)], copy->from, sizeof(Words4));
    for (int i = copy->word; i < copy->word + 4; ++i) {
      awaited_[static_cast<size_t>(i)] = false;
      UseOf(i).writer = place.thread;
    }
    n_awaited_ -= 4;
  }
  under_way.erase(under_way.begin(), left);
}

// Called at the end of a thread.
void Block::CheckCopies() {
  if (copies().under_way.empty()) return;
  launch.Complain("ends before it has waited for the copy that it began", place.thread,
                  copies().under_way[0].site);
}

void Block::RunReady(Order order) {
  const int n = static_cast<int>(threads_.size());
  for (int i = 0; i < n; ++i) {
    place.thread = order == Order::kAscending ? i : n - 1 - i;
    if (current().stage == Stage::kReady) fibers_[static_cast<size_t>(place.thread)]->Resume();
  }
}

bool SameSite(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

bool Block::ReleaseWarp(int first) {
  Thread* const warp = &threads_[static_cast<size_t>(first)];
  for (int i = 0; i < kWarpLanes; ++i) {
    if (warp[i].stage != Stage::kAtExchange || !SameSite(warp[i].site, warp[0].site)) return false;
  }
  for (int i = 0; i < kWarpLanes; ++i) {
    taken_[static_cast<size_t>(first + i)] = warp[i].given;
    warp[i].stage = Stage::kReady;
  }
  return true;
}

bool Block::ReleaseBlock() {
  for (const Thread& thread : threads_) {
    if (thread.stage != Stage::kAtBarrier || !SameSite(thread.site, threads_[0].site)) return false;
  }
  for (Thread& thread : threads_) thread.stage = Stage::kReady;
  ++epoch_;
  if (observer != nullptr) observer->OnBarrier();
  return true;
}

bool Block::Release() {
  bool released = false;
  for (size_t first = 0; first < threads_.size(); first += kWarpLanes) {
    released |= ReleaseWarp(static_cast<int>(first));
  }
  return released || ReleaseBlock();
}

void Block::Reset(int n_threads) {
  const auto n = static_cast<size_t>(n_threads);
  threads_.assign(n, Thread());
  taken_.resize(n);
  copies_.resize(std::max(copies_.size(), n));
  for (Copies& copies : copies_) {
    copies.under_way.clear();
    copies.n_groups = 0;
  }
  while (fibers_.size() < n) fibers_.push_back(std::make_unique<Fiber>());
  std::fill_n(shared_.begin(), n_rubbish_, kRubbish);
  if (n_awaited_ > 0) awaited_.fill(false);  // left over if a previous launch broke a rule
  n_awaited_ = 0;
  n_rubbish_ = launch.kernel->dynamic_bytes / 4;
  ++epoch_;
}

void Block::Run(int n_threads, Order order) {
  Reset(n_threads);
  for (size_t i = 0; i < threads_.size(); ++i) fibers_[i]->Start(&Block::Body, this);
  running = this;
  while (true) {
    RunReady(order);
    const auto waits = [](const Thread& thread) { return thread.stage != Stage::kDone; };
    const auto waiting = std::ranges::find_if(threads_, waits);
    if (waiting == threads_.end() || !launch.status.ok()) break;
    if (Release()) continue;
    const int thread = static_cast<int>(waiting - threads_.begin());
    launch.Complain(waiting->stage == Stage::kAtBarrier
                        ? "waits at a barrier that other threads of the block do not reach"
                        : "waits for an exchange that other lanes of the warp do not take part in",
                    thread, waiting->site);
  }
  running = nullptr;
}

// Runs a kernel whose threads are independent: plain calls on the caller's stack.
void RunFree(int n_threads, Order order) {
  for (int i = 0; i < n_threads; ++i) {
    place.thread = order == Order::kAscending ? i : n_threads - 1 - i;
    launch.kernel->body(launch.args);
  }
}

Status CheckShape(const Kernel& kernel, const LaunchShape& shape) {
  const bool fits = shape.grid_x >= 1 && shape.grid_y >= 1 && shape.grid_z >= 1 &&
                    shape.grid_y <= kMaxGridYz && shape.grid_z <= kMaxGridYz &&
                    shape.threads >= 1 &&
                    shape.threads <= std::min(kMaxThreads, kernel.max_threads) &&
                    (!kernel.cooperates || shape.threads % kWarpLanes == 0);
  if (fits) return OkStatus();
  return Internal("kernel ", kernel.name, " cannot be launched with ", shape.grid_x, " x ",
                  shape.grid_y, " x ", shape.grid_z, " blocks of ", shape.threads, " threads");
}

}  // namespace

Status Run(const Kernel& kernel, const LaunchShape& shape, const void* args, Order order) {
  WEFT_RETURN_IF_ERROR(CheckShape(kernel, shape));
  if (kernel.cooperates && own_block == nullptr) own_block = std::make_unique<Block>();
  const int64_t n_blocks = int64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  launch = {&kernel, args, OkStatus()};
  if (observer != nullptr) observer->OnLaunch(kernel);
  place.n_threads = shape.threads;
  place.grid_x = shape.grid_x;
  for (int64_t i = 0; i < n_blocks; ++i) {
    const int64_t block = order == Order::kAscending ? i : n_blocks - 1 - i;
    place.block_x = static_cast<int>(block % shape.grid_x);
    place.block_y = static_cast<int>(block / shape.grid_x % shape.grid_y);
    place.block_z = static_cast<int>(block / shape.grid_x / shape.grid_y);
    if (kernel.cooperates) {
      own_block->Run(shape.threads, order);
    } else {
      RunFree(shape.threads, order);
    }
    if (observer != nullptr) observer->OnBlockEnd(kernel);
    if (!launch.status.ok()) return launch.status;
  }
  return OkStatus();
}

namespace {

Block& Running() {
  WEFT_CHECK(running != nullptr, "a kernel that is declared free waits for other threads");
  return *running;
}

}  // namespace

void WaitForBlock(const Site& site) { Running().WaitForBlock(site); }
const LaneWords* ExchangeInWarp(const LaneWords& words, const Site& site) {
  return Running().Exchange(words, site);
}
int TakeShared(int n_words, const Site& site) { return Running().TakeShared(n_words, site); }
int TakeDynamic(int first, int n_words, const Site& site) {
  return Running().TakeDynamic(first, n_words, site);
}
uint32_t ReadShared(int word, const Site& site) {
  if (observer != nullptr) observer->OnShared(word, 1, site);
  return Running().Read(word, site);
}
void WriteShared(int word, uint32_t value, const Site& site) {
  if (observer != nullptr) observer->OnShared(word, 1, site);
  Running().Write(word, value, site);
}
Words4 ReadSharedWords(int word, const Site& site) {
  if (observer != nullptr) observer->OnShared(word, 4, site);
  Block& block = Running();
  block.CheckFour(word, site);
  Words4 x;
  for (int i = 0; i < 4; ++i) x.w[i] = block.Read(word + i, site);
  return x;
}
void WriteSharedWords(int word, const Words4& x, const Site& site) {
  if (observer != nullptr) observer->OnShared(word, 4, site);
  Block& block = Running();
  block.CheckFour(word, site);
  for (int i = 0; i < 4; ++i) block.Write(word + i, x.w[i], site);
}

void BeginCopy(int word, const void* from, const Site& site) {
  if (observer != nullptr) observer->OnCopy(from, sizeof(Words4), site);
  Running().BeginCopy(word, from, site);
}
void CommitCopies() { Running().CommitCopies(); }
void WaitCopies(int n_left) { Running().WaitCopies(n_left); }

bool IsOwn(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p), args = reinterpret_cast<uintptr_t>(launch.args);
  if (at - args < launch.kernel->args_bytes) return true;
  if (running != nullptr) return running->Holds(p);
  return at - reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < Fiber::kStackBytes;
}

bool Arrive(int32_t* count, int n, int all, const Site& site) {
  *count += n;
  if (*count > all) launch.Complain("counts more arrivals than there are", place.thread, site);
  const bool last = *count >= all;
  if (last) *count = 0;
  if (observer != nullptr) observer->OnArrival(count, last);
  return last;
}

void ComplainOfAlignment(const Site& site) {
  launch.Complain("uses words of memory that are not aligned to all of them", place.thread, site);
}

}  // namespace weft::device::emulator
