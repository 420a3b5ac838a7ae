// A draft model with the engine's vocabulary and a state, memory budget and prefix cache of its
// own.
//
// The first row of an MTP head is the text's second token. Lost hidden values are not recomputed:
// if more rows are missing than zeros can replace, the head knows the text only from there on. Rows
// that it drafted are recomputed with the model's values once the model has verified the tokens.
//
// Its state for a text depends only on the text, and belongs to one answer (Text). When the answer
// ends, its pages stay in the prefix cache, for the next answer that begins with the same tokens:
// in another turn, after a fork, from a restored file, after an undo, or with a known prefix of the
// prompt. Callers do not distinguish these cases. Domains never find each other's texts.
//
// Engine thread only.
#ifndef WEFT_ENGINE_DRAFTING_MODEL_DRAFTER_H_
#define WEFT_ENGINE_DRAFTING_MODEL_DRAFTER_H_

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
#include "engine/drafting/drafter.h"
#include "engine/drafting/hidden_rows.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "weft/model.h"

namespace weft {

class ModelDrafter final : public Drafter {
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
  static StatusOr<std::unique_ptr<ModelDrafter>> Create(std::shared_ptr<const Model> draft,
                                                        const Options& options);
  ~ModelDrafter() override;

  std::unique_ptr<Drafter::Text> Begin(std::string_view domain) override;
  void Show(Drafter::Text* text, int64_t first, std::span<const float> hidden) override;
  int64_t Follow(Drafter::Text* text, std::span<const TokenId> tokens) override;
  void KeepLast(Drafter::Text* text, std::span<const TokenId> tokens, int64_t last) override;
  void CatchUp(Drafter::Text* text, int64_t rows) override;
  std::vector<Draft> Continue(std::span<const Ask> asks) override;
  Status MeasureStep() override;
  int64_t budget_bytes() const override { return memory_->budget_bytes(); }
  void FillStats(EngineStats* stats) const override;
  void DropPrefixes() override;
  Status CheckIntegrity() override;

 private:
  // The draft model's state for one answer's text.
  class Text final : public Drafter::Text {
   public:
    Text(ModelDrafter* drafter, std::string_view domain, Session* session);
    ~Text() override;
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

    int64_t shown_rows() const override { return hidden_.end() - hidden_.begin(); }

   private:
    friend class ModelDrafter;
    // The number of tokens at the beginning of the text that it does not know.
    int64_t unseen() const { return first_row_ + (drafter_->takes_hidden() ? 1 : 0); }

    ModelDrafter* const drafter_;
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

  ModelDrafter(std::shared_ptr<const Model> draft, const Options& options,
               std::unique_ptr<StateStore> store, std::unique_ptr<Executor> executor,
               std::unique_ptr<StateMemory> memory);
  static Text* Own(Drafter::Text* text) { return static_cast<Text*>(text); }
  bool FollowHidden(Text* text, std::span<const TokenId> tokens);
  void BeginAnew(Text* text, int64_t first_row, std::span<const TokenId> tokens);
  Part PartOf(Text* text, int64_t n) const;
  void Settle(Text* text, std::span<const TokenId> tokens);
  bool ComputeTo(Text* text, int64_t n_tokens);
  bool PrepareText(Text* text, int64_t n);
  std::vector<Part> FirstParts(std::span<const Ask> asks);
  void TakeFirst(std::span<const Ask> asks, std::span<const Part> parts,
                 std::vector<Draft>* drafts);
  Status RunParts(std::span<Part> parts);
  bool RunOrGiveUp(std::span<Part> parts);
  void Release(Text* text);

  const Options options_;
  const std::unique_ptr<StateStore> store_;
  const std::unique_ptr<Executor> executor_;
  const std::unique_ptr<StateMemory> memory_;
  int64_t n_anew_ = 0;
  SessionTable table_;
  std::vector<Text*> texts_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_DRAFTING_MODEL_DRAFTER_H_
