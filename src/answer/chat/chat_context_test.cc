#include "answer/chat/chat_context.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr TokenId kWord = 1000;  // a token of an answer; Bytes never produces it
constexpr TokenId kEnd = 2000;

// One token per byte, and a 1 at the start. If `strict`, text may only be cut before '<' or after
// the end token, as with vocabularies that put a space before every text.
PromptEncoder Bytes(bool strict = false) {
  return {.encode =
              [](std::string_view text, bool at_start) {
                std::vector<TokenId> tokens;
                if (at_start) tokens.push_back(1);
                for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
                return tokens;
              },
          .may_cut =
              [strict](TokenId before, std::string_view rest) {
                return !strict || before == kEnd || rest[0] == '<';
              }};
}

// How many tokens of `context` are kept when it becomes `text`.
int64_t Kept(const ChatContext& context, std::string_view text, const PromptEncoder& encoder) {
  ChatContext next = context;
  next.Become(text, encoder);
  return CommonTokens(context, next);
}

ChatContext AfterOneAnswer() {
  ChatContext context;
  context.Become("<u>hi<a>", Bytes());
  context.Append(kWord, "hello");
  context.Append(kWord + 1, " you");
  context.Append(kEnd, "<end>");
  return context;
}

TEST(ChatContextTest, TheNextTurnKeepsTheTokensOfTheAnswer) {
  ChatContext context = AfterOneAnswer();
  const std::vector<TokenId> before = context.tokens();
  ASSERT_EQ(before.size(), 1 + 8 + 3u);
  context.Become("<u>hi<a>hello you<end><u>x<a>", Bytes());
  ASSERT_EQ(context.tokens().size(), before.size() + 7);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), context.tokens().begin()));
  EXPECT_EQ(context.tokens()[before.size()], '<');
}

TEST(ChatContextTest, WhatATemplateChangesIsEncodedAnew) {
  ChatContext context = AfterOneAnswer();
  // The template trims the answer: its last two tokens no longer match.
  context.Become("<u>hi<a>hello<end><u>x<a>", Bytes());
  ASSERT_EQ(context.tokens().size(), 1 + 8 + 1 + 5 + 7u);
  EXPECT_EQ(context.tokens()[9], kWord);
  EXPECT_EQ(context.tokens()[10], '<');
  // A different beginning keeps nothing.
  context.Become("<s>", Bytes());
  EXPECT_EQ(context.tokens(), (std::vector<TokenId>{1, '<', 's', '>'}));
}

TEST(ChatContextTest, CutsOnlyWhereTheEncoderMay) {
  ChatContext context = AfterOneAnswer();
  // The text continues in the middle of a line after "hello", and after "<a>" too; encoded as a
  // whole, it has the tokens of the question but none of the answer.
  EXPECT_EQ(Kept(context, "<u>hi<a>hello me<end>", Bytes(true)), 9);
  EXPECT_EQ(Kept(context, "<u>hi<a>hello me<end>", Bytes(false)), 10);
  EXPECT_EQ(Kept(context, "<u>hi<a>hello<end>", Bytes(true)), 10);
  EXPECT_EQ(Kept(context, "<u>hi<a>hello you<end>\n", Bytes(true)), 12);
  EXPECT_EQ(Kept(context, "<u>hi<a>", Bytes(true)), 9);
}

TEST(ChatContextTest, NeverCutsInsideACharacter) {
  ChatContext context;
  context.Become("a", Bytes());
  context.Append(kWord, "\xC3");
  EXPECT_EQ(Kept(context, "a\xC3\xA4", Bytes()), 2);
  EXPECT_EQ(Kept(context, "a\xC3", Bytes()), 3);
  EXPECT_EQ(Kept(context, "a", Bytes()), 2);
}

TEST(ChatContextTest, TokensOfUnknownTextStayInFront) {
  ChatContext context({7, 8, 9});
  context.Become("<u>", Bytes());
  EXPECT_EQ(context.tokens(), (std::vector<TokenId>{7, 8, 9, '<', 'u', '>'}));
  context.Become("x", Bytes());
  EXPECT_EQ(context.tokens(), (std::vector<TokenId>{7, 8, 9, 'x'}));
  context.Become("", Bytes());
  EXPECT_EQ(context.tokens(), (std::vector<TokenId>{7, 8, 9}));
}

TEST(ChatContextTest, RestoresOnlyWhatBelongsTogether) {
  const ChatContext from = AfterOneAnswer();
  ChatContext to;
  ASSERT_TRUE(to.Restore(from.tokens(), from.marks()));
  const char* next = "<u>hi<a>hello you<end><u>";
  EXPECT_EQ(Kept(to, next, Bytes()), 12);

  auto marks = from.marks();
  EXPECT_FALSE(to.Restore({1, 2}, marks));
  EXPECT_FALSE(to.Restore(from.tokens(), {}));
  std::swap(marks[1].text_bytes, marks[3].text_bytes);
  EXPECT_FALSE(to.Restore(from.tokens(), marks));
  marks = from.marks();
  marks.front().text_bytes = 5;
  EXPECT_FALSE(to.Restore(from.tokens(), marks));
  marks = from.marks();
  marks.front().n_tokens = -1;
  EXPECT_FALSE(to.Restore(from.tokens(), marks));
  EXPECT_EQ(to.tokens(), from.tokens());
}

}  // namespace
}  // namespace weft
