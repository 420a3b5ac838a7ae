#include "engine/turns/tenant_shares.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/slow_build.h"

namespace weft {
namespace {

// As in tenant_shares.cc.
constexpr double kSliceUs = 100'000;
constexpr double kMaxDeficitUs = 1'000'000;

constexpr int64_t kMaxRowUs = 20'000;
constexpr uint32_t kPrograms = testing::kSlowBuild ? 1000 : 100'000;

TEST(TenantSharesTest, ATenantAloneTakesEveryPlace) {
  TenantShares shares({});
  Tenant* const a = shares.Join("a");
  a->wanted = 1;
  EXPECT_EQ(shares.NextMove(1).to, a);
  EXPECT_EQ(shares.NextMove(1).from, nullptr);
  a->held = a->can_give = 4;
  EXPECT_EQ(shares.NextMove(0).to, nullptr);
  EXPECT_EQ(shares.ShareOf("a", 256), 256);
}

TEST(TenantSharesTest, PlacesEvenOutByWeight) {
  TenantShares shares({{"b", 3}});
  Tenant* const a = shares.Join("a");
  a->held = a->can_give = 8;
  a->wanted = 100;
  Tenant* const b = shares.Join("b");
  b->wanted = 100;
  while (true) {
    const TenantShares::Move move = shares.NextMove(0);
    if (move.to == nullptr) break;
    --move.from->held;
    --move.from->can_give;
    ++move.to->held;
    ++move.to->can_give;
  }
  EXPECT_EQ(a->held, 2);
  EXPECT_EQ(b->held, 6);
  EXPECT_EQ(shares.ShareOf("a", 256), 64);
  EXPECT_EQ(shares.ShareOf("c", 256), 51);
  EXPECT_EQ(shares.ShareOf("c", 1), 1);
}

TEST(TenantSharesTest, WhoComesBackHasSavedNothingUpAndOwesWhatItHad) {
  TenantShares shares({});
  Tenant* const a = shares.Join("a");
  a->Charge(5'000'000);
  EXPECT_EQ(shares.Join("b")->clock_us, 5'000'000);
  a->Charge(100);
  shares.Leave("a");
  EXPECT_EQ(shares.Find("a"), nullptr);
  EXPECT_EQ(shares.Join("a")->clock_us, 5'000'100);
}

// --- random programs in simulated time ---------------------------------------------------

struct Turn {
  int64_t steps = 1;  // rows that it needs
  double row_us = 0;  // what each costs
  int64_t ready_at = 0;
};

struct Client {
  std::string name;
  double weight = 1;
  Tenant* tenant = nullptr;
  std::deque<Turn> coming;  // by time
  std::vector<Turn> waiting, running;
  double hungry_since_us = -1;  // when it began to want a place without holding any
  int64_t n_turns = 0, n_done = 0;

  bool wants() const { return tenant != nullptr && !waiting.empty(); }
};

// Steps of an engine with `places`, in each of which every running turn advances by one row. Checks
// after every hand-over that places are shared, and in the end that every turn has ended.
class Engine {
 public:
  explicit Engine(uint32_t seed) : random_(seed) {
    places_ = Up(1, 6);
    const auto n = static_cast<size_t>(Up(1, 6));
    TenantShares::Weights weights;
    for (size_t i = 0; i < n; ++i) {
      Client client;
      client.name = std::string(1, static_cast<char>('a' + i));
      if (Up(0, 2) == 0) client.weight = weights[client.name] = static_cast<double>(Up(1, 8)) / 2;
      int64_t at = 0;
      for (int64_t k = Up(1, 12); k > 0; --k) {
        at += Up(0, 2) == 0 ? Up(0, 40) : 0;
        client.coming.push_back({.steps = Up(1, 60),
                                 .row_us = static_cast<double>(Up(100, kMaxRowUs)),
                                 .ready_at = at});
      }
      client.n_turns = std::ssize(client.coming);
      clients_.push_back(std::move(client));
    }
    shares_ = std::make_unique<TenantShares>(weights);
  }

  void Run() {
    for (int64_t step = 0; !Done(); ++step) {
      ASSERT_LT(step, 20'000) << "somebody is lost";
      Arrive(step);
      HandOver();
      Check();
      Compute();
    }
    for (const Client& client : clients_) EXPECT_EQ(client.n_done, client.n_turns);
  }

 private:
  int64_t Up(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Done() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const Client& c) { return c.n_done == c.n_turns; });
  }
  Client& Of(const Tenant* tenant) {
    return *std::find_if(clients_.begin(), clients_.end(),
                         [&](const Client& c) { return c.tenant == tenant; });
  }
  int64_t Held() const {
    int64_t n = 0;
    for (const Client& client : clients_) n += std::ssize(client.running);
    return n;
  }

  void Arrive(int64_t step) {
    for (Client& client : clients_) {
      while (!client.coming.empty() && client.coming.front().ready_at <= step) {
        client.tenant = shares_->Join(client.name);
        client.waiting.push_back(client.coming.front());
        client.coming.pop_front();
      }
    }
  }

  void HandOver() {
    shares_->BeginRound();
    for (Client& client : clients_) {
      if (client.tenant == nullptr) continue;
      client.tenant->held = client.tenant->can_give = std::ssize(client.running);
      client.tenant->wanted = std::ssize(client.waiting);
    }
    for (int n = 0; true; ++n) {
      ASSERT_LT(n, 100) << "places go round in circles";
      const auto [from, to] = shares_->NextMove(places_ - Held());
      if (from == nullptr && to == nullptr) return;
      if (from != nullptr) Pass(from, &Client::running, &Client::waiting, -1);
      if (to != nullptr) Pass(to, &Client::waiting, &Client::running, 1);
    }
  }

  void Pass(Tenant* tenant, std::vector<Turn> Client::*from, std::vector<Turn> Client::*to,
            int64_t more) {
    Client& client = Of(tenant);
    ASSERT_FALSE((client.*from).empty());
    const auto turn = more > 0 ? (client.*from).begin() : (client.*from).end() - 1;
    (client.*to).insert(more > 0 ? (client.*to).end() : (client.*to).begin(), *turn);
    (client.*from).erase(more > 0 ? (client.*from).begin() : (client.*from).end() - 1);
    tenant->held += more;
    tenant->can_give += more;
    tenant->wanted -= more;
  }

  void Check() {
    ASSERT_LE(Held(), places_);
    for (Client& client : clients_) {
      if (!client.wants()) {
        client.hungry_since_us = -1;
        continue;
      }
      ASSERT_EQ(Held(), places_) << "a place is idle while " << client.name << " waits";
      CheckNobodyHasTooMany(client);
      if (!client.running.empty()) {
        client.hungry_since_us = -1;
      } else if (client.hungry_since_us < 0) {
        client.hungry_since_us = now_us_;
      }
      if (client.hungry_since_us < 0) continue;
      // Meanwhile each of the others makes up for its deficit, and is a slice ahead in the end, by
      // its weight, which counts for more once some have left; it is found to be after a step.
      const double bound_us =
          2 * (kMaxDeficitUs + kSliceUs + static_cast<double>(clients_.size()) * kMaxRowUs);
      ASSERT_LE(now_us_ - client.hungry_since_us, bound_us) << client.name << " waits too long";
    }
  }

  // No other holds more than one place beyond the waiting one's, by weight.
  void CheckNobodyHasTooMany(const Client& waiting) {
    for (const Client& other : clients_) {
      if (&other == &waiting || other.running.size() < 2) continue;
      ASSERT_LE(other.tenant->RankOfPlace(other.tenant->held),
                waiting.tenant->RankOfPlace(waiting.tenant->held + 1))
          << other.name << " holds too many beside " << waiting.name;
    }
  }

  void Compute() {
    for (Client& client : clients_) {
      for (Turn& turn : client.running) {
        --turn.steps;
        now_us_ += turn.row_us;
        client.tenant->Charge(turn.row_us);
      }
      const auto ended = std::erase_if(client.running, [](const Turn& t) { return t.steps == 0; });
      client.n_done += static_cast<int64_t>(ended);
      for (size_t i = 0; i < ended; ++i) shares_->Leave(client.name);
      if (client.running.empty() && client.waiting.empty()) client.tenant = nullptr;
    }
  }

  std::mt19937 random_;
  int64_t places_ = 1;
  std::unique_ptr<TenantShares> shares_;
  std::vector<Client> clients_;
  double now_us_ = 0;
};

TEST(TenantSharesPropertyTest, NobodyIsLostAndNobodyWaitsLongerThanItsShareAllows) {
  for (uint32_t seed = 1; seed <= kPrograms; ++seed) {
    Engine(seed).Run();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// With work at all times, tenants' times stay together by weight.
TEST(TenantSharesPropertyTest, TenantsWithWorkGetTimeByWeight) {
  for (uint32_t seed = 1; seed <= kPrograms / 200; ++seed) {
    std::mt19937 random(seed);
    const auto up = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const auto n = static_cast<int>(up(2, 6));
    TenantShares::Weights weights;
    for (int i = 0; i < n; ++i) weights[std::to_string(i)] = static_cast<double>(up(1, 8)) / 2;
    TenantShares shares(weights);
    std::vector<Tenant*> tenants;
    std::vector<double> row_us;
    for (int i = 0; i < n; ++i) {
      tenants.push_back(shares.Join(std::to_string(i)));
      row_us.push_back(static_cast<double>(up(100, kMaxRowUs)));
    }
    // One place, always wanted by all.
    for (int step = 0; step < 5000; ++step) {
      for (Tenant* const t : tenants) {
        t->can_give = t->held;
        t->wanted = 1 - t->held;
      }
      const bool is_free = step == 0;
      const auto [from, to] = shares.NextMove(is_free ? 1 : 0);
      if (from != nullptr) from->held = 0;
      if (to != nullptr) to->held = 1;
      for (size_t i = 0; i < tenants.size(); ++i) {
        if (tenants[i]->held == 1) tenants[i]->Charge(row_us[i]);
      }
    }
    const auto [least, most] = std::minmax_element(
        tenants.begin(), tenants.end(),
        [](const Tenant* a, const Tenant* b) { return a->clock_us < b->clock_us; });
    const double bound_us = 2 * (kSliceUs + kMaxRowUs / 0.5);
    ASSERT_LE((*most)->clock_us - (*least)->clock_us, bound_us) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft
