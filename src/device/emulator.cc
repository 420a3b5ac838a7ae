#include "device/emulator.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "device/stack_switch.h"

namespace weft::device::emulator {

constinit thread_local ThreadPlace place;
constinit thread_local int64_t n_tiles = 0;

namespace {

constexpr int kSharedWords = kSharedBytes / 4;
constexpr uint32_t kRubbish = 0x7FC0DEAD;  // a NaN

enum class Stage { kReady, kAtBarrier, kAtExchange, kDone };

struct Thread {
  Stage stage = Stage::kReady;
  Site site;           // where it waits
  uint32_t given = 0;  // to an exchange
  int lane = 0;        // of which it wants what was given
  uint32_t taken = 0;
  int shared_used = 0;  // words that it has asked for
};

// Who used a word of shared memory since the last barrier.
struct WordUse {
  static constexpr int kNobody = -1, kSeveral = -2;
  int epoch = -1;
  int writer = kNobody;
  int reader = kNobody;
};

// One block at a time of one launch, on the calling thread's stack and its fibers'.
class Block {
 public:
  Status Run(const Kernel& kernel, const void* args, int n_threads, Order order);

  void WaitForBlock(const Site& site) { Stop(Stage::kAtBarrier, site); }
  uint32_t Exchange(uint32_t value, int lane, const Site& site);
  int TakeShared(int n_words, const Site& site);
  uint32_t Read(int word, const Site& site);
  void Write(int word, uint32_t value, const Site& site);

 private:
  static void Body(void* self);
  void Stop(Stage stage, const Site& site);
  // Lets every thread that is ready run until it waits or ends.
  void RunReady(Order order);
  // Lets go on those that waited for what has come; false if there are none.
  bool Release();
  bool ReleaseWarp(int first);
  bool ReleaseBlock();
  void Complain(std::string_view what, int thread, const Site& site);
  WordUse& UseOf(int word);
  Thread& current() { return threads_[static_cast<size_t>(place.thread)]; }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Thread> threads_;
  std::array<uint32_t, kSharedWords> shared_;
  std::array<WordUse, kSharedWords> uses_;
  int epoch_ = 0;
  const Kernel* kernel_ = nullptr;
  const void* args_ = nullptr;
  Status status_;
};

// Each thread's own; made at its first launch that cooperates. Null while none runs.
thread_local std::unique_ptr<Block> own_block;
thread_local Block* running = nullptr;

void Block::Complain(std::string_view what, int thread, const Site& site) {
  if (!status_.ok()) return;
  status_ = Internal("kernel ", kernel_->name, ", block (", place.block_x, ", ", place.block_y,
                     ", ", place.block_z, "), thread ", thread, ": ", what, " at ",
                     site.file_name(), ":", site.line());
}

void Block::Body(void* self) {
  Block* const block = static_cast<Block*>(self);
  block->kernel_->body(block->args_);
  block->Stop(Stage::kDone, Site());
}

void Block::Stop(Stage stage, const Site& site) {
  Thread& thread = current();
  thread.stage = stage;
  thread.site = site;
  fibers_[static_cast<size_t>(place.thread)]->Suspend();
}

uint32_t Block::Exchange(uint32_t value, int lane, const Site& site) {
  Thread& thread = current();
  thread.given = value;
  thread.lane = lane & (kWarpLanes - 1);
  Stop(Stage::kAtExchange, site);
  return thread.taken;
}

int Block::TakeShared(int n_words, const Site& site) {
  Thread& thread = current();
  const int first = thread.shared_used;
  thread.shared_used += n_words;
  if (thread.shared_used <= kSharedWords) return first;
  Complain("more shared memory than a block has", place.thread, site);
  thread.shared_used = first;
  return 0;
}

WordUse& Block::UseOf(int word) {
  WordUse& use = uses_[static_cast<size_t>(word)];
  if (use.epoch != epoch_) use = {epoch_, WordUse::kNobody, WordUse::kNobody};
  return use;
}

uint32_t Block::Read(int word, const Site& site) {
  WordUse& use = UseOf(word);
  const int me = place.thread;
  if (use.writer != WordUse::kNobody && use.writer != me) {
    Complain("reads shared memory that another thread wrote since the last barrier", me, site);
  }
  if (use.reader != me) use.reader = use.reader == WordUse::kNobody ? me : WordUse::kSeveral;
  return shared_[static_cast<size_t>(word)];
}

void Block::Write(int word, uint32_t value, const Site& site) {
  WordUse& use = UseOf(word);
  const int me = place.thread;
  if (use.writer != WordUse::kNobody && use.writer != me) {
    Complain("writes shared memory that another thread wrote since the last barrier", me, site);
  }
  if (use.reader != WordUse::kNobody && use.reader != me) {
    Complain("writes shared memory that another thread read since the last barrier", me, site);
  }
  use.writer = me;
  shared_[static_cast<size_t>(word)] = value;
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
    warp[i].taken = warp[warp[i].lane].given;
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
  return true;
}

bool Block::Release() {
  bool released = false;
  for (size_t first = 0; first < threads_.size(); first += kWarpLanes) {
    released |= ReleaseWarp(static_cast<int>(first));
  }
  return released || ReleaseBlock();
}

Status Block::Run(const Kernel& kernel, const void* args, int n_threads, Order order) {
  kernel_ = &kernel;
  args_ = args;
  status_ = OkStatus();
  threads_.assign(static_cast<size_t>(n_threads), Thread());
  while (fibers_.size() < threads_.size()) fibers_.push_back(std::make_unique<Fiber>());
  shared_.fill(kRubbish);
  ++epoch_;
  for (size_t i = 0; i < threads_.size(); ++i) fibers_[i]->Start(&Block::Body, this);
  running = this;
  while (true) {
    RunReady(order);
    const auto waits = [](const Thread& thread) { return thread.stage != Stage::kDone; };
    const auto waiting = std::ranges::find_if(threads_, waits);
    if (waiting == threads_.end() || !status_.ok()) break;
    if (Release()) continue;
    const int thread = static_cast<int>(waiting - threads_.begin());
    Complain(waiting->stage == Stage::kAtBarrier
                 ? "waits at a barrier that other threads of the block do not reach"
                 : "waits for an exchange that other lanes of the warp do not take part in",
             thread, waiting->site);
  }
  running = nullptr;
  return status_;
}

// A kernel whose threads do not know one another: plain calls, on the caller's stack.
void RunFree(const Kernel& kernel, const void* args, int n_threads, Order order) {
  for (int i = 0; i < n_threads; ++i) {
    place.thread = order == Order::kAscending ? i : n_threads - 1 - i;
    kernel.body(args);
  }
}

Status CheckShape(const Kernel& kernel, const LaunchShape& shape) {
  const bool fits = shape.grid_x >= 1 && shape.grid_y >= 1 && shape.grid_z >= 1 &&
                    shape.grid_y <= kMaxGridYz && shape.grid_z <= kMaxGridYz &&
                    shape.threads >= 1 && shape.threads <= kMaxThreads &&
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
  place.n_threads = shape.threads;
  place.grid_x = shape.grid_x;
  for (int64_t i = 0; i < n_blocks; ++i) {
    const int64_t block = order == Order::kAscending ? i : n_blocks - 1 - i;
    place.block_x = static_cast<int>(block % shape.grid_x);
    place.block_y = static_cast<int>(block / shape.grid_x % shape.grid_y);
    place.block_z = static_cast<int>(block / shape.grid_x / shape.grid_y);
    if (kernel.cooperates) {
      WEFT_RETURN_IF_ERROR(own_block->Run(kernel, args, shape.threads, order));
    } else {
      RunFree(kernel, args, shape.threads, order);
    }
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
uint32_t ExchangeInWarp(uint32_t value, int lane, const Site& site) {
  return Running().Exchange(value, lane, site);
}
int TakeShared(int n_words, const Site& site) { return Running().TakeShared(n_words, site); }
uint32_t ReadShared(int word, const Site& site) { return Running().Read(word, site); }
void WriteShared(int word, uint32_t value, const Site& site) { Running().Write(word, value, site); }

}  // namespace weft::device::emulator
