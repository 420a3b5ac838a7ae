#include "compute/gpu/best_finder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "compute/gpu/builder.h"

namespace weft::gpu {

static_assert(sizeof(LogitChange) == sizeof(device::TokenChange));
static_assert(kWeightPart == device::kWeightPart && kWeightLanes == device::kWeightLanes);

namespace {

constexpr int64_t kPieceRows = StepBuffer::kPieceRows;
constexpr int64_t kChangeWords = sizeof(LogitChange) / 4;
constexpr int64_t kFirstWords = 1024;
constexpr int64_t kBestBytes =
    kPieceRows * device::kMaxBest * static_cast<int64_t>(sizeof(device::BestToken));

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

BestFinder::BestFinder(device::Device* device, int64_t n_vocab, int64_t max_rows)
    : device_(*device),
      n_vocab_(n_vocab),
      n_rows_(RoundUp(max_rows, kPieceRows)),
      n_slices_(device::CeilDiv(n_vocab, device::kBestSlice)),
      n_weights_(device::CeilDiv(n_vocab, device::kWeightPart)),
      n_best_(0),
      masks_(n_rows_),
      temperatures_(2 * n_rows_),
      first_changes_(3 * n_rows_),
      rest_(4 * n_rows_ + kPieceRows) {}

StatusOr<std::unique_ptr<BestFinder>> BestFinder::New(device::Device* device, int64_t n_vocab,
                                                      int64_t max_rows) {
  std::unique_ptr<BestFinder> finder(new BestFinder(device, n_vocab, max_rows));
  WEFT_RETURN_IF_ERROR(finder->Start());
  return finder;
}

Status BestFinder::Start() {
  args_.n_vocab = static_cast<int32_t>(n_vocab_);
  args_.n_slices = static_cast<int32_t>(n_slices_);
  args_.n_weights = static_cast<int32_t>(n_weights_);
  const auto lay_out = [&](std::byte* begin) {
    Arena arena(begin);
    args_.sound = arena.Take<int32_t>(kPieceRows * n_slices_);
    args_.parts = arena.Take<device::BestToken>(kPieceRows * n_slices_ * device::kMaxBest);
    args_.out = arena.Take<device::BestToken>(kPieceRows * device::kMaxBest);
    args_.weights = arena.Take<double>(kPieceRows * n_weights_);
    return arena.used();
  };
  WEFT_ASSIGN_OR_RETURN(work_, device_.Allocate(lay_out(nullptr)));
  lay_out(work_->data());
  weights_offset_ = kBestBytes;
  WEFT_ASSIGN_OR_RETURN(results_,
                        device_.AllocatePinned(weights_offset_ + kPieceRows * n_weights_ * 8));
  return Reserve(kFirstWords);
}

Status BestFinder::Reserve(int64_t words) {
  const int64_t bytes = (rest_ + words) * 4;
  if (asked_ != nullptr && asked_->bytes() >= bytes) return OkStatus();
  const int64_t room = asked_ != nullptr ? std::max(bytes, 2 * asked_->bytes()) : bytes;
  WEFT_ASSIGN_OR_RETURN(auto asked, device_.Allocate(room));
  WEFT_ASSIGN_OR_RETURN(auto staging, device_.AllocatePinned(room));
  asked_ = std::move(asked);
  staging_ = std::move(staging);
  return OkStatus();
}

Status BestFinder::Fill(const Step& step, device::Stream* stream) {
  int64_t n_changes = 0, n_words = 0;
  for (const StepSequence& sequence : step.sequences) {
    for (const RowChanges& changes : sequence.changes) {
      n_changes += std::ssize(changes.logits);
      n_words += std::ssize(changes.allowed);
    }
  }
  WEFT_RETURN_IF_ERROR(Reserve(n_changes * kChangeWords + n_words));
  const int64_t allowed = rest_ + n_changes * kChangeWords;
  FillRows(step, allowed);
  if (!step.best.empty()) {
    stream->CopyToDevice(asked_->data(), staging_->data(), (allowed + n_words) * 4);
  }
  return OkStatus();
}

void BestFinder::FillRows(const Step& step, int64_t allowed) {
  auto* const changes = reinterpret_cast<LogitChange*>(staging_->As<int32_t>() + rest_);
  uint32_t* const words = staging_->As<uint32_t>();
  int64_t row = 0, n_changes = 0;
  for (const StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.n_logits; ++i, ++row) {
      HostRow<int32_t>(n_best_, 0)[row] = static_cast<int32_t>(sequence.n_best);
      HostRow<float>(temperatures_, 0)[row] = sequence.temperature;
      HostRow<int32_t>(first_changes_, 0)[row] = static_cast<int32_t>(n_changes);
      HostRow<int32_t>(masks_, 0)[row] = -1;
      if (sequence.changes.empty()) continue;
      const RowChanges& its = sequence.changes[static_cast<size_t>(i)];
      std::ranges::copy(its.logits, changes + n_changes);
      n_changes += std::ssize(its.logits);
      if (its.allowed.empty()) continue;
      HostRow<int32_t>(masks_, 0)[row] = static_cast<int32_t>(allowed);
      std::ranges::copy(its.allowed, words + allowed);
      allowed += std::ssize(its.allowed);
    }
  }
  HostRow<int32_t>(first_changes_, 0)[row] = static_cast<int32_t>(n_changes);
}

Asked BestFinder::AskedOf(int64_t piece, int64_t n) const {
  const int32_t* const n_best = HostRow<int32_t>(n_best_, piece);
  const float* const temperatures = HostRow<float>(temperatures_, piece);
  const auto most = static_cast<uint32_t>(*std::max_element(n_best, n_best + n));
  if (most == 0) return {};
  return {static_cast<int64_t>(std::bit_ceil(most)),
          std::any_of(temperatures, temperatures + n, [](float t) { return t != 0; })};
}

void BestFinder::Launch(int64_t piece, const Asked& asked, const device::Rows& logits,
                        const RowSet& rows, const Launches& to) {
  if (asked.most == 0) return;
  args_.most = static_cast<int32_t>(asked.most);
  args_.logits = logits;
  args_.n_rows = rows.n;
  args_.n_best = DeviceRow<int32_t>(n_best_, piece);
  args_.first_changes = DeviceRow<int32_t>(first_changes_, piece);
  args_.masks = DeviceRow<int32_t>(masks_, piece);
  args_.temperatures = DeviceRow<float>(temperatures_, piece);
  args_.changes = reinterpret_cast<const device::TokenChange*>(asked_->As<int32_t>() + rest_);
  args_.allowed = asked_->As<uint32_t>();
  device::LaunchShape slices = {args_.n_slices, static_cast<int>(rows.most), 1,
                                device::kBestThreads};
  device::LaunchShape whole = slices;
  whole.grid_x = 1;
  to.Add(device::ChangeRows, slices, args_);
  to.Add(device::FindBest, slices, args_);
  to.Add(device::MergeBest, whole, args_);
  if (!asked.weighs) return;
  slices.threads = device::kWeightThreads;
  to.Add(device::WeighRows, slices, args_);
}

void BestFinder::EnqueueCopies(const Asked& asked, int64_t n, device::Stream* stream) {
  max_ = asked.most;
  if (max_ == 0) return;
  stream->CopyToHost(results_->data(), reinterpret_cast<const std::byte*>(args_.out),
                     n * max_ * static_cast<int64_t>(sizeof(device::BestToken)));
  if (!asked.weighs) return;
  stream->CopyToHost(results_->data() + weights_offset_,
                     reinterpret_cast<const std::byte*>(args_.weights), n * n_weights_ * 8);
}

const device::BestToken* BestFinder::best(int64_t i) const {
  return results_->As<device::BestToken>() + i * max_;
}

double BestFinder::weight(int64_t i) const {
  const auto* const parts =
      reinterpret_cast<const double*>(results_->data() + weights_offset_) + i * n_weights_;
  double total = 0;
  for (int64_t part = 0; part < n_weights_; ++part) total += parts[part];
  return total;
}

}  // namespace weft::gpu
