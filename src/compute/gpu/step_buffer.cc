#include "compute/gpu/step_buffer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "compute/kernels_gpu/attention.h"

namespace weft::gpu {

namespace {

constexpr int64_t kItemWords = sizeof(device::AttendItem) / 4;
constexpr int64_t kRowPartsWords = sizeof(device::RowParts) / 4;
constexpr int64_t kItemListWords = sizeof(device::ItemList) / 4;

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
  const int64_t n_groups = std::ssize(spec_.kv_groups) + 1;  // one more for texts
  const int64_t item_lists = take(n_groups * 2 * kItemListWords);
  const int64_t item_rows = take(n_groups * n), row_parts = take(n_groups * n * kRowPartsWords);
  text_slab_ = take(2);
  logit_rows_ = take(n_pieces * kPieceRows);
  vector_rows_ = take(n_pieces * kPieceRows);
  logit_counts_ = take(n_pieces);
  vector_counts_ = take(n_pieces);
  pages_ = take(n + max_pages);
  items_ = take(n_groups * attend_list_.max_items() * kItemWords);
  ropes_.clear();
  for (const Rope& rope : spec_.ropes) ropes_.push_back(take(n * 2 * std::ssize(rope.frequencies)));

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
           .items = At<device::AttendItem>(items_),
           .item_lists = At<device::ItemList>(item_lists),
           .item_rows = at(item_rows),
           .row_parts = At<device::RowParts>(row_parts),
           .max_rows = static_cast<int32_t>(n)};
  return OkStatus();
}

void StepBuffer::FillRows(const Step& step) {
  int32_t row = 0, number = 0;
  for (const StepSequence& sequence : step.sequences) {
    Host(view_.first_rows)[number] = row;
    Host(view_.slots)[number] = sequence.slot;
    int64_t type = 0;
    auto position = static_cast<int32_t>(sequence.position);
    for (const TokenId token : sequence.tokens) {
      Host(view_.tokens)[row] = IsRow(token) ? -1 : token;  // -1: input embedding
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

void StepBuffer::FillItems(const Step& step) {
  n_items_[0] = n_items_[1] = 0;
  item_rows_.resize(static_cast<size_t>(n_rows_));
  std::iota(item_rows_.begin(), item_rows_.end(), 0);
  const auto n_rows = static_cast<size_t>(n_rows_), n_sequences = static_cast<size_t>(n_sequences_);
  const int64_t n_groups = text_kv_ != nullptr ? text_group() + 1 : text_group();
  int32_t n = 0;
  for (int64_t group = 0; group < n_groups; ++group) {
    attend_list_.Fill(step, group, {Host(view_.table_begins) + group * max_rows_, n_sequences},
                      &item_rows_, {Host(view_.row_parts) + group * max_rows_, n_rows});
    for (int list = 0; list < 2; ++list) {
      const std::vector<device::AttendItem>& items = attend_list_.items(list);
      const auto n_items = static_cast<int32_t>(items.size());
      Host(view_.item_lists)[2 * group + list] = {n, n_items};
      std::ranges::copy(items, Host(view_.items) + n);
      n += n_items;
      n_items_[list] = std::max<int64_t>(n_items_[list], n_items);
    }
  }
  std::ranges::copy(item_rows_, Host(view_.item_rows));
  item_words_ = n * kItemWords;
}

const float* RopeTable::Of(int64_t position) {
  const auto number = static_cast<size_t>(position / kChunk);
  if (number >= chunks_.size()) chunks_.resize(number + 1);
  std::vector<float>& chunk = chunks_[number];
  const auto n_pairs = static_cast<int64_t>(rope_.frequencies.size());
  if (chunk.empty()) {
    chunk.resize(static_cast<size_t>(kChunk * 2 * n_pairs));
    float* table = chunk.data();
    for (int64_t at = position / kChunk * kChunk, i = 0; i < kChunk; ++i, table += 2 * n_pairs) {
      for (int64_t pair = 0; pair < n_pairs; ++pair) {
        const double angle = static_cast<double>(at + i + rope_.ahead) *
                             rope_.frequencies[static_cast<size_t>(pair)];
        table[pair] = static_cast<float>(std::cos(angle) * rope_.magnitude);
        table[n_pairs + pair] = static_cast<float>(std::sin(angle) * rope_.magnitude);
      }
    }
  }
  return chunk.data() + position % kChunk * 2 * n_pairs;
}

void StepBuffer::FillRopes() {
  for (size_t r = 0; r < spec_.ropes.size(); ++r) {
    float* to = HostAt<float>(ropes_[r]);
    for (int64_t row = 0; row < n_rows_; ++row) {
      to = std::copy_n(rope_tables_[r].Of(Host(view_.positions)[row]), RopeWords(r), to);
    }
  }
}

void StepBuffer::FillWanted(const Step& step) {
  n_logits_ = n_vectors_ = 0;
  raw_vectors_.clear();
  for (int64_t s = 0; s < n_sequences_; ++s) {
    const StepSequence& sequence = step.sequences[static_cast<size_t>(s)];
    const int32_t end = Host(view_.first_rows)[s + 1];
    for (int64_t i = sequence.n_logits; i > 0; --i) {
      HostAt<int32_t>(logit_rows_)[n_logits_++] = end - static_cast<int32_t>(i);
    }
    for (int64_t i = sequence.n_vectors; i > 0; --i) {
      raw_vectors_.push_back(sequence.vectors_before_norm);
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
  FillItems(step);
  FillRopes();
  FillWanted(step);
  const int64_t used = (pages_ + max_rows_ + n_pages) * 4;
  stream->CopyToDevice(memory_->data(), staging_->data(), used);
  if (item_words_ > 0) {
    stream->CopyToDevice(memory_->data() + items_ * 4, staging_->data() + items_ * 4,
                         item_words_ * 4);
  }
  for (size_t r = 0; r < ropes_.size(); ++r) {
    stream->CopyToDevice(memory_->data() + ropes_[r] * 4, staging_->data() + ropes_[r] * 4,
                         n_rows_ * RopeWords(r) * 4);
  }
  return OkStatus();
}

}  // namespace weft::gpu
