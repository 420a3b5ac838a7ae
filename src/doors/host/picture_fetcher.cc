#include "doors/host/picture_fetcher.h"

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <set>

#include "async/signal.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

constexpr char kBusy[] = "too many pictures are being fetched; try again, or send the picture";

}  // namespace

// One request's files. Threads that fetch may outlive the task that waits.
class PictureFetcher::Request {
 public:
  Request(std::set<std::string> urls, size_t max_bytes, std::shared_ptr<Budget> budget)
      : max_bytes_(max_bytes),
        left_(static_cast<int64_t>(max_bytes)),
        budget_(std::move(budget)),
        missing_(std::move(urls)),
        next_(missing_.begin(), missing_.end()),
        fetched_(std::make_shared<FetchedPictures>()) {}

  Signal& signal() { return signal_; }
  bool ended() const { return ended_; }
  // Nothing more is wanted.
  void End() {
    ended_ = true;
    signal_.Notify();
  }
  // False if there is none left.
  bool FetchNext(const FetchOnePicture& fetch) {
    try {
      const std::optional<std::string> url = Next();
      if (!url) return false;
      Put(*url, Fetched(fetch, *url));
    } catch (const std::bad_alloc&) {  // then it is late
    }
    return true;
  }
  // Missing files get the error `late`, or `busy` if no thread was free for any of them.
  std::shared_ptr<FetchedPictures> Finish(const Status& late, const Status& busy) {
    MutexLock lock(&mutex_);
    const Status& error = has_begun_ ? late : busy;
    for (const std::string& url : missing_) fetched_->files.insert_or_assign(url, error);
    return std::exchange(fetched_, nullptr);
  }

 private:
  std::optional<std::string> Next() {
    MutexLock lock(&mutex_);
    if (ended_ || next_.empty()) return std::nullopt;
    std::string url = std::move(next_.front());
    next_.pop_front();
    has_begun_ = true;
    return url;
  }
  StatusOr<std::shared_ptr<const PictureFile>> Fetched(const FetchOnePicture& fetch,
                                                       const std::string& url) {
    int64_t taken = 0;
    Status status;
    try {
      StatusOr<std::string> bytes =
          fetch({.url = url,
                 .is_unwanted = [this] { return ended(); },
                 .take = [&](size_t n_bytes) { return Take(n_bytes, &taken); }});
      if (bytes.ok()) {
        const auto held = std::make_shared<const Held>(*std::move(bytes), budget_, &taken);
        return std::shared_ptr<const PictureFile>(held, &held->file);
      }
      status = bytes.status();
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("has no room in this machine's memory");
    }
    *budget_ += taken;
    return status;
  }
  // Gives its bytes back at its end.
  struct Held {
    Held(std::string bytes, std::shared_ptr<Budget> from, int64_t* of_fetch)
        : file(std::move(bytes)), budget(std::move(from)), taken(std::exchange(*of_fetch, 0)) {}
    ~Held() { *budget += taken; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    const PictureFile file;
    const std::shared_ptr<Budget> budget;
    const int64_t taken;
  };
  Status Take(size_t n_bytes, int64_t* taken) {
    const auto n = static_cast<int64_t>(n_bytes);
    if (left_.fetch_sub(n) < n) {
      return InvalidArgument("makes the fetched pictures larger than ", HumanBytes(max_bytes_),
                             ": send fewer");
    }
    *taken += n;
    if (budget_->fetch_sub(n) >= n) return OkStatus();
    return ResourceExhausted(kBusy);
  }
  void Put(const std::string& url, StatusOr<std::shared_ptr<const PictureFile>> file) {
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

  const size_t max_bytes_;
  Signal signal_;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> left_;
  const std::shared_ptr<Budget> budget_;
  Mutex mutex_;
  std::set<std::string> missing_ WEFT_GUARDED_BY(mutex_);
  std::deque<std::string> next_ WEFT_GUARDED_BY(mutex_);  // that nobody has begun to fetch
  bool has_begun_ WEFT_GUARDED_BY(mutex_) = false;
  std::shared_ptr<FetchedPictures> fetched_ WEFT_GUARDED_BY(mutex_);
};

PictureFetcher::PictureFetcher(FetchOnePicture fetch, const Limits& limits)
    : fetch_(std::move(fetch)),
      limits_(limits),
      budget_(std::make_shared<Budget>(static_cast<int64_t>(limits.total_bytes))),
      pool_({.max_threads = limits.at_once, .max_posted = limits.at_once}) {}

bool PictureFetcher::PostFetch(const std::string& tenant, const std::shared_ptr<Request>& request) {
  return pool_.Post(tenant, [this, tenant, request] {
    // A file at a time, so that other tenants have their turns; all of them if no more is taken.
    while (request->FetchNext(fetch_) && !PostFetch(tenant, request)) continue;
  });
}

Task<std::shared_ptr<FetchedPictures>> PictureFetcher::Fetch(std::string tenant,
                                                             std::vector<std::string> urls,
                                                             std::stop_token left) {
  const auto until = TaskPool::Clock::now() + limits_.time;
  const std::set<std::string> wanted(urls.begin(), urls.end());
  const auto request = std::make_shared<Request>(wanted, limits_.bytes, budget_);
  const std::stop_callback leaves(left, [request] { request->End(); });
  const auto n_workers = std::min<size_t>(wanted.size(), limits_.at_once_of_request);
  bool is_posted = false;
  for (size_t i = 0; i < n_workers; ++i) is_posted |= PostFetch(tenant, request);
  if (!is_posted) request->End();
  bool is_in_time = true;
  while (!request->ended() && is_in_time) is_in_time = co_await request->signal().WaitUntil(until);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits_.time).count();
  auto fetched = request->Finish(
      is_in_time ? Cancelled("not wanted any more")
                 : InvalidArgument("was not there after ", seconds,
                                   " seconds, in which all of a request's addresses are "
                                   "fetched: send the picture itself"),
      ResourceExhausted(kBusy));
  request->End();  // after Finish, so that no cancelled fetch is told as the reason
  co_return fetched;
}

}  // namespace weft::serve
