// Which prefixes are evicted last: those of conversations whose children are used, and marked ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/state/prefix_index.h"

namespace weft {
namespace {

constexpr int kPageTokens = 4;

std::vector<TokenId> Repeat(TokenId token, int n) {
  return std::vector<TokenId>(static_cast<size_t>(n), token);
}
std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// An index in which conversations take turns, as the engine does it.
class Turns {
 public:
  struct Shape {
    std::vector<int64_t> windows = {0};
    bool slots = false;
  };
  explicit Turns(const Shape& shape, bool share = false) : shape_(shape), slots_("slot", 100'000) {
    PrefixIndexOptions options{.page_tokens = kPageTokens, .share_across_domains = share};
    for (const int64_t window : shape.windows) {
      pools_.push_back(std::make_unique<PagePool>("page", 100'000));
      options.groups.push_back({pools_.back().get(), window});
    }
    if (shape.slots) options.slots = &slots_;
    index_ = std::make_unique<PrefixIndex>(options);
  }

  // A turn with this prompt that answers `n_answer` tokens. Its number.
  uint64_t Take(const std::string& domain, const std::vector<TokenId>& prompt, int n_answer,
                bool calls, uint64_t owner = 0) {
    const uint64_t begun = index_->BeginTurn(domain, prompt);
    PrefixMatch match = index_->Match(domain, prompt, std::ssize(prompt) - 1);
    index_->NoteUse(domain, begun);
    const std::vector<TokenId> tokens = Join(prompt, Repeat(90, n_answer));
    std::vector<PageTable*> tables;
    for (PageTable& table : match.tables) {
      EXPECT_TRUE(table.MakeWritable().ok());
      EXPECT_TRUE(table.Append(std::ssize(tokens) - match.n_tokens).ok());
      tables.push_back(&table);
    }
    PoolRef slot;
    if (shape_.slots) slot = PoolRef::Adopt(&slots_, *slots_.Allocate());
    index_->Insert(domain, tokens, std::ssize(tokens), tables, /*adopt=*/true, slot.id());
    index_->NoteUse(domain, begun);
    index_->EndTurn(domain, tokens, std::ssize(prompt), begun, ++turn_, owner);
    if (calls) index_->ExpectMore(domain, turn_);
    Sound();
    return begun;
  }
  // Whether all of the tokens, to the end of a turn, can be resumed.
  bool Has(const std::string& domain, const std::vector<TokenId>& tokens) const {
    return index_->MatchLength(domain, tokens, std::ssize(tokens)) == std::ssize(tokens);
  }
  // Evicts until one of these ends of turns is lost: which one. -1: several at once.
  int FirstLost(const std::string& domain, const std::vector<std::vector<TokenId>>& ends) {
    for (const auto& end : ends) EXPECT_TRUE(Has(domain, end));
    int lost = -1, n_lost = 0;
    while (n_lost == 0 && index_->Stats().nodes > 0) {
      Evict(1);
      for (size_t i = 0; i < ends.size(); ++i) {
        if (Has(domain, ends[i])) continue;
        lost = static_cast<int>(i);
        ++n_lost;
      }
    }
    return n_lost == 1 ? lost : -1;
  }
  void Evict(int64_t pages) {
    index_->EvictLru({std::vector<int64_t>(pools_.size(), pages)});
    Sound();
  }
  void Sound() const { EXPECT_EQ(Message(index_->CheckIntegrity()), ""); }
  int64_t Claims() const { return index_->Stats().claims; }
  PrefixIndex* operator->() { return index_.get(); }

 private:
  const Shape shape_;
  std::vector<std::unique_ptr<PagePool>> pools_;
  SlotPool slots_;
  std::unique_ptr<PrefixIndex> index_;
  uint64_t turn_ = 0;
};

// What a turn with this prompt leaves.
std::vector<TokenId> Ended(const std::vector<TokenId>& prompt) {
  return Join(prompt, Repeat(90, 4));
}

const std::vector<TokenId> kSystem = Repeat(1, 8);
const std::vector<TokenId> kParent = Join(kSystem, Repeat(2, 16));
std::vector<TokenId> Child(TokenId i) { return Join(kSystem, Repeat(10 + i, 16)); }

class LineageTest : public ::testing::TestWithParam<Turns::Shape> {};
INSTANTIATE_TEST_SUITE_P(Models, LineageTest,
                         ::testing::Values(Turns::Shape{{0}}, Turns::Shape{{0, 9}},
                                           Turns::Shape{{9}}, Turns::Shape{{0}, true},
                                           Turns::Shape{{0, 5}, true}),
                         [](const auto& info) { return "Model" + std::to_string(info.index); });

TEST_P(LineageTest, AParentThatCalledIsEvictedAfterItsChildren) {
  for (const bool calls : {true, false}) {
    Turns turns(GetParam());
    turns.Take("d", kParent, 4, calls);
    for (TokenId i = 0; i < 3; ++i) turns.Take("d", Child(i), 4, false);
    EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(0))}), calls ? 1 : 0);
    if (calls) {
      EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(2))}), 1);
    }
    // Under real pressure it goes too.
    turns.Evict(1000);
    EXPECT_EQ(turns.Claims(), 0);
    EXPECT_EQ(turns->Stats().nodes, 0);
  }
}

TEST_P(LineageTest, ChildrenNeedNotShareThePrefixOfTheirParent) {
  Turns turns(GetParam());
  turns.Take("d", kParent, 4, true);
  turns.Take("d", Repeat(50, 24), 4, false);
  EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Repeat(50, 24))}), 1);
}

// Conversations older than the call continue without making the parent more recent.
TEST_P(LineageTest, OlderConversationsAreNoChildren) {
  Turns turns(GetParam());
  const std::vector<TokenId> other = Repeat(50, 24);
  turns.Take("d", other, 4, false);
  turns.Take("d", kParent, 4, true);
  const std::vector<TokenId> longer = Join(Ended(other), Repeat(51, 4));
  turns.Take("d", longer, 4, false);
  EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(longer)}), 0);
}

TEST_P(LineageTest, EldersOutliveTheYounger) {
  Turns turns(GetParam());
  std::vector<std::vector<TokenId>> ends;
  for (TokenId i = 0; i < 3; ++i) {
    turns.Take("d", Repeat(40 + i, 24), 4, /*calls=*/i < 2);
    ends.push_back(Ended(Repeat(40 + i, 24)));
  }
  for (const int youngest : {2, 1, 0}) {
    EXPECT_EQ(turns.FirstLost("d", ends), youngest);
    ends.pop_back();
  }
}

TEST_P(LineageTest, AnAnsweredCallClaimsNothing) {
  Turns turns(GetParam());
  turns.Take("d", kParent, 4, true);
  EXPECT_EQ(turns.Claims(), 1);
  // The client sends its words back otherwise: it is the same conversation all the same.
  const std::vector<TokenId> back = Join(kParent, Repeat(91, 8));
  const uint64_t begun = turns.Take("d", back, 4, false);
  EXPECT_EQ(turns.Claims(), 1);
  EXPECT_EQ(turns.Take("d", Join(back, Repeat(92, 4)), 4, true), begun);
  turns.Take("d", Child(0), 4, false);
  EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(0))}), 0);
}

TEST_P(LineageTest, BetweenDomainsTheOrderOfUseDecides) {
  for (const bool share : {false, true}) {
    Turns turns(GetParam(), share);
    turns.Take("d", kParent, 4, true);
    turns.Take("d", Child(0), 4, false);
    turns.Take("e", Repeat(60, 24), 4, false);
    // The whole domain d was used before e.
    while (turns.Has("d", Ended(kParent))) {
      turns.Evict(1);
      EXPECT_TRUE(turns.Has("e", Ended(Repeat(60, 24))));
    }
  }
}

TEST_P(LineageTest, NobodyWaitsForAnAnswerForever) {
  for (const int n : {PrefixIndex::kMaxChildTurns, PrefixIndex::kMaxChildTurns + 1}) {
    Turns turns(GetParam());
    turns.Take("d", kParent, 4, true);
    for (int i = 0; i < n; ++i) turns.Take("d", Child(0), 4, false);
    const bool waits = n == PrefixIndex::kMaxChildTurns;
    EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(0))}), waits ? 1 : 0);
  }
  for (const int n :
       {static_cast<int>(PrefixIndex::kMaxClaims) - 1, static_cast<int>(PrefixIndex::kMaxClaims)}) {
    Turns turns(GetParam());
    turns.Take("d", kParent, 4, true);
    for (int i = 0; i < n; ++i) turns.Take("d", Child(i), 4, true);
    turns.Take("d", Child(n), 4, false);
    const bool waits = n < static_cast<int>(PrefixIndex::kMaxClaims);
    EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(0))}), waits ? 1 : 0);
  }
}

TEST_P(LineageTest, ForEachParentVisitsWhoWaits) {
  Turns turns(GetParam());
  turns.Take("d", kParent, 4, true, /*owner=*/7);
  turns.Take("d", Repeat(50, 24), 4, false, /*owner=*/8);
  const uint64_t begun = turns.Take("d", Child(0), 4, true, /*owner=*/9);
  std::vector<uint64_t> parents;
  turns->ForEachParent("d", begun, [&](uint64_t owner, PrefixIndex::Tokens tokens) {
    parents.push_back(owner);
    EXPECT_EQ(tokens(), Ended(kParent));
  });
  EXPECT_EQ(parents, std::vector<uint64_t>{7});
}

TEST_P(LineageTest, MarkedPrefixesGoLastUntilTheyLapse) {
  for (const int64_t until_us : {int64_t{100}, int64_t{10}}) {
    Turns turns(GetParam());
    turns.Take("d", kParent, 4, false);
    turns->Mark("d", Ended(kParent), /*now_us=*/0, until_us);
    turns.Take("d", Child(0), 4, false);
    // Marks lapse when the next one is made.
    turns.Take("d", Child(1), 4, false);
    turns->Mark("d", Ended(Child(1)), /*now_us=*/50, /*until_us=*/60);
    turns.Take("d", Child(2), 4, false);
    const bool is_marked = until_us == 100;
    EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(0)), Ended(Child(1))}),
              is_marked ? 1 : 0);
    if (is_marked) {
      EXPECT_EQ(turns.FirstLost("d", {Ended(kParent), Ended(Child(2))}), 1);
    }
    turns.Evict(1000);
    EXPECT_EQ(turns.Claims(), 0);
  }
}

TEST_P(LineageTest, AMarkCoversThoseBeforeIt) {
  Turns turns(GetParam());
  turns.Take("d", kParent, 4, false);
  turns->Mark("d", std::span(kParent).first(8), 0, 100);
  EXPECT_EQ(turns.Claims(), 2);  // with that of the turn
  turns->Mark("d", Ended(kParent), 0, 100);
  EXPECT_EQ(turns.Claims(), 2);
  turns->Mark("d", std::span(kParent).first(8), 0, 200);
  EXPECT_EQ(turns.Claims(), 3);
  for (TokenId i = 0; i < 40; ++i) {
    turns.Take("d", Child(i), 4, false);
    turns->Mark("d", Ended(Child(i)), 0, 100);
  }
  EXPECT_EQ(turns.Claims(), 2 * static_cast<int64_t>(PrefixIndex::kMaxClaims));
  turns.Sound();
}

// Random conversations: after every operation the index is sound, parents with their children in
// memory are there, and in the end everything can be freed.
TEST_P(LineageTest, InRandomProgramsParentsOutliveTheirChildren) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    Turns turns(GetParam());
    const std::vector<TokenId> parent = Join(kSystem, Repeat(2, 8 + static_cast<int>(below(20))));
    const std::vector<TokenId> parent_end = Ended(parent);
    turns.Take("d", parent, 4, true);
    std::map<TokenId, std::vector<TokenId>> children;
    for (int round = 0; round < 120; ++round) {
      const auto i = static_cast<TokenId>(below(6));
      std::vector<TokenId>& child = children[i];
      if (child.empty() || child.size() > 60) child = Child(static_cast<TokenId>(20 * round) + i);
      turns.Take("d", child, 4, below(2) == 0);
      child = Ended(child);
      if (below(3) == 0) child = Join(child, Repeat(static_cast<TokenId>(below(9)), 3));
      if (below(4) == 0) turns->Mark("d", child, round, round + below(20));
      // Whatever else there is goes first.
      const int64_t others =
          turns->Stats().pages[0] - GroupShape{kPageTokens, 0}.PagesFor(std::ssize(parent_end));
      if (below(2) == 0) turns.Evict(below(std::max<int64_t>(others, 1)));
      ASSERT_TRUE(turns.Has("d", parent_end));
    }
    turns.Evict(100'000);
    EXPECT_EQ(turns->Stats().nodes, 0);
    EXPECT_EQ(turns.Claims(), 0);
  }
}

}  // namespace
}  // namespace weft
