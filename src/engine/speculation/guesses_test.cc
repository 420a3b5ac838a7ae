#include "engine/speculation/guesses.h"

#include <numeric>

#include "engine/speculation/speculator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

Guesses::Given Nothing() { return {}; }

Tokens Offered(Guesses* guesses, const Tokens& text, int64_t most = 4) {
  guesses->Offer(text, most, Nothing);
  const auto tokens = guesses->tokens().first(guesses->gains().size());
  return {tokens.begin(), tokens.end()};
}

void Say(Guesses* guesses, TokenId token, Tokens* text) {
  text->push_back(token);
  guesses->Push(*text);
}

// 100, 101, ...
Tokens Passage(int64_t n, TokenId first = 100) {
  Tokens passage(static_cast<size_t>(n));
  std::iota(passage.begin(), passage.end(), first);
  return passage;
}

TEST(GuessesTest, TheConversationIsASource) {
  Guesses guesses({}, {}, nullptr);
  EXPECT_THAT(Offered(&guesses, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}), ElementsAre(4, 5, 6, 7));
  Guesses other({}, {}, nullptr);
  EXPECT_THAT(Offered(&other, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 9}), IsEmpty());
}

TEST(GuessesTest, ARhythmIsGuessedBeyondItsEnd) {
  Guesses guesses({}, {}, nullptr);
  EXPECT_THAT(Offered(&guesses, {9, 1, 2, 1, 2, 1, 2}, 7), ElementsAre(1, 2, 1, 2, 1, 2, 1));
}

TEST(GuessesTest, ThePredictionIsASourceFromTheFirstToken) {
  const Tokens prediction = Passage(20);
  Guesses guesses({}, prediction, nullptr);
  Tokens text = {1, 2, 3};
  EXPECT_THAT(Offered(&guesses, text), ElementsAre(100, 101, 102, 103));
  Say(&guesses, 100, &text);
  EXPECT_THAT(Offered(&guesses, text), ElementsAre(101, 102, 103, 104));
  EXPECT_EQ(guesses.predicted(), 1);
  Say(&guesses, 7, &text);
  EXPECT_EQ(guesses.predicted(), 1);
  EXPECT_THAT(Offered(&guesses, text), ElementsAre(102, 103, 104, 105)) << "one was exchanged";
}

TEST(GuessesTest, WhatIsGivenComesFirst) {
  const Tokens text = {1, 2, 3, 4, 1, 2, 3};
  Guesses guesses({}, {}, nullptr);
  guesses.Offer(text, 2, [] { return Guesses::Given{GuessSource::kCaller, {50, 51, 52}}; });
  EXPECT_THAT(guesses.gains(), ElementsAre(Guesses::kSure, Guesses::kSure));
  EXPECT_EQ(guesses.tokens()[0], 50);
}

TEST(GuessesTest, SourcesAreAskedOncePerText) {
  Guesses guesses({}, {}, nullptr);
  int asked = 0;
  const auto given = [&] {
    ++asked;
    return Guesses::Given{GuessSource::kCaller, {50}};
  };
  guesses.Offer(Tokens{1, 2}, 4, given);
  guesses.Offer(Tokens{1, 2}, 4, given);
  EXPECT_EQ(asked, 1);
  guesses.Offer(Tokens{1, 2, 3}, 4, given);
  EXPECT_EQ(asked, 2);
  guesses.Offer(Tokens{1, 2, 3, 4}, 0, given);
  EXPECT_EQ(asked, 2);
  EXPECT_THAT(guesses.gains(), IsEmpty()) << "there is no room for any";
}

TEST(GuessesTest, LimitsOfTheRequest) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
  Guesses few({.most = 2}, {}, nullptr);
  EXPECT_THAT(Offered(&few, text, 8), ElementsAre(4, 5));
  Guesses none({.most = 0}, {}, nullptr);
  EXPECT_THAT(Offered(&none, text, 8), IsEmpty());
  Guesses least({.least = 5}, {}, nullptr);
  EXPECT_THAT(Offered(&least, text, 4), IsEmpty());
  EXPECT_EQ(std::ssize(Offered(&least, text, 8)), 8);
  Guesses sure({.min_probability = 0.99f}, {}, nullptr);
  EXPECT_THAT(Offered(&sure, text, 8), IsEmpty());
}

TEST(GuessesTest, GuessesThatAreWrongLoseTheirWorthAndRegainIt) {
  Guesses guesses({}, {}, nullptr);
  Tokens text = {1, 2, 3, 4, 5, 6};
  const auto gain_of_repeated = [&](TokenId then) {
    for (const TokenId token : {1, 2, 3}) Say(&guesses, token, &text);
    guesses.Offer(text, 4, Nothing);
    EXPECT_FALSE(guesses.gains().empty());
    const float gain = guesses.gains().empty() ? 0 : guesses.gains()[0];
    Say(&guesses, then, &text);
    Say(&guesses, then + 1000, &text);
    return gain;
  };
  float first = 0, last = 0;
  for (TokenId i = 0; i < 30; ++i) {
    last = gain_of_repeated(5000 + i);
    if (i == 0) first = last;
  }
  EXPECT_LT(last, first / 3);
  EXPECT_LT(last, 0.1f);
  for (int i = 0; i < 60; ++i) last = gain_of_repeated(7);
  EXPECT_GT(last, 0.5f) << "though nothing of it was ever computed";
}

TEST(GuessesTest, GainsFallFromGuessToGuess) {
  Guesses guesses({}, {}, nullptr);
  Tokens text = Passage(20);
  text.insert(text.end(), {100, 101, 102});
  guesses.Offer(text, 6, Nothing);
  ASSERT_EQ(guesses.gains().size(), 6u);
  for (size_t i = 1; i < 6; ++i) EXPECT_LT(guesses.gains()[i], guesses.gains()[i - 1]);
}

TEST(GuessesTest, ThePaceIsThatOfTheLatestSteps) {
  Guesses guesses({}, {}, nullptr);
  for (int i = 0; i < 40; ++i) {
    guesses.CountStep(4);
    guesses.CountAccepted(3);
  }
  EXPECT_NEAR(guesses.pace(), 4, 0.1);
  EXPECT_EQ(guesses.computed(), 160);
  EXPECT_EQ(guesses.accepted(), 120);
  for (int i = 0; i < 40; ++i) guesses.CountStep(0);
  EXPECT_NEAR(guesses.pace(), 1, 0.1);
}

// --- texts of a domain ---------------------------------------------------------------------

std::unique_ptr<Guesses> Begin(Speculator* speculator, std::string_view domain,
                               const Tokens& prompt) {
  return speculator->Begin(domain, prompt, 0, 0, {});
}

void End(Speculator* speculator, std::string_view domain, const Tokens& said) {
  speculator->End(domain, said, Guesses({}, {}, nullptr));
}

TEST(SpeculatorTest, AnAnswerGuessesFromWhatItsDomainHasRead) {
  Speculator speculator({.most = 4});
  Begin(&speculator, "a", Passage(50));
  const auto guesses = Begin(&speculator, "a", {1, 2});
  EXPECT_THAT(Offered(guesses.get(), {1, 2, 110, 111, 112}), ElementsAre(113, 114, 115, 116));
}

TEST(SpeculatorTest, AndFromWhatItSaid) {
  Speculator speculator({.most = 4});
  End(&speculator, "a", Passage(50));
  const auto guesses = Begin(&speculator, "a", {1, 2});
  EXPECT_THAT(Offered(guesses.get(), {1, 2, 110, 111, 112}), ElementsAre(113, 114, 115, 116));
}

TEST(SpeculatorTest, AnswersAreExpectedToBeAsLongAsUsual) {
  Speculator speculator({.most = 4});
  EXPECT_EQ(speculator.ExpectMore(1, -1), 1) << "nothing is known";
  EXPECT_EQ(speculator.ExpectMore(50, -1), 50);
  End(&speculator, "", Tokens(200, 7));
  EXPECT_EQ(speculator.ExpectMore(1, -1), 199);
  EXPECT_EQ(speculator.ExpectMore(150, -1), 150) << "it may have come half the way";
  EXPECT_EQ(speculator.ExpectMore(1, 30), 29) << "it may have no more";
  EXPECT_EQ(speculator.ExpectMore(150, 160), 10);
  for (int i = 0; i < 20; ++i) End(&speculator, "", Tokens(10, 7));
  EXPECT_LE(speculator.ExpectMore(1, -1), 11);
}

TEST(SpeculatorTest, NeverFromAnotherDomain) {
  Speculator speculator({.most = 4});
  const auto before = Begin(&speculator, "b", {1, 2});
  Begin(&speculator, "a", Passage(50));
  End(&speculator, "a", Passage(50, 200));
  const auto after = Begin(&speculator, "b", {1, 2});
  for (Guesses* const guesses : {before.get(), after.get()}) {
    EXPECT_THAT(Offered(guesses, {1, 2, 110, 111, 112}), IsEmpty());
    EXPECT_THAT(Offered(guesses, {1, 2, 110, 111, 112, 210, 211, 212}), IsEmpty());
  }
  Speculator open({.most = 4, .share_across_domains = true});
  Begin(&open, "a", Passage(50));
  EXPECT_THAT(Offered(Begin(&open, "b", {1, 2}).get(), {1, 2, 110, 111, 112}),
              ElementsAre(113, 114, 115, 116));
}

TEST(SpeculatorTest, TextsAreForgottenWithPrefixes) {
  Speculator speculator({.most = 4});
  Begin(&speculator, "a", Passage(50));
  EXPECT_GT(speculator.memory_bytes(), 0);
  speculator.ForgetTexts();
  EXPECT_EQ(speculator.memory_bytes(), 0);
  const auto guesses = Begin(&speculator, "a", {1, 2});
  EXPECT_THAT(Offered(guesses.get(), {1, 2, 110, 111, 112}), IsEmpty());
  Speculator none({.most = 4, .share_texts = false});
  Begin(&none, "a", Passage(50));
  EXPECT_EQ(none.memory_bytes(), 0);
}

TEST(SpeculatorTest, OnlyWhatIsNewOfAPromptIsAdded) {
  Speculator speculator({.most = 4});
  const Tokens prompt = Passage(5000);
  speculator.Begin("a", prompt, 0, 0, {});
  const int64_t once = speculator.memory_bytes();
  for (int i = 0; i < 20; ++i) speculator.Begin("a", prompt, 5000, 0, {});
  EXPECT_LT(speculator.memory_bytes(), 2 * once);
}

TEST(SharedTextsTest, AreBounded) {
  SharedTexts texts;
  const std::shared_ptr<SharedText> held = texts.Of("0");
  for (int domain = 0; domain < 20; ++domain) {
    for (int i = 0; i < 30; ++i) texts.Add(std::to_string(domain), Passage(10000, 20000 * i));
  }
  const SharedText& last = *texts.Of("19");
  EXPECT_LE(std::ssize(last.tokens), SharedTexts::kMaxTokens);
  EXPECT_GT(last.cuts, 0);
  EXPECT_EQ(last.tokens.back(), kNoToken);
  EXPECT_EQ(last.tokens[last.tokens.size() - 2], 20000 * 29 + 9999) << "the latest stays";
  EXPECT_LE(texts.memory_bytes(),
            2 * SharedTexts::kMaxTokensOfAll * static_cast<int64_t>(sizeof(TokenId)));
  EXPECT_EQ(texts.Of("0")->tokens.size(), 0u) << "the domain used least recently is dropped";
  EXPECT_FALSE(held->tokens.empty()) << "but not under its readers";
  for (int domain = 0; domain < 1000; ++domain) texts.Of(std::to_string(domain));
  EXPECT_TRUE(texts.Of("19")->tokens.empty());
}

TEST(SharedTextsTest, AReaderNoticesThatABeginningWasDropped) {
  Speculator speculator({.most = 4});
  End(&speculator, "a", Passage(60000));
  const auto guesses = Begin(&speculator, "a", {1, 2});
  Tokens text = {1, 2};
  for (int i = 0; i < 40; ++i) {  // after these, all of it is indexed
    Say(guesses.get(), 900000 + i, &text);
    Offered(guesses.get(), text);
  }
  for (const TokenId token : {50100, 50101, 50102}) Say(guesses.get(), token, &text);
  EXPECT_THAT(Offered(guesses.get(), text), ElementsAre(50103, 50104, 50105, 50106));
  for (int i = 0; i < 4; ++i) End(&speculator, "a", Passage(60000, 100000 * (i + 1)));
  Say(guesses.get(), 50103, &text);
  EXPECT_THAT(Offered(guesses.get(), text), IsEmpty());
}

TEST(GuessesTest, ADraftIsAskedForWhereTextsPromiseLittle) {
  Guesses guesses({}, {}, nullptr);
  Tokens text = {1, 2, 3};
  Offered(&guesses, text);
  EXPECT_TRUE(guesses.WantsDraft());
  guesses.TakeDraft(Tokens{7, 8, 9}, std::vector<float>{0.99f, 0.9f, 0.2f}, false);
  EXPECT_FALSE(guesses.WantsDraft()) << "once for each token";
  EXPECT_THAT(Offered(&guesses, text), ElementsAre(7, 8, 9));
  EXPECT_GT(guesses.gains()[0], 0.9f);
  EXPECT_LT(guesses.gains()[2], 0.5f);
  Say(&guesses, 7, &text);
  EXPECT_THAT(Offered(&guesses, text), IsEmpty());
  EXPECT_TRUE(guesses.WantsDraft());
  // A long match in the conversation needs no draft model.
  Guesses repeating({}, {}, nullptr);
  Tokens passage = Passage(30);
  passage.insert(passage.end(), passage.begin(), passage.begin() + 20);
  Offered(&repeating, passage, 8);
  EXPECT_FALSE(repeating.WantsDraft());
  Guesses none({.most = 0}, {}, nullptr);
  Offered(&none, text);
  EXPECT_FALSE(none.WantsDraft());
}

TEST(GuessesTest, DraftsOfAKindThatIsOftenWrongPromiseLess) {
  Guesses guesses({}, {}, nullptr);
  Tokens text = {1, 2, 3};
  const auto draft = [&](TokenId token, float chance) {
    Offered(&guesses, text);
    guesses.TakeDraft(Tokens{token}, std::vector<float>{chance}, false);
    return guesses.gains()[0];
  };
  const float sure = draft(1000, 0.99f), share = guesses.draft_share();
  for (TokenId said = 2000; said < 2040; ++said) {
    Say(&guesses, said, &text);
    draft(1000, 0.5f);
  }
  Say(&guesses, 5000, &text);
  EXPECT_LT(draft(1000, 0.5f), 0.3f);
  Say(&guesses, 5001, &text);
  EXPECT_GE(draft(1000, 0.99f), sure - 0.2f);
  EXPECT_LT(guesses.draft_share(), share);
}

TEST(SpeculatorTest, AnAnswerExpectsOfDraftsWhatTheLastOnesSaw) {
  Speculator speculator({.most = 4});
  const auto wrong = Begin(&speculator, "a", {1, 2, 3});
  EXPECT_EQ(wrong->draft_share(), Guesses::kUnknownDraftShare);
  Tokens text = {1, 2, 3};
  for (TokenId said = 2000; said < 2200; ++said) {
    Offered(wrong.get(), text);
    wrong->TakeDraft(Tokens{1000}, std::vector<float>{0.9f}, false);
    Say(wrong.get(), said, &text);
  }
  for (int i = 0; i < 5; ++i) speculator.End("a", text, *wrong);
  EXPECT_LT(Begin(&speculator, "a", {1, 2})->draft_share(), 0.2f);
  EXPECT_LT(Begin(&speculator, "b", {1, 2})->draft_share(), 0.2f) << "the draft model is the same";
  for (int i = 0; i < 40; ++i) Begin(&speculator, "a", {1, 2});
  EXPECT_GT(Begin(&speculator, "a", {1, 2})->draft_share(), 0.7f) << "and is tried again some time";
}

TEST(GuessesTest, WithoutTextsOnlyTheDraftAndThePredictionAreAsked) {
  const Tokens prediction = Passage(20);
  Guesses guesses({}, prediction, nullptr, /*looks_in_texts=*/false);
  EXPECT_THAT(Offered(&guesses, {1, 2, 3}), ElementsAre(100, 101, 102, 103));
  Guesses other({}, {}, nullptr, /*looks_in_texts=*/false);
  EXPECT_THAT(Offered(&other, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}), IsEmpty());
}

}  // namespace
}  // namespace weft
