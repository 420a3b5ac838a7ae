// A draft model: a small model with the engine's vocabulary that proposes how an answer continues.
// It has its own executor, memory budget and prefix cache.
//
// It may be a prediction head such as an MTP head (ModelSpec::hidden_input). A head's input is a
// token and the hidden values that the model computed for the row before it (Show), so its first
// row is the text's second token. Lost hidden values are not recomputed: if more rows are missing
// than zeros can replace, the head knows the text only from there on. While it drafts, it uses its
// own hidden values; these rows are recomputed with the model's values once the model has verified
// the tokens.
//
// Its state for a text depends only on the text, and belongs to one answer (Text). When the answer
// ends, its pages stay in the prefix cache, for the next answer that begins with the same tokens:
// in another turn, after a fork, from a restored file, after an undo, or with a known prefix of the
// prompt. Callers do not distinguish these cases. Domains never find each other's texts.
//
// Nothing here can fail a turn: a text that gets no memory is skipped for a while, and a draft
// model whose steps keep failing is no longer used. Engine thread only.
#ifndef WEFT_ENGINE_DRAFTING_DRAFTER_H_
#define WEFT_ENGINE_DRAFTING_DRAFTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/best_tokens.h"
#include "base/status.h"
#include "base/tokens.h"
#include "compute/backend.h"
#include "engine/drafting/hidden_rows.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "weft/model.h"

namespace weft {

// INVALID_ARGUMENT says how the two vocabularies differ. One of them may have additional tokens at
// its end, such as fillers.
Status CheckDraftModel(const Model& model, const Model& draft);

class Drafter {
 public:
  struct Options {
    int n_threads = 0;
    // The engine's executor. Its threads compute drafts too: two sets of threads would compete for
    // the same cores.
    const Executor* executor = nullptr;
    int max_texts = 32;  // texts in one call of Continue
    StateOptions state;
    // The budget for both models. The draft model takes a share with which it can hold as many
    // tokens as the engine's model, whose layout is `beside`.
    int64_t memory_bytes = 0;
    StateLayout beside = {};
    bool prefix_cache = true;
    bool share_across_domains = false;
    double checkpoint_share = 0;
    std::function<void(const std::string&)> on_notice = {};
  };
  // Also runs the first steps, which must succeed.
  static StatusOr<std::unique_ptr<Drafter>> Create(std::shared_ptr<const Model> draft,
                                                   const Options& options);
  ~Drafter();

  // The draft model's state for one answer's text; must not outlive the Drafter.
  class Text {
   public:
    ~Text();
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

    // Rows whose hidden values were shown but are not used yet.
    int64_t shown_rows() const { return hidden_.end() - hidden_.begin(); }

   private:
    friend class Drafter;
    Text(Drafter* drafter, std::string_view domain, Session* session);
    // The number of tokens at the beginning of the text that it does not know.
    int64_t unseen() const { return first_row_ + (drafter_->takes_hidden() ? 1 : 0); }

    Drafter* const drafter_;
    const std::string domain_;
    Session* session_;            // null: skipped for now
    std::vector<TokenId> ahead_;  // drafted and computed, after the text
    int64_t rests_until_ = 0;     // skipped until the text has this many tokens
    int64_t first_row_ = 0;       // it knows the text from this row on
    // For a prediction head: the model's hidden values that are not used yet, and the head's own
    // values of its latest drafted row.
    HiddenRows hidden_;
    std::vector<float> hidden_ahead_;
  };
  std::unique_ptr<Text> Begin(std::string_view domain);

  // Whether it is a prediction head, and whether that takes values before the output norm.
  bool takes_hidden() const { return hidden_input_.has_value(); }
  bool hidden_before_norm() const { return takes_hidden() && hidden_input_->before_output_norm; }
  // Takes the model's hidden values for the text's rows from `first` on. REQUIRES: takes_hidden().
  static void Show(Text* text, int64_t first, std::span<const float> hidden);
  // How many of `tokens`, the text so far, remain to be computed; -1 if it cannot draft.
  // REQUIRES: `tokens` extend those of the previous call, or are a prefix of them.
  int64_t Follow(Text* text, std::span<const TokenId> tokens);
  // Drops the beginning of `tokens`, the text so far, for good: it then knows only the `last`
  // tokens, which remain to be computed. Its drafts are accepted less often, and no other answer
  // reuses its state. REQUIRES: !takes_hidden(), and Follow was called with `tokens`.
  void KeepLast(Text* text, std::span<const TokenId> tokens, int64_t last);
  // Computes up to `rows` of the remaining tokens.
  void CatchUp(Text* text, int64_t rows);

  struct Ask {
    Text* text = nullptr;
    int64_t most = 0;  // tokens; at least 1
    // Stops when the probability that all tokens so far are right falls below this.
    float least = 0;
  };
  struct Draft {
    std::vector<TokenId> tokens;
    std::vector<float> chances;  // the probability of each, given those before it
  };
  // Drafts a continuation of each text, with one step per position for all texts together.
  // REQUIRES: Follow was called with each text, and few tokens remain.
  std::vector<Draft> Continue(std::span<const Ask> asks);

  // Computes one row outside of any answer, to measure the time of a step (step_us).
  Status MeasureStep();

  // False after too many failures in a row.
  bool usable() const { return failures_ < kMaxFailures; }
  // The time of the latest step.
  int64_t step_us() const { return step_us_; }
  int64_t steps() const { return steps_; }
  int64_t total_us() const { return total_us_; }
  const Model& model() const { return *model_; }
  int64_t budget_bytes() const { return memory_->budget_bytes(); }
  void FillStats(EngineStats* stats) const;
  void DropPrefixes();
  // Discards drafted rows and cross-checks all counts.
  Status CheckIntegrity();

 private:
  static constexpr int kMaxFailures = 3;
  // A text's part of a step.
  struct Part {
    Text* text = nullptr;
    size_t ask = 0;  // index of its Ask, if the part belongs to a draft
    std::vector<TokenId> tokens;
    int64_t position = 0;
    std::span<const float> hidden = {};  // for a prediction head
    bool wants_next = false;
    TokenId next = kNoToken;  // out
    float chance = 0;
  };

  Drafter(std::shared_ptr<const Model> draft, const Options& options,
          std::unique_ptr<StateStore> store, std::unique_ptr<Executor> executor,
          std::unique_ptr<StateMemory> memory);
  Status WarmUp();
  bool FollowHidden(Text* text, std::span<const TokenId> tokens);
  void BeginAnew(Text* text, int64_t first_row, std::span<const TokenId> tokens);
  Part PartOf(Text* text, int64_t n) const;
  void Settle(Text* text, std::span<const TokenId> tokens);
  bool ComputeTo(Text* text, int64_t n_tokens);
  bool PrepareText(Text* text, int64_t n);
  std::vector<Part> FirstParts(std::span<const Ask> asks);
  void TakeFirst(std::span<const Ask> asks, std::span<const Part> parts,
                 std::vector<Draft>* drafts);
  Status Run(std::span<Part> parts);
  bool RunOrGiveUp(std::span<Part> parts);
  void ReadBest(std::span<const TokenLogit> best, Part* part) const;
  void Release(Text* text);

  const std::shared_ptr<const Model> model_;
  const Options options_;
  const std::unique_ptr<StateStore> store_;
  const std::unique_ptr<Executor> executor_;
  const std::unique_ptr<StateMemory> memory_;
  const std::optional<HiddenInput> hidden_input_;
  const int64_t n_best_;  // 0: the backend returns full rows of logits
  int64_t n_anew_ = 0;
  SessionTable table_;
  std::vector<Text*> texts_;
  std::vector<float> logits_;
  std::vector<TokenLogit> best_;
  std::vector<float> vectors_;
  int failures_ = 0;  // consecutive
  int64_t step_us_ = 0, steps_ = 0, total_us_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_DRAFTING_DRAFTER_H_
