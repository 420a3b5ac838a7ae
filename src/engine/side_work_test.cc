#include "engine/side_work.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

class NoExecutor : public Executor {
 public:
  StatusOr<std::unique_ptr<StepRun>> Begin(const Step&) override { return Unimplemented(""); }
  int64_t max_beside_tokens() const override { return 0; }
  int64_t scratch_bytes() const override { return 0; }
};

// Takes so many pieces, and says who it is in each.
class Pieces : public SideWork {
 public:
  Pieces(std::string tenant, int n, int64_t* now_us, std::vector<std::string>* said)
      : tenant_(std::move(tenant)), left_(n), now_us_(*now_us), said_(*said) {}
  std::string_view tenant() const override { return tenant_; }
  bool Advance(const Executor&, const std::function<bool()>& pause) override {
    while (!pause()) ++now_us_;
    said_.push_back(tenant_);
    return --left_ == 0;
  }

 private:
  const std::string tenant_;
  int left_;
  int64_t& now_us_;
  std::vector<std::string>& said_;
};

class SideWorkTest : public ::testing::Test {
 protected:
  void Add(const std::string& tenant, int pieces) {
    queue_.Add(std::make_shared<Pieces>(tenant, pieces, &now_us_, &said_));
  }
  int64_t CountOf(const std::string& tenant, size_t n) const {
    return std::count(said_.begin(), said_.begin() + static_cast<std::ptrdiff_t>(n), tenant);
  }
  // Pieces take a millisecond of this test's clock.
  void Run(int n) {
    for (int i = 0; i < n; ++i) EXPECT_TRUE(queue_.Advance(executor_, [] { return false; }));
  }

  int64_t now_us_ = 0;
  SideWorkQueue queue_{1, {{"heavy", 3}}, [this] { return now_us_; }};
  NoExecutor executor_;
  std::vector<std::string> said_;
};

TEST_F(SideWorkTest, OneTenantsWorkIsDoneInTheOrderItCame) {
  Add("a", 2);
  Add("a", 1);
  Run(3);
  EXPECT_THAT(said_, ElementsAre("a", "a", "a"));
  EXPECT_TRUE(queue_.empty());
  EXPECT_FALSE(queue_.Advance(executor_, [] { return false; }));
}

TEST_F(SideWorkTest, AnotherTenantDoesNotWaitForAQueue) {
  for (int i = 0; i < 20; ++i) Add("many", 5);
  Run(10);
  Add("one", 2);
  Run(6);
  EXPECT_EQ(CountOf("one", 16), 2) << "it begins where the other is, and takes turns";
}

TEST_F(SideWorkTest, WeightsCount) {
  Add("heavy", 100);
  Add("light", 100);
  Run(40);
  EXPECT_EQ(CountOf("heavy", 40), 30);
}

TEST_F(SideWorkTest, FewWorksAreUnderWayAtATime) {
  for (const char* tenant : {"a", "b", "c", "d", "e", "f"}) Add(tenant, 3);
  Run(8);
  EXPECT_EQ(CountOf("e", 8) + CountOf("f", 8), 0);
  Run(10);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(CountOf("f", 18), 3);
}

TEST_F(SideWorkTest, WorkThatIsClearedIsGone) {
  Add("a", 1);
  queue_.Clear();
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace weft
