// The cost of a request does not grow with the number of sessions.
#include <vector>

#include "engine/engine_core.h"
#include "engine/engine_test_util.h"

namespace weft {
namespace {

constexpr NamedTurnPolicy kMakesRoom = {.close_idle_when_full = true};
// Most places visited for one request: a few for each of a few publications.
constexpr int64_t kFewVisits = 400;

// An engine without its own thread.
class ManySessionsTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options) {
    auto core = EngineCore::Create(TinyModel("llama"), options, [this](std::function<void()> work) {
      posted_.push_back(std::move(work));
    });
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    core_->Publish();
  }

  StatusOr<SubmittedTurn> Submit(const std::string& domain, const std::string& name,
                                 int64_t n_tokens = 1) {
    StatusOr<SubmittedTurn> submitted = Internal("no answer");
    core_->named().Submit({.session = {.name = name, .domain = domain},
                           .turn = Greedy({5, 6, 7}, n_tokens),
                           .policy = kMakesRoom},
                          [&](auto answer) { submitted = std::move(answer); });
    return submitted;
  }
  void Create(const std::string& domain, const std::string& name) {
    core_->sessions().Create({.name = name, .domain = domain},
                             [](const StatusOr<SessionId>& id) { EXPECT_OK(id.status()); });
  }
  // Runs until nothing is left to compute.
  void Run() {
    while (core_->RunOnce([] { return false; }) || !posted_.empty()) {
      for (const auto& work : std::exchange(posted_, {})) work();
      core_->PublishIfDue();
    }
    core_->Publish();
  }
  void RunNamed(const std::string& domain, const std::string& name) {
    const auto submitted = Submit(domain, name);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    Run();
  }
  int64_t CountNamed(const std::string& domain) {
    return std::ssize(core_->publisher().view()->Latest()->List(domain));
  }
  // Session table places that `work` visited.
  int64_t VisitsOf(const std::function<void()>& work) {
    const int64_t before = core_->table().n_visited();
    work();
    return core_->table().n_visited() - before;
  }

  std::vector<std::function<void()>> posted_;
  std::unique_ptr<EngineCore> core_;
};

TEST_F(ManySessionsTest, ANewNameInAFullTableTakesThePlaceOfTheOldestOfItsDomain) {
  constexpr int kTable = 5000;
  EngineOptions options = SmallEngine();
  options.max_sessions = kTable;
  options.memory_bytes = int64_t{256} << 20;
  Start(options);
  for (int i = 0; i < kTable; ++i) {
    const std::string domain = i % 2 == 0 ? "a" : "b";
    Create(domain, StrCat("old ", i));
  }
  RunNamed("a", "old 0");  // the most recently used
  while (core_->publisher().HasMore()) core_->Publish();
  for (int i = 0; i < 20; ++i) {
    // A neighbour decodes meanwhile, so that the places to recheck do not all come at once.
    const auto neighbour = core_->turns().SubmitOnce("b", Greedy({9, 9}, 20));
    ASSERT_TRUE(neighbour.ok()) << neighbour.status();
    const int64_t visits = VisitsOf([&] {
      ASSERT_TRUE(Submit("a", StrCat("new ", i)).ok());
      core_->RunOnce([] { return false; });
    });
    EXPECT_LT(visits, kFewVisits) << "for name " << i;
    Run();
  }
  EXPECT_EQ(CountNamed("a") + CountNamed("b"), kTable);
  EXPECT_EQ(CountNamed("b"), kTable / 2);
  const auto seen = core_->publisher().view()->Latest();
  EXPECT_TRUE(seen->Find("a", "old 0").ok());
  EXPECT_FALSE(seen->Find("a", "old 2").ok());
  EXPECT_FALSE(seen->Find("a", "old 40").ok());
  EXPECT_TRUE(seen->Find("a", "old 42").ok());
  EXPECT_OK(core_->CheckIntegrity());
}

TEST_F(ManySessionsTest, WhereMemoryIsShortTheOldestGivesItsOwn) {
  constexpr int kSessions = 1000;
  EngineOptions options = SmallEngine();
  options.max_sessions = kSessions + 100;
  options.prefix_cache = false;
  options.memory_bytes = kSessions * testing::PageBytes(*TinyModel("llama"), options);
  Start(options);
  for (int i = 0; i < kSessions; ++i) RunNamed("", StrCat("old ", i));
  while (core_->publisher().HasMore()) core_->Publish();
  const auto pages = [&](int i) {
    const auto seen = core_->publisher().view()->Latest();
    return seen->Inspect(*seen->Find("", StrCat("old ", i)))->pages;
  };
  for (int i = 0; i < 20; ++i) {
    EXPECT_GT(pages(i), 0);
    const int64_t visits = VisitsOf([&] {
      ASSERT_TRUE(Submit("", StrCat("new ", i)).ok());
      core_->RunOnce([] { return false; });
    });
    EXPECT_LT(visits, kFewVisits);
    Run();
    EXPECT_EQ(pages(i), 0) << "the oldest was not chosen";
    EXPECT_GT(pages(i + 1), 0);
  }
  EXPECT_OK(core_->CheckIntegrity());
}

TEST_F(ManySessionsTest, ClosingWhatIsIdleLooksAtNoOthers) {
  constexpr int kSessions = 3000;
  EngineOptions options = SmallEngine();
  options.max_sessions = kSessions;
  Start(options);
  for (int i = 0; i < kSessions; ++i) {
    Create(i < 10 ? "a" : "b", StrCat(i));
  }
  EXPECT_EQ(
      VisitsOf([&] { EXPECT_EQ(core_->sessions().CloseIdle(std::nullopt, 3600'000'000), 0); }), 0);
  EXPECT_EQ(VisitsOf([&] { EXPECT_EQ(core_->sessions().CloseIdle("a", 0), 10); }), 0);
  core_->Publish();
  EXPECT_EQ(CountNamed("a"), 0);
  EXPECT_EQ(CountNamed("b"), kSessions - 10);
  EXPECT_OK(core_->CheckIntegrity());
}

}  // namespace
}  // namespace weft
