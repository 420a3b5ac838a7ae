// Prediction heads in files of their own: the logits of an independent implementation, over the
// model's KV cache, on every backend that computes heads.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "compute/spec_tensors.h"
#include "gtest/gtest.h"
#include "model/head_spec.h"
#include "tests/conformance/own_goldens.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"

namespace weft::testing {
namespace {

constexpr double kTolerance = 1e-3;
constexpr int64_t kPages = 64;

// A model and its head over the state of one sequence.
class Drafting {
 public:
  static StatusOr<std::unique_ptr<Drafting>> New(std::string_view backend, const OwnHead& head) {
    std::unique_ptr<Drafting> drafting(new Drafting());
    WEFT_ASSIGN_OR_RETURN(drafting->model_, LoadModel(backend, head.model_path, 512));
    WEFT_ASSIGN_OR_RETURN(drafting->model_file_, ModelFile::Open(head.model_path));
    WEFT_ASSIGN_OR_RETURN(drafting->head_file_, ModelFile::Open(head.head_path));
    WEFT_RETURN_IF_ERROR(drafting->Start());
    return drafting;
  }

  const ModelSpec& spec() const { return model_.weights->spec(); }

  // The model computes the tokens. Returns the last one's hidden values.
  StatusOr<std::vector<float>> Compute(std::span<const TokenId> tokens) {
    StepSequence sequence{.tokens = tokens, .position = position_, .n_vectors = 1};
    sequence.page_tables.assign(spec().kv_groups.size(), pages_);
    std::vector<float> hidden(static_cast<size_t>(spec().d_model));
    WEFT_RETURN_IF_ERROR(
        executor_->Forward({.sequences = std::span(&sequence, 1), .vectors = hidden}));
    position_ += std::ssize(tokens);
    return hidden;
  }

  // The head's logits after a token that the model has not computed. `hidden` becomes its own.
  StatusOr<std::vector<float>> Draft(TokenId token, std::vector<float>* hidden) {
    WEFT_ASSIGN_OR_RETURN(std::vector<float> input,
                          ReadTableRows(*model_file_, spec().embedding, {&token, 1}));
    for (float& value : input) value *= spec().embedding_scale;
    input.insert(input.end(), hidden->begin(), hidden->end());
    StepSequence sequence{.tokens = {&token, 1},
                          .hidden = input,
                          .position = position_ - 1,
                          .n_logits = 1,
                          .n_vectors = 1};
    sequence.page_tables.assign(spec().kv_groups.size(), pages_);
    std::vector<float> logits(static_cast<size_t>(spec().n_vocab));
    std::vector<float> own(static_cast<size_t>(head_->spec().d_model));
    WEFT_RETURN_IF_ERROR(on_head_->Forward(
        {.sequences = std::span(&sequence, 1), .logits = logits, .vectors = own}));
    return Back(own, hidden).ok() ? StatusOr<std::vector<float>>(logits) : Internal("no rows");
  }

 private:
  Status Start() {
    WEFT_ASSIGN_OR_RETURN(ModelSpec spec_of_head, BuildHeadSpec(*head_file_, spec()));
    LoadOptions load{.n_threads = 1, .beside = model_.weights};
    load.beside_is_same_file = false;
    WEFT_ASSIGN_OR_RETURN(head_, model_.backend->Load(head_file_, std::move(spec_of_head), load));
    WEFT_ASSIGN_OR_RETURN(state_,
                          model_.backend->NewState(*model_.weights, {.kv_type = DType::kF32}));
    for (size_t group = 0; group < spec().kv_groups.size(); ++group) {
      WEFT_RETURN_IF_ERROR(state_->GrowPages(static_cast<int>(group), kPages));
    }
    pages_.resize(kPages);
    std::iota(pages_.rbegin(), pages_.rend(), 0);
    const ExecutorOptions options{.n_threads = 1};
    WEFT_ASSIGN_OR_RETURN(executor_,
                          model_.backend->NewExecutor(model_.weights, state_.get(), options));
    WEFT_ASSIGN_OR_RETURN(on_head_, model_.backend->NewExecutor(head_, state_.get(), options));
    return OkStatus();
  }

  Status Back(const std::vector<float>& own, std::vector<float>* hidden) const {
    const Linear& back = head_->spec().hidden_input->back;
    for (TokenId out = 0; out < back.n_out; ++out) {
      WEFT_ASSIGN_OR_RETURN(const auto row, ReadTableRows(*head_file_, back.weight, {&out, 1}));
      (*hidden)[static_cast<size_t>(out)] =
          static_cast<float>(std::inner_product(own.begin(), own.end(), row.begin(), 0.0));
    }
    return OkStatus();
  }

  LoadedModel model_;
  std::shared_ptr<const ModelFile> model_file_, head_file_;
  std::shared_ptr<const Weights> head_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Executor> executor_, on_head_;
  std::vector<PageId> pages_;
  int64_t position_ = 0;
};

class HeadsTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(HeadsTest, Gemma4Assistant) {
  const auto golden = ReadOwnHead("gemma4-assistant");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const auto drafting = Drafting::New(GetParam(), *golden);
  if (drafting.status().code() == StatusCode::kUnimplemented) {
    GTEST_SKIP() << Message(drafting.status());
  }
  ASSERT_TRUE(drafting.ok()) << drafting.status();
  const int64_t n_vocab = (*drafting)->spec().n_vocab;
  const std::span<const TokenId> tokens = golden->tokens;
  ASSERT_EQ(std::ssize(golden->logits), std::ssize(golden->positions) * golden->depth * n_vocab);
  double worst = 0;
  int64_t computed = 0, row = 0;
  for (const int64_t position : golden->positions) {
    auto hidden = (*drafting)->Compute(
        tokens.subspan(static_cast<size_t>(computed), static_cast<size_t>(position - computed)));
    ASSERT_TRUE(hidden.ok()) << hidden.status();
    computed = position;
    TokenId token = tokens[static_cast<size_t>(position)];
    for (int64_t depth = 0; depth < golden->depth; ++depth, ++row) {
      const auto mine = (*drafting)->Draft(token, &*hidden);
      ASSERT_TRUE(mine.ok()) << mine.status();
      const auto theirs = LogitRow(golden->logits, n_vocab, row);
      worst = std::max(worst, MaxDifference(*mine, theirs));
      token = ArgMax(theirs);
      EXPECT_EQ(ArgMax(*mine), token) << "position " << position << ", depth " << depth;
    }
  }
  EXPECT_LE(worst, kTolerance);
  RecordProperty("largest_difference", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Backends, HeadsTest, ::testing::ValuesIn(UsableBackends()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft::testing
