// A prediction head that reads the model's KV cache (model/head_spec.h), such as Gemma 4's
// assistants. It keeps no state of a text but the hidden values of the last computed row, so it
// has nothing to catch up with: it drafts whenever the model has just computed a row.
//
// Its steps read the pages of the asking session, in the engine's state. Meanwhile the engine
// computes nothing; a long step of it may be paused, which writes pages of other sessions. Engine
// thread only.
#ifndef WEFT_ENGINE_DRAFTING_SHARED_HEAD_DRAFTER_H_
#define WEFT_ENGINE_DRAFTING_SHARED_HEAD_DRAFTER_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/state_store.h"
#include "engine/drafting/drafter.h"

namespace weft {

class SharedHeadDrafter final : public Drafter {
 public:
  struct Options {
    std::shared_ptr<const Model> model;  // whose head it is
    // The engine's state and executor, which outlive the drafter.
    StateStore* state = nullptr;
    const Executor* executor = nullptr;
    int n_threads = 0;
    int max_texts = 32;  // texts in one step
    std::function<void(const std::string&)> on_notice = {};
  };
  // Also runs the first steps, which must succeed.
  static StatusOr<std::unique_ptr<SharedHeadDrafter>> Create(std::shared_ptr<const Model> head,
                                                             const Options& options);

  std::unique_ptr<Drafter::Text> Begin(std::string_view domain) override;
  void Show(Drafter::Text* text, int64_t first, std::span<const float> hidden) override;
  int64_t Follow(Drafter::Text* text, std::span<const TokenId> tokens) override;
  void KeepLast(Drafter::Text* text, std::span<const TokenId> tokens, int64_t last) override;
  void CatchUp(Drafter::Text* /*text*/, int64_t /*rows*/) override {}
  std::vector<Draft> Continue(std::span<const Ask> asks) override;
  Status MeasureStep() override;
  int64_t budget_bytes() const override {
    return page_->held_bytes() + executor_->later_bytes() + on_page_->later_bytes();
  }
  void FillStats(EngineStats* stats) const override;
  void DropPrefixes() override {}
  Status CheckIntegrity() override { return OkStatus(); }

 private:
  struct Text final : Drafter::Text {
    int64_t shown_rows() const override { return 0; }

    int64_t row = -1;           // the last row shown
    std::vector<float> hidden;  // its values
  };
  // A row of a step: a draft's next token and the hidden values before it.
  struct Row {
    size_t ask = 0;
    TokenId token = kNoToken;
    std::vector<float> hidden;
  };

  SharedHeadDrafter(std::shared_ptr<const Model> head, const Options& options);
  Status Start();
  // Computes the rows; the results replace their tokens and hidden values.
  Status Step(std::span<const Ask> asks, std::span<Row> rows, std::vector<Draft>* drafts);
  // The head's input: the model's embedding of each row's token, and its hidden values.
  StatusOr<std::vector<std::vector<float>>> InputsOf(std::span<const Row> rows) const;
  std::vector<float> BackToModel(std::span<const float> own) const;

  const Options options_;
  std::unique_ptr<Executor> executor_;
  // A page of its own, and an executor for it, for steps outside of any text.
  std::unique_ptr<StateStore> page_;
  std::unique_ptr<Executor> on_page_;
  std::vector<float> back_;  // HiddenInput::back, by input and then by output
};

}  // namespace weft

#endif  // WEFT_ENGINE_DRAFTING_SHARED_HEAD_DRAFTER_H_
