#include "engine/sessions/message_starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> Starts(const std::vector<TokenId>& tokens) {
  return MessageStarts(tokens, [](TokenId token) { return token < 10; });
}

// Control tokens stand for themselves; a longer run of text is given by its length.
std::vector<TokenId> Prompt(const std::vector<std::pair<TokenId, int>>& parts) {
  std::vector<TokenId> tokens;
  for (const auto& [control, text] : parts) {
    tokens.push_back(control);
    tokens.insert(tokens.end(), static_cast<size_t>(text), 100);
  }
  return tokens;
}

TEST(MessageStartsTest, OfTheLastMessageAndOfTheReply) {
  // Begin, role and text, end, line feed; the reply's header is a begin and a role.
  EXPECT_THAT(Starts(Prompt({{1, 50}, {2, 1}, {1, 30}, {2, 1}, {1, 2}})), ElementsAre(54, 87));
  // Roles between two control tokens of their own, no line feeds.
  EXPECT_THAT(Starts(Prompt({{3, 1}, {4, 40}, {2, 0}, {3, 1}, {4, 30}, {2, 0}, {3, 1}, {4, 1}})),
              ElementsAre(47, 81));
}

TEST(MessageStartsTest, AShortMessageIsLeftToTheOneBefore) {
  EXPECT_THAT(Starts(Prompt({{1, 50}, {2, 1}, {1, 3}, {2, 1}, {1, 2}})), ElementsAre(1, 60));
}

TEST(MessageStartsTest, PlainTextHasNone) {
  EXPECT_THAT(Starts({}), IsEmpty());
  EXPECT_THAT(Starts(std::vector<TokenId>(40, 100)), IsEmpty());
  EXPECT_THAT(Starts(Prompt({{1, 40}})), ElementsAre(1));
}

}  // namespace
}  // namespace weft
