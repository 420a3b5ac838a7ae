#include "tests/support/model_runner.h"

#include <algorithm>
#include <utility>

namespace weft::testing {

std::vector<std::string_view> UsableBackends() {
  std::vector<std::string_view> names;
  for (const std::string_view name : BackendNames()) {
    if ((*FindBackend(name))->Available().ok()) names.push_back(name);
  }
  return names;
}

StatusOr<LoadedModel> LoadModel(std::string_view backend, const std::string& path,
                                int64_t context_tokens, std::vector<Adapter> adapters) {
  LoadedModel model;
  WEFT_ASSIGN_OR_RETURN(model.backend, FindBackend(backend));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const ModelFile> file, ModelFile::Open(path));
  WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(*file, {.context_tokens = context_tokens}));
  LoadOptions options{.n_threads = 1};
  options.adapters = std::move(adapters);
  WEFT_ASSIGN_OR_RETURN(model.weights,
                        model.backend->Load(std::move(file), std::move(spec), options));
  return model;
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::New(const LoadedModel& model,
                                                        const RunnerOptions& options) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, options));
  WEFT_ASSIGN_OR_RETURN(runner->state_, model.backend->NewState(*model.weights, options.state));
  WEFT_ASSIGN_OR_RETURN(
      runner->executor_,
      model.backend->NewExecutor(model.weights, runner->state_.get(), options.executor));
  WEFT_RETURN_IF_ERROR(runner->FillPools());
  return runner;
}

Status ModelRunner::FillPools() {
  std::mt19937_64 random(options_.page_seed);
  for (size_t group = 0; group < spec().kv_groups.size(); ++group) {
    WEFT_RETURN_IF_ERROR(state_->GrowPages(static_cast<int>(group), options_.pool_pages));
    std::vector<PageId> ids(options_.pool_pages);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<PageId>(ids.size() - 1 - i);
    if (options_.page_seed != 0) std::shuffle(ids.begin(), ids.end(), random);
    free_pages_.push_back(std::move(ids));
  }
  if (spec().slots.empty()) return OkStatus();
  WEFT_RETURN_IF_ERROR(state_->GrowSlots(options_.pool_slots));
  // The state that an earlier session might have left.
  const std::vector<std::byte> used(state_->layout().slot_bytes, std::byte{0x3C});
  for (SlotId slot = static_cast<SlotId>(options_.pool_slots) - 1; slot >= 0; --slot) {
    if (options_.page_seed != 0) WEFT_RETURN_IF_ERROR(state_->WriteSlot(slot, used));
    free_slots_.push_back(slot);
  }
  if (options_.page_seed != 0) std::shuffle(free_slots_.begin(), free_slots_.end(), random);
  return OkStatus();
}

int ModelRunner::Add() {
  Sequence sequence;
  sequence.tables.resize(spec().kv_groups.size());
  if (!free_slots_.empty()) {
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    if (!state_->ClearSlot(sequence.slot).ok()) sequence.slot = kNoSlot;
  }
  sequences_.push_back(std::move(sequence));
  return static_cast<int>(sequences_.size()) - 1;
}

int ModelRunner::TokensInPage(const Sequence& sequence, size_t i) const {
  const int64_t page_tokens = state_->layout().page_tokens;
  const int64_t first = static_cast<int64_t>(i) * page_tokens;
  return static_cast<int>(std::clamp<int64_t>(sequence.position - first, 0, page_tokens));
}

StatusOr<int> ModelRunner::Fork(int from, bool share) {
  const int to = Add();
  const int64_t n_full = sequences_[from].position / state_->layout().page_tokens;
  const size_t n_shared = share ? static_cast<size_t>(n_full) : 0;
  for (size_t group = 0; group < sequences_[to].tables.size(); ++group) {
    const auto& pages = sequences_[from].tables[group];
    sequences_[to].tables[group].assign(pages.begin(),
                                        pages.begin() + static_cast<ptrdiff_t>(n_shared));
  }
  WEFT_RETURN_IF_ERROR(Extend(&sequences_[to], sequences_[from].position));
  const Sequence& source = sequences_[from];
  Sequence& copy = sequences_[to];
  copy.position = source.position;
  for (size_t group = 0; group < source.tables.size(); ++group) {
    for (size_t i = n_shared; i < source.tables[group].size(); ++i) {
      const PageId page = source.tables[group][i];
      if (page == kNoPage) continue;
      WEFT_RETURN_IF_ERROR(state_->CopyPage(static_cast<int>(group), page, copy.tables[group][i],
                                            TokensInPage(source, i)));
    }
  }
  if (copy.slot != kNoSlot) WEFT_RETURN_IF_ERROR(state_->CopySlot(source.slot, copy.slot));
  return to;
}

Status ModelRunner::Extend(Sequence* sequence, int64_t n_tokens) {
  const int64_t page_tokens = state_->layout().page_tokens;
  const size_t need = (sequence->position + n_tokens + page_tokens - 1) / page_tokens;
  for (size_t group = 0; group < sequence->tables.size(); ++group) {
    while (sequence->tables[group].size() < need) {
      if (free_pages_[group].empty()) return ResourceExhausted("the test's pool is empty");
      sequence->tables[group].push_back(free_pages_[group].back());
      free_pages_[group].pop_back();
    }
  }
  return OkStatus();
}

void ModelRunner::DropBehindWindow(Sequence* sequence) {
  const int64_t page_tokens = state_->layout().page_tokens;
  for (size_t group = 0; group < sequence->tables.size(); ++group) {
    const int64_t window = spec().kv_groups[group].window;
    if (window == 0) continue;
    // The next token sees positions from position - window + 1 on.
    const int64_t first_seen = std::max<int64_t>(0, sequence->position - window + 1);
    for (int64_t i = 0; i < first_seen / page_tokens; ++i) {
      PageId& page = sequence->tables[group][i];
      if (page == kNoPage) continue;
      state_->DiscardPages(static_cast<int>(group), {&page, 1});
      free_pages_[group].push_back(std::exchange(page, kNoPage));
    }
  }
}

StatusOr<std::vector<float>> ModelRunner::Step(std::span<const Part> parts,
                                               const std::function<void()>& between) {
  WEFT_ASSIGN_OR_RETURN(Results results, StepFor(parts, between));
  return std::move(results.logits);
}

StatusOr<ModelRunner::Results> ModelRunner::StepFor(std::span<const Part> parts,
                                                    const std::function<void()>& between) {
  std::vector<StepSequence> sequences;
  int64_t n_logits = 0, n_best = 0;
  for (const Part& part : parts) {
    Sequence& sequence = sequences_[part.sequence];
    WEFT_RETURN_IF_ERROR(Extend(&sequence, static_cast<int64_t>(part.tokens.size())));
    StepSequence& entry = sequences.emplace_back();
    entry.tokens = part.tokens;
    entry.rows = part.rows;
    entry.axes = part.axes;
    entry.mutual = part.mutual;
    entry.adapters = part.adapters;
    entry.position = sequence.position;
    entry.page_tables.assign(sequence.tables.begin(), sequence.tables.end());
    entry.slot = sequence.slot;
    entry.n_logits = part.n_logits;
    entry.n_best = part.n_best;
    if (part.n_best == 0) n_logits += entry.n_logits;
    n_best += entry.n_logits * entry.n_best;
  }
  Results results{std::vector<float>(n_logits * spec().n_vocab), std::vector<TokenLogit>(n_best)};
  WEFT_ASSIGN_OR_RETURN(
      const auto run,
      executor_->Begin({.sequences = sequences, .logits = results.logits, .best = results.best}));
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool done, run->Advance([&] { return between != nullptr; }));
    if (done) break;
    between();
  }
  for (const Part& part : parts) {
    Sequence& sequence = sequences_[part.sequence];
    sequence.position += static_cast<int64_t>(part.tokens.size());
    if (options_.drop_behind_window) DropBehindWindow(&sequence);
  }
  return results;
}

StatusOr<std::vector<float>> ModelRunner::Feed(int sequence, std::span<const TokenId> tokens,
                                               std::span<const int64_t> chunks) {
  std::vector<float> all;
  for (size_t i = 0; !tokens.empty(); ++i) {
    const size_t size = chunks.empty() ? tokens.size() : chunks[std::min(i, chunks.size() - 1)];
    const Part part{sequence, tokens.first(std::min(size, tokens.size()))};
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> logits, Step({&part, 1}));
    all.insert(all.end(), logits.begin(), logits.end());
    tokens = tokens.subspan(part.tokens.size());
  }
  return all;
}

StatusOr<int> ModelRunner::MoveTo(int from, ModelRunner* other) {
  const Sequence& source = sequences_[from];
  const int to = other->Add();
  WEFT_RETURN_IF_ERROR(other->Extend(&other->sequences_[to], source.position));
  Sequence& copy = other->sequences_[to];
  copy.position = source.position;
  for (size_t group = 0; group < source.tables.size(); ++group) {
    const int g = static_cast<int>(group);
    std::vector<std::byte> bytes(state_->layout().page_bytes[group]);
    for (size_t i = 0; i < source.tables[group].size(); ++i) {
      const PageId page = source.tables[group][i];
      if (page == kNoPage) continue;
      WEFT_RETURN_IF_ERROR(state_->ReadPage(g, page, TokensInPage(source, i), bytes));
      WEFT_RETURN_IF_ERROR(other->state_->WritePage(g, copy.tables[group][i], bytes));
    }
  }
  if (source.slot != kNoSlot) {
    std::vector<std::byte> bytes(state_->layout().slot_bytes);
    WEFT_RETURN_IF_ERROR(state_->ReadSlot(source.slot, bytes));
    WEFT_RETURN_IF_ERROR(other->state_->WriteSlot(copy.slot, bytes));
  }
  return to;
}

StatusOr<std::vector<float>> RunTokens(const LoadedModel& model, std::span<const TokenId> tokens,
                                       std::span<const int64_t> chunks,
                                       const RunnerOptions& options) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner, ModelRunner::New(model, options));
  return runner->Feed(runner->Add(), tokens, chunks);
}

}  // namespace weft::testing
