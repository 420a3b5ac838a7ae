#include "doors/kv_events/zmtp.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/big_endian.h"
#include "base/strings.h"

namespace weft::zmtp {
namespace {

constexpr size_t kGreetingBytes = 64;
constexpr size_t kSignatureBytes = 10;
constexpr size_t kVersionAt = 10, kMechanismAt = 12, kMechanismBytes = 20;
constexpr char kVersion = 3;
constexpr std::string_view kMechanism = "NULL";
constexpr std::string_view kReady = "READY", kPong = "PONG";
constexpr unsigned kMore = 1, kLong = 2, kCommand = 4;
// Far more than topics and numbers take.
constexpr size_t kMaxFrameBytes = 4096, kMaxFrames = 8;
constexpr size_t kPingTtlBytes = 2, kMaxPingContext = 16;

// Cuts a piece with a length of `n_bytes` before it off `text`. Nothing: it is incomplete.
std::optional<std::string_view> TakeCounted(size_t n_bytes, std::string_view* text) {
  if (text->size() < n_bytes) return std::nullopt;
  const uint64_t size = FromBigEndian(text->substr(0, n_bytes));
  if (size > text->size() - n_bytes) return std::nullopt;
  const std::string_view piece = text->substr(n_bytes, size);
  text->remove_prefix(n_bytes + size);
  return piece;
}

std::string Command(std::string_view name, std::string_view body) {
  const size_t size = 1 + name.size() + body.size();
  return StrCat(std::string{static_cast<char>(kCommand), static_cast<char>(size)},
                BigEndian(name.size(), 1), name, body);
}

}  // namespace

std::string Hello(std::string_view kind) {
  std::string greeting(kGreetingBytes, '\0');
  greeting[0] = '\xff';
  greeting[kSignatureBytes - 1] = '\x7f';
  greeting[kVersionAt] = kVersion;
  std::ranges::copy(kMechanism, greeting.begin() + kMechanismAt);
  constexpr std::string_view kSocketType = "Socket-Type";
  return greeting + Command(kReady, StrCat(BigEndian(kSocketType.size(), 1), kSocketType,
                                           BigEndian(kind.size(), 4), kind));
}

std::string FrameHead(size_t size, bool more) {
  const unsigned flags = more ? kMore : 0;
  if (size <= 0xff) return std::string{static_cast<char>(flags), static_cast<char>(size)};
  return static_cast<char>(flags | kLong) + BigEndian(size, 8);
}

std::string MessageOf(std::span<const std::string> frames) {
  std::string message;
  for (size_t i = 0; i < frames.size(); ++i) {
    StrAppend(&message, FrameHead(frames[i].size(), i + 1 < frames.size()), frames[i]);
  }
  return message;
}

std::string Pong(std::string_view ping_body) {
  const size_t ttl = std::min(ping_body.size(), kPingTtlBytes);
  return Command(kPong, ping_body.substr(ttl, kMaxPingContext));
}

Status Reader::Feed(std::string_view bytes, std::vector<Incoming>* incoming) {
  buffer_ += bytes;
  bool is_more = true;
  while (is_more) {
    WEFT_ASSIGN_OR_RETURN(is_more, is_greeted_ ? TakeFrame(incoming) : TakeGreeting());
  }
  buffer_.erase(0, std::exchange(at_, 0));
  return OkStatus();
}

StatusOr<bool> Reader::TakeGreeting() {
  const std::string_view greeting = Rest();
  // Said as soon as it can be known: an HTTP client would wait for the rest of its own.
  if (!greeting.empty() && greeting[0] != '\xff') {
    return InvalidArgument("the client speaks no ZMTP");
  }
  if (greeting.size() < kGreetingBytes) return false;
  std::string mechanism(kMechanism);
  mechanism.resize(kMechanismBytes);
  if ((greeting[kSignatureBytes - 1] & 1) == 0 || greeting[kVersionAt] < kVersion) {
    return InvalidArgument("the client speaks a ZMTP older than version 3");
  }
  if (greeting.substr(kMechanismAt, kMechanismBytes) != mechanism) {
    return InvalidArgument("the client wants a mechanism other than NULL");
  }
  at_ += kGreetingBytes;
  is_greeted_ = true;
  return true;
}

StatusOr<bool> Reader::TakeFrame(std::vector<Incoming>* incoming) {
  std::string_view rest = Rest();
  if (rest.empty()) return false;
  const auto flags = static_cast<unsigned char>(rest[0]);
  const size_t size_bytes = (flags & kLong) != 0 ? 8 : 1;
  rest.remove_prefix(1);
  if (rest.size() < size_bytes) return false;
  if (FromBigEndian(rest.substr(0, size_bytes)) > kMaxFrameBytes) {
    return InvalidArgument("a frame has more than ", kMaxFrameBytes, " bytes");
  }
  const auto body = TakeCounted(size_bytes, &rest);
  if (!body) return false;
  at_ = buffer_.size() - rest.size();
  if ((flags & kCommand) != 0) {
    WEFT_RETURN_IF_ERROR(OnCommand(*body, incoming));
    return true;
  }
  if (!is_ready_) return InvalidArgument("a message comes before READY");
  if (frames_.size() == kMaxFrames) {
    return InvalidArgument("a message has more than ", kMaxFrames, " frames");
  }
  frames_.emplace_back(*body);
  if ((flags & kMore) == 0) incoming->push_back({.frames = std::exchange(frames_, {})});
  return true;
}

Status Reader::OnCommand(std::string_view body, std::vector<Incoming>* incoming) {
  const auto name = TakeCounted(1, &body);
  if (!name || name->empty()) return InvalidArgument("a command has no name");
  if (!frames_.empty()) return InvalidArgument("a command comes within a message");
  if (is_ready_) {
    incoming->push_back({.command = std::string(*name), .frames = {std::string(body)}});
    return OkStatus();
  }
  if (*name != kReady) return InvalidArgument("a command comes before READY");
  WEFT_RETURN_IF_ERROR(CheckReady(body));
  is_ready_ = true;
  return OkStatus();
}

Status Reader::CheckReady(std::string_view properties) const {
  while (!properties.empty()) {
    const auto name = TakeCounted(1, &properties);
    const auto value = name ? TakeCounted(4, &properties) : std::nullopt;
    if (!value) return InvalidArgument("READY is malformed");
    if (!EqualIgnoringCase(*name, "Socket-Type")) continue;
    if (std::ranges::find(kinds_, *value) != kinds_.end()) return OkStatus();
    return InvalidArgument("the client's socket is ", Printable(*value, 20), "; use ",
                           StrJoin(kinds_, " or "));
  }
  return InvalidArgument("READY names no socket type");
}

std::optional<Subscription> SubscriptionOf(const Incoming& incoming) {
  if (incoming.frames.size() != 1) return std::nullopt;
  const std::string& body = incoming.frames.front();
  if (incoming.command == "SUBSCRIBE") return Subscription{true, body};
  if (incoming.command == "CANCEL") return Subscription{false, body};
  if (!incoming.command.empty() || body.empty() || (body[0] & ~1) != 0) return std::nullopt;
  return Subscription{body[0] == 1, body.substr(1)};
}

}  // namespace weft::zmtp
