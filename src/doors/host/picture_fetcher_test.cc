#include "doors/host/picture_fetcher.h"

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <new>
#include <stop_token>
#include <thread>

#include "async/wait_for_task.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr auto kLong = std::chrono::minutes(10);
constexpr auto kPoll = milliseconds(5);

using Fetched = std::shared_ptr<FetchedPictures>;

// A server that never answers.
StatusOr<std::string> WaitUntilUnwanted(const PictureWish& wish) {
  while (!wish.is_unwanted()) std::this_thread::sleep_for(kPoll);
  return Cancelled("unwanted");
}

Fetched Fetch(PictureFetcher& fetcher, std::vector<std::string> urls, std::stop_token left = {}) {
  TaskPool pool({.max_threads = 1});
  return WaitForTask(pool, fetcher.Fetch("tenant", std::move(urls), std::move(left)));
}

std::string ErrorOf(const Fetched& fetched, const std::string& url) {
  const auto found = fetched->files.find(url);
  return found == fetched->files.end() ? "no entry" : std::string(Message(found->second.status()));
}

TEST(PictureFetcherTest, FetchesEachAddressOnce) {
  std::atomic<int> n_fetched{0};
  PictureFetcher fetcher(
      [&](const PictureWish& wish) -> StatusOr<std::string> {
        ++n_fetched;
        if (wish.url == "c") return InvalidArgument("answers 404");
        return "file " + wish.url;
      },
      {.time = kLong});
  const Fetched fetched = Fetch(fetcher, {"a", "b", "a", "c"});
  EXPECT_EQ(n_fetched, 3);
  ASSERT_EQ(fetched->files.size(), 3u);
  EXPECT_EQ((*fetched->files.find("a")->second)->bytes, "file a");
  EXPECT_EQ((*fetched->files.find("b")->second)->bytes, "file b");
  EXPECT_EQ(ErrorOf(fetched, "c"), "answers 404");
}

// One after the other, none of them would ever return.
TEST(PictureFetcherTest, FetchesSeveralAtOnce) {
  std::latch all(3);
  PictureFetcher fetcher(
      [&](const PictureWish& wish) -> StatusOr<std::string> {
        all.arrive_and_wait();
        return wish.url;
      },
      {.at_once = 4, .time = kLong});
  const Fetched fetched = Fetch(fetcher, {"a", "b", "c"});
  for (const auto& [url, file] : fetched->files) EXPECT_EQ((*file)->bytes, url);
}

TEST(PictureFetcherTest, FetchesNoMoreAtOnceThanItMay) {
  std::atomic<int> n_now{0}, most{0};
  PictureFetcher fetcher(
      [&](const PictureWish& wish) -> StatusOr<std::string> {
        const int n = ++n_now;
        int seen = most;
        while (n > seen && !most.compare_exchange_weak(seen, n)) continue;
        std::this_thread::sleep_for(kPoll);
        --n_now;
        return wish.url;
      },
      {.at_once = 9, .at_once_of_request = 2, .time = kLong});
  const Fetched fetched = Fetch(fetcher, {"a", "b", "c", "d", "e", "f"});
  EXPECT_EQ(fetched->files.size(), 6u);
  EXPECT_LE(most, 2);
}

TEST(PictureFetcherTest, LimitsTheBytesOfAllRequestsUntilTheyAreFreed) {
  const auto fetch = [](const PictureWish& wish) -> StatusOr<std::string> {
    WEFT_RETURN_IF_ERROR(wish.take(60));
    return std::string(60, 'x');
  };
  PictureFetcher fetcher(fetch, {.time = kLong, .total_bytes = 100});
  Fetched first = Fetch(fetcher, {"a"});
  ASSERT_TRUE(first->files.find("a")->second.ok());
  const Fetched second = Fetch(fetcher, {"b"});
  EXPECT_EQ(second->files.find("b")->second.status().code(), StatusCode::kResourceExhausted);
  first = nullptr;
  EXPECT_TRUE(Fetch(fetcher, {"c"})->files.find("c")->second.ok());
}

TEST(PictureFetcherTest, AFetchThatFindsNoMemoryIsRefused) {
  PictureFetcher fetcher(
      [](const PictureWish&) -> StatusOr<std::string> { throw std::bad_alloc(); });
  EXPECT_THAT(ErrorOf(Fetch(fetcher, {"a"}), "a"), HasSubstr("memory"));
}

Task<void> FetchThenTell(PictureFetcher& fetcher, TaskPool& pool, std::stop_token left,
                         std::promise<Fetched>& told) {
  co_await pool.Enter();
  auto fetching = fetcher.Fetch("tenant", {"slow"}, std::move(left));
  Fetched fetched = co_await fetching;
  told.set_value(std::move(fetched));
}

TEST(PictureFetcherTest, ARequestThatWaitsHoldsNoThread) {
  std::latch begun(1);
  PictureFetcher fetcher(
      [&](const PictureWish& wish) {
        begun.count_down();
        return WaitUntilUnwanted(wish);
      },
      {.time = kLong});
  TaskPool pool({.max_threads = 1});
  std::stop_source client;
  std::promise<Fetched> told;
  StartTask(FetchThenTell(fetcher, pool, client.get_token(), told));
  begun.wait();
  // The pool's only thread is free for others meanwhile.
  std::promise<void> other;
  ASSERT_TRUE(pool.Post("other", [&] { other.set_value(); }));
  other.get_future().wait();
  client.request_stop();
  const Fetched fetched = told.get_future().get();
  EXPECT_THAT(ErrorOf(fetched, "slow"), HasSubstr("wanted"));
}

TEST(PictureFetcherTest, ARequestThatFoundNoThreadIsToBeSentAgain) {
  std::latch begun(1), release(1);
  PictureFetcher fetcher(
      [&](const PictureWish& wish) {
        if (wish.url == "slow") {
          begun.count_down();
          release.wait();
        }
        return wish.url;
      },
      {.at_once = 2, .time = milliseconds(200)});  // one for a tenant alone
  TaskPool pool({.max_threads = 1});
  std::promise<Fetched> told;
  auto slow = told.get_future();
  StartTask(FetchThenTell(fetcher, pool, {}, told));
  while (!begun.try_wait()) {
    if (slow.wait_for(kPoll) == std::future_status::ready) {
      release.count_down();
      GTEST_SKIP() << "the machine was too busy to begin a fetch in time";
    }
  }
  const Fetched other = Fetch(fetcher, {"b"});
  EXPECT_EQ(other->files.find("b")->second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(ErrorOf(slow.get(), "slow"), HasSubstr("send the picture itself"));
  release.count_down();
}

TEST(PictureFetcherTest, EndsWhatIsUnderWayWhenTheClientHasLeft) {
  std::stop_source client;
  std::latch ended(1);
  PictureFetcher fetcher(
      [&](const PictureWish& wish) {
        client.request_stop();
        auto cancelled = WaitUntilUnwanted(wish);
        ended.count_down();
        return cancelled;
      },
      {.time = kLong});
  Fetch(fetcher, {"a"}, client.get_token());
  ended.wait();
}

TEST(PictureFetcherTest, EndsWhatTakesTooLong) {
  PictureFetcher fetcher(WaitUntilUnwanted, {.time = milliseconds(20)});
  const Fetched fetched = Fetch(fetcher, {"a", "b"});
  for (const char* const url : {"a", "b"}) {
    EXPECT_THAT(ErrorOf(fetched, url), HasSubstr("send the picture"));
  }
}

TEST(PictureFetcherTest, LimitsTheBytesOfARequest) {
  const auto fetch = [](const PictureWish& wish) -> StatusOr<std::string> {
    WEFT_RETURN_IF_ERROR(wish.take(60));
    return std::string(60, 'x');
  };
  PictureFetcher fetcher(fetch, {.bytes = 100, .time = kLong});
  const Fetched fetched = Fetch(fetcher, {"a", "b"});
  int n_ok = 0;
  for (const auto& [url, file] : fetched->files) {
    if (file.ok()) {
      ++n_ok;
    } else {
      EXPECT_THAT(ErrorOf(fetched, url), HasSubstr("send fewer"));
    }
  }
  EXPECT_EQ(n_ok, 1);
  // Another request has its own.
  EXPECT_TRUE(Fetch(fetcher, {"c"})->files.find("c")->second.ok());
}

}  // namespace
}  // namespace weft::serve
