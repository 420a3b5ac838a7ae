// A server for tests of downloads: on 127.0.0.1 and a free port, it answers each request with the
// bytes that a function returns, verbatim, and closes the connection.
#ifndef WEFT_TESTS_SUPPORT_TINY_HTTP_SERVER_H_
#define WEFT_TESTS_SUPPORT_TINY_HTTP_SERVER_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace weft::testing {

struct TinyRequest {
  std::string path;
  std::string head;  // all lines

  // The value of a header; empty if it is missing.
  std::string Header(std::string_view name) const {
    for (const std::string_view line : StrSplit(head, '\n')) {
      if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':')
        continue;
      std::string value(line.substr(name.size() + 1));
      while (!value.empty() && (value.back() == '\r' || value.back() == ' ')) value.pop_back();
      return value.substr(value.find_first_not_of(' '));
    }
    return "";
  }
};

class TinyHttpServer {
 public:
  // Called on the server's threads, one call at a time.
  using Handler = std::function<std::string(const TinyRequest&)>;

  explicit TinyHttpServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(listener_, F_SETFD, FD_CLOEXEC);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    WEFT_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                   listen(listener_, 64) == 0,
               "a port of our own");
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = StrCat("http://127.0.0.1:", ntohs(address.sin_port));
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~TinyHttpServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (std::thread& thread : threads_) thread.join();
  }
  TinyHttpServer(const TinyHttpServer&) = delete;
  TinyHttpServer& operator=(const TinyHttpServer&) = delete;

  const std::string& url() const { return url_; }
  int n_requests() const { return n_requests_.load(); }

 private:
  void Accept() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      threads_.emplace_back([this, fd] {
        Serve(fd);
        close(fd);
      });
    }
  }
  void Serve(int fd) {
    std::string head;
    char buffer[4096];
    while (head.find("\r\n\r\n") == head.npos) {
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) return;
      head.append(buffer, static_cast<size_t>(n));
    }
    ++n_requests_;
    const size_t begin = head.find(' ') + 1;
    const std::string path = head.substr(begin, head.find(' ', begin) - begin);
    const std::string answer = [&] {
      MutexLock lock(&mutex_);
      return handler_({path, head});
    }();
    for (size_t sent = 0; sent < answer.size();) {
      const ssize_t n = send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
    shutdown(fd, SHUT_WR);
    // Reads to the end, because closing with unread data would discard what was sent.
    while (recv(fd, buffer, sizeof(buffer), 0) > 0) {
    }
  }

  Mutex mutex_;
  const Handler handler_;
  int listener_ = -1;
  std::string url_;
  std::atomic<int> n_requests_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // used by the acceptor, then by the destructor
};

inline std::string HttpText(int status, std::string_view headers, std::string_view body) {
  return StrCat("HTTP/1.1 ", status, " X\r\n", headers, "Content-Length: ", body.size(),
                "\r\nConnection: close\r\n\r\n", body);
}

// The first byte of "Range: bytes=N-"; 0 if there is no range.
inline int64_t FirstByteOf(const TinyRequest& request) {
  const std::string range = request.Header("Range");
  int64_t first = 0;
  if (range.starts_with("bytes=")) ParseInt64(range.substr(6, range.size() - 7), &first);
  return first;
}

// The file, or the requested range of it, cut after `n_sent` bytes.
inline std::string HttpFile(const TinyRequest& request, std::string_view file,
                            size_t n_sent = SIZE_MAX) {
  const auto first = static_cast<size_t>(FirstByteOf(request));
  if (first > file.size()) return HttpText(416, "", "");
  const std::string_view rest = file.substr(first);
  const std::string range = first == 0 ? ""
                                       : StrCat("Content-Range: bytes ", first, "-",
                                                file.size() - 1, "/", file.size(), "\r\n");
  return StrCat("HTTP/1.1 ", first == 0 ? 200 : 206, " X\r\n", range,
                "Content-Length: ", rest.size(), "\r\nConnection: close\r\n\r\n",
                rest.substr(0, n_sent));
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_TINY_HTTP_SERVER_H_
