// Readers that follow an engine's cached prefixes while turns run.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "engine/engine_test_util.h"
#include "tools/make_adapter.h"

namespace weft {
namespace {

using Pages = std::map<std::pair<uint64_t, CacheTier>, CachedPage>;

// Follows a feed as a router would.
class Router {
 public:
  Router(Engine* engine, const std::string& domain, std::vector<AdapterScale> adapters = {})
      : feed_(engine->WatchPrefixes(domain, std::move(adapters), [state = state_] {
          const std::lock_guard lock(state->mutex);
          state->woken = true;
          state->changed.notify_all();
        })) {}

  // Reads until the condition holds.
  void ReadUntil(const std::function<bool()>& condition) {
    Read();
    while (!condition()) {
      std::unique_lock lock(state_->mutex);
      ASSERT_TRUE(state_->changed.wait_for(lock, std::chrono::seconds(60), [&] {
        return state_->woken;
      })) << "nothing is told any more";
      state_->woken = false;
      lock.unlock();
      Read();
    }
  }
  // How many of the first tokens it believes to be cached.
  int64_t Known(const std::vector<int32_t>& tokens) const {
    uint64_t at = 0;
    size_t n = 0;
    for (bool found = true; found;) {
      found = false;
      for (const auto& [key, page] : pages_) {
        const bool fits = page.parent == at && n + page.tokens.size() <= tokens.size() &&
                          std::equal(page.tokens.begin(), page.tokens.end(),
                                     tokens.begin() + static_cast<ptrdiff_t>(n));
        if (!fits) continue;
        at = page.key;
        n += page.tokens.size();
        found = true;
        break;
      }
    }
    return static_cast<int64_t>(n);
  }
  bool empty() const { return pages_.empty(); }
  const Pages& pages() const { return pages_; }
  const Status& status() const { return status_; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool woken = false;
  };
  void Read() {
    std::vector<PrefixEvent> events;
    status_ = feed_->Take(&events);
    for (const PrefixEvent& event : events) {
      const std::pair place(event.page->key, event.tier);
      if (event.is_stored) {
        pages_[place] = *event.page;
      } else {
        EXPECT_EQ(pages_.erase(place), 1u);
      }
    }
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  const std::shared_ptr<PrefixFeed> feed_;
  Pages pages_;
  Status status_;
};

void Ask(Engine* engine, const std::string& domain, const TurnOptions& turn) {
  const auto running = engine->SubmitOnce(domain, turn);
  ASSERT_THAT(running, IsOk());
  ASSERT_THAT(Collect(running->get()).done().status, IsOk());
}

TEST(EngineWatch, ARouterKnowsWhatATurnFindsOfItsOwnDomain) {
  auto engine = StartEngine(SmallEngine(), TinyModel("llama"));
  const int64_t page = engine->Stats().page_tokens;
  const std::vector<int32_t> early = RandomTokens(60, 1), later = RandomTokens(60, 2);
  const int64_t whole = 60 / page * page;
  Ask(engine.get(), "a", Greedy(early, 1));
  Router a(engine.get(), "a"), b(engine.get(), "b");
  a.ReadUntil([&] { return a.Known(early) == whole; });
  Ask(engine.get(), "a", Greedy(later, 1));
  Ask(engine.get(), "b", Greedy(RandomTokens(60, 3), 1));
  a.ReadUntil([&] { return a.Known(later) == whole; });
  b.ReadUntil([&] { return b.Known(RandomTokens(60, 3)) == whole; });
  EXPECT_EQ(b.Known(early) + b.Known(later) + a.Known(RandomTokens(60, 3)), 0);
  EXPECT_GT(engine->Stats().watch_bytes, 0);
  EXPECT_OK(engine->CheckIntegrity());
  EXPECT_OK(engine->DropPrefixes());
  a.ReadUntil([&] { return a.empty(); });
  engine.reset();
  a.ReadUntil([&] { return !a.status().ok(); });
}

TEST(EngineWatch, NothingIsKeptOnceNobodyReads) {
  auto engine = StartEngine(SmallEngine(), TinyModel("llama"));
  const std::vector<int32_t> prompt = RandomTokens(60, 1);
  Ask(engine.get(), "", Greedy(prompt, 1));
  EXPECT_EQ(engine->Stats().watch_bytes, 0);
  {
    Router router(engine.get(), "");
    router.ReadUntil([&] { return router.Known(prompt) > 0; });
  }
  // The next turn ends after the reader has left.
  Ask(engine.get(), "", Greedy(RandomTokens(60, 2), 1));
  Ask(engine.get(), "", Greedy(RandomTokens(60, 3), 1));
  EXPECT_EQ(engine->Stats().watch_bytes, 0);
  Router again(engine.get(), "");
  again.ReadUntil([&] { return again.Known(prompt) > 0 && again.Known(RandomTokens(60, 3)) > 0; });
}

TEST(EngineWatch, TellsThePrefixesOfTheGivenAdapters) {
  const TestFolder folder;
  const std::string path = folder.path() + "/law.gguf";
  ASSERT_THAT(tools::MakeAdapter(testing::TinyModelFile("llama"), {.rank = 4, .seed = 1}, path),
              IsOk());
  ModelOptions options;
  options.n_threads = 1;
  options.adapters = {{"law", path}};
  auto model = Model::Load(testing::TinyModelFile("llama"), options);
  ASSERT_THAT(model, IsOk());
  auto engine = StartEngine(SmallEngine(), *model);
  TurnOptions plain = Greedy(RandomTokens(60, 1), 1), law = Greedy(RandomTokens(60, 2), 1);
  law.adapters = {{"law", 1}};
  law.adapters_are_default = false;
  Ask(engine.get(), "", plain);
  Ask(engine.get(), "", law);
  Router without(engine.get(), ""), with(engine.get(), "", law.adapters);
  without.ReadUntil([&] { return without.Known(plain.tokens) > 0; });
  with.ReadUntil([&] { return with.Known(law.tokens) > 0; });
  EXPECT_EQ(without.Known(law.tokens) + with.Known(plain.tokens), 0);
  Router unknown(engine.get(), "", {{"rhyme", 1}});
  unknown.ReadUntil([&] { return !unknown.status().ok(); });
  EXPECT_THAT(std::string(Message(unknown.status())), ::testing::HasSubstr("rhyme"));
}

// Prompts that share beginnings, in little memory and with a disk tier.
TEST(EngineWatch, AfterManyTurnsANewReaderKnowsWhatAnOldOneDoes) {
  for (const char* const name : {"llama", "gemma3", "qwen35"}) {
    const TestFolder folder;
    EngineOptions options = SmallEngine();
    options.state_dir = folder.path() + "/state";
    auto engine = StartEngine(options, TinyModel(name));
    Router old(engine.get(), "");
    std::mt19937_64 random(7);
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < 40; ++i) {
      std::vector<int32_t> prompt = RandomTokens(20 + static_cast<int64_t>(random() % 80), i);
      if (!prompts.empty()) {
        const auto& other = prompts[random() % prompts.size()];
        const size_t common = std::min(prompt.size() - 1, random() % other.size());
        std::copy_n(other.begin(), common, prompt.begin());
      }
      prompts.push_back(prompt);
      Ask(engine.get(), "", Greedy(prompt, 1 + static_cast<int64_t>(random() % 8)));
      if (i == 25) {
        EXPECT_OK(engine->DropPrefixes());
      }
    }
    Ask(engine.get(), "", Greedy(prompts[3], 1));
    Router fresh(engine.get(), "");
    fresh.ReadUntil([&] { return fresh.Known(prompts[3]) > 0; });
    // Blocks are still written, and each reader hears of them in its own time.
    const auto keys = [](const Router& router) {
      std::vector<std::pair<uint64_t, CacheTier>> all;
      for (const auto& [key, page] : router.pages()) all.push_back(key);
      return all;
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine->Stats().disk_pending > 0 || keys(old) != keys(fresh)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << name;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      for (Router* const router : {&old, &fresh}) router->ReadUntil([] { return true; });
    }
    EXPECT_FALSE(old.empty()) << name;
  }
}

}  // namespace
}  // namespace weft
