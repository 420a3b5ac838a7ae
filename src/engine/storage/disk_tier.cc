#include "engine/storage/disk_tier.h"

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/files/file_io.h"

namespace weft {
namespace {

constexpr int64_t kMaxDefaultBytes = int64_t{10} * 1000 * 1000 * 1000;
// In the worker's hands, besides the one block it may always have.
constexpr int64_t kMaxInFlightBytes = int64_t{8} << 20;
// Moderate, so that writing does not slow down a computing model's memory accesses.
constexpr int64_t kBytesPerSecond = int64_t{128} << 20;
// Left free for files of tokens.
constexpr int64_t kMaxSpareBytes = int64_t{1} << 20;
constexpr int64_t kRestMicros = 60 * int64_t{1'000'000};
// The index is rewritten after this many changes, but no more often than this.
constexpr int64_t kIndexChanges = 64;
constexpr int64_t kIndexMicros = 30 * int64_t{1'000'000};

int64_t NowSeconds() { return WallClockMicros() / 1'000'000; }

}  // namespace

DiskTier::DiskTier(Options options, std::unique_ptr<BlockFiles> files,
                   BlockCatalog::Options catalog, Worker* worker, PostBack post_back)
    : options_(std::move(options)),
      files_(std::move(files)),
      worker_(worker),
      post_back_(std::move(post_back)),
      bytes_per_hour_(options_.bytes_per_hour > 0 ? options_.bytes_per_hour
                                                  : catalog.budget_bytes / 2),
      catalog_(std::move(catalog)),
      writes_(files_->RecordedWrites()),
      index_us_(NowMicros()) {}

StatusOr<std::unique_ptr<DiskTier>> DiskTier::Open(Options options, Worker* worker,
                                                   PostBack post_back) {
  const std::string folder = FingerprintOf(options.identity).ToHex();
  WEFT_ASSIGN_OR_RETURN(auto files, BlockFiles::Open(options.path, folder));
  WEFT_ASSIGN_OR_RETURN(BlockFiles::Listing listing, files->List());
  BlockCatalog::Options catalog;
  catalog.page_tokens = options.layout.page_tokens;
  catalog.windows = options.windows;
  catalog.slots = options.layout.slot_bytes > 0;
  catalog.folder = folder;
  catalog.budget_bytes = options.budget_bytes;
  if (catalog.budget_bytes == 0) {
    int64_t there = FreeDiskBytes(options.path).value_or(kMaxDefaultBytes);
    for (const BlockInfo& info : listing.own) there += info.bytes;
    for (const auto& file : listing.foreign) there += file.bytes;
    there += options.file_bytes;
    catalog.budget_bytes = std::min(kMaxDefaultBytes, there / 10);
  }
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options), std::move(files),
                                              std::move(catalog), worker, std::move(post_back)));
  tier->foreign_blocks_ = std::ssize(listing.foreign);
  tier->RemoveFiles(std::move(listing.useless));
  tier->RemoveFiles(tier->catalog_.Load(std::move(listing.own), std::move(listing.foreign)));
  tier->SetFileBytes(tier->options_.file_bytes);
  if (listing.n_unread > 0) {
    tier->Notice(StrCat(listing.n_unread,
                        " blocks of saved state could not be read and stay unused ",
                        "until the next start: ", Message(listing.unread)));
  }
  return tier;
}

void DiskTier::Notice(const std::string& text) const {
  if (options_.notice) options_.notice(text);
}

// Ahead of queued writes: a session's file may wait for the room.
void DiskTier::RemoveFiles(BlockCatalog::Victims victims) {
  if (victims.empty()) return;
  changes_ += std::ssize(victims);
  worker_->Post([files = files_, victims = std::move(victims)] {
    for (const std::string& path : victims) files->Remove(path);
  });
}

int64_t DiskTier::PayloadBytes(const BlockInfo& info) const {
  if (info.kind == BlockInfo::Kind::kSlot) return options_.layout.slot_bytes;
  int64_t bytes = 0;
  for (size_t g = 0; g < options_.layout.page_bytes.size(); ++g) {
    if ((info.groups >> g & 1) != 0) bytes += options_.layout.page_bytes[g];
  }
  return bytes;
}

// --- reading ----------------------------------------------------------------------------

void DiskTier::Use(const BlockMatch& match, int64_t n_uses) {
  catalog_.Use(match, NowSeconds(), n_uses);
  if (n_uses > 0) ++changes_;
}

void DiskTier::Read(const std::string& tenant, const std::string& domain,
                    std::span<const Fingerprint> keys,
                    std::function<void(std::vector<Loaded>, Status)> done) {
  struct Job {
    std::vector<Loaded> blocks;
    std::vector<int64_t> payload_bytes;
    size_t n_good = 0;  // a page of a model without attention holds no bytes
    Status status;
  };
  auto job = std::make_shared<Job>();
  for (const Fingerprint& key : keys) {
    const BlockInfo* const info = catalog_.Find(key);
    if (info == nullptr) break;  // evicted meanwhile
    job->blocks.push_back({.info = *info, .payload = {}});
    job->payload_bytes.push_back(PayloadBytes(*info));
  }
  const auto answer = [this, alive = std::weak_ptr<bool>(alive_), job, done = std::move(done)] {
    if (alive.expired()) return;
    for (const Loaded& block : job->blocks) read_bytes_ += std::ssize(block.payload);
    if (job->n_good < job->blocks.size()) {
      FailRead(job->blocks[job->n_good].info.key, job->status);
      job->blocks.resize(job->n_good);
    }
    done(std::move(job->blocks), job->status);
  };
  worker_->PostFirst(
      tenant, [files = files_, job, tree = TreeName(domain), answer, post_back = post_back_] {
        for (size_t i = 0; i < job->blocks.size(); ++i) {
          auto payload = files->Read(job->blocks[i].info, tree, job->payload_bytes[i]);
          job->status = payload.status();
          if (!payload.ok()) break;
          job->blocks[i].payload = *std::move(payload);
          ++job->n_good;
        }
        post_back(answer);
      });
}

void DiskTier::FailRead(const Fingerprint& key, const Status& status) {
  if (status.code() != StatusCode::kDataLoss) {
    if (std::exchange(told_failed_read_, true)) return;
    return Notice(
        StrCat("a block of saved state could not be read and is computed instead, until "
               "this is mended: ",
               Message(status)));
  }
  if (catalog_.Find(key) == nullptr) return;
  ++damaged_blocks_;
  Notice(StrCat("a block of saved state is damaged and will be recomputed: ", Message(status)));
  Remove(key);
}

// --- writing ----------------------------------------------------------------------------

void DiskTier::UseForSession(const Fingerprint& key) { catalog_.UseForSession(key, NowSeconds()); }

// Prompts leave half of an hour's bytes to sessions.
bool DiskTier::MayWrite(int64_t bytes, bool session) {
  const int64_t most = session ? bytes_per_hour_ : bytes_per_hour_ / 2;
  return bytes <= most - writes_.Total(WallClockMicros());
}

DiskTier::Answer DiskTier::Ask(BlockInfo info, const std::string& domain) {
  const int64_t payload_bytes = PayloadBytes(info);
  const int64_t now_us = NowMicros();
  if (now_us < resting_until_us_ || !MayWrite(payload_bytes, info.session)) {
    skipped_bytes_ += payload_bytes;
    return Answer::kNo;
  }
  const bool busy = in_flight_bytes_ > 0 && in_flight_bytes_ + payload_bytes > kMaxInFlightBytes;
  if (busy || now_us < next_write_us_) return Answer::kLater;
  info.bytes = BlockFiles::BytesOf(info, TreeName(domain), payload_bytes);
  info.used_s = NowSeconds();
  BlockCatalog::Victims victims;
  const bool added = catalog_.Add(std::move(info), &victims);
  RemoveFiles(std::move(victims));
  // Blocks being written cannot be evicted yet, but may be worth less.
  if (!added && in_flight_bytes_ > 0) return Answer::kLater;
  if (!added) {
    skipped_bytes_ += payload_bytes;
    return Answer::kNo;
  }
  in_flight_bytes_ += payload_bytes;
  writes_.Add(WallClockMicros(), payload_bytes);
  // Allows bursts of a tenth of a second's worth.
  next_write_us_ =
      std::max(next_write_us_, now_us - 100'000) + payload_bytes * 1'000'000 / kBytesPerSecond;
  return Answer::kYes;
}

DiskTier::Answer DiskTier::Keep(BlockInfo info, const std::string& domain,
                                FunctionRef<Payload()> read) {
  const Fingerprint key = info.key;
  if (const Answer answer = Ask(std::move(info), domain); answer != Answer::kYes) return answer;
  const BlockInfo& added = *catalog_.Find(key);
  auto payload = read();
  if (payload.ok()) {
    Write(added, domain, *std::move(payload));
    return Answer::kYes;
  }
  in_flight_bytes_ -= PayloadBytes(added);
  catalog_.Remove(key);
  return Answer::kNo;
}

void DiskTier::Write(const BlockInfo& info, const std::string& domain,
                     std::vector<std::byte> payload) {
  auto bytes = std::make_shared<std::vector<std::byte>>(std::move(payload));
  ++writes_under_way_;
  // The worker's job does not touch this object, which may be gone by then.
  const auto finish = [this, alive = std::weak_ptr<bool>(alive_)](const Fingerprint& key, int64_t n,
                                                                  const Status& status) {
    if (alive.expired()) return;
    FinishWrite(key, n, status);
    if (status.ok() && on_written_) on_written_(key);
  };
  worker_->PostLast([files = files_, info, tree = TreeName(domain), bytes, finish, writes = writes_,
                     given_up = given_up_, post_back = post_back_, worker = worker_] {
    Status status = *given_up ? Cancelled("its write was cancelled") : files->RecordWrites(writes);
    if (status.ok()) status = files->Write(info, tree, *bytes, [worker] { worker->RunOthers(); });
    post_back([finish, key = info.key, n = std::ssize(*bytes), status] { finish(key, n, status); });
  });
}

// A prompt waits for it: ahead of other blocks, and without their limits on rates, but after the
// removal of a former file of that name.
bool DiskTier::Adopt(BlockInfo info, const std::string& domain, std::vector<std::byte> payload,
                     std::function<void(bool)> done) {
  const Fingerprint key = info.key;
  if (PayloadBytes(info) != std::ssize(payload) || catalog_.Find(key) != nullptr) return false;
  info.bytes = BlockFiles::BytesOf(info, TreeName(domain), std::ssize(payload));
  info.used_s = NowSeconds();
  const BlockInfo written = info;
  BlockCatalog::Victims victims;
  const bool added = catalog_.Add(std::move(info), &victims);
  RemoveFiles(std::move(victims));
  if (!added) return false;
  in_flight_bytes_ += std::ssize(payload);
  ++writes_under_way_;
  writes_.Add(WallClockMicros(), std::ssize(payload));
  const auto bytes = std::make_shared<std::vector<std::byte>>(std::move(payload));
  const auto finish = [this, alive = std::weak_ptr<bool>(alive_), key, n = std::ssize(*bytes),
                       done = std::move(done)](const Status& status) {
    if (alive.expired()) return;
    FinishWrite(key, n, status);
    done(catalog_.Find(key) != nullptr && catalog_.IsWritten(key));
  };
  worker_->Post(
      [files = files_, written, tree = TreeName(domain), bytes, finish, post_back = post_back_] {
        const Status status = files->Write(written, tree, *bytes);
        post_back([finish, status] { finish(status); });
      });
  return true;
}

void DiskTier::FinishWrite(const Fingerprint& key, int64_t bytes, const Status& status) {
  in_flight_bytes_ -= bytes;
  --writes_under_way_;
  if (*given_up_ && !status.ok()) return Remove(key);
  if (!status.ok()) {
    Remove(key);
    ++failed_writes_;
    resting_until_us_ = NowMicros() + kRestMicros;
    if (!std::exchange(told_failure_, true)) {
      Notice(StrCat("computed state is not being written to disk for now: ", Message(status)));
    }
    return;
  }
  told_failure_ = false;
  written_bytes_ += bytes;
  BlockCatalog::Victims victims;
  catalog_.SetWritten(key, &victims);
  RemoveFiles(std::move(victims));
  SetFileBytes(file_bytes_);  // it may have been in the way of a file
  ++changes_;
  const int64_t now_us = NowMicros();
  if (changes_ >= kIndexChanges && now_us - index_us_ >= kIndexMicros) WriteIndex();
}

void DiskTier::Remove(const Fingerprint& key) {
  if (catalog_.Find(key) == nullptr) return;
  const bool is_written = catalog_.IsWritten(key);
  catalog_.Remove(key);
  if (is_written) return RemoveFiles({catalog_.PathOf(key)});
  // Its write may still be queued.
  ++changes_;
  worker_->PostLast([files = files_, path = catalog_.PathOf(key)] { files->Remove(path); });
}

void DiskTier::RemoveUnused(const Fingerprint& key) {
  const BlockInfo* const info = catalog_.Find(key);
  if (info != nullptr && info->uses == 0) Remove(key);
}

void DiskTier::SetFileBytes(int64_t bytes) {
  file_bytes_ = bytes;
  // Blocks in the worker's hands cannot give way, and tokens do not wait.
  const int64_t spare = std::min(kMaxSpareBytes, catalog_.budget_bytes() / 16);
  BlockCatalog::Victims victims;
  catalog_.SetOtherBytes(bytes + spare, &victims);
  RemoveFiles(std::move(victims));
}

Status DiskTier::MakeRoomForFile(int64_t bytes) {
  BlockCatalog::Victims victims;
  const bool fits = catalog_.MakeRoomForOthers(bytes, &victims);
  RemoveFiles(std::move(victims));
  if (fits) return OkStatus();
  return ResourceExhausted(
      "the session's file of ", HumanBytes(static_cast<uint64_t>(bytes)),
      " does not fit on the disk: ", HumanBytes(static_cast<uint64_t>(file_bytes_)), " of ",
      HumanBytes(static_cast<uint64_t>(catalog_.budget_bytes())),
      " hold other sessions' files; delete some or increase --state-disk");
}

void DiskTier::WriteIndex() {
  index_us_ = NowMicros();
  if (std::exchange(changes_, 0) == 0) return;
  worker_->PostLast([files = files_, blocks = catalog_.Blocks()] {
    // Without the index, the next start reads each block's header.
    (void)files->WriteIndex(blocks);
  });
}

void DiskTier::FillStats(EngineStats* stats) const {
  stats->disk_bytes = catalog_.bytes() + file_bytes_;
  stats->disk_file_bytes = file_bytes_;
  stats->disk_pending += writes_under_way_;
  stats->disk_budget_bytes = catalog_.budget_bytes();
  stats->disk_blocks = catalog_.size();
  stats->disk_read_bytes = read_bytes_;
  stats->disk_written_bytes = written_bytes_;
  stats->disk_skipped_bytes = skipped_bytes_;
  stats->disk_evicted_blocks = catalog_.evicted();
  stats->disk_damaged_blocks = damaged_blocks_;
  stats->disk_failed_writes = failed_writes_;
  stats->disk_foreign_blocks = foreign_blocks_;
}

}  // namespace weft
