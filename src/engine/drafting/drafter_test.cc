#include "engine/drafting/model_drafter.h"

#include <string>
#include <vector>

#include "engine/engine_test_util.h"
#include "engine/kv_type.h"

namespace weft {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kMaxDrafted = 6;

ModelDrafter::Options DrafterOptions() {
  ModelDrafter::Options options;
  options.n_threads = 1;
  options.state = {.kv_type = KvInfo(KvType::kF32).dtype, .page_tokens = 16};
  options.memory_bytes = int64_t{64} << 20;
  options.checkpoint_share = 0.5;
  return options;
}

std::unique_ptr<ModelDrafter> MakeDrafter(std::shared_ptr<const Model> model,
                                          ModelDrafter::Options options = DrafterOptions()) {
  options.beside = testing::LayoutOf(*model, {.kv_type = KvType::kF32, .page_tokens = 16});
  auto drafter = ModelDrafter::Create(std::move(model), options);
  EXPECT_TRUE(drafter.ok()) << drafter.status();
  return drafter.ok() ? *std::move(drafter) : nullptr;
}

// The model's own greedy continuation of the text.
Tokens ModelSays(const std::shared_ptr<const Model>& model, const Tokens& text, int64_t n) {
  EngineOptions options = SmallEngine();
  options.kv_type = KvType::kF32;
  const TurnOptions turn = Greedy(text, n);
  return RunAlone(model, options, std::span(&turn, 1))[0].tokens();
}

// Computes the text with the draft model, then drafts.
Tokens DraftAfter(Drafter* drafter, Drafter::Text* text, const Tokens& tokens,
                  int64_t most = kMaxDrafted) {
  int64_t behind = drafter->Follow(text, tokens);
  if (behind > 1) drafter->CatchUp(text, behind - 1);
  behind = drafter->Follow(text, tokens);
  EXPECT_EQ(behind, 1);
  const Drafter::Ask ask{.text = text, .most = most};
  return drafter->Continue(std::span(&ask, 1))[0].tokens;
}

class DrafterTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Models, DrafterTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         kNameOfModel);

TEST_P(DrafterTest, ItSaysWhatTheModelSays) {
  const auto drafter = MakeDrafter(model());
  const auto text = drafter->Begin("");
  Tokens tokens = RandomTokens(40, 1);
  const Tokens said = ModelSays(model(), tokens, 60);
  size_t at = 0;
  // The text takes 0, 1, ... of the drafted tokens, then continues differently or with the next
  // one.
  for (int64_t taken = 0; at + kMaxDrafted + 1 < said.size();
       taken = (taken + 1) % (kMaxDrafted + 1)) {
    const Tokens draft = DraftAfter(drafter.get(), text.get(), tokens);
    ASSERT_FALSE(draft.empty());
    // Recurrent state is drafted only up to the next checkpoint.
    EXPECT_EQ(draft, Tokens(said.begin() + static_cast<int64_t>(at),
                            said.begin() + static_cast<int64_t>(at + draft.size())));
    const auto n = static_cast<size_t>(taken + 1);
    tokens.insert(tokens.end(), said.begin() + static_cast<int64_t>(at),
                  said.begin() + static_cast<int64_t>(at + n));
    at += n;
  }
  EXPECT_OK(drafter->CheckIntegrity());
}

TEST_P(DrafterTest, WrongDraftsLeaveNothingBehind) {
  const auto drafter = MakeDrafter(model());
  const auto text = drafter->Begin("");
  Tokens tokens = RandomTokens(20, 1);
  const Tokens others = RandomTokens(30, 2);
  for (size_t i = 0; i < others.size(); ++i) {
    DraftAfter(drafter.get(), text.get(), tokens);
    if (i % 7 == 0) {
      EXPECT_OK(drafter->CheckIntegrity());
    }
    tokens.push_back(others[i]);
  }
  const Tokens said = ModelSays(model(), tokens, kMaxDrafted);
  const Tokens draft = DraftAfter(drafter.get(), text.get(), tokens);
  EXPECT_EQ(draft, Tokens(said.begin(), said.begin() + std::ssize(draft)));
  EXPECT_OK(drafter->CheckIntegrity());
}

TEST_P(DrafterTest, AnswersThatBeginAlikeAreFoundAgain) {
  const auto drafter = MakeDrafter(model());
  Tokens tokens = RandomTokens(100, 1);
  {
    const auto text = drafter->Begin("one");
    DraftAfter(drafter.get(), text.get(), tokens);
  }
  const auto same = drafter->Begin("one");
  tokens.push_back(7);
  EXPECT_LE(drafter->Follow(same.get(), tokens), 17);
  const auto other = drafter->Begin("two");
  EXPECT_EQ(drafter->Follow(other.get(), tokens), 101);
  const Tokens said = ModelSays(model(), tokens, kMaxDrafted);
  const Tokens draft = DraftAfter(drafter.get(), same.get(), tokens);
  EXPECT_EQ(draft, Tokens(said.begin(), said.begin() + std::ssize(draft)));
  EXPECT_OK(drafter->CheckIntegrity());
  drafter->DropPrefixes();
  EXPECT_OK(drafter->CheckIntegrity());
}

// It then drafts as after these tokens alone, and other texts do not find its state.
TEST_P(DrafterTest, ATextCanBeKnownFromItsEndOn) {
  const auto drafter = MakeDrafter(model());
  Tokens tokens = RandomTokens(200, 1);
  {
    const auto text = drafter->Begin("");
    EXPECT_EQ(drafter->Follow(text.get(), tokens), 200);
    drafter->CatchUp(text.get(), 20);
    drafter->KeepLast(text.get(), tokens, 40);
    EXPECT_EQ(drafter->Follow(text.get(), tokens), 40);
    EXPECT_OK(drafter->CheckIntegrity());
    for (int i = 0; i < 3; ++i) {
      const Tokens end(tokens.end() - 40 - i, tokens.end());
      const Tokens said = ModelSays(model(), end, kMaxDrafted);
      const Tokens draft = DraftAfter(drafter.get(), text.get(), tokens);
      ASSERT_FALSE(draft.empty());
      EXPECT_EQ(draft, Tokens(said.begin(), said.begin() + std::ssize(draft)));
      tokens.push_back(said[0]);
    }
    const Tokens more = RandomTokens(100, 3);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_GE(drafter->Follow(text.get(), tokens), 100);
    drafter->KeepLast(text.get(), tokens, 40);
    EXPECT_EQ(drafter->Follow(text.get(), tokens), 40);
    EXPECT_OK(drafter->CheckIntegrity());
  }
  const auto same = drafter->Begin("");
  EXPECT_GE(drafter->Follow(same.get(), tokens), std::ssize(tokens) - 20);
  EXPECT_OK(drafter->CheckIntegrity());
}

TEST_P(DrafterTest, ManyTextsShareSteps) {
  const auto drafter = MakeDrafter(model());
  std::vector<std::unique_ptr<Drafter::Text>> texts;
  std::vector<Tokens> tokens;
  std::vector<Drafter::Ask> asks;
  for (uint64_t i = 0; i < 3; ++i) {
    tokens.push_back(RandomTokens(17 + 3 * static_cast<int64_t>(i), i));
    texts.push_back(drafter->Begin(""));
    const int64_t behind = drafter->Follow(texts[i].get(), tokens[i]);
    drafter->CatchUp(texts[i].get(), behind - 2);
    EXPECT_EQ(drafter->Follow(texts[i].get(), tokens[i]), 2);
    asks.push_back({.text = texts[i].get(), .most = 2 + static_cast<int64_t>(i)});
  }
  const int64_t before = drafter->steps();
  const auto drafts = drafter->Continue(asks);
  EXPECT_LE(drafter->steps() - before, 7);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LE(std::ssize(drafts[i].tokens), asks[i].most);
    EXPECT_GE(std::ssize(drafts[i].tokens), 1);
    EXPECT_EQ(drafts[i].tokens.size(), drafts[i].chances.size());
    const Tokens said = ModelSays(model(), tokens[i], std::ssize(drafts[i].tokens));
    EXPECT_EQ(drafts[i].tokens, said);
  }
}

TEST(DrafterFaultsTest, WithoutMemoryATextIsLeftAloneForAWhile) {
  ModelDrafter::Options options = DrafterOptions();
  const auto model = TinyModel("llama");
  const StateLayout layout =
      testing::LayoutOf(*model, {.kv_type = KvType::kF32, .page_tokens = 16});
  options.memory_bytes = 2 * 3 * layout.page_bytes[0];  // the draft model has half: three pages
  const auto drafter = MakeDrafter(model, options);
  const auto text = drafter->Begin("");
  Tokens tokens = RandomTokens(30, 1);
  EXPECT_EQ(DraftAfter(drafter.get(), text.get(), tokens, 2).size(), 2);
  const auto second = drafter->Begin("other");
  EXPECT_EQ(drafter->Follow(second.get(), tokens), 30);
  drafter->CatchUp(second.get(), 29);
  EXPECT_EQ(drafter->Follow(second.get(), tokens), -1);
  EXPECT_OK(drafter->CheckIntegrity());
  const Tokens more = RandomTokens(64, 2);
  tokens.insert(tokens.end(), more.begin(), more.end());
  EXPECT_EQ(drafter->Follow(second.get(), tokens), 94);
}

TEST(DrafterFaultsTest, AModelThatFailsAgainAndAgainIsAskedNoMore) {
  testing::FaultyBackend backend;
  std::vector<std::string> notices;
  ModelDrafter::Options options = DrafterOptions();
  options.on_notice = [&](const std::string& notice) { notices.push_back(notice); };
  const auto drafter = MakeDrafter(TinyModel("llama", 1, &backend), options);
  const Tokens tokens = RandomTokens(10, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(drafter->usable());
    const auto text = drafter->Begin("");
    EXPECT_GT(drafter->Follow(text.get(), tokens), 0);
    backend.faults().fail_forward = backend.faults().forwards + 1;
    drafter->CatchUp(text.get(), 5);
    EXPECT_EQ(drafter->Follow(text.get(), tokens), -1);
    EXPECT_OK(drafter->CheckIntegrity());
  }
  EXPECT_FALSE(drafter->usable());
  ASSERT_EQ(notices.size(), 1);
  EXPECT_NE(notices[0].find("not used any more"), std::string::npos);
  EXPECT_EQ(drafter->Follow(drafter->Begin("").get(), tokens), -1);
}

TEST(DraftModelTest, ThatOfAnotherVocabularyIsRefused) {
  EXPECT_OK(CheckDraftModel(*TinyModel("llama"), *TinyModel("llama", 2)));
  EXPECT_OK(CheckDraftModel(*TinyModel("llama"), *TinyModel("gemma3")));
  const auto other = Model::LoadBuiltIn({.n_threads = 1});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(CheckDraftModel(*TinyModel("llama"), **other),
              IsError(StatusCode::kInvalidArgument, "vocabulary"));
  const Status encoder = CheckDraftModel(*TinyModel("llama"), *TinyModel("tiny-bert"));
  EXPECT_THAT(encoder, IsError(StatusCode::kInvalidArgument, "writes no text"));
}

}  // namespace
}  // namespace weft
