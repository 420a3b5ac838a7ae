// Pictures that requests name by addresses. They are fetched before the request's handler runs,
// several at once, each by a thread of this object; the request's task waits and holds no thread.
//
//   auto fetching = fetcher.Fetch(tenant, urls, responder.cancellation());
//   request.pictures = co_await fetching;
//
// Any thread.
#ifndef WEFT_DOORS_HOST_PICTURE_FETCHER_H_
#define WEFT_DOORS_HOST_PICTURE_FETCHER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "answer/asked_picture.h"
#include "async/task.h"
#include "async/task_pool.h"
#include "base/status.h"

namespace weft::serve {

// The files by their addresses, or why one is not there.
struct FetchedPictures {
  std::map<std::string, StatusOr<std::shared_ptr<const PictureFile>>, std::less<>> files;
};

// A file to fetch, and the limits of that.
struct PictureWish {
  std::string url;
  // Polled at least every second; if true, the fetch ends.
  std::function<bool()> is_unwanted;
  // Called with the size of every part that arrives; an error ends the fetch.
  std::function<Status(size_t n_bytes)> take;
};

// Returns a file's bytes. Blocks; any thread.
using FetchOnePicture = std::function<StatusOr<std::string>(const PictureWish& wish)>;

class PictureFetcher {
 public:
  struct Limits {
    int at_once = 8;  // files; one fewer for a tenant alone
    // Of one request: files at once, all its files, and the time from its beginning.
    int at_once_of_request = 3;
    size_t bytes = size_t{64} << 20;
    std::chrono::milliseconds time{15'000};
    // Of all requests whose files are not taken yet.
    size_t total_bytes = size_t{256} << 20;
  };

  explicit PictureFetcher(FetchOnePicture fetch) : PictureFetcher(std::move(fetch), Limits()) {}
  PictureFetcher(FetchOnePicture fetch, const Limits& limits);

  // An entry for each of the addresses. Fetching ends when the client leaves and when the time is
  // over. `tenant`: tenants take turns. REQUIRES: the fetcher outlives the task.
  Task<std::shared_ptr<FetchedPictures>> Fetch(std::string tenant, std::vector<std::string> urls,
                                               std::stop_token left);

 private:
  class Request;
  // The bytes that all requests may still fetch.
  using Budget = std::atomic<int64_t>;

  // Has a thread fetch the request's files that are left. False if the tenant has too much waiting.
  bool PostFetch(const std::string& tenant, const std::shared_ptr<Request>& request);

  const FetchOnePicture fetch_;
  const Limits limits_;
  const std::shared_ptr<Budget> budget_;  // files may outlive the fetcher
  TaskPool pool_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_PICTURE_FETCHER_H_
