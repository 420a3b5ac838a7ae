// A Drafter with a prediction head drafts the tokens that the head gives step by step, whenever the
// hidden values were shown.
#include <algorithm>
#include <string>
#include <vector>

#include "base/best_tokens.h"
#include "compute/backend.h"
#include "engine/drafting/model_drafter.h"
#include "engine/engine_test_util.h"
#include "engine/kv_type.h"

namespace weft {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kWidth = 64;
constexpr StateOptions kState = {.kv_type = DType::kF32, .page_tokens = 16};

// One sequence of a model or head, advanced by plain steps.
class Steps {
 public:
  explicit Steps(const Model& model) : model_(model) {
    store_ = *model.backend().NewState(*model.weights(), kState);
    for (size_t group = 0; group < model.spec().kv_groups.size(); ++group) {
      EXPECT_OK(store_->GrowPages(static_cast<int>(group), 32));
    }
    if (!model.spec().slots.empty()) {
      EXPECT_OK(store_->GrowSlots(1));
      EXPECT_OK(store_->ClearSlot(0));
    }
    executor_ = *model.backend().NewExecutor(model.weights(), store_.get(), {.n_threads = 1});
    for (PageId page = 0; page < 32; ++page) pages_.push_back(page);
  }

  // The vectors of all rows, and the best token after the last.
  struct Result {
    std::vector<float> vectors;
    TokenId best = kNoToken;
  };
  Result Compute(std::span<const TokenId> tokens, std::span<const float> hidden, bool before_norm) {
    StepSequence sequence{.tokens = tokens, .hidden = hidden, .position = position_};
    sequence.page_tables.assign(model_.spec().kv_groups.size(), pages_);
    sequence.slot = model_.spec().slots.empty() ? kNoSlot : 0;
    sequence.n_logits = 1;
    sequence.n_vectors = std::ssize(tokens);
    sequence.vectors_before_norm = before_norm;
    std::vector<float> logits(static_cast<size_t>(model_.n_vocab()));
    Result result;
    result.vectors.resize(tokens.size() * kWidth);
    EXPECT_OK(executor_->Forward(
        {.sequences = std::span(&sequence, 1), .logits = logits, .vectors = result.vectors}));
    position_ += std::ssize(tokens);
    TokenLogit best;
    FindBest(logits, std::span(&best, 1));
    result.best = best.token;
    return result;
  }

 private:
  const Model& model_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<Executor> executor_;
  std::vector<PageId> pages_;
  int64_t position_ = 0;
};

class DrafterHeadTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto head = Model::LoadHead(*model_, {.n_threads = 1});
    ASSERT_TRUE(head.ok()) << head.status();
    head_ = *head;
    before_norm_ = head_->spec().hidden_input->before_output_norm;
    ModelDrafter::Options options;
    options.n_threads = 1;
    options.state = kState;
    options.memory_bytes = int64_t{64} << 20;
    options.beside = testing::LayoutOf(*model_, {.kv_type = KvType::kF32, .page_tokens = 16});
    auto drafter = ModelDrafter::Create(head_, options);
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    drafter_ = *std::move(drafter);
    tokens_ = RandomTokens(300, 5);
    hidden_ = Steps(*model_).Compute(tokens_, {}, before_norm_).vectors;
  }

  std::span<const float> HiddenOf(int64_t first, int64_t n) const {
    return std::span(hidden_).subspan(static_cast<size_t>(first * kWidth),
                                      static_cast<size_t>(n * kWidth));
  }
  // The continuation of the first `n` tokens by the head alone, with the model's rows from `first`
  // on.
  Tokens HeadSays(int64_t n, int64_t most, int64_t first = 0) const {
    Steps steps(*head_);
    auto result = steps.Compute(std::span(tokens_).subspan(static_cast<size_t>(first + 1),
                                                           static_cast<size_t>(n - 1 - first)),
                                HiddenOf(first, n - 1 - first), before_norm_);
    Tokens said{result.best};
    while (std::ssize(said) < most) {
      const Tokens next{said.back()};
      const std::vector<float> own(result.vectors.end() - kWidth, result.vectors.end());
      result = steps.Compute(next, own, before_norm_);
      said.push_back(result.best);
    }
    return said;
  }
  int64_t Follow(Drafter::Text* text, int64_t n) {
    return drafter_->Follow(text, std::span(tokens_).first(static_cast<size_t>(n)));
  }
  // The draft after the first `n` tokens, with all of the model's rows shown.
  Tokens DraftAfter(Drafter::Text* text, int64_t n, int64_t most) {
    int64_t behind = Follow(text, n);
    if (behind > 1) drafter_->CatchUp(text, behind - 1);
    behind = Follow(text, n);
    EXPECT_EQ(behind, 1);
    if (behind != 1) return {};
    const Drafter::Ask ask{.text = text, .most = most};
    return drafter_->Continue(std::span(&ask, 1))[0].tokens;
  }

  const std::shared_ptr<const Model> model_ = TinyModel(GetParam());
  std::shared_ptr<const Model> head_;
  bool before_norm_ = false;
  std::unique_ptr<ModelDrafter> drafter_;
  Tokens tokens_;
  std::vector<float> hidden_;  // the model's, for all tokens
};
INSTANTIATE_TEST_SUITE_P(Models, DrafterHeadTest, ::testing::Values("qwen35-mtp", "glm4moe-mtp"),
                         kNameOfModel);

TEST_P(DrafterHeadTest, ItSaysWhatTheHeadSays) {
  const auto text = drafter_->Begin("");
  int64_t shown = 0;
  for (const int64_t n : {2, 3, 4, 9, 40, 41, 45, 120, 121, 300}) {
    drafter_->Show(text.get(), shown, HiddenOf(shown, n - 1 - shown));
    shown = n - 1;
    EXPECT_EQ(DraftAfter(text.get(), n, 5), HeadSays(n, 5)) << n;
  }
  EXPECT_OK(drafter_->CheckIntegrity());
}

TEST_P(DrafterHeadTest, RowsMayBeShownAgain) {
  const auto text = drafter_->Begin("");
  drafter_->Show(text.get(), 0, HiddenOf(0, 20));
  drafter_->Show(text.get(), 10, HiddenOf(10, 25));
  EXPECT_EQ(DraftAfter(text.get(), 36, 3), HeadSays(36, 3));
  drafter_->Show(text.get(), 0, HiddenOf(0, 10));
  EXPECT_EQ(Follow(text.get(), 10), -1);
  drafter_->Show(text.get(), 5, HiddenOf(5, 60));
  EXPECT_EQ(DraftAfter(text.get(), 66, 3), HeadSays(66, 3));
}

TEST_P(DrafterHeadTest, NothingIsDraftedOfWhatWasNotShown) {
  const auto text = drafter_->Begin("");
  EXPECT_EQ(Follow(text.get(), 1), -1);
  EXPECT_EQ(Follow(text.get(), 20), -1);
  drafter_->Show(text.get(), 0, HiddenOf(0, 18));
  EXPECT_EQ(Follow(text.get(), 20), -1);
  drafter_->Show(text.get(), 18, HiddenOf(18, 1));
  EXPECT_EQ(Follow(text.get(), 20), 19);
}

TEST_P(DrafterHeadTest, AFewMissingRowsArePassedOver) {
  const auto text = drafter_->Begin("");
  drafter_->Show(text.get(), 30, HiddenOf(30, 20));
  EXPECT_EQ(Follow(text.get(), 51), 50);
  std::fill(hidden_.begin(), hidden_.begin() + 30 * kWidth, 0.0f);
  EXPECT_EQ(DraftAfter(text.get(), 51, 4), HeadSays(51, 4));
}

TEST_P(DrafterHeadTest, AfterALongGapTheTextBeginsAnew) {
  const auto text = drafter_->Begin("");
  drafter_->Show(text.get(), 0, HiddenOf(0, 40));
  EXPECT_EQ(DraftAfter(text.get(), 41, 2), HeadSays(41, 2));
  drafter_->Show(text.get(), 150, HiddenOf(150, 30));
  EXPECT_EQ(Follow(text.get(), 181), 30);
  EXPECT_EQ(DraftAfter(text.get(), 181, 4), HeadSays(181, 4, 150));
  drafter_->Show(text.get(), 180, HiddenOf(180, 40));
  EXPECT_EQ(DraftAfter(text.get(), 221, 4), HeadSays(221, 4, 150));
  EXPECT_OK(drafter_->CheckIntegrity());
}

// A text reuses the state of an earlier one that has the same prefix, in the same domain.
TEST_P(DrafterHeadTest, KnownBeginningsAreFoundAgain) {
  {
    const auto text = drafter_->Begin("a");
    drafter_->Show(text.get(), 0, HiddenOf(0, 99));
    EXPECT_EQ(DraftAfter(text.get(), 100, 2), HeadSays(100, 2));
    const auto late = drafter_->Begin("a");
    drafter_->Show(late.get(), 200, HiddenOf(200, 79));
    EXPECT_EQ(DraftAfter(late.get(), 280, 2), HeadSays(280, 2, 200));
  }
  const auto again = drafter_->Begin("a");
  drafter_->Show(again.get(), 98, HiddenOf(98, 22));
  EXPECT_LE(Follow(again.get(), 121), 40);
  const auto stranger = drafter_->Begin("b");
  drafter_->Show(stranger.get(), 98, HiddenOf(98, 22));
  EXPECT_EQ(Follow(stranger.get(), 121), 22);
  // The last part of another text is no text's prefix.
  const auto tail = drafter_->Begin("a");
  drafter_->Show(tail.get(), 0, HiddenOf(0, 79));
  EXPECT_EQ(drafter_->Follow(tail.get(), std::span(tokens_).subspan(200, 80)), 79);
  EXPECT_OK(drafter_->CheckIntegrity());
}

}  // namespace
}  // namespace weft
