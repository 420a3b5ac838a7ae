// A draft model: a small model with the vocabulary of the engine's, which says what an answer may
// go on with. It has an executor, a budget and an index of prefixes of its own.
//
// It may be a prediction head (ModelSpec::hidden_input). Beside each token that takes what the
// model computed of the row before it (Show), so its first row is the text's second token. Hidden
// values cannot be had again: where more of them are missing than can be passed over, it knows the
// text from there on only. What it goes on from its own guesses with is its own, and computed anew
// with the model's once that has verified them.
//
// What it has computed of a text depends on the text alone, and belongs to one answer (Text). When
// that ends its pages stay in the index, where the next answer that begins with the same tokens
// finds them: after another turn, a fork, a file read back or an undo, and for a prompt with a
// known beginning. Nobody else needs to know which of these it was. A domain's texts are never
// found by another's.
//
// Nothing here can fail a turn: without memory a text is left alone for a while, and when the draft
// model's steps fail again and again it is not asked any more. Engine thread only.
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

#include "backend/backend.h"
#include "base/best_tokens.h"
#include "base/status.h"
#include "base/tokens.h"
#include "engine/drafting/hidden_rows.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "weft/model.h"

namespace weft {

// INVALID_ARGUMENT says how the draft model's vocabulary differs. One may have more tokens than the
// other, as fillers at its end do.
Status CheckDraftModel(const Model& model, const Model& draft);

class Drafter {
 public:
  struct Options {
    int n_threads = 0;
    int max_texts = 32;  // drafted for at a time
    StateOptions state;
    // Of both models; the draft's part is what lets it hold as many tokens as the other, whose
    // layout this is.
    int64_t memory_bytes = 0;
    StateLayout beside = {};
    bool prefix_cache = true;
    bool share_across_domains = false;
    double checkpoint_share = 0;
    std::function<void(const std::string&)> on_notice = {};
  };
  // Computes a first step, which must not fail.
  static StatusOr<std::unique_ptr<Drafter>> Create(std::shared_ptr<const Model> draft,
                                                   const Options& options);
  ~Drafter();

  // What the draft model has of one answer's text; must not outlive the Drafter.
  class Text {
   public:
    ~Text();
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

    // Rows whose hidden values were shown and are not used yet.
    int64_t shown_rows() const { return hidden_.end() - hidden_.begin(); }

   private:
    friend class Drafter;
    Text(Drafter* drafter, std::string_view domain, Session* session);
    // How many of the text's first tokens it does not see.
    int64_t unseen() const { return drafter_->takes_hidden() ? first_hidden_ + 1 : 0; }

    Drafter* const drafter_;
    const std::string domain_;
    Session* session_;            // null: left alone
    std::vector<TokenId> ahead_;  // computed beyond the text, on trial
    int64_t rests_until_ = 0;     // tokens of the text
    // Of a prediction head: the model's rows that it has yet to see, from which of them on it knows
    // the text, and the hidden values of its own latest row on trial.
    HiddenRows hidden_;
    int64_t first_hidden_ = 0;
    std::vector<float> hidden_ahead_;
  };
  std::unique_ptr<Text> Begin(std::string_view domain);

  // Whether it is a prediction head, and takes values from before the model's output norm.
  bool takes_hidden() const { return hidden_input_.has_value(); }
  bool hidden_before_norm() const { return takes_hidden() && hidden_input_->before_output_norm; }
  // What the model computed of the text's rows from `first` on. REQUIRES: takes_hidden().
  static void Show(Text* text, int64_t first, std::span<const float> hidden);
  // How many tokens of `tokens`, which extend those of the former call or begin them, are still to
  // be computed; -1: it can draft nothing.
  int64_t Follow(Text* text, std::span<const TokenId> tokens);
  // Computes up to `rows` of them.
  void CatchUp(Text* text, int64_t rows);

  struct Ask {
    Text* text = nullptr;
    int64_t most = 0;  // tokens; at least 1
    // Where it is less sure than this of all tokens so far it stops.
    float least = 0;
  };
  struct Draft {
    std::vector<TokenId> tokens;
    std::vector<float> chances;  // how sure the draft is of each, if those before it are right
  };
  // What each text goes on with: one step for all texts and position. REQUIRES: Follow was called
  // with the text, and found few tokens left.
  std::vector<Draft> Continue(std::span<const Ask> asks);

  // Computes one row that belongs to no answer, for the time that it takes (step_us).
  Status MeasureStep();

  // Whether it still works.
  bool usable() const { return failures_ < kMostFailures; }
  // What a step of the latest call took.
  int64_t step_us() const { return step_us_; }
  int64_t steps() const { return steps_; }
  int64_t total_us() const { return total_us_; }
  const Model& model() const { return *model_; }
  int64_t budget_bytes() const { return memory_->budget_bytes(); }
  void FillStats(EngineStats* stats) const;
  void DropPrefixes();
  // Takes back what is computed on trial, and compares all counts.
  Status CheckIntegrity();

 private:
  static constexpr int kMostFailures = 3;
  // A text's part of a step.
  struct Part {
    Text* text = nullptr;
    size_t ask = 0;  // which, where it is part of a draft
    std::vector<TokenId> tokens;
    int64_t position = 0;
    std::span<const float> hidden = {};  // of a prediction head
    bool wants_next = false;
    TokenId next = kNoToken;  // out
    float chance = 0;
  };

  Drafter(std::shared_ptr<const Model> draft, const Options& options,
          std::unique_ptr<StateStore> store, std::unique_ptr<Executor> executor,
          std::unique_ptr<StateMemory> memory);
  Status WarmUp();
  bool FollowHidden(Text* text, std::span<const TokenId> tokens);
  void BeginAnew(Text* text, int64_t first_hidden);
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
  const int64_t n_best_;  // 0: the backend gives whole rows
  int64_t n_anew_ = 0;
  SessionTable table_;
  std::vector<Text*> texts_;
  std::vector<float> logits_;
  std::vector<TokenLogit> best_;
  std::vector<float> vectors_;
  int failures_ = 0;  // in a row
  int64_t step_us_ = 0, steps_ = 0, total_us_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_DRAFTING_DRAFTER_H_
