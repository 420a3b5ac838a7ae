#include "engine/drafting/model_drafter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "compute/state_store.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {
namespace {

// Maximum rows of a step that catches up.
constexpr int64_t kMaxRows = 256;
// A text that got no memory is skipped for this many tokens.
constexpr int64_t kRest = 64;
// An MTP head replaces at most this many missing rows of hidden values by zeros.
constexpr int64_t kMaxMissing = 64;
// Max rows of hidden values kept for an MTP head that falls behind.
constexpr int64_t kMaxHidden = 512;

// Bytes per token, with a slot's bytes spread over a text of usual length.
double BytesPerToken(const StateLayout& layout) {
  constexpr double kUsualTokens = 1024;
  double bytes = static_cast<double>(layout.slot_bytes) / kUsualTokens;
  for (const int64_t page : layout.page_bytes) {
    bytes += static_cast<double>(page) / static_cast<double>(std::max(1, layout.page_tokens));
  }
  return bytes;
}

int64_t ShareOf(int64_t bytes, const StateLayout& draft, const StateLayout& beside) {
  const double own = BytesPerToken(draft), other = BytesPerToken(beside);
  const double share = own + other > 0 ? own / (own + other) : 0.5;
  return static_cast<int64_t>(static_cast<double>(bytes) * share);
}

}  // namespace

StatusOr<std::unique_ptr<ModelDrafter>> ModelDrafter::Create(std::shared_ptr<const Model> draft,
                                                             const Options& options) {
  const Backend& backend = draft->backend();
  WEFT_ASSIGN_OR_RETURN(auto store, backend.NewState(*draft->weights(), options.state));
  ExecutorOptions executor_options;
  executor_options.n_threads = options.n_threads;
  executor_options.max_step_tokens = std::max<int64_t>(kMaxRows, 2 * options.max_texts);
  executor_options.max_beside_tokens = 1;
  executor_options.shares_threads_with = options.executor;
  WEFT_ASSIGN_OR_RETURN(auto executor,
                        backend.NewExecutor(draft->weights(), store.get(), executor_options));
  StateMemory::Options memory_options;
  memory_options.budget_bytes = ShareOf(options.memory_bytes, store->layout(), options.beside);
  memory_options.prefix_cache = options.prefix_cache;
  memory_options.share_across_domains = options.share_across_domains;
  memory_options.checkpoint_share = options.checkpoint_share;
  WEFT_ASSIGN_OR_RETURN(auto memory,
                        StateMemory::Create(draft->spec(), store.get(), memory_options));
  std::unique_ptr<ModelDrafter> drafter(new ModelDrafter(
      std::move(draft), options, std::move(store), std::move(executor), std::move(memory)));
  WEFT_RETURN_IF_ERROR(drafter->WarmUp());
  drafter->DropPrefixes();
  WEFT_RETURN_IF_ERROR(drafter->model_->CheckFile());
  return drafter;
}

ModelDrafter::ModelDrafter(std::shared_ptr<const Model> draft, const Options& options,
                           std::unique_ptr<StateStore> store, std::unique_ptr<Executor> executor,
                           std::unique_ptr<StateMemory> memory)
    : Drafter(std::move(draft), options.on_notice),
      options_(options),
      store_(std::move(store)),
      executor_(std::move(executor)),
      memory_(std::move(memory)),
      table_(/*tag=*/0, /*max_sessions=*/1) {}

ModelDrafter::~ModelDrafter() = default;

Status ModelDrafter::MeasureStep() {
  const std::unique_ptr<Drafter::Text> begun = Begin("");
  Text* const text = Own(begun.get());
  const std::vector<TokenId> tokens(static_cast<size_t>(text->unseen() + 1), 0);
  const std::vector<float> hidden(static_cast<size_t>(model_->spec().d_model), 0.0f);
  if (takes_hidden()) Show(text, 0, hidden);
  if (Follow(text, tokens) < 0) return ResourceExhausted("there is no memory for it");
  WEFT_RETURN_IF_ERROR(memory_->Prepare(text->session_, 1));
  Part part = PartOf(text, 1);
  part.wants_next = true;
  WEFT_RETURN_IF_ERROR(RunParts(std::span(&part, 1)));
  memory_->Commit(text->session_);
  memory_->Drop(text->session_);
  if (part.next == kNoToken) return Internal("it computes values that are not finite");
  return OkStatus();
}

// --- texts ------------------------------------------------------------------------------

ModelDrafter::Text::Text(ModelDrafter* drafter, std::string_view domain, Session* session)
    : drafter_(drafter),
      domain_(domain),
      session_(session),
      hidden_(drafter->model_->spec().d_model, kMaxHidden) {}

std::unique_ptr<Drafter::Text> ModelDrafter::Begin(std::string_view domain) {
  auto session = table_.CreateForTurn(domain);
  if (session.ok()) (*session)->stage.Become(SessionStage::kRunning);
  std::unique_ptr<Text> text(new Text(this, domain, session.ok() ? *session : nullptr));
  texts_.push_back(text.get());
  return text;
}

void ModelDrafter::Show(Drafter::Text* text, int64_t first, std::span<const float> hidden) {
  Own(text)->hidden_.Put(first, hidden);
}

ModelDrafter::Text::~Text() { drafter_->Release(this); }

// Leaves its state in the prefix cache, for texts that continue from here.
void ModelDrafter::Release(Text* text) {
  std::erase(texts_, text);
  if (text->session_ == nullptr) return;
  Settle(text, {});
  // State that starts in the middle of a text is no text's prefix.
  if (usable() && text->first_row_ == 0) memory_->KeepTail(text->session_);
  memory_->Drop(text->session_);
  table_.Remove(text->session_);
  memory_->ReturnFreed();
}

// Keeps the rows computed for draft tokens that match the text.
void ModelDrafter::Settle(Text* text, std::span<const TokenId> tokens) {
  Session* const session = text->session_;
  if (session->state.prepared() > session->computed()) {
    const auto known =
        takes_hidden()
            ? std::span<const TokenId>()
            : tokens.subspan(std::min(tokens.size(), static_cast<size_t>(session->computed())));
    const auto differ =
        std::mismatch(text->ahead_.begin(), text->ahead_.end(), known.begin(), known.end());
    memory_->CommitFirst(session, differ.first - text->ahead_.begin());
  }
  text->ahead_.clear();
}

int64_t ModelDrafter::Follow(Drafter::Text* of, std::span<const TokenId> tokens) {
  Text* const text = Own(of);
  if (text->session_ == nullptr || !usable()) return -1;
  const int64_t n = std::ssize(tokens);
  if (n <= text->unseen() || n < text->rests_until_ || n >= model_->context_tokens()) return -1;
  Session* const session = text->session_;
  const auto seen = tokens.subspan(static_cast<size_t>(text->unseen()));
  // A prefix of the known text, which is being computed once more.
  if (seen.size() < session->tokens.size()) return -1;
  const auto added = seen.subspan(session->tokens.size());
  // Input embeddings belong to the engine's model.
  const auto is_foreign = [&](TokenId token) { return IsRow(token) || token >= model_->n_vocab(); };
  if (std::any_of(added.begin(), added.end(), is_foreign)) {
    text->rests_until_ = model_->context_tokens();
    return -1;
  }
  const bool begins = session->tokens.empty();
  for (const TokenId token : added) session->tokens.push_back(token);
  // The last token is always computed, for the logits after it.
  Settle(text, seen.first(seen.size() - 1));
  if (session->computed() == 0 && text->first_row_ == 0) {
    memory_->Reuse(session, std::ssize(seen) - 1);
  }
  if (begins) memory_->PlanCheckpoints(session, {});
  if (takes_hidden() && !FollowHidden(text, tokens)) return -1;
  return std::ssize(text->session_->tokens) - text->session_->computed();
}

// Whether the hidden values of all remaining tokens are present, or replaced by zeros.
bool ModelDrafter::FollowHidden(Text* text, std::span<const TokenId> tokens) {
  HiddenRows& hidden = text->hidden_;
  const int64_t next = text->first_row_ + text->session_->computed();
  const int64_t end = std::ssize(tokens) - 1;
  hidden.ForgetBefore(next);
  if (hidden.end() < end || hidden.begin() >= end) return false;
  if (hidden.begin() - next <= kMaxMissing) {
    hidden.PadFrom(next);
    return true;
  }
  BeginAnew(text, hidden.begin(), tokens);
  return text->session_ != nullptr;
}

void ModelDrafter::KeepLast(Drafter::Text* of, std::span<const TokenId> tokens, int64_t last) {
  Text* const text = Own(of);
  if (text->session_ == nullptr) return;
  Settle(text, {});
  BeginAnew(text, std::ssize(tokens) - last, tokens);
}

// Starts over with the text from `first_row` on, in a domain of its own, so that no other text
// finds this state.
void ModelDrafter::BeginAnew(Text* text, int64_t first_row, std::span<const TokenId> tokens) {
  memory_->Drop(text->session_);
  table_.Remove(text->session_);
  auto session = table_.CreateForTurn(StrCat(text->domain_, "\n", ++n_anew_));
  text->session_ = session.ok() ? *session : nullptr;
  text->first_row_ = first_row;
  if (!session.ok()) return;
  (*session)->stage.Become(SessionStage::kRunning);
  for (const TokenId token : tokens.subspan(static_cast<size_t>(text->unseen()))) {
    (*session)->tokens.push_back(token);
  }
  memory_->PlanCheckpoints(*session, {});
}

// The part of a step for the text's next `n` tokens.
ModelDrafter::Part ModelDrafter::PartOf(Text* text, int64_t n) const {
  const Session& session = *text->session_;
  const auto from = session.tokens.begin() + session.computed();
  Part part{.text = text, .tokens = {from, from + n}, .position = session.computed()};
  if (takes_hidden()) part.hidden = text->hidden_.Rows(text->first_row_ + part.position, n);
  return part;
}

bool ModelDrafter::PrepareText(Text* text, int64_t n) {
  if (memory_->Prepare(text->session_, n).ok()) return true;
  text->rests_until_ = text->unseen() + std::ssize(text->session_->tokens) + kRest;
  memory_->Drop(text->session_);  // other texts can use it meanwhile
  return false;
}

void ModelDrafter::CatchUp(Drafter::Text* of, int64_t rows) {
  Text* const text = Own(of);
  const int64_t end = std::ssize(text->session_->tokens);
  ComputeTo(text, std::min(end, text->session_->computed() + rows));
}

bool ModelDrafter::ComputeTo(Text* text, int64_t n_tokens) {
  Session* const session = text->session_;
  while (session->computed() < n_tokens) {
    const int64_t n =
        std::min({n_tokens - session->computed(), kMaxRows, memory_->RowsToCheckpoint(*session)});
    if (!PrepareText(text, n)) return false;
    Part part = PartOf(text, n);
    if (!RunOrGiveUp(std::span(&part, 1))) return false;
    memory_->Commit(session);
  }
  return true;
}

// --- drafts -----------------------------------------------------------------------------

std::vector<ModelDrafter::Draft> ModelDrafter::Continue(std::span<const Ask> asks) {
  std::vector<Draft> drafts(asks.size());
  std::vector<Part> parts = FirstParts(asks);
  if (parts.empty() || !RunOrGiveUp(parts)) return drafts;
  TakeFirst(asks, parts, &drafts);
  while (true) {
    parts.clear();
    for (size_t i = 0; i < asks.size(); ++i) {
      const Draft& draft = drafts[i];
      Text* const text = Own(asks[i].text);
      const auto n_ahead = std::ssize(text->ahead_);
      const bool goes_on = draft.GoesOn(asks[i]) && std::ssize(draft.tokens) == n_ahead + 1 &&
                           text->session_->computed() + n_ahead < text->session_->state.prepared();
      if (!goes_on) continue;
      parts.push_back({.text = text,
                       .ask = i,
                       .tokens = {draft.tokens.back()},
                       .position = text->session_->computed() + n_ahead,
                       .hidden = text->hidden_ahead_,
                       .wants_next = true});
    }
    if (parts.empty() || !RunOrGiveUp(parts)) return drafts;
    for (const Part& part : parts) {
      part.text->ahead_.push_back(part.tokens[0]);
      if (part.next == kNoToken) continue;
      Draft& draft = drafts[part.ask];
      draft.tokens.push_back(part.next);
      draft.chances.push_back(part.chance);
    }
  }
}

// The remaining tokens of each text.
std::vector<ModelDrafter::Part> ModelDrafter::FirstParts(std::span<const Ask> asks) {
  std::vector<Part> parts;
  int64_t room = kMaxRows;
  for (size_t i = 0; i < asks.size(); ++i) {
    Text* const text = Own(asks[i].text);
    Session* const session = text->session_;
    const int64_t end = std::ssize(session->tokens);
    // A step must end where a checkpoint is due.
    const int64_t due = memory_->RowsToCheckpoint(*session);
    if (due < end - session->computed() && !ComputeTo(text, session->computed() + due)) continue;
    const int64_t n = end - session->computed();
    if (n > room || n > memory_->RowsToCheckpoint(*session)) continue;
    if (!PrepareText(text, n)) continue;
    room -= n;
    parts.push_back(PartOf(text, n));
    parts.back().ask = i;
    parts.back().wants_next = true;
  }
  return parts;
}

// After the first step: takes the token after each text, and prepares memory for further tokens.
void ModelDrafter::TakeFirst(std::span<const Ask> asks, std::span<const Part> parts,
                             std::vector<Draft>* drafts) {
  for (const Part& part : parts) {
    Session* const session = part.text->session_;
    memory_->Commit(session);
    if (part.next == kNoToken) continue;
    (*drafts)[part.ask] = {.tokens = {part.next}, .chances = {part.chance}};
    const int64_t n = std::min({asks[part.ask].most - 1, memory_->RowsToGuess(*session),
                                model_->context_tokens() - session->computed()});
    if (n > 0) memory_->PrepareGuessed(session, n, /*spare_bytes=*/0);
  }
}

// --- steps ------------------------------------------------------------------------------

// After an error, drops the state of these texts and skips them for a while.
bool ModelDrafter::RunOrGiveUp(std::span<Part> parts) {
  Status status = RunParts(parts);
  if (status.ok()) status = model_->CheckFile();
  if (!CountFailure(status)) return true;
  for (const Part& part : parts) {
    part.text->ahead_.clear();
    part.text->rests_until_ = part.text->unseen() + std::ssize(part.text->session_->tokens) + kRest;
    memory_->Drop(part.text->session_);
  }
  return false;
}

Status ModelDrafter::RunParts(std::span<Part> parts) {
  std::vector<StepSequence> sequences;
  for (const Part& part : parts) {
    StepSequence sequence{.tokens = part.tokens, .hidden = part.hidden, .position = part.position};
    for (const PageTable& table : part.text->session_->state.tables()) {
      sequence.page_tables.push_back(table.pages());
    }
    sequence.slot = part.text->session_->state.slot().id();
    sequence.n_logits = part.wants_next ? 1 : 0;
    sequences.push_back(std::move(sequence));
  }
  WEFT_ASSIGN_OR_RETURN(auto all, Run(executor_.get(), std::move(sequences)));
  auto next = all.begin();
  for (Part& part : parts) {
    if (!part.wants_next) continue;
    part.next = next->token;
    part.chance = next->chance;
    part.text->hidden_ahead_ = std::move(next->hidden);
    ++next;
  }
  return OkStatus();
}

// --- statistics and checks --------------------------------------------------------------

void ModelDrafter::FillStats(EngineStats* stats) const {
  Drafter::FillStats(stats);
  int64_t floats = 0;
  for (const Text* text : texts_) floats += text->shown_rows() * model_->spec().d_model;
  stats->draft_state_bytes = memory_->used_bytes();
  stats->draft_scratch_bytes +=
      executor_->scratch_bytes() + floats * static_cast<int64_t>(sizeof(float));
}

void ModelDrafter::DropPrefixes() {
  memory_->DropPrefixes();
  memory_->ReturnFreed();
}

Status ModelDrafter::CheckIntegrity() {
  for (Text* const text : texts_) {
    if (text->session_ != nullptr) Settle(text, {});
  }
  return memory_->CheckIntegrity(table_);
}

}  // namespace weft
