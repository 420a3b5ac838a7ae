// A draft model: a small model with the engine's vocabulary that guesses how an answer continues.
// It has its own executor, memory budget and prefix index.
//
// It may be a prediction head (ModelSpec::hidden_input). A head's input is a token and the hidden
// values that the model computed for the row before it (Show), so its first row is the text's
// second token. Lost hidden values are not computed again: if more are missing than zeros can stand
// in for, the head only knows the text from there on. While it drafts, it uses hidden values of its
// own; the rows are recomputed with the model's once the model has verified the tokens.
//
// Its state for a text depends only on the text, and belongs to one answer (Text). When the answer
// ends, the pages stay in the index, where the next answer that begins with the same tokens finds
// them: after another turn, a fork, a restored file, an undo, or for a prompt with a known
// beginning. Nobody else needs to know which of these it was. Domains never find each other's
// texts.
//
// Nothing here can fail a turn: a text for which there is no memory is left out for a while, and a
// draft model whose steps keep failing is no longer asked. Engine thread only.
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

// INVALID_ARGUMENT says how the draft model's vocabulary differs. One of them may have additional
// tokens at its end, such as fillers.
Status CheckDraftModel(const Model& model, const Model& draft);

class Drafter {
 public:
  struct Options {
    int n_threads = 0;
    // The engine's. Its threads compute drafts too: two sets of threads on the same cores get into
    // each other's way.
    const Executor* executor = nullptr;
    int max_texts = 32;  // drafted for at a time
    StateOptions state;
    // For both models. The draft model takes the share that lets it hold as many tokens as the
    // engine's model, whose layout is `beside`.
    int64_t memory_bytes = 0;
    StateLayout beside = {};
    bool prefix_cache = true;
    bool share_across_domains = false;
    double checkpoint_share = 0;
    std::function<void(const std::string&)> on_notice = {};
  };
  // Also runs a first step, which must not fail.
  static StatusOr<std::unique_ptr<Drafter>> Create(std::shared_ptr<const Model> draft,
                                                   const Options& options);
  ~Drafter();

  // The draft model's state for one answer's text; must not outlive the Drafter.
  class Text {
   public:
    ~Text();
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

    // Rows whose hidden values were shown but not used yet.
    int64_t shown_rows() const { return hidden_.end() - hidden_.begin(); }

   private:
    friend class Drafter;
    Text(Drafter* drafter, std::string_view domain, Session* session);
    // How many tokens at the beginning of the text it does not know.
    int64_t unseen() const { return first_row_ + (drafter_->takes_hidden() ? 1 : 0); }

    Drafter* const drafter_;
    const std::string domain_;
    Session* session_;            // null: left out for now
    std::vector<TokenId> ahead_;  // drafted and computed, beyond the text
    int64_t rests_until_ = 0;     // left out until the text has this many tokens
    int64_t first_row_ = 0;       // from which on it knows the text
    // For a prediction head: the model's hidden values it has not used yet, and those of its own
    // latest drafted row.
    HiddenRows hidden_;
    std::vector<float> hidden_ahead_;
  };
  std::unique_ptr<Text> Begin(std::string_view domain);

  // Whether it is a prediction head; and one that takes values from before the output norm.
  bool takes_hidden() const { return hidden_input_.has_value(); }
  bool hidden_before_norm() const { return takes_hidden() && hidden_input_->before_output_norm; }
  // Takes the model's hidden values of the text's rows from `first` on. REQUIRES: takes_hidden().
  static void Show(Text* text, int64_t first, std::span<const float> hidden);
  // How many of `tokens`, the text so far, remain to be computed; -1: it can draft nothing.
  // REQUIRES: they extend those of the previous call, or are their beginning.
  int64_t Follow(Text* text, std::span<const TokenId> tokens);
  // Gives up the beginning of `tokens`, the text so far, for good, and knows it from its `last`
  // tokens on, which remain to be computed. What it drafts is then less often right, and no other
  // answer takes over what it computes. REQUIRES: !takes_hidden(), and Follow was called with them.
  void KeepLast(Text* text, std::span<const TokenId> tokens, int64_t last);
  // Computes up to `rows` of them.
  void CatchUp(Text* text, int64_t rows);

  struct Ask {
    Text* text = nullptr;
    int64_t most = 0;  // tokens; at least 1
    // Stops where it is less sure than this that all tokens so far are right.
    float least = 0;
  };
  struct Draft {
    std::vector<TokenId> tokens;
    std::vector<float> chances;  // how sure it is of each, if those before it are right
  };
  // Drafts how each text continues, with one step per position for all texts together. REQUIRES:
  // Follow was called with each text and few tokens remain.
  std::vector<Draft> Continue(std::span<const Ask> asks);

  // Computes one row that belongs to no answer, to measure how long that takes (step_us).
  Status MeasureStep();

  // Whether it still works.
  bool usable() const { return failures_ < kMostFailures; }
  // The time per step in the latest call.
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
  static constexpr int kMostFailures = 3;
  // A text's part of a step.
  struct Part {
    Text* text = nullptr;
    size_t ask = 0;  // its index, if the part belongs to a draft
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
  const int64_t n_best_;  // 0: the backend gives whole rows of logits
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
