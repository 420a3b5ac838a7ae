#include "engine/drafting/shared_head_drafter.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "compute/spec_tensors.h"
#include "engine/sessions/session.h"
#include "model/model_spec.h"

namespace weft {

SharedHeadDrafter::SharedHeadDrafter(std::shared_ptr<const Model> head, const Options& options)
    : Drafter(std::move(head), options.on_notice), options_(options) {}

StatusOr<std::unique_ptr<SharedHeadDrafter>> SharedHeadDrafter::Create(
    std::shared_ptr<const Model> head, const Options& options) {
  std::unique_ptr<SharedHeadDrafter> drafter(new SharedHeadDrafter(std::move(head), options));
  WEFT_RETURN_IF_ERROR(drafter->Start());
  WEFT_RETURN_IF_ERROR(drafter->WarmUp());
  WEFT_RETURN_IF_ERROR(drafter->model_->CheckFile());
  return drafter;
}

Status SharedHeadDrafter::Start() {
  const Backend& backend = model_->backend();
  ExecutorOptions executor;
  executor.n_threads = options_.n_threads;
  executor.max_step_tokens = options_.max_texts;
  executor.max_beside_tokens = 1;
  executor.shares_threads_with = options_.executor;
  WEFT_ASSIGN_OR_RETURN(executor_,
                        backend.NewExecutor(model_->weights(), options_.state, executor));
  WEFT_ASSIGN_OR_RETURN(
      page_,
      backend.NewState(*model_->weights(), {.page_tokens = options_.state->layout().page_tokens}));
  for (size_t group = 0; group < model_->spec().kv_groups.size(); ++group) {
    WEFT_RETURN_IF_ERROR(page_->GrowPages(static_cast<int>(group), 1));
  }
  executor.max_step_tokens = 1;
  WEFT_ASSIGN_OR_RETURN(on_page_, backend.NewExecutor(model_->weights(), page_.get(), executor));

  const Linear& back = hidden_input_->back;
  std::vector<TokenId> numbers(static_cast<size_t>(back.n_out));
  std::iota(numbers.begin(), numbers.end(), 0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<float> rows,
                        ReadTableRows(model_->file(), back.weight, numbers));
  back_.resize(rows.size());
  for (int64_t out = 0; out < back.n_out; ++out) {
    for (int64_t in = 0; in < back.n_in; ++in) {
      back_[static_cast<size_t>(in * back.n_out + out)] =
          rows[static_cast<size_t>(out * back.n_in + in)];
    }
  }
  return OkStatus();
}

Status SharedHeadDrafter::MeasureStep() {
  const std::vector<float> input(static_cast<size_t>(HiddenWidth(model_->spec())));
  constexpr std::array<TokenId, 1> kTokens = {0};
  constexpr std::array<PageId, 1> kPages = {0};
  StepSequence sequence{.tokens = kTokens, .hidden = input, .n_logits = 1};
  sequence.page_tables.assign(model_->spec().kv_groups.size(), kPages);
  return Run(on_page_.get(), {sequence}).status();
}

// --- texts ------------------------------------------------------------------------------

std::unique_ptr<Drafter::Text> SharedHeadDrafter::Begin(std::string_view /*domain*/) {
  return std::make_unique<Text>();
}

void SharedHeadDrafter::Show(Drafter::Text* text, int64_t first, std::span<const float> hidden) {
  auto* const own = static_cast<Text*>(text);
  const auto width = static_cast<size_t>(hidden_width());
  own->row = first + static_cast<int64_t>(hidden.size() / width) - 1;
  const auto last = hidden.last(width);
  own->hidden.assign(last.begin(), last.end());
}

int64_t SharedHeadDrafter::Follow(Drafter::Text* text, std::span<const TokenId> tokens) {
  const int64_t n = std::ssize(tokens);
  const bool is_next = n >= 2 && static_cast<const Text*>(text)->row == n - 2;
  // Input embeddings are of no token.
  if (!usable() || !is_next || n >= model_->context_tokens() || IsRow(tokens.back())) return -1;
  return 1;
}

void SharedHeadDrafter::KeepLast(Drafter::Text* /*text*/, std::span<const TokenId> /*tokens*/,
                                 int64_t /*last*/) {
  WEFT_CHECK(false, "a head reads all of the model's text");
}

// --- drafts -----------------------------------------------------------------------------

std::vector<Drafter::Draft> SharedHeadDrafter::Continue(std::span<const Ask> asks) {
  std::vector<Draft> drafts(asks.size());
  std::vector<Row> rows;
  for (size_t i = 0; i < asks.size(); ++i) {
    const Session& session = *asks[i].session;
    const auto* const text = static_cast<const Text*>(asks[i].text);
    if (session.computed() != std::ssize(session.tokens) - 1) continue;
    if (text->row != session.computed() - 1) continue;
    rows.push_back(
        {.ask = i, .token = session.tokens[session.tokens.size() - 1], .hidden = text->hidden});
  }
  while (!rows.empty()) {
    Status status = OkStatus();
    // A turn with several choices asks for each of them.
    for (std::span<Row> left(rows); status.ok() && !left.empty();) {
      const std::span<Row> step =
          left.first(std::min(left.size(), static_cast<size_t>(options_.max_texts)));
      status = Step(asks, step, &drafts);
      left = left.subspan(step.size());
    }
    if (status.ok()) status = model_->CheckFile();
    if (CountFailure(status)) return drafts;
    std::erase_if(rows, [&](const Row& row) {
      return row.token == kNoToken || !drafts[row.ask].GoesOn(asks[row.ask]);
    });
  }
  return drafts;
}

Status SharedHeadDrafter::Step(std::span<const Ask> asks, std::span<Row> rows,
                               std::vector<Draft>* drafts) {
  WEFT_ASSIGN_OR_RETURN(const auto inputs, InputsOf(rows));
  std::vector<StepSequence> sequences;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Session& session = *asks[rows[i].ask].session;
    StepSequence sequence{.tokens = std::span(&rows[i].token, 1),
                          .hidden = inputs[i],
                          .position = session.computed() - 1,
                          .n_logits = 1};
    for (const PageTable& table : session.state.tables()) {
      sequence.page_tables.push_back(table.pages());
    }
    sequences.push_back(std::move(sequence));
  }
  WEFT_ASSIGN_OR_RETURN(const auto all, Run(executor_.get(), std::move(sequences)));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].token = all[i].token;
    if (all[i].token == kNoToken) continue;
    rows[i].hidden = BackToModel(all[i].hidden);
    Draft& draft = (*drafts)[rows[i].ask];
    draft.tokens.push_back(all[i].token);
    draft.chances.push_back(all[i].chance);
  }
  return OkStatus();
}

StatusOr<std::vector<std::vector<float>>> SharedHeadDrafter::InputsOf(
    std::span<const Row> rows) const {
  std::vector<TokenId> tokens;
  for (const Row& row : rows) tokens.push_back(row.token);
  WEFT_ASSIGN_OR_RETURN(const std::vector<float> table, options_.model->RowsOf(tokens));
  const float scale = options_.model->spec().embedding_scale;
  const auto width = static_cast<size_t>(hidden_width());
  std::vector<std::vector<float>> inputs;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<float>& input = inputs.emplace_back();
    for (const float value : std::span(table).subspan(i * width, width)) {
      input.push_back(value * scale);
    }
    input.insert(input.end(), rows[i].hidden.begin(), rows[i].hidden.end());
  }
  return inputs;
}

std::vector<float> SharedHeadDrafter::BackToModel(std::span<const float> own) const {
  std::vector<float> out(static_cast<size_t>(hidden_width()));
  const float* weights = back_.data();
  for (const float value : own) {
    for (float& sum : out) sum += value * *weights++;
  }
  return out;
}

void SharedHeadDrafter::FillStats(EngineStats* stats) const {
  Drafter::FillStats(stats);
  stats->draft_state_bytes = 0;
  stats->draft_scratch_bytes += executor_->scratch_bytes() + on_page_->scratch_bytes() +
                                page_->held_bytes() +
                                static_cast<int64_t>(back_.size() * sizeof(float));
}

}  // namespace weft
