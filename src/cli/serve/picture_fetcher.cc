#include "cli/serve/picture_fetcher.h"

#include <cstddef>
#include <mutex>
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
  // One at a time: it holds a thread of the server, which may have few.
  static std::mutex fetching;
  const std::unique_lock<std::mutex> alone(fetching, std::try_to_lock);
  if (!alone.owns_lock()) {
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
