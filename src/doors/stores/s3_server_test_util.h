// A server for tests of S3Store: on 127.0.0.1 and a free port, it answers each request with the
// bytes that a function returns, verbatim, and keeps connections open. FakeS3 is such a function: a
// store that checks every signature by a computation of its own.
#ifndef WEFT_DOORS_STORES_S3_SERVER_TEST_UTIL_H_
#define WEFT_DOORS_STORES_S3_SERVER_TEST_UTIL_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "doors/stores/s3_options.h"

namespace weft::stores {

// A proxy of the machine would get the requests to 127.0.0.1. Before main, while nobody reads
// these.
inline const bool kHasNoProxy = [] {
  for (const char* const name :
       {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}) {
    unsetenv(name);
  }
  return true;
}();

struct S3Request {
  std::string method;
  std::string path;                            // as sent
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  std::string Header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

struct S3Reply {
  std::string bytes;
  bool closes = false;  // the connection, after the bytes
  bool stalls = false;  // sends no more, and waits until the client goes
};

class S3TestServer {
 public:
  // Called on the server's threads, one call at a time.
  using Handler = std::function<S3Reply(const S3Request&)>;

  explicit S3TestServer(Handler handler) : handler_(std::move(handler)) {
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
    host_ = StrCat("127.0.0.1:", ntohs(address.sin_port));
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~S3TestServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (Connection& one : connections_) shutdown(one.fd, SHUT_RDWR);
    for (Connection& one : connections_) {
      one.thread.join();
      close(one.fd);
    }
  }
  S3TestServer(const S3TestServer&) = delete;
  S3TestServer& operator=(const S3TestServer&) = delete;

  const std::string& host() const { return host_; }
  std::string url() const { return "http://" + host_; }
  std::vector<S3Request> requests() const {
    MutexLock lock(&mutex_);
    return requests_;
  }
  int n_connections() const {
    MutexLock lock(&mutex_);
    return n_connections_;
  }

 private:
  struct Connection {
    explicit Connection(int socket) : fd(socket) {}
    int fd = -1;
    std::thread thread = {};
  };

  void Accept() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      fcntl(fd, F_SETFD, FD_CLOEXEC);
      {
        MutexLock lock(&mutex_);
        ++n_connections_;
      }
      Connection& one = connections_.emplace_back(fd);
      one.thread = std::thread([this, fd] {
        std::string rest;
        while (ServeOne(fd, &rest)) {
        }
        shutdown(fd, SHUT_RDWR);
      });
    }
  }
  static bool Receive(int fd, std::string* bytes) {
    char buffer[65536];
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n > 0) bytes->append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  static bool Send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  static void ReadHead(std::string_view head, S3Request* request) {
    const std::vector<std::string_view> lines = StrSplit(head, '\n');
    const std::vector<std::string_view> words = StrSplit(lines[0], ' ');
    request->method = words[0];
    request->path = words[1];
    for (size_t i = 1; i < lines.size(); ++i) {
      const size_t colon = lines[i].find(": ");
      std::string_view value = lines[i].substr(colon + 2);
      if (value.ends_with('\r')) value.remove_suffix(1);
      request->headers[AsciiLower(lines[i].substr(0, colon))] = value;
    }
  }
  // False once the connection has ended.
  bool ServeOne(int fd, std::string* rest) {
    size_t end = 0;
    while ((end = rest->find("\r\n\r\n")) == rest->npos) {
      if (!Receive(fd, rest)) return false;
    }
    S3Request request;
    ReadHead(rest->substr(0, end), &request);
    rest->erase(0, end + 4);
    if (request.Header("expect") == "100-continue" && !Send(fd, "HTTP/1.1 100 Continue\r\n\r\n")) {
      return false;
    }
    int64_t length = 0;
    ParseInt64(request.Header("content-length"), &length);
    while (rest->size() < static_cast<size_t>(length)) {
      if (!Receive(fd, rest)) return false;
    }
    request.body = rest->substr(0, static_cast<size_t>(length));
    rest->erase(0, static_cast<size_t>(length));
    const S3Reply reply = [&] {
      MutexLock lock(&mutex_);
      requests_.push_back(request);
      return handler_(request);
    }();
    if (!Send(fd, reply.bytes)) return false;
    while (reply.stalls && Receive(fd, rest)) {
    }
    return !reply.closes;
  }

  mutable Mutex mutex_;
  const Handler handler_;
  std::vector<S3Request> requests_ WEFT_GUARDED_BY(mutex_);
  int n_connections_ WEFT_GUARDED_BY(mutex_) = 0;
  int listener_ = -1;
  std::string host_;
  std::thread acceptor_;
  std::list<Connection> connections_;  // used by the acceptor, then by the destructor
};

inline std::string S3Answer(int status, std::string_view headers, std::string_view body) {
  return StrCat("HTTP/1.1 ", status, " X\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n",
                body);
}

inline S3Reply S3Error(int status, std::string_view code) {
  return {S3Answer(status, "Content-Type: application/xml\r\n",
                   StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>", code,
                          "</Code><Message>Words.</Message></Error>"))};
}

// --- signatures, as Amazon documents them ----------------------------------------------------

inline std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char c : bytes) {
    hex.push_back("0123456789abcdef"[c >> 4]);
    hex.push_back("0123456789abcdef"[c & 15]);
  }
  return hex;
}

inline std::string HashOf(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  WEFT_CHECK(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) == 1,
             "a hash");
  return {reinterpret_cast<const char*>(digest), size};
}

inline std::string HmacOf(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  WEFT_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                  reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
                  &size) != nullptr,
             "a keyed hash");
  return {reinterpret_cast<const char*>(digest), size};
}

inline std::string DecodedPath(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%' || i + 2 >= path.size()) {
      out.push_back(path[i]);
      continue;
    }
    out.push_back(static_cast<char>(std::stoi(std::string(path.substr(i + 1, 2)), nullptr, 16)));
    i += 2;
  }
  return out;
}

// Every byte encoded but letters, digits and -._~/.
inline std::string CanonicalPath(std::string_view decoded) {
  std::string out;
  for (const char c : decoded) {
    const bool is_plain = std::string_view("-._~/").find(c) != std::string_view::npos;
    if (is_plain || std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out.push_back(c);
    } else {
      StrAppend(&out, "%", Hex(std::string_view(&c, 1)));
      std::transform(out.end() - 2, out.end(), out.end() - 2, ::toupper);
    }
  }
  return out;
}

struct S3Key {
  std::string id = "AKIDEXAMPLE";
  std::string secret = "a/Secret+Key:with%signs";
  std::string region = "eu-north-1";
};

// A store of the bucket "talks" with that key.
inline S3Options OptionsFor(const std::string& url) {
  const S3Key key;
  return {.bucket = "talks",
          .prefix = "weft/a",
          .endpoint = url,
          .region = key.region,
          .access_key = key.id,
          .secret_key = key.secret};
}

// The text after `name` in the Authorization header, up to a comma.
inline std::string PartOfAuthorization(const S3Request& request, std::string_view name) {
  const std::string header = request.Header("authorization");
  const size_t begin = header.find(name);
  if (begin == header.npos) return "";
  const size_t from = begin + name.size();
  return header.substr(from, header.find(',', from) - from);
}

// What is wrong with a request's signature; empty: nothing.
inline std::string SignatureProblem(const S3Request& request, const S3Key& key) {
  const std::string date = request.Header("x-amz-date");
  const std::string hash = request.Header("x-amz-content-sha256");
  const std::string names = PartOfAuthorization(request, "SignedHeaders=");
  if (hash != Hex(HashOf(request.body))) return "the hash is not the body's";
  if (date.size() != 16) return "no date";
  std::string canonical =
      StrCat(request.method, "\n", CanonicalPath(DecodedPath(request.path)), "\n\n");
  const std::vector<std::string_view> signed_names = StrSplit(names, ';');
  for (const std::string_view name : signed_names) {
    StrAppend(&canonical, name, ":", request.Header(std::string(name)), "\n");
  }
  for (const auto& [name, value] : request.headers) {
    const bool must = name == "host" || name.starts_with("x-amz-") || name.starts_with("if-");
    if (must && std::ranges::find(signed_names, name) == signed_names.end()) {
      return name + " is not signed";
    }
  }
  StrAppend(&canonical, "\n", names, "\n", hash);
  const std::string day = date.substr(0, 8);
  const std::string scope = StrCat(day, "/", key.region, "/s3/aws4_request");
  if (PartOfAuthorization(request, "Credential=") != StrCat(key.id, "/", scope)) {
    return "another key or scope";
  }
  const std::string text =
      StrCat("AWS4-HMAC-SHA256\n", date, "\n", scope, "\n", Hex(HashOf(canonical)));
  const std::string signing =
      HmacOf(HmacOf(HmacOf(HmacOf("AWS4" + key.secret, day), key.region), "s3"), "aws4_request");
  const std::string wanted = Hex(HmacOf(signing, text));
  return PartOfAuthorization(request, "Signature=") == wanted ? "" : "another signature";
}

// A bucket of its own, which keeps S3's promises.
class FakeS3 {
 public:
  S3Reply operator()(const S3Request& request) {
    return SignatureProblem(request, key_).empty() ? Serve(request, true)
                                                   : S3Error(403, "SignatureDoesNotMatch");
  }
  // Without a look at the signature.
  S3Reply Serve(const S3Request& request, bool keeps_conditions) {
    const std::string key = DecodedPath(request.path);
    const auto it = objects_.find(key);
    if (request.method == "GET") {
      if (it == objects_.end()) return S3Error(404, "NoSuchKey");
      return {S3Answer(200, StrCat("ETag: ", it->second.tag, "\r\n"), it->second.body)};
    }
    if (request.method == "DELETE") {
      objects_.erase(key);
      return {"HTTP/1.1 204 X\r\n\r\n"};
    }
    if (request.method != "PUT") return S3Error(405, "MethodNotAllowed");
    const std::string if_match = request.Header("if-match");
    if (keeps_conditions) {
      if (!if_match.empty() && it == objects_.end()) return S3Error(404, "NoSuchKey");
      const bool holds = if_match.empty() || it->second.tag == if_match;
      const bool may_exist = request.Header("if-none-match") != "*" || it == objects_.end();
      if (!holds || !may_exist) return S3Error(412, "PreconditionFailed");
    }
    const std::string tag = StrCat("\"", Hex(HashOf(request.body)).substr(0, 32), "\"");
    objects_[key] = {request.body, tag};
    return {S3Answer(200, StrCat("ETag: ", tag, "\r\n"), "")};
  }

 private:
  struct Object {
    std::string body;
    std::string tag;
  };
  const S3Key key_{};
  std::map<std::string, Object> objects_;
};

}  // namespace weft::stores

#endif  // WEFT_DOORS_STORES_S3_SERVER_TEST_UTIL_H_
