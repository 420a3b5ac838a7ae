#include "model/hub/net/http_client.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "model/hub/net/curl_handle.h"

namespace weft::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxErrorBytes = 16 << 10;
constexpr size_t kMaxHeaderBytes = 256 << 10;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using CurlUrl = std::unique_ptr<CURLU, FreeUrl>;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string PartOf(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string result(text);
  curl_free(text);
  return result;
}

// The URL `to` resolved relative to `from`.
std::string Resolved(const std::string& from, const std::string& to) {
  const CurlUrl url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, from.c_str(), 0) != CURLUE_OK) return "";
  if (curl_url_set(url.get(), CURLUPART_URL, to.c_str(), 0) != CURLUE_OK) return "";
  return PartOf(url.get(), CURLUPART_URL, 0);
}

bool CurlCanRead(std::string_view url) {
  const CurlUrl parsed(curl_url());
  const std::string text(url);
  return curl_url_set(parsed.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One exchange: collects curl's results into an answer, and passes a success's body to the sink.
struct Exchange {
  CURL* curl = nullptr;
  const HttpOptions* options = nullptr;
  HttpSink* sink = nullptr;
  ByteBudget* budget = nullptr;
  HttpAnswer answer;
  size_t header_bytes = 0;
  bool began = false;
  Status status;

  void ReadHead() {
    if (began) return;
    began = true;
    long code = 0;
    curl_off_t length = -1;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    answer.head.status = static_cast<int>(code);
    answer.head.content_bytes = length;
    if (IsSuccess()) status = sink->Begin(answer.head);
  }
  bool IsSuccess() const { return answer.head.status >= 200 && answer.head.status <= 299; }
};

size_t TakeHeader(char* data, size_t, size_t n, void* user) {
  auto* const exchange = static_cast<Exchange*>(user);
  const std::string_view line(data, n);
  exchange->header_bytes += n;
  if (exchange->header_bytes > kMaxHeaderBytes) return 0;
  // An interim answer, or a proxy's, is followed by another head.
  if (line.starts_with("HTTP/")) exchange->answer.head.headers.clear();
  const size_t colon = line.find(':');
  if (colon != line.npos) {
    exchange->answer.head.headers[AsciiLower(line.substr(0, colon))] =
        std::string(Trimmed(line.substr(colon + 1)));
  }
  return n;
}

size_t TakeBody(char* data, size_t, size_t n, void* user) {
  auto* const exchange = static_cast<Exchange*>(user);
  exchange->ReadHead();
  if (exchange->status.ok() && exchange->budget != nullptr) {
    exchange->status = exchange->budget->Take(static_cast<int64_t>(n));
  }
  if (!exchange->status.ok()) return 0;
  if (!exchange->IsSuccess()) {
    std::string* const body = &exchange->answer.body;
    body->append(data, std::min(n, kMaxErrorBytes - std::min(kMaxErrorBytes, body->size())));
    // No need to read the rest.
    return body->size() < kMaxErrorBytes ? n : 0;
  }
  exchange->status = exchange->sink->Add(std::as_bytes(std::span(data, n)));
  return exchange->status.ok() ? n : 0;
}

// Opens a socket if the address is allowed.
curl_socket_t OpenAllowed(void* user, curlsocktype, curl_sockaddr* address) {
  auto* const exchange = static_cast<Exchange*>(user);
  if (!exchange->options->may_connect(&address->addr)) {
    exchange->status = absl::PermissionDeniedError(
        StrCat("the address of ", Printable(HostOf(exchange->answer.head.url), 200),
               " is not of the open internet"));
    return CURL_SOCKET_BAD;
  }
  const curl_socket_t fd = socket(address->family, address->socktype, address->protocol);
  if (fd != CURL_SOCKET_BAD) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

// Non-zero ends the transfer.
int LookWhetherWanted(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const HttpOptions*>(user)->is_cancelled() ? 1 : 0;
}

Status TransportError(CURLcode code, const std::string& url, const HttpOptions& options,
                      int max_s) {
  const std::string host = Printable(HostOf(url), 200);
  const char* const reason = curl_easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_PROXY:
    case CURLE_INTERFACE_FAILED:
      return Unavailable("cannot reach ", host, " (", reason,
                         "): check the network and the proxy (https_proxy); 'weft list' shows the "
                         "models that are here already");
    case CURLE_ABORTED_BY_CALLBACK:
      return Cancelled("nobody waits for ", host, " any more; the part received so far is kept");
    case CURLE_OPERATION_TIMEDOUT:
      if (max_s > 0) {
        return DeadlineExceeded(host, " has not sent its answer within ", max_s,
                                " seconds: try again, or use another network");
      }
      return DeadlineExceeded(host, " has sent almost nothing for ", options.stall_s,
                              " seconds: try again, the part received so far is kept");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return FailedPrecondition(
          "the certificate of ", host, " cannot be trusted (", reason,
          "): install ca-certificates, or set SSL_CERT_FILE to your authority's certificate");
    case CURLE_UNSUPPORTED_PROTOCOL:
      // Said of answers too.
      if (url.starts_with("http://") || url.starts_with("https://")) {
        return FailedPrecondition("what ", host, " sends is not HTTP: check the URL and its port");
      }
      [[fallthrough]];
    case CURLE_URL_MALFORMAT:
      return FailedPrecondition("this is not a URL for downloading: ", Printable(url, 200));
    default:
      return DataLoss("the connection to ", host, " broke (", reason,
                      "): try again, the part received so far is kept");
  }
}

// `left_ms`: for this part of the transfer; 0: any time.
void SetUp(const HttpOptions& options, const HttpRequest& request, const std::string& url,
           int64_t left_ms, CurlList* headers, Exchange* exchange) {
  CURL* const curl = exchange->curl;
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "weft");
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_timeout_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options.stall_bytes_per_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_s));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(left_ms));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &TakeHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &TakeBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
  // A proxy's answer to CONNECT is not the server's.
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  SetCertificates(curl);
  if (options.is_cancelled) {
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &LookWhetherWanted);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &options);
  }
  if (options.may_connect) {
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, &OpenAllowed);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, exchange);
  }
  if (!request.accept.empty()) AddHeader("Accept: " + request.accept, headers);
  if (!request.token.empty() && OriginOf(url) == OriginOf(request.url)) {
    AddHeader("Authorization: Bearer " + request.token, headers);
  }
  if (request.first_byte > 0) {
    AddHeader(StrCat("Range: bytes=", request.first_byte, "-"), headers);
    if (!request.if_range.empty()) AddHeader("If-Range: " + request.if_range, headers);
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers->get());
}

// Collects the body as text, up to a size.
class TextSink : public HttpSink {
 public:
  TextSink(const std::string& url, size_t max_bytes) : url_(url), max_bytes_(max_bytes) {}
  Status Begin(const HttpHead&) override { return OkStatus(); }
  Status Add(std::span<const std::byte> bytes) override {
    if (bytes.size() > max_bytes_ - text.size()) {
      return FailedPrecondition("the answer of ", Printable(HostOf(url_), 200), " is longer than ",
                                HumanBytes(max_bytes_), ": it is not a list of files");
    }
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return OkStatus();
  }
  std::string text;

 private:
  const std::string url_;
  const size_t max_bytes_;
};

}  // namespace

std::string_view HttpHead::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

StatusOr<HttpAnswer> HttpClient::Fetch(const HttpRequest& request, HttpSink* sink) const {
  InitializeCurl();
  std::string url = request.url;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(request.max_s);
  for (int redirects = 0;; ++redirects) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (request.max_s > 0 && left.count() <= 0) {
      return TransportError(CURLE_OPERATION_TIMEDOUT, url, options_, request.max_s);
    }
    const Curl curl(curl_easy_init());
    if (curl == nullptr) return ResourceExhausted("out of memory for a connection");
    CurlList headers;
    Exchange exchange{
        .curl = curl.get(), .options = &options_, .sink = sink, .budget = options_.budget.get()};
    exchange.answer.head.url = url;
    SetUp(options_, request, url, request.max_s > 0 ? left.count() : 0, &headers, &exchange);
    const CURLcode code = curl_easy_perform(curl.get());
    // An answer without a body never reached TakeBody.
    if (code == CURLE_OK) exchange.ReadHead();
    WEFT_RETURN_IF_ERROR(exchange.status);
    const bool is_error = exchange.began && !exchange.IsSuccess();
    if (code != CURLE_OK && !is_error) return TransportError(code, url, options_, request.max_s);
    if (!is_error || !IsRedirect(exchange.answer.head.status)) return std::move(exchange.answer);
    const std::string location(exchange.answer.head.Header("location"));
    const std::string next = location.empty() ? "" : Resolved(url, location);
    if (next.empty() || redirects == kMaxRedirects) {
      return FailedPrecondition(Printable(HostOf(url), 200),
                                " redirects endlessly or to nowhere: check the URL");
    }
    if (url.starts_with("https:") && !next.starts_with("https:")) {
      return FailedPrecondition(Printable(HostOf(url), 200),
                                " redirects to an unencrypted URL, which is refused");
    }
    url = next;
  }
}

StatusOr<HttpAnswer> HttpClient::FetchText(const HttpRequest& request, size_t max_bytes) const {
  TextSink sink(request.url, max_bytes);
  HttpRequest bounded = request;
  bounded.max_s = options_.text_s;
  WEFT_ASSIGN_OR_RETURN(HttpAnswer answer, Fetch(bounded, &sink));
  if (!sink.text.empty()) answer.body = std::move(sink.text);
  return answer;
}

std::string OriginOf(std::string_view url) {
  const CurlUrl parsed(curl_url());
  const std::string text(url);
  if (curl_url_set(parsed.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return "";
  return AsciiLower(StrCat(PartOf(parsed.get(), CURLUPART_SCHEME, 0), "://",
                           PartOf(parsed.get(), CURLUPART_HOST, 0), ":",
                           PartOf(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)));
}

bool IsBareOrigin(std::string_view text) {
  const size_t scheme = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : 0;
  constexpr std::string_view kOfHost =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
  const std::string_view host = text.substr(scheme);
  return scheme > 0 && !host.empty() && host.find_first_not_of(kOfHost) == host.npos &&
         !host.ends_with(':') && CurlCanRead(text);
}

std::string HostOf(std::string_view url) {
  const CurlUrl parsed(curl_url());
  const std::string text(url);
  if (curl_url_set(parsed.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return text;
  return AsciiLower(PartOf(parsed.get(), CURLUPART_HOST, 0));
}

std::string EncodePath(std::string_view path) {
  std::string out;
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '/' || c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

}  // namespace weft::hub
