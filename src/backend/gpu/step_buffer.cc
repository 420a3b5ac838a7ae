#include "backend/gpu/step_buffer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels_gpu/attention.h"

namespace weft::gpu {

namespace {

constexpr int64_t kRowGroupWords = sizeof(device::RowGroup) / 4;

}  // namespace

StatusOr<std::unique_ptr<StepBuffer>> StepBuffer::New(device::Device* device, const ModelSpec& spec,
                                                      int page_tokens, int64_t max_rows,
                                                      std::byte* text_kv) {
  constexpr int64_t kFirstPages = 4096;
  std::unique_ptr<StepBuffer> buffer(new StepBuffer(device, spec, page_tokens, max_rows, text_kv));
  WEFT_RETURN_IF_ERROR(buffer->LayOut(kFirstPages));
  return buffer;
}

Status StepBuffer::LayOut(int64_t max_pages) {
  int64_t words = 0;
  const auto take = [&](int64_t n) {
    const int64_t at = words;
    words += (n + 63) / 64 * 64;
    return at;
  };
  const int64_t n = max_rows_, n_pieces = (n + kPieceRows - 1) / kPieceRows;
  const int64_t counts = take(2), tokens = take(n), types = take(n), positions = take(n);
  const int64_t sequences = take(n), first_rows = take(n + 1), slots = take(n);
  const int64_t begins = take((std::ssize(spec_.kv_groups) + 1) * n);
  const int64_t n_groups = std::ssize(spec_.kv_groups), max_together = n / 2;
  const int64_t together = take(n_groups * max_together * kRowGroupWords);
  const int64_t n_together = take(n_groups);
  const int64_t together_rows = take(n_groups * n), shared_splits = take(n_groups * n);
  text_slab_ = take(2);
  logit_rows_ = take(n_pieces * kPieceRows);
  vector_rows_ = take(n_pieces * kPieceRows);
  logit_counts_ = take(n_pieces);
  vector_counts_ = take(n_pieces);
  ropes_.clear();
  for (const Rope& rope : spec_.ropes) ropes_.push_back(take(n * 2 * std::ssize(rope.frequencies)));
  pages_ = take(n + max_pages);

  WEFT_ASSIGN_OR_RETURN(auto memory, device_.Allocate(words * 4));
  WEFT_ASSIGN_OR_RETURN(auto staging, device_.AllocatePinned(words * 4));
  memory_ = std::move(memory);
  staging_ = std::move(staging);
  max_pages_ = max_pages;
  ++generation_;
  const auto at = [&](int64_t word) { return At<int32_t>(word); };
  view_ = {.n_rows = at(counts),
           .n_sequences = at(counts + 1),
           .tokens = at(tokens),
           .types = at(types),
           .positions = at(positions),
           .sequences = at(sequences),
           .first_rows = at(first_rows),
           .slots = at(slots),
           .pages = at(pages_),
           .table_begins = at(begins),
           .max_sequences = static_cast<int32_t>(n),
           .together = At<device::RowGroup>(together),
           .n_together = at(n_together),
           .together_rows = at(together_rows),
           .shared_splits = at(shared_splits),
           .max_together = static_cast<int32_t>(max_together),
           .max_rows = static_cast<int32_t>(n)};
  return OkStatus();
}

int64_t StepBuffer::SplitsOf(const Step& step) const {
  int64_t most = 1;
  for (const StepSequence& sequence : step.sequences) {
    const int64_t last = sequence.position + std::ssize(sequence.tokens) - 1;
    for (const KvGroup& group : spec_.kv_groups) {
      // Of the last row, or in a window one split more than it takes at least.
      const int64_t all = last / device::kSplitTokens + 1;
      const int64_t seen = group.window > 0 ? (group.window - 1) / device::kSplitTokens + 2 : all;
      most = std::max(most, std::min(all, seen));
    }
  }
  return most;
}

void StepBuffer::FillRows(const Step& step) {
  int32_t row = 0, number = 0;
  for (const StepSequence& sequence : step.sequences) {
    Host(view_.first_rows)[number] = row;
    Host(view_.slots)[number] = sequence.slot;
    int64_t type = 0;
    auto position = static_cast<int32_t>(sequence.position);
    for (const TokenId token : sequence.tokens) {
      Host(view_.tokens)[row] = IsRow(token) ? -1 : token;  // the table's row, or none
      Host(view_.types)[row] = static_cast<int32_t>(type);
      Host(view_.positions)[row] = position++;
      Host(view_.sequences)[row++] = number;
      type = spec_.token_types.TypeAfter(token, type);
    }
    ++number;
  }
  Host(view_.first_rows)[number] = row;
  *Host(view_.n_rows) = row;
  *Host(view_.n_sequences) = number;
  n_rows_ = row;
  n_sequences_ = number;
}

void StepBuffer::FillTables(const Step& step) {
  *HostAt<std::byte*>(text_slab_) = text_kv_;
  int32_t* const pages = HostAt<int32_t>(pages_);
  std::iota(pages, pages + max_rows_, 0);
  int64_t at = max_rows_;
  for (int64_t s = 0; s < n_sequences_; ++s) {
    const auto& tables = step.sequences[static_cast<size_t>(s)].page_tables;
    for (int64_t group = 0; group < std::ssize(tables); ++group) {
      const auto& table = tables[static_cast<size_t>(group)];
      Host(view_.table_begins)[group * max_rows_ + s] = static_cast<int32_t>(at);
      std::ranges::copy(table, pages + at);
      at += std::ssize(table);
    }
    Host(view_.table_begins)[text_group() * max_rows_ + s] = Host(view_.first_rows)[s];
  }
}

void StepBuffer::FillTogether(const Step& step) {
  n_together_ = 0;
  for (int64_t group = 0; group < std::ssize(spec_.kv_groups); ++group) {
    std::fill_n(Host(view_.shared_splits) + group * max_rows_, n_rows_, 0);
    Host(view_.n_together)[group] = 0;
    // What lies behind a window is not there to be shared.
    if (n_splits_ > 1 && spec_.kv_groups[static_cast<size_t>(group)].window == 0) {
      FillTogether(step, group);
    }
    n_together_ = std::max<int64_t>(n_together_, Host(view_.n_together)[group]);
  }
}

// Sequences that share pages are neighbours in the order of their tables. A row joins the group of
// the one before it where more splits are then spared, although that may shorten what they share.
void StepBuffer::FillTogether(const Step& step, int64_t group) {
  const auto table = [&](int32_t s) {
    return step.sequences[static_cast<size_t>(s)].page_tables[static_cast<size_t>(group)];
  };
  std::vector<int32_t> order(static_cast<size_t>(n_sequences_));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return std::ranges::lexicographical_compare(table(a), table(b));
  });
  std::vector<int32_t> rows;  // of the group
  int64_t n_shared = 0;       // splits; of a single row those that it sees whole
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t shared = 0;  // positions, with the row before
    if (i > 0) {
      const auto before = table(order[i - 1]);
      const auto differ = std::ranges::mismatch(before, table(order[i])).in1;
      shared = (differ - before.begin()) * page_tokens_;
    }
    for (int32_t row = Host(view_.first_rows)[order[i]]; row < Host(view_.first_rows)[order[i] + 1];
         ++row) {
      const int64_t n_seen = Host(view_.positions)[row] + 1;
      const int64_t n =
          std::min({n_shared, shared / device::kSplitTokens, n_seen / device::kSplitTokens});
      const int64_t n_rows = std::ssize(rows);
      if (n_rows == device::kMostTogether || n * n_rows <= n_shared * (n_rows - 1)) {
        PutTogether(group, rows, n_shared);
        rows.clear();
      }
      n_shared = rows.empty() ? n_seen / device::kSplitTokens : n;
      rows.push_back(row);
      shared = n_seen;  // the next one is of the same sequence
    }
  }
  PutTogether(group, rows, n_shared);
}

void StepBuffer::PutTogether(int64_t group, const std::vector<int32_t>& rows, int64_t n_splits) {
  if (rows.size() < 2) return;
  int32_t& number = Host(view_.n_together)[group];
  int32_t* const at = Host(view_.together_rows) + group * max_rows_;
  device::RowGroup* const groups = Host(view_.together) + group * view_.max_together;
  const int32_t begin = number > 0 ? groups[number - 1].begin + groups[number - 1].n_rows : 0;
  groups[number++] = {begin, static_cast<int32_t>(rows.size()), static_cast<int32_t>(n_splits)};
  std::ranges::copy(rows, at + begin);
  for (const int32_t row : rows) {
    Host(view_.shared_splits)[group * max_rows_ + row] = static_cast<int32_t>(n_splits);
  }
}

void StepBuffer::FillRopes() {
  for (size_t r = 0; r < spec_.ropes.size(); ++r) {
    const Rope& rope = spec_.ropes[r];
    const int64_t n_pairs = std::ssize(rope.frequencies);
    float* table = HostAt<float>(ropes_[r]);
    for (int64_t row = 0; row < n_rows_; ++row, table += 2 * n_pairs) {
      for (int64_t i = 0; i < n_pairs; ++i) {
        const double angle = Host(view_.positions)[row] * rope.frequencies[static_cast<size_t>(i)];
        table[i] = static_cast<float>(std::cos(angle) * rope.magnitude);
        table[n_pairs + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
      }
    }
  }
}

void StepBuffer::FillWanted(const Step& step) {
  n_logits_ = n_vectors_ = 0;
  for (int64_t s = 0; s < n_sequences_; ++s) {
    const StepSequence& sequence = step.sequences[static_cast<size_t>(s)];
    const int32_t end = Host(view_.first_rows)[s + 1];
    for (int64_t i = sequence.n_logits; i > 0; --i) {
      HostAt<int32_t>(logit_rows_)[n_logits_++] = end - static_cast<int32_t>(i);
    }
    for (int64_t i = sequence.n_vectors; i > 0; --i) {
      HostAt<int32_t>(vector_rows_)[n_vectors_++] = end - static_cast<int32_t>(i);
    }
  }
  const auto count = [](int64_t n, int32_t* counts) {
    for (int64_t at = 0; at < n; at += kPieceRows) {
      *counts++ = static_cast<int32_t>(std::min(kPieceRows, n - at));
    }
  };
  count(n_logits_, HostAt<int32_t>(logit_counts_));
  count(n_vectors_, HostAt<int32_t>(vector_counts_));
}

Status StepBuffer::Fill(const Step& step, device::Stream* stream) {
  int64_t n_pages = 0;
  for (const StepSequence& sequence : step.sequences) {
    for (const auto& table : sequence.page_tables) n_pages += std::ssize(table);
    const int64_t end = sequence.position + std::ssize(sequence.tokens);
    if (end > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("position ", end, " is beyond what the gpu backends count");
    }
  }
  if (n_pages > max_pages_) WEFT_RETURN_IF_ERROR(LayOut(std::max(n_pages, 2 * max_pages_)));
  FillRows(step);
  FillTables(step);
  n_splits_ = SplitsOf(step);
  FillTogether(step);
  FillRopes();
  FillWanted(step);
  const int64_t used = (pages_ + max_rows_ + n_pages) * 4;
  stream->CopyToDevice(memory_->data(), staging_->data(), used);
  return OkStatus();
}

}  // namespace weft::gpu
