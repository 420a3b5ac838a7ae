// The server's half of ZMTP 3, which ZeroMQ's sockets speak over TCP, without passwords or
// encryption. Bytes to messages and back; knows no sockets.
#ifndef WEFT_DOORS_KV_EVENTS_ZMTP_H_
#define WEFT_DOORS_KV_EVENTS_ZMTP_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::zmtp {

// What a server of a kind ("PUB", "ROUTER") sends first.
std::string Hello(std::string_view kind);
// What stands before a frame of `size` bytes. `more`: another one of its message follows.
std::string FrameHead(size_t size, bool more);
std::string MessageOf(std::span<const std::string> frames);
// The answer to a command PING.
std::string Pong(std::string_view ping_body);

// What a client sends after its greeting.
struct Incoming {
  std::string command = {};  // its name; empty: a message
  // The frames of a message; of a command, what follows its name.
  std::vector<std::string> frames = {};
};

// Reads a client's bytes, in pieces of any size.
class Reader {
 public:
  // `kinds`: of the clients that can be served, such as "SUB".
  explicit Reader(std::vector<std::string> kinds) : kinds_(std::move(kinds)) {}

  // INVALID_ARGUMENT: it is no such client, or asks for too much. No further call is allowed then.
  Status Feed(std::string_view bytes, std::vector<Incoming>* incoming);
  // The client sent its READY.
  bool is_ready() const { return is_ready_; }

 private:
  StatusOr<bool> TakeGreeting();
  StatusOr<bool> TakeFrame(std::vector<Incoming>* incoming);
  Status OnCommand(std::string_view body, std::vector<Incoming>* incoming);
  Status CheckReady(std::string_view properties) const;
  std::string_view Rest() const { return std::string_view(buffer_).substr(at_); }

  const std::vector<std::string> kinds_;
  std::string buffer_;
  size_t at_ = 0;  // how much of it is read
  bool is_greeted_ = false, is_ready_ = false;
  std::vector<std::string> frames_;  // the message so far
};

// A subscription or its end.
struct Subscription {
  bool begins = false;
  std::string topic;
};
// Clients send it as a message or as a command. Nothing: it is something else.
std::optional<Subscription> SubscriptionOf(const Incoming& incoming);

}  // namespace weft::zmtp

#endif  // WEFT_DOORS_KV_EVENTS_ZMTP_H_
