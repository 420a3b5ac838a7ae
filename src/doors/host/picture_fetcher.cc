#include "doors/host/picture_fetcher.h"

#include <atomic>
#include <cstdint>
#include <set>

#include "async/signal.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace weft::serve {

// One request's files. Threads that fetch may outlive the task that waits.
class PictureFetcher::Request {
 public:
  Request(std::set<std::string> urls, size_t max_bytes)
      : max_bytes_(max_bytes),
        left_(static_cast<int64_t>(max_bytes)),
        missing_(std::move(urls)),
        fetched_(std::make_shared<FetchedPictures>()) {}

  Signal& signal() { return signal_; }
  bool ended() const { return ended_; }
  // Nothing more is wanted.
  void End() {
    ended_ = true;
    signal_.Notify();
  }
  Status Take(size_t n_bytes) {
    const auto n = static_cast<int64_t>(n_bytes);
    if (left_.fetch_sub(n) >= n) return OkStatus();
    return InvalidArgument("makes the fetched pictures larger than ", HumanBytes(max_bytes_),
                           ": send fewer");
  }
  void Put(const std::string& url, StatusOr<std::string> file) {
    bool is_last;
    {
      MutexLock lock(&mutex_);
      if (fetched_ == nullptr) return;
      fetched_->files.insert_or_assign(url, std::move(file));
      missing_.erase(url);
      is_last = missing_.empty();
    }
    if (is_last) End();
  }
  // What is there. The others get the error `late`.
  std::shared_ptr<const FetchedPictures> Finish(const Status& late) {
    MutexLock lock(&mutex_);
    for (const std::string& url : missing_) fetched_->files.insert_or_assign(url, late);
    return std::exchange(fetched_, nullptr);
  }

 private:
  const size_t max_bytes_;
  Signal signal_;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> left_;
  Mutex mutex_;
  std::set<std::string> missing_ WEFT_GUARDED_BY(mutex_);
  std::shared_ptr<FetchedPictures> fetched_ WEFT_GUARDED_BY(mutex_);
};

PictureFetcher::PictureFetcher(FetchOnePicture fetch, const Limits& limits)
    : fetch_(std::move(fetch)),
      limits_(limits),
      pool_({.max_threads = limits.at_once, .max_posted = limits.at_once}) {}

Task<std::shared_ptr<const FetchedPictures>> PictureFetcher::Fetch(std::string tenant,
                                                                   std::vector<std::string> urls,
                                                                   std::stop_token left) {
  const auto until = TaskPool::Clock::now() + limits_.time;
  const std::set<std::string> wanted(urls.begin(), urls.end());
  const auto request = std::make_shared<Request>(wanted, limits_.bytes);
  const std::stop_callback leaves(left, [request] { request->End(); });
  for (const std::string& url : wanted) {
    const bool is_posted = pool_.Post(tenant, [request, url, &fetch = fetch_] {
      if (request->ended()) return;
      request->Put(url, fetch({.url = url,
                               .is_unwanted = [&] { return request->ended(); },
                               .take = [&](size_t n_bytes) { return request->Take(n_bytes); }}));
    });
    if (is_posted) continue;
    request->Put(url, ResourceExhausted("too many pictures are being fetched; try again, or send "
                                        "the picture"));
  }
  bool is_in_time = true;
  while (!request->ended() && is_in_time) is_in_time = co_await request->signal().WaitUntil(until);
  request->End();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits_.time).count();
  co_return request->Finish(
      is_in_time ? Cancelled("not wanted any more")
                 : InvalidArgument("was not there after ", seconds,
                                   " seconds, in which all of a request's addresses are "
                                   "fetched: send the picture itself"));
}

}  // namespace weft::serve
