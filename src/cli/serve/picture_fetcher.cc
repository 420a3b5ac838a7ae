#include "cli/serve/picture_fetcher.h"

#include <cstddef>
#include <new>
#include <span>
#include <utility>

#include "base/strings.h"
#include "model/hub/net/http_client.h"
#include "model/hub/net/public_address.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxBytes = size_t{32} << 20;
constexpr int kMaxSeconds = 15;

class PictureSink : public hub::HttpSink {
 public:
  explicit PictureSink(const serve::PictureWish& wish) : wish_(wish) {}
  Status Begin(const hub::HttpHead&) override { return OkStatus(); }
  Status Add(std::span<const std::byte> part) override {
    if (part.size() > kMaxBytes - bytes.size()) {
      return InvalidArgument("it is larger than ", HumanBytes(kMaxBytes));
    }
    WEFT_RETURN_IF_ERROR(wish_.take(part.size()));
    try {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    } catch (const std::bad_alloc&) {  // must not pass through the C library that calls this
      return ResourceExhausted("has no room in this machine's memory");
    }
    return OkStatus();
  }
  std::string bytes;

 private:
  const serve::PictureWish& wish_;
};

}  // namespace

StatusOr<std::string> FetchPicture(const serve::PictureWish& wish) {
  hub::HttpOptions options;
  options.connect_timeout_s = kMaxSeconds;
  options.is_cancelled = wish.is_unwanted;
  options.may_connect = hub::IsPublicAddress;
  PictureSink sink(wish);
  const auto answer = hub::HttpClient(options).Fetch(
      {.url = wish.url, .accept = "image/*", .max_s = kMaxSeconds}, &sink);
  if (answer.status().code() == StatusCode::kFailedPrecondition) {
    return InvalidArgument(Message(answer.status()));
  }
  if (answer.status().code() == StatusCode::kPermissionDenied) {
    return InvalidArgument(Message(answer.status()), ": send the picture itself");
  }
  if (answer.status().code() == StatusCode::kDataLoss) {
    return InvalidArgument("did not come whole: the connection broke");
  }
  if (answer.status().code() == StatusCode::kUnavailable) {
    return InvalidArgument(Printable(hub::HostOf(wish.url), 200), " cannot be reached");
  }
  WEFT_RETURN_IF_ERROR(answer.status());
  if (answer->head.status != 200) {
    return InvalidArgument(Printable(hub::HostOf(wish.url), 200), " answers ", answer->head.status);
  }
  return std::move(sink.bytes);
}

}  // namespace weft::cli
