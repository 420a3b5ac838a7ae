// Drafts how answers continue, with a small model. An answer's text is followed by its own Text.
//
// It may be a prediction head (ModelSpec::hidden_input). A head's input is a token and the hidden
// values that the model computed for the row before it (Show). While it drafts, it uses its own
// hidden values.
//
// There are two kinds: ModelDrafter has a state of its own for each text, SharedHeadDrafter reads
// the model's.
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
#include "weft/engine.h"
#include "weft/model.h"

namespace weft {

struct Session;

// INVALID_ARGUMENT says how the two vocabularies differ. One of them may have additional tokens at
// its end, such as fillers.
Status CheckDraftModel(const Model& model, const Model& draft);

class Drafter {
 public:
  virtual ~Drafter() = default;

  // One answer's text; must not outlive the Drafter.
  class Text {
   public:
    virtual ~Text() = default;
    // Rows whose hidden values were shown but are not used yet.
    virtual int64_t shown_rows() const = 0;
  };
  virtual std::unique_ptr<Text> Begin(std::string_view domain) = 0;

  // Whether it is a prediction head, and whether that takes values before the output norm.
  bool takes_hidden() const { return hidden_input_.has_value(); }
  bool hidden_before_norm() const { return takes_hidden() && hidden_input_->before_output_norm; }
  // The hidden values of a row of the model.
  int64_t hidden_width() const { return hidden_width_; }
  // Takes the model's hidden values for the text's rows from `first` on. REQUIRES: takes_hidden().
  virtual void Show(Text* text, int64_t first, std::span<const float> hidden) = 0;
  // How many of `tokens`, the text so far, remain to be computed; -1 if it cannot draft.
  // REQUIRES: `tokens` extend those of the previous call, or are a prefix of them.
  virtual int64_t Follow(Text* text, std::span<const TokenId> tokens) = 0;
  // Drops the beginning of `tokens`, the text so far, for good: it then knows only the `last`
  // tokens, which remain to be computed. Its drafts are accepted less often, and no other answer
  // reuses its state. REQUIRES: !takes_hidden(), and Follow was called with `tokens`.
  virtual void KeepLast(Text* text, std::span<const TokenId> tokens, int64_t last) = 0;
  // Computes up to `rows` of the remaining tokens.
  virtual void CatchUp(Text* text, int64_t rows) = 0;

  struct Ask {
    Text* text = nullptr;
    // Whose text it is. REQUIRES: all of it but the last token is computed.
    const Session* session = nullptr;
    int64_t most = 0;  // tokens; at least 1
    // Stops when the probability that all tokens so far are right falls below this.
    float least = 0;
  };
  struct Draft {
    std::vector<TokenId> tokens;
    std::vector<float> chances;  // the probability of each, given those before it
    // Whether it should continue, by its probability and number of tokens.
    bool GoesOn(const Ask& ask) const;
  };
  // Drafts a continuation of each text, with one step per position for all texts together.
  // REQUIRES: Follow was called with each text, and few tokens remain.
  virtual std::vector<Draft> Continue(std::span<const Ask> asks) = 0;

  // Computes one row outside of any answer, to measure the time of a step (step_us).
  virtual Status MeasureStep() = 0;

  // False after too many failures in a row.
  bool usable() const { return failures_ < kMaxFailures; }
  // The time of the latest step.
  int64_t step_us() const { return step_us_; }
  int64_t steps() const { return steps_; }
  int64_t total_us() const { return total_us_; }
  const Model& model() const { return *model_; }
  virtual int64_t budget_bytes() const = 0;
  virtual void FillStats(EngineStats* stats) const;
  virtual void DropPrefixes() = 0;
  // Discards drafted rows and cross-checks all counts.
  virtual Status CheckIntegrity() = 0;

 protected:
  // The result of a sequence's last row.
  struct Next {
    TokenId token = kNoToken;
    float chance = 0;
    std::vector<float> hidden;  // a head's own
  };

  Drafter(std::shared_ptr<const Model> draft, std::function<void(const std::string&)> on_notice);
  // Runs the first steps with cold caches. The fastest of the next ones is the first measurement.
  Status WarmUp();
  // Runs a step. The results are those of the sequences with n_logits = 1, in order.
  StatusOr<std::vector<Next>> Run(Executor* executor, std::vector<StepSequence> sequences);
  // After a step: whether it was one more failure. Says so if it was the last.
  bool CountFailure(const Status& status);

  const std::shared_ptr<const Model> model_;
  const std::optional<HiddenInput> hidden_input_;

 private:
  static constexpr int kMaxFailures = 3;

  static Next ReadBest(std::span<const TokenLogit> best);

  const std::function<void(const std::string&)> on_notice_;
  const int64_t hidden_width_;
  const int64_t n_best_;  // 0: the backend returns full rows of logits
  std::vector<float> logits_;
  std::vector<TokenLogit> best_;
  std::vector<float> vectors_;
  int failures_ = 0;  // consecutive
  int64_t step_us_ = 0, steps_ = 0, total_us_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_DRAFTING_DRAFTER_H_
