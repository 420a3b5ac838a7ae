// Random programs over pools, tables and the index, with simulated memory in which every cell
// records its prefix. A page shared too far, written without a copy, freed too early or found in
// another domain shows up as a wrong cell.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "engine/state/page_pool.h"
#include "engine/state/page_table.h"
#include "engine/state/prefix_index.h"

namespace weft {
namespace {

constexpr int kPageTokens = 4;
constexpr uint64_t kGarbage = 0xdeadbeef;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

struct Model {
  std::vector<int64_t> windows;
  bool slots = false;
};

// The state left by position `i`: a hash of all tokens up to it.
std::vector<uint64_t> StatesOf(uint64_t domain, const std::vector<TokenId>& tokens) {
  std::vector<uint64_t> states;
  uint64_t state = Mix(77, domain);
  for (const TokenId token : tokens) {
    states.push_back(state = Mix(state, static_cast<uint64_t>(token)));
  }
  return states;
}

struct Session {
  int domain = 0;
  std::vector<TokenId> tokens;
  std::vector<PageTable> tables;
  PoolRef slot;
};

class World {
 public:
  World(const Model& model, uint64_t seed, int32_t budget)
      : model_(model), random_(seed), slots_("slot", 40) {
    PrefixIndexOptions options;
    options.page_tokens = kPageTokens;
    for (const int64_t window : model.windows) {
      pools_.push_back(std::make_unique<PagePool>("page", budget));
      options.groups.push_back({pools_.back().get(), window});
    }
    if (model.slots) options.slots = &slots_;
    memory_.resize(model.windows.size());
    index_ = std::make_unique<PrefixIndex>(options);
  }

  void Run(int n_operations) {
    for (int i = 0; i < n_operations && !::testing::Test::HasFailure(); ++i) {
      Operation();
      Check();
    }
    Finish();
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  static std::string Domain(int domain) { return domain == 0 ? "" : "other"; }

  void Operation() {
    switch (Below(12)) {
      case 0:
      case 1:
        return Create();
      case 2:
      case 3:
        return Extend(Pick());
      case 4:
        return Fork(Pick());
      case 5:
        return Truncate(Pick());
      case 6:
        return Close(Pick());
      case 7:
      case 8:
        return Insert(Pick());
      case 9:
        return Evict();
      case 10:
        return Claim(Pick());
      default:
        if (Below(8) == 0) index_->Clear();
        return;
    }
  }

  Session* Pick() {
    if (sessions_.empty()) return nullptr;
    return sessions_[static_cast<size_t>(Below(static_cast<int64_t>(sessions_.size())))].get();
  }

  std::vector<TokenId> RandomPrompt() {
    std::vector<TokenId> prompt(static_cast<size_t>(Below(40)));
    // Mostly zeros, so that prefixes collide.
    for (TokenId& token : prompt) token = Below(12) == 0 ? 1 : 0;
    return prompt;
  }

  void Create() {
    auto session = std::make_unique<Session>();
    session->domain = static_cast<int>(Below(2));
    const auto prompt = RandomPrompt();
    PrefixMatch match =
        index_->Match(Domain(session->domain), prompt, static_cast<int64_t>(prompt.size()) - 1);
    ASSERT_LE(match.n_tokens, std::max<int64_t>(0, static_cast<int64_t>(prompt.size()) - 1));
    session->tables = std::move(match.tables);
    session->tokens.assign(prompt.begin(), prompt.begin() + match.n_tokens);
    if (model_.slots) {
      const auto slot = NewSlot();
      if (!slot.ok()) return;
      session->slot = PoolRef::Adopt(&slots_, *slot);
      SlotMemory(*slot) = match.checkpoint ? SlotMemory(match.checkpoint.id())
                                           : Mix(77, static_cast<uint64_t>(session->domain));
    }
    sessions_.push_back(std::move(session));
    Feed(sessions_.back().get(), {prompt.begin() + match.n_tokens, prompt.end()});
  }

  StatusOr<SlotId> NewSlot() {
    auto slot = slots_.Allocate();
    if (slot.ok()) return slot;
    index_->EvictLru({std::vector<int64_t>(pools_.size()), 1});
    return slots_.Allocate();
  }

  uint64_t& SlotMemory(SlotId slot) {
    if (static_cast<size_t>(slot) >= slot_memory_.size()) {
      slot_memory_.resize(static_cast<size_t>(slot) + 1, kGarbage);
    }
    return slot_memory_[static_cast<size_t>(slot)];
  }

  uint64_t& Cell(size_t group, PageId page, int64_t offset) {
    auto& memory = memory_[group];
    const size_t index = static_cast<size_t>(page * kPageTokens + offset);
    if (index >= memory.size()) memory.resize(index + 64, kGarbage);
    return memory[index];
  }

  // Computes tokens like the engine: makes room, copies, then writes.
  void Feed(Session* session, const std::vector<TokenId>& tokens) {
    const int64_t n = static_cast<int64_t>(tokens.size());
    if (n > 0 && Below(2) == 0) {
      std::vector<PageTable*> tables;
      for (PageTable& table : session->tables) tables.push_back(&table);
      index_->GiveBackTail(Domain(session->domain), session->tokens, tables, Below(4) == 0);
    }
    EvictionWish wish;
    for (const PageTable& table : session->tables) wish.pages.push_back(table.PagesToAppend(n));
    bool room = true;
    for (size_t g = 0; g < pools_.size(); ++g) {
      wish.pages[g] = std::max<int64_t>(0, wish.pages[g] - pools_[g]->available());
      room = room && wish.pages[g] == 0;
    }
    if (!room) index_->EvictLru(wish);
    for (size_t g = 0; g < pools_.size(); ++g) {
      if (session->tables[g].PagesToAppend(n) > pools_[g]->available()) return;
    }
    const int64_t from = static_cast<int64_t>(session->tokens.size());
    session->tokens.insert(session->tokens.end(), tokens.begin(), tokens.end());
    const auto states = StatesOf(static_cast<uint64_t>(session->domain), session->tokens);
    for (size_t g = 0; g < pools_.size(); ++g) {
      PageTable& table = session->tables[g];
      if (n > 0) {
        const auto copy = table.MakeWritable();
        ASSERT_TRUE(copy.ok());
        for (int i = 0; i < copy->n_tokens; ++i) {
          Cell(g, copy->to, i) = Cell(g, copy->from, i);
        }
      }
      ASSERT_TRUE(table.Append(n).ok());
      for (int64_t p = from; p < from + n; ++p) {
        const PageId page = table.pages()[static_cast<size_t>(p / kPageTokens)];
        Cell(g, page, p % kPageTokens) = states[static_cast<size_t>(p)];
      }
    }
    if (model_.slots && n > 0) SlotMemory(session->slot.id()) = states.back();
    if (Below(2) == 0) {
      for (PageTable& table : session->tables) table.DropBehindWindow();
    }
  }

  void Extend(Session* session) {
    if (session == nullptr || session->tokens.size() > 80) return;
    auto tokens = RandomPrompt();
    tokens.resize(tokens.size() % 13);
    Feed(session, tokens);
  }

  bool Resumable(const Session& session, int64_t position) const {
    if (model_.slots && position != static_cast<int64_t>(session.tokens.size())) return false;
    return std::ranges::all_of(session.tables,
                               [&](const PageTable& table) { return table.Covers(position); });
  }

  void Fork(Session* parent) {
    if (parent == nullptr) return;
    const int64_t size = static_cast<int64_t>(parent->tokens.size());
    const int64_t position = Below(3) == 0 ? size : Below(size + 1);
    if (!Resumable(*parent, position)) return;
    auto session = std::make_unique<Session>();
    session->domain = parent->domain;
    session->tokens.assign(parent->tokens.begin(), parent->tokens.begin() + position);
    for (const PageTable& table : parent->tables) session->tables.push_back(table.Share(position));
    if (model_.slots) {
      const auto slot = NewSlot();
      if (!slot.ok()) return;
      session->slot = PoolRef::Adopt(&slots_, *slot);
      SlotMemory(*slot) = SlotMemory(parent->slot.id());
    }
    sessions_.push_back(std::move(session));
  }

  void Truncate(Session* session) {
    if (session == nullptr) return;
    const int64_t position = Below(static_cast<int64_t>(session->tokens.size()) + 1);
    if (!Resumable(*session, position)) return;
    session->tokens.resize(static_cast<size_t>(position));
    for (PageTable& table : session->tables) table.TruncateTo(position);
  }

  void Close(Session* session) {
    std::erase_if(sessions_, [session](const auto& s) { return s.get() == session; });
  }

  void Insert(Session* session) {
    if (session == nullptr) return;
    std::vector<PageTable*> tables;
    for (PageTable& table : session->tables) tables.push_back(&table);
    const int64_t size = static_cast<int64_t>(session->tokens.size());
    PoolRef checkpoint;
    if (model_.slots && size > 0 && Below(4) > 0) {
      const auto slot = NewSlot();
      if (slot.ok()) {
        checkpoint = PoolRef::Adopt(&slots_, *slot);
        SlotMemory(*slot) = SlotMemory(session->slot.id());
      }
    }
    index_->Insert(Domain(session->domain), session->tokens, checkpoint ? size : Below(size + 1),
                   tables, Below(2) == 0, checkpoint.id());
    if (!checkpoint || Below(2) == 0) return;
    // A prefix inserted with a checkpoint is found from then on.
    ASSERT_EQ(index_->MatchLength(Domain(session->domain), session->tokens, size) == size,
              Resumable(*session, size));
  }

  // Ends a turn of the session, begins one, or marks a prefix of it.
  void Claim(Session* session) {
    if (session == nullptr) return;
    const std::string domain = Domain(session->domain);
    const auto prompt = std::span(session->tokens)
                            .first(static_cast<size_t>(Below(std::ssize(session->tokens) + 1)));
    const uint64_t begun = index_->BeginTurn(domain, prompt);
    index_->NoteUse(domain, begun);
    if (Below(2) == 0) {
      index_->EndTurn(domain, session->tokens, std::ssize(prompt), begun, ++turn_, /*owner=*/0);
      if (Below(2) == 0) index_->ExpectMore(domain, turn_);
    }
    const auto now_us = static_cast<int64_t>(turn_);
    if (Below(3) == 0) index_->Mark(domain, prompt, now_us, now_us + Below(10));
  }

  void Evict() {
    EvictionWish wish;
    for (size_t g = 0; g < pools_.size(); ++g) wish.pages.push_back(Below(6));
    wish.slots = Below(3);
    std::vector<int32_t> before;
    for (const auto& pool : pools_) before.push_back(pool->in_use());
    const EvictionWish freed = index_->EvictLru(wish);
    for (size_t g = 0; g < pools_.size(); ++g) {
      ASSERT_EQ(before[g] - pools_[g]->in_use(), freed.pages[g]);
    }
  }

  void Check() {
    ASSERT_EQ(Message(index_->CheckIntegrity()), "");
    for (size_t g = 0; g < pools_.size(); ++g) {
      std::vector<int32_t> counts;
      index_->AddPageCounts(static_cast<int>(g), &counts);
      for (const auto& session : sessions_) {
        ASSERT_EQ(Message(session->tables[g].CheckIntegrity()), "");
        session->tables[g].AddCounts(&counts);
      }
      ASSERT_EQ(Message(pools_[g]->CheckIntegrity(counts)), "");
      for (const PageId page : pools_[g]->TakeFreed()) {
        for (int i = 0; i < kPageTokens; ++i) Cell(g, page, i) = kGarbage;
      }
    }
    std::vector<int32_t> slot_counts;
    index_->AddSlotCounts(&slot_counts);
    for (const auto& session : sessions_) {
      if (session->slot) AddCount(&slot_counts, session->slot.id());
    }
    ASSERT_EQ(Message(slots_.CheckIntegrity(slot_counts)), "");
    for (const SlotId slot : slots_.TakeFreed()) SlotMemory(slot) = kGarbage;
    for (const auto& session : sessions_) CheckContents(*session);
  }

  void CheckContents(const Session& session) {
    const auto states = StatesOf(static_cast<uint64_t>(session.domain), session.tokens);
    const int64_t size = static_cast<int64_t>(session.tokens.size());
    for (size_t g = 0; g < pools_.size(); ++g) {
      const PageTable& table = session.tables[g];
      ASSERT_EQ(table.n_tokens(), size);
      ASSERT_TRUE(table.Covers(size));
      for (int64_t p = table.first_present() * kPageTokens; p < size; ++p) {
        const PageId page = table.pages()[static_cast<size_t>(p / kPageTokens)];
        ASSERT_EQ(Cell(g, page, p % kPageTokens), states[static_cast<size_t>(p)]);
      }
    }
    if (model_.slots) {
      ASSERT_EQ(SlotMemory(session.slot.id()),
                size > 0 ? states.back() : Mix(77, static_cast<uint64_t>(session.domain)));
    }
  }

  // Without sessions everything can be freed.
  void Finish() {
    sessions_.clear();
    index_->EvictLru({std::vector<int64_t>(pools_.size(), 1 << 20), 1 << 20});
    ASSERT_EQ(Message(index_->CheckIntegrity()), "");
    for (const auto& pool : pools_) ASSERT_EQ(pool->in_use(), 0);
    ASSERT_EQ(index_->Stats().nodes, 0);
    ASSERT_EQ(index_->Stats().claims, 0);
    ASSERT_EQ(slots_.in_use(), 0);
  }

  const Model model_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<PagePool>> pools_;
  SlotPool slots_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<std::unique_ptr<Session>> sessions_;
  uint64_t turn_ = 0;
  std::vector<std::vector<uint64_t>> memory_;  // per group, by page and offset
  std::vector<uint64_t> slot_memory_;
};

TEST(StatePropertyTest, RandomProgramsKeepEverySessionsContents) {
  const Model models[] = {{{0}, false},    {{0, 7}, false},    {{6}, false},
                          {{1, 0}, false}, {{0, 17, 3}, true}, {{0}, true},
                          {{1}, false},    {{}, true},         {{9, 5}, true}};
  for (const Model& model : models) {
    for (uint64_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE(
          StrCat("windows ", StrJoin(model.windows, ","), " slots ", model.slots, " seed ", seed));
      World(model, seed, seed % 2 == 0 ? 30 : 2000).Run(300);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weft
