#include "doors/host/model_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "tests/support/await.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using testing::Await;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = ModelFleet::State;

// What happened, in order: "+a" a is loaded, "-a" it is parked.
class Diary {
 public:
  void Add(std::string line) {
    MutexLock lock(&mutex_);
    lines_.push_back(std::move(line));
  }
  void Clear() {
    MutexLock lock(&mutex_);
    lines_.clear();
  }
  std::vector<std::string> lines() const {
    MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ WEFT_GUARDED_BY(mutex_);
};

class ScriptedLoaded : public LoadedModel {
 public:
  ScriptedLoaded(std::string name, int64_t bytes, Diary* diary)
      : name_(std::move(name)), bytes_(bytes), diary_(*diary) {
    diary_.Add("+" + name_);
  }
  Host& host() override { CheckFailed(__FILE__, __LINE__, "host()", "nobody asks"); }
  const Router& router() const override { return router_; }
  int64_t memory_bytes() const override { return bytes_; }
  Status Park(milliseconds) override {
    if (!parked_.exchange(true)) diary_.Add("-" + name_);
    return OkStatus();
  }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const int64_t bytes_;
  Diary& diary_;
  const Router router_;
  std::atomic<bool> parked_{false};
};

class ModelFleetTest : public ::testing::Test {
 protected:
  FleetModel Model(const std::string& name, int64_t bytes = 10) {
    FleetModel model{.name = name, .needs_bytes = bytes};
    model.load = [this, name, bytes](const auto& told) -> StatusOr<std::unique_ptr<LoadedModel>> {
      told(0.5);
      if (const auto it = gates_.find(name); it != gates_.end()) it->second.wait();
      if (broken_) return InvalidArgument("its tensors are torn");
      return std::make_unique<ScriptedLoaded>(name, bytes, &diary_);
    };
    return model;
  }

  void Start(std::vector<FleetModel> models, ModelFleet::Options options = {}) {
    if (options.memory_bytes == 0) options.memory_bytes = 20;
    options.on_notice = [this](const std::string& text) { notices_.Add(text); };
    fleet_ = std::make_unique<ModelFleet>(options, std::move(models));
    fleet_->Start();
  }

  StatusOr<ModelLease> Use(const std::string& name,
                           std::optional<milliseconds> keep_alive = std::nullopt) {
    return Await(fleet_->Use({.name = name, .keep_alive = keep_alive}, {}));
  }
  void UseAndLeave(const std::string& name) { EXPECT_TRUE(Use(name).ok()); }
  std::future<StatusOr<ModelLease>> UseLater(const std::string& name) {
    return std::async(std::launch::async, [this, name] { return Use(name); });
  }

  State StateOf(const std::string& name) { return fleet_->Find(name)->state; }
  void Expect(const std::string& name, State state) {
    while (StateOf(name) != state) std::this_thread::sleep_for(milliseconds(1));
  }

  Diary diary_, notices_;
  std::map<std::string, std::shared_future<void>> gates_;
  std::atomic<bool> broken_{false};
  std::unique_ptr<ModelFleet> fleet_;
};

TEST_F(ModelFleetTest, LoadsOnDemandAndByAlias) {
  FleetModel small = Model("small");
  small.aliases = {"haiku"};
  Start({Model("large"), small});
  EXPECT_EQ(StateOf("small"), State::kUnloaded);
  const auto lease = Use("haiku");
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(static_cast<ScriptedLoaded&>(**lease).name(), "small");
  EXPECT_EQ(StateOf("small"), State::kLoaded);
  EXPECT_EQ(fleet_->Find("small")->requests, 1);
  EXPECT_TRUE(Use("small:latest").ok());
  EXPECT_THAT(diary_.lines(), ElementsAre("+small"));
  // Without a name, it is the first.
  UseAndLeave("");
  EXPECT_EQ(StateOf("large"), State::kLoaded);
}

TEST_F(ModelFleetTest, RefusesUnknownNamesWithTheList) {
  Start({Model("a"), Model("b")});
  const auto lease = Use("c");
  EXPECT_EQ(lease.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(lease.status())), HasSubstr("there are a, b"));
}

TEST_F(ModelFleetTest, UnloadsTheOneUsedLeastRecently) {
  Start({Model("a"), Model("b"), Model("c")});
  UseAndLeave("a");
  UseAndLeave("b");
  UseAndLeave("a");
  UseAndLeave("c");
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "+b", "-b", "+c"));
  UseAndLeave("b");
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "+b", "-b", "+c", "-a", "+b"));
}

TEST_F(ModelFleetTest, PinnedModelsStay) {
  FleetModel pinned = Model("pinned");
  pinned.pinned = true;
  Start({pinned, Model("b"), Model("c")});
  UseAndLeave("pinned");
  UseAndLeave("b");
  UseAndLeave("c");
  EXPECT_THAT(diary_.lines(), ElementsAre("+pinned", "+b", "-b", "+c"));
  EXPECT_EQ(fleet_->Unload("pinned").code(), StatusCode::kFailedPrecondition);
}

TEST_F(ModelFleetTest, ABusyModelStaysUntilItsRequestsEnd) {
  Start({Model("a"), Model("b")}, {.memory_bytes = 10});
  auto lease = Use("a");
  ASSERT_TRUE(lease.ok());
  auto other = UseLater("b");
  Expect("a", State::kUnloading);
  // A new request waits until it is back, instead of keeping the other out for ever.
  auto again = UseLater("a");
  EXPECT_EQ(again.wait_for(milliseconds(20)), std::future_status::timeout);
  EXPECT_THAT(diary_.lines(), ElementsAre("+a"));
  lease->reset();
  EXPECT_TRUE(other.get().ok());
  EXPECT_TRUE(again.get().ok());
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "-a", "+b", "-b", "+a"));
}

TEST_F(ModelFleetTest, ABusyModelIsKeptIfTheOtherIsNotWantedAnyMore) {
  Start({Model("a"), Model("b")}, {.memory_bytes = 10, .load_wait = milliseconds(20)});
  const auto lease = Use("a");
  const auto other = Use("b");
  EXPECT_EQ(other.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(other.status())), HasSubstr("waits for memory"));
  Expect("a", State::kLoaded);
  EXPECT_EQ(StateOf("b"), State::kUnloaded);
  EXPECT_THAT(diary_.lines(), ElementsAre("+a"));
}

TEST_F(ModelFleetTest, AModelLargerThanTheMemoryIsRefusedAndNothingGoes) {
  Start({Model("a"), Model("huge", 30)});
  UseAndLeave("a");
  const auto lease = Use("huge");
  EXPECT_EQ(lease.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(lease.status())), HasSubstr("it needs 30 B of memory"));
  EXPECT_EQ(StateOf("a"), State::kLoaded);
  EXPECT_THAT(diary_.lines(), ElementsAre("+a"));
}

TEST_F(ModelFleetTest, AFailureSaysWhyAndIsNotTriedAgainAtOnce) {
  Start({Model("a"), Model("b")});
  UseAndLeave("a");
  broken_ = true;
  EXPECT_THAT(std::string(Message(Use("b").status())), HasSubstr("its tensors are torn"));
  EXPECT_EQ(fleet_->Find("b")->problem, "its tensors are torn");
  broken_ = false;
  EXPECT_FALSE(Use("b").ok());
  EXPECT_EQ(StateOf("a"), State::kLoaded);
  EXPECT_THAT(notices_.lines(), ElementsAre(HasSubstr("b could not be loaded")));
  // An operator may.
  EXPECT_TRUE(fleet_->Load("b").ok());
  Expect("b", State::kLoaded);
  EXPECT_THAT(fleet_->Find("b")->problem, IsEmpty());
}

TEST_F(ModelFleetTest, ManyWaitForOneLoad) {
  std::promise<void> open;
  gates_["a"] = open.get_future().share();
  Start({Model("a")});
  std::vector<std::future<StatusOr<ModelLease>>> waiting;
  waiting.reserve(4);
  for (int i = 0; i < 4; ++i) waiting.push_back(UseLater("a"));
  Expect("a", State::kLoading);
  EXPECT_EQ(fleet_->Find("a")->loaded_share, 0.5);
  open.set_value();
  for (auto& one : waiting) EXPECT_TRUE(one.get().ok());
  EXPECT_THAT(diary_.lines(), ElementsAre("+a"));
}

// Who waits is served before the model may go again.
TEST_F(ModelFleetTest, ModelsThatDisplaceEachOtherServeThoseWhoWait) {
  for (int i = 0; i < 20; ++i) {
    std::promise<void> open;
    gates_["a"] = open.get_future().share();
    diary_.Clear();
    Start({Model("a"), Model("b")}, {.memory_bytes = 10});
    auto first = UseLater("a");
    Expect("a", State::kLoading);
    auto second = UseLater("b"), third = UseLater("a");
    Expect("b", State::kWaiting);
    while (fleet_->Find("a")->waiting < 2) std::this_thread::sleep_for(milliseconds(1));
    open.set_value();
    ASSERT_TRUE(first.get().ok());
    ASSERT_TRUE(third.get().ok());
    ASSERT_TRUE(second.get().ok());
    ASSERT_THAT(diary_.lines(), ElementsAre("+a", "-a", "+b"));
    fleet_.reset();
  }
}

TEST_F(ModelFleetTest, ALoadThatTakesLongIsToldWithItsShare) {
  std::promise<void> open;
  gates_["a"] = open.get_future().share();
  Start({Model("a")}, {.load_wait = milliseconds(20)});
  EXPECT_THAT(std::string(Message(Use("a").status())), HasSubstr("is loading (50 %)"));
  open.set_value();
  Expect("a", State::kLoaded);
}

TEST_F(ModelFleetTest, IdleModelsGo) {
  FleetModel kept = Model("kept");
  kept.idle_unload = milliseconds(-1);
  Start({kept, Model("idle")}, {.idle_unload = milliseconds(5)});
  UseAndLeave("kept");
  UseAndLeave("idle");
  Expect("idle", State::kUnloaded);
  EXPECT_EQ(StateOf("kept"), State::kLoaded);
  EXPECT_FALSE(fleet_->Find("kept")->expires_s.has_value());
}

TEST_F(ModelFleetTest, KeepAliveOfARequestCounts) {
  Start({Model("a")});
  {
    const auto lease = Use("a", milliseconds(0));
    ASSERT_TRUE(lease.ok());
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(StateOf("a"), State::kLoaded);
  }
  Expect("a", State::kUnloaded);
  ASSERT_TRUE(Use("a", milliseconds(60'000)).ok());
  EXPECT_TRUE(fleet_->Find("a")->expires_s.has_value());
}

TEST_F(ModelFleetTest, EagerModelsAreLoadedAsFarAsTheMemoryGoes) {
  std::vector<FleetModel> models = {Model("a"), Model("b"), Model("c")};
  for (FleetModel& model : models) model.eager = true;
  Start(std::move(models));
  while (!fleet_->started()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "+b"));
  EXPECT_EQ(StateOf("c"), State::kUnloaded);
}

TEST_F(ModelFleetTest, PeekingNeitherLoadsNorCounts) {
  Start({Model("a"), Model("b"), Model("c")});
  EXPECT_EQ(fleet_->Peek("a"), nullptr);
  UseAndLeave("a");
  UseAndLeave("b");
  EXPECT_NE(fleet_->Peek("a"), nullptr);
  UseAndLeave("c");
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "+b", "-a", "+c"));
}

TEST_F(ModelFleetTest, AKeeperHoldsAModelAndIsNoRequest) {
  Start({Model("a"), Model("b")}, {.memory_bytes = 10});
  EXPECT_EQ(fleet_->Keep("a"), nullptr) << "not loaded";
  UseAndLeave("a");
  ModelLease kept = fleet_->Keep("a");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(fleet_->Find("a")->requests, 0);
  std::future<StatusOr<ModelLease>> other = UseLater("b");
  Expect("a", State::kUnloading);
  EXPECT_THAT(diary_.lines(), ElementsAre("+a"));
  kept.reset();
  EXPECT_TRUE(other.get().ok());
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "-a", "+b"));
}

TEST_F(ModelFleetTest, CountsLoadsAndThoseThatFailed) {
  Start({Model("a"), Model("large", 100)});
  UseAndLeave("a");
  EXPECT_TRUE(fleet_->Unload("a").ok());
  Expect("a", State::kUnloaded);
  UseAndLeave("a");
  EXPECT_FALSE(Use("large").ok());
  const ModelFleet::Info a = *fleet_->Find("a"), large = *fleet_->Find("large");
  EXPECT_EQ(a.loads, 2);
  EXPECT_EQ(a.failed_loads, 0);
  EXPECT_GT(a.load_time, milliseconds(0));
  EXPECT_EQ(large.loads, 0);
  EXPECT_EQ(large.failed_loads, 1);
  EXPECT_EQ(large.load_time, milliseconds(0));
}

TEST_F(ModelFleetTest, AnOperatorLoadsAndUnloads) {
  Start({Model("a")});
  EXPECT_TRUE(fleet_->Load("a").ok());
  Expect("a", State::kLoaded);
  EXPECT_EQ(fleet_->Load("a").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fleet_->Unload("a").ok());
  Expect("a", State::kUnloaded);
  EXPECT_EQ(fleet_->Unload("a").code(), StatusCode::kFailedPrecondition);
  std::vector<State> states;
  for (const ModelFleet::Event& event : fleet_->EventsSince(0)) {
    if (states.empty() || states.back() != event.state) states.push_back(event.state);
  }
  EXPECT_THAT(states, ElementsAre(State::kWaiting, State::kLoading, State::kLoaded,
                                  State::kUnloading, State::kUnloaded));
}

TEST_F(ModelFleetTest, AWatcherIsWokenByEachEventUntilItEnds) {
  Start({Model("a")});
  std::atomic<int> woken{0};
  auto watch = fleet_->WatchEvents([&woken] { ++woken; });
  UseAndLeave("a");
  const int n_events = woken;
  EXPECT_GE(n_events, 3);
  EXPECT_EQ(n_events, std::ssize(fleet_->EventsSince(0)));
  watch.reset();
  EXPECT_TRUE(fleet_->Unload("a").ok());
  Expect("a", State::kUnloaded);
  EXPECT_EQ(woken, n_events);
}

TEST_F(ModelFleetTest, DrainingParksAllAndLendsNothingMore) {
  Start({Model("a"), Model("b")});
  UseAndLeave("a");
  const auto lease = Use("b");
  EXPECT_TRUE(fleet_->Drain(milliseconds(10)).ok());
  EXPECT_THAT(diary_.lines(), ::testing::UnorderedElementsAre("+a", "+b", "-a", "-b"));
  EXPECT_EQ(Use("a").status().code(), StatusCode::kUnavailable);
}

// Whatever the order of requests, the memory holds, and everybody gets the model that was asked
// for.
TEST_F(ModelFleetTest, ManyRequestsForManyModelsKeepWithinTheMemory) {
  Start({Model("a", 7), Model("b", 9), Model("c", 5), Model("d", 12)});
  std::atomic<int> n_served{0};
  std::vector<std::thread> clients;
  clients.reserve(4);
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 30; ++i) {
        const std::string name(1, static_cast<char>('a' + (client * 7 + i * (client + 1)) % 4));
        const auto lease = Use(name);
        ASSERT_TRUE(lease.ok());
        EXPECT_EQ(static_cast<ScriptedLoaded&>(**lease).name(), name);
        int64_t bytes = 0;
        for (const ModelFleet::Info& info : fleet_->List()) bytes += info.memory_bytes;
        EXPECT_LE(bytes, 20);
        ++n_served;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_served, 120);
}

TEST_F(ModelFleetTest, AddsAModelWhileItRuns) {
  Start({Model("a")});
  EXPECT_EQ(fleet_->Add(Model("a")).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(fleet_->Add(Model("b")).ok());
  UseAndLeave("b");
  EXPECT_THAT(diary_.lines(), ElementsAre("+b"));
}

TEST_F(ModelFleetTest, ModelsOfOneDirectoryAreRefused) {
  Start({Model("a-1")});
  EXPECT_EQ(fleet_->MayAdd("a:1").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(fleet_->Add(Model("a:1")).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(fleet_->MayAdd("a:2").ok());
  // A model that replaces another waits until the directory is free.
  StatusOr<ModelLease> lease = Use("a-1");
  EXPECT_TRUE(fleet_->Replace({Model("a:1")}).ok());
  auto next = UseLater("a:1");
  EXPECT_EQ(next.wait_for(milliseconds(20)), std::future_status::timeout);
  lease = absl::CancelledError("");
  EXPECT_TRUE(next.get().ok());
  EXPECT_THAT(diary_.lines(), ElementsAre("+a-1", "-a-1", "+a:1"));
}

TEST_F(ModelFleetTest, OperatorsNameModelsExactly) {
  FleetModel model = Model("a");
  model.aliases = {"haiku"};
  Start({std::move(model), Model("b")});
  for (const char* const name : {"", "a:latest", "haiku:latest"}) {
    EXPECT_TRUE(fleet_->Find(name).ok()) << name;
    EXPECT_EQ(fleet_->FindExactly(name).status().code(), StatusCode::kNotFound) << name;
    EXPECT_EQ(fleet_->Load(name).code(), StatusCode::kNotFound) << name;
    EXPECT_EQ(fleet_->Unload(name).code(), StatusCode::kNotFound) << name;
    EXPECT_EQ(fleet_->Remove(name).code(), StatusCode::kNotFound) << name;
  }
  EXPECT_EQ(fleet_->List().size(), 2u);
  EXPECT_TRUE(fleet_->Remove("haiku").ok());
  EXPECT_EQ(fleet_->List().size(), 1u);
}

TEST_F(ModelFleetTest, DrainingEndsWhatARemovalBegan) {
  Start({Model("a"), Model("b")});
  const auto lease = Use("a");
  int n_gone = 0;
  EXPECT_TRUE(fleet_->Remove("a", [&n_gone] { ++n_gone; }).ok());
  EXPECT_EQ(n_gone, 0);
  EXPECT_TRUE(fleet_->Drain(milliseconds(10)).ok());
  EXPECT_TRUE(fleet_->Drain(milliseconds(0)).ok());
  EXPECT_EQ(n_gone, 1);
}

TEST_F(ModelFleetTest, ARemovedModelAnswersWhatItHasBegun) {
  Start({Model("a"), Model("b")});
  StatusOr<ModelLease> lease = Use("a");
  std::promise<void> gone;
  EXPECT_TRUE(fleet_->Remove("a", [&gone] { gone.set_value(); }).ok());
  EXPECT_EQ(fleet_->List().size(), 1u);
  EXPECT_EQ(Use("a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Use("").ok(), true);  // the first is another now
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "+b"));
  lease = absl::CancelledError("");
  gone.get_future().wait();
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "+b", "-a"));
  EXPECT_EQ(fleet_->Remove("a").code(), StatusCode::kNotFound);
}

TEST_F(ModelFleetTest, WhoWaitsForAModelThatIsRemovedIsRefused) {
  std::promise<void> gate;
  gates_["a"] = gate.get_future().share();
  Start({Model("a")});
  auto lease = UseLater("a");
  Expect("a", State::kLoading);
  EXPECT_TRUE(fleet_->Remove("a").ok());
  EXPECT_EQ(lease.get().status().code(), StatusCode::kNotFound);
  // One of the same name waits until the directory is free.
  EXPECT_TRUE(fleet_->Add(Model("a")).ok());
  auto next = UseLater("a");
  gate.set_value();
  EXPECT_TRUE(next.get().ok());
  EXPECT_THAT(diary_.lines(), ElementsAre("+a", "-a", "+a"));
}

TEST_F(ModelFleetTest, ReadingTheModelsAgainChangesWhatDiffers) {
  const auto of_source = [this](const std::string& name, const std::string& source) {
    FleetModel model = Model(name);
    model.source = source;
    return model;
  };
  Start({of_source("kept", "1"), of_source("changed", "1"), of_source("old", "1")},
        {.memory_bytes = 50});
  FleetModel added = Model("added");
  added.is_added = true;
  EXPECT_TRUE(fleet_->Add(std::move(added)).ok());
  for (const char* const name : {"kept", "changed", "old"}) UseAndLeave(name);
  diary_.Clear();
  EXPECT_TRUE(
      fleet_->Replace({of_source("kept", "1"), of_source("changed", "2"), of_source("new", "1")})
          .ok());
  std::vector<std::string> names;
  for (const auto& info : fleet_->List()) names.push_back(info.model->name);
  EXPECT_THAT(names, ElementsAre("kept", "added", "changed", "new"));
  EXPECT_EQ(StateOf("kept"), State::kLoaded);
  UseAndLeave("changed");
  EXPECT_THAT(diary_.lines(), ::testing::UnorderedElementsAre("-changed", "-old", "+changed"));
}

TEST_F(ModelFleetTest, WhoeverWaitsHearsWhy) {
  std::promise<void> gate;
  gates_["a"] = gate.get_future().share();
  Start({Model("a")});
  int n = 0;
  const ModelFleet::Signs signs{.tell = [&](std::string_view why) {
    EXPECT_THAT(std::string(why), HasSubstr("the model a "));
    if (++n == 3) gate.set_value();
  }};
  EXPECT_TRUE(Await(fleet_->Use({.name = "a"}, {}, signs)).ok());
  EXPECT_GE(n, 3);
}

}  // namespace
}  // namespace weft::serve
