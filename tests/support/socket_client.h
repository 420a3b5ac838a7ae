// A client that exchanges bytes over TCP with a server on this machine, and waits for expected
// data.
//
// One thread at a time.
#ifndef WEFT_TESTS_SUPPORT_SOCKET_CLIENT_H_
#define WEFT_TESTS_SUPPORT_SOCKET_CLIENT_H_

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace weft::testing {

// How long a test waits for an expected event.
inline constexpr int kPatienceMs = 20'000;

class SocketClient {
 public:
  struct Options {
    int receive_buffer = 0;  // bytes; 0: the system's choice
    bool ipv6 = false;
    const char* from = nullptr;  // its own IPv4 address; null: the system's choice
  };

  explicit SocketClient(int port) : SocketClient(port, Options()) {}
  SocketClient(int port, const Options& options)
      : fd_(socket(options.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0)) {
    if (options.receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer,
                 sizeof(options.receive_buffer));
    }
    const auto net_port = htons(static_cast<uint16_t>(port));
    if (options.ipv6) {
      sockaddr_in6 address = {};
      address.sin6_family = AF_INET6;
      address.sin6_port = net_port;
      address.sin6_addr = in6addr_loopback;
      connected_ = Connect(&address, sizeof(address));
    } else {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      if (options.from != nullptr) {
        inet_pton(AF_INET, options.from, &address.sin_addr);
        if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
      }
      address.sin_port = net_port;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      connected_ = Connect(&address, sizeof(address));
    }
  }
  ~SocketClient() { Close(); }
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void EndSending() { shutdown(fd_, SHUT_WR); }

  bool Say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Reads until `text` was received, and returns everything up to its end. If the connection ends
  // or the patience runs out first, returns all that was received, so that the comparison after it
  // fails.
  std::string Until(std::string_view text) {
    size_t end;
    while ((end = received_.find(text)) == received_.npos) {
      if (!Receive()) return std::exchange(received_, {});
    }
    std::string before = received_.substr(0, end + text.size());
    received_.erase(0, before.size());
    return before;
  }
  std::string UntilEnd() {
    while (Receive()) continue;
    return std::exchange(received_, {});
  }
  bool Ended() {
    while (Receive()) continue;
    return ended_;
  }

 private:
  bool Connect(const void* address, socklen_t bytes) {
    return connect(fd_, static_cast<const sockaddr*>(address), bytes) == 0;
  }
  bool Receive() {
    pollfd wait = {.fd = fd_, .events = POLLIN};
    if (poll(&wait, 1, kPatienceMs) != 1) return false;
    char bytes[16384];
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    received_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  int fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string received_;
};

// Whether "localhost" also resolves to ::1 on this machine, and ::1 is usable.
inline bool LocalhostIsIpv6() {
  addrinfo wanted = {};
  wanted.ai_family = AF_INET6;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", "0", &wanted, &found) != 0) return false;
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  const bool is_there = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return is_there;
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_SOCKET_CLIENT_H_
