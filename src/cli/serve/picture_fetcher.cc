#include "cli/serve/picture_fetcher.h"

#include <atomic>
#include <cstddef>
#include <span>
#include <utility>

#include "base/strings.h"
#include "model/hub/net/http_client.h"
#include "model/hub/net/public_address.h"

namespace weft::cli {
namespace {

// Holds a thread of the server, which may have few.
constexpr int kAtOnce = 1;
constexpr size_t kMaxBytes = size_t{32} << 20;
constexpr int kMaxSeconds = 15;

class Place {
 public:
  Place() : has_one_(n_taken_.fetch_add(1) < kAtOnce) {}
  ~Place() { --n_taken_; }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool has_one() const { return has_one_; }

 private:
  static inline std::atomic<int> n_taken_{0};
  const bool has_one_;
};

class PictureSink : public hub::HttpSink {
 public:
  Status Begin(const hub::HttpHead&) override { return OkStatus(); }
  Status Add(std::span<const std::byte> part) override {
    if (part.size() > kMaxBytes - bytes.size()) {
      return InvalidArgument("it is larger than ", HumanBytes(kMaxBytes));
    }
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return OkStatus();
  }
  std::string bytes;
};

}  // namespace

StatusOr<std::string> FetchPicture(const std::string& url) {
  const Place place;
  if (!place.has_one()) {
    return ResourceExhausted("another picture is being fetched; try again, or send the picture");
  }
  hub::HttpOptions options;
  options.connect_timeout_s = kMaxSeconds;
  options.may_connect = hub::IsPublicAddress;
  PictureSink sink;
  const auto answer = hub::HttpClient(options).Fetch(
      {.url = url, .accept = "image/*", .max_s = kMaxSeconds}, &sink);
  if (answer.status().code() == StatusCode::kFailedPrecondition) {
    return InvalidArgument(Message(answer.status()));
  }
  if (answer.status().code() == StatusCode::kPermissionDenied) {
    return InvalidArgument(Message(answer.status()), ": send the picture itself");
  }
  WEFT_RETURN_IF_ERROR(answer.status());
  if (answer->head.status != 200) {
    return InvalidArgument(Printable(hub::HostOf(url), 200), " answers ", answer->head.status);
  }
  return std::move(sink.bytes);
}

}  // namespace weft::cli
