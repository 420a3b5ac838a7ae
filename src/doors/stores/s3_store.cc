#include "doors/stores/s3_store.h"

#include <curl/curl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/strings.h"
#include "model/hub/names/digest.h"
#include "model/hub/net/curl_handle.h"
#include "model/hub/net/http_client.h"

namespace weft::stores {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxNameBytes = 1024;  // S3's limit for the prefix and the name
constexpr size_t kMaxErrorBytes = 16 << 10;
constexpr size_t kMaxTagBytes = 1024;
constexpr size_t kMaxIdle = 32;
// A large body waits this long for the server's consent, which saves sending it in vain.
constexpr long kConsentMs = 300;

bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c != 127; });
}

// The text of an element of an error's XML; empty if there is none.
std::string_view ElementOf(std::string_view xml, std::string_view name) {
  const std::string opening = StrCat("<", name, ">");
  const size_t begin = xml.find(opening);
  if (begin == xml.npos) return "";
  const size_t end = xml.find('<', begin + opening.size());
  return end == xml.npos ? "" : xml.substr(begin + opening.size(), end - begin - opening.size());
}

std::string HeaderOf(CURL* curl, const char* name) {
  curl_header* header = nullptr;
  const CURLHcode code = curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &header);
  return code == CURLHE_OK ? header->value : "";
}

// Without it, a connection that breaks would look like the end of a body.
bool HasKnownEnd(CURL* curl) {
  return !HeaderOf(curl, "content-length").empty() || !HeaderOf(curl, "transfer-encoding").empty();
}

}  // namespace

struct S3Store::Request {
  const char* method = "GET";
  std::string name;
  std::string_view body = {};
  Condition condition = {};

  bool HasBody() const { return std::string_view(method) == "PUT"; }
};

struct S3Store::Answer {
  int status = 0;
  std::string body;    // of an error, its beginning
  std::string tag;     // empty: none
  std::string region;  // the bucket's, if the server says it
  std::string_view code() const { return ElementOf(body, "Code"); }
};

// One request while it is under way.
struct S3Store::Transfer {
  enum class Trouble { kNone, kTooLarge, kTooLong, kStalled, kSentAgain, kLongError };

  const S3Options* options = nullptr;
  CURL* curl = nullptr;
  bool is_conditional = false;
  int n_sent = 0;
  steady_clock::time_point start = steady_clock::now();
  steady_clock::time_point moved_at = start;
  int64_t moved_bytes = 0;
  std::string body = {};
  Trouble trouble = Trouble::kNone;

  int Fail(Trouble why) {
    trouble = why;
    return 1;
  }
  bool IsSuccess() const {
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    return code >= 200 && code <= 299;
  }
  // Makes room for the body, if it may be that large.
  bool TakeLength() {
    curl_off_t length = -1;
    curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length > options->max_object_bytes) return false;
    if (length > 0) body.reserve(static_cast<size_t>(length));
    return true;
  }

  static size_t TakeBody(char* data, size_t, size_t n, void* user) {
    auto* const transfer = static_cast<Transfer*>(user);
    std::string* const body = &transfer->body;
    if (!transfer->IsSuccess()) {
      body->append(data, std::min(n, kMaxErrorBytes - body->size()));
      if (body->size() < kMaxErrorBytes) return n;
      transfer->Fail(Trouble::kLongError);  // its beginning is enough
      return 0;
    }
    const bool fits = body->size() + n <= static_cast<size_t>(transfer->options->max_object_bytes);
    if (!fits || (body->empty() && !transfer->TakeLength())) {
      transfer->Fail(Trouble::kTooLarge);
      return 0;
    }
    body->append(data, n);
    return n;
  }
  // Called with each piece, and about once a second. Non-zero ends the transfer.
  static int Look(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent) {
    auto* const transfer = static_cast<Transfer*>(user);
    const S3Options& options = *transfer->options;
    const auto now = steady_clock::now();
    if (const int64_t moved = received + sent; moved != transfer->moved_bytes) {
      transfer->moved_bytes = moved;
      transfer->moved_at = now;
    }
    const milliseconds for_bytes(transfer->moved_bytes * 1000 / options.slow_bytes_per_s);
    if (now - transfer->moved_at > options.stall_timeout) return transfer->Fail(Trouble::kStalled);
    if (now - transfer->start > options.request_timeout + for_bytes) {
      return transfer->Fail(Trouble::kTooLong);
    }
    return 0;
  }
  // Before the request is sent. libcurl sends one again by itself if an open connection breaks
  // before the answer. Sent twice, a conditional write could fail by its own first success: its
  // fate must remain unknown instead.
  static int BeforeSending(void* user, char*, char*, int, int) {
    auto* const transfer = static_cast<Transfer*>(user);
    if (++transfer->n_sent == 1 || !transfer->is_conditional) return CURL_PREREQFUNC_OK;
    transfer->Fail(Trouble::kSentAgain);
    return CURL_PREREQFUNC_ABORT;
  }
};

// Handles that nobody uses now, each with its connection; the one used last goes first.
class S3Store::Connections {
 public:
  hub::Curl Take() {
    {
      MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        hub::Curl curl = std::move(idle_.back());
        idle_.pop_back();
        return curl;
      }
    }
    return hub::Curl(curl_easy_init());
  }
  void Return(hub::Curl curl) {
    curl_easy_reset(curl.get());  // forgets pointers to the request, and keeps the connection
    MutexLock lock(&mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(curl));
  }

 private:
  Mutex mutex_;
  std::vector<hub::Curl> idle_ WEFT_GUARDED_BY(mutex_);
};

S3Store::S3Store(S3Options options)
    : options_(std::move(options)),
      host_(Printable(options_.endpoint.substr(options_.endpoint.find("://") + 3), 200)),
      connections_(std::make_unique<Connections>()) {
  hub::InitializeCurl();
}

S3Store::~S3Store() = default;

std::string S3Store::Place() const {
  return StrCat("s3://", options_.bucket, options_.prefix.empty() ? "" : "/", options_.prefix,
                " at ", options_.endpoint);
}

std::string S3Store::UrlOf(const std::string& name) const {
  const std::string prefix = options_.prefix.empty() ? "" : options_.prefix + "/";
  return StrCat(options_.endpoint, "/", hub::EncodePath(options_.bucket), "/",
                hub::EncodePath(prefix + name));
}

Status S3Store::CheckName(const std::string& name) const {
  const bool has_bad_part = std::ranges::any_of(StrSplit(name, '/'), [](std::string_view part) {
    return part.empty() || part == "." || part == "..";
  });
  if (!has_bad_part && IsPlain(name) && options_.prefix.size() + name.size() < kMaxNameBytes) {
    return OkStatus();
  }
  return InvalidArgument("\"", Printable(name, 100), "\" cannot be the name of an object");
}

namespace {

void AddConditionHeader(const ObjectStore::Condition& condition, hub::CurlList* headers) {
  if (condition.kind == ObjectStore::Condition::kAbsent) {
    hub::AddHeader("If-None-Match: *", headers);
  } else if (condition.kind == ObjectStore::Condition::kUnchanged) {
    hub::AddHeader("If-Match: " + condition.tag, headers);
  }
}

// What each request needs, whatever it asks.
void SetUpConnection(const S3Options& options, CURL* curl) {
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "weft");
  // S3 speaks no other; and each handle has a connection of its own.
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, kConsentMs);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout.count()));
  hub::SetCertificates(curl);
  const std::string signature = StrCat("aws:amz:", options.region, ":s3");
  curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, signature.c_str());
  curl_easy_setopt(curl, CURLOPT_USERNAME, options.access_key.c_str());
  curl_easy_setopt(curl, CURLOPT_PASSWORD, options.secret_key.c_str());
}

}  // namespace

void S3Store::SetUp(const Request& request, Transfer* transfer) const {
  CURL* const curl = transfer->curl;
  SetUpConnection(options_, curl);
  curl_easy_setopt(curl, CURLOPT_URL, UrlOf(request.name).c_str());
  if (request.HasBody()) {
    // As a POST by another name: it is sent from where it lies.
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::TakeBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::Look);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
  curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, &Transfer::BeforeSending);
  curl_easy_setopt(curl, CURLOPT_PREREQDATA, transfer);
}

StatusOr<S3Store::Answer> S3Store::Send(const Request& request) {
  WEFT_RETURN_IF_ERROR(CheckName(request.name));
  hub::Curl curl = connections_->Take();
  if (curl == nullptr) return ResourceExhausted("out of memory for a connection");
  Transfer transfer{.options = &options_,
                    .curl = curl.get(),
                    .is_conditional = request.condition.kind != Condition::kNone};
  SetUp(request, &transfer);
  // All of these are signed.
  hub::CurlList headers;
  hub::AddHeader("x-amz-content-sha256: " + hub::Sha256Hex(request.body), &headers);
  if (!options_.session_token.empty()) {
    hub::AddHeader("x-amz-security-token: " + options_.session_token, &headers);
  }
  if (request.HasBody()) hub::AddHeader("Content-Type: application/octet-stream", &headers);
  AddConditionHeader(request.condition, &headers);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  const CURLcode code = curl_easy_perform(curl.get());
  const bool is_cut_error = transfer.trouble == Transfer::Trouble::kLongError;
  if (code != CURLE_OK && !is_cut_error) return TransportError(code, transfer);
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  Answer answer{.status = static_cast<int>(status),
                .body = std::move(transfer.body),
                .tag = HeaderOf(curl.get(), "etag"),
                .region = HeaderOf(curl.get(), "x-amz-bucket-region")};
  const bool is_whole = !transfer.IsSuccess() || answer.body.empty() || HasKnownEnd(curl.get());
  if (!is_cut_error) connections_->Return(std::move(curl));
  if (!is_whole) {
    return Internal("the store ", host_, " does not say how long its answers are");
  }
  return answer;
}

Status S3Store::TransportError(int code, const Transfer& transfer) const {
  const char* const reason = curl_easy_strerror(static_cast<CURLcode>(code));
  using Trouble = Transfer::Trouble;
  switch (transfer.trouble) {
    case Trouble::kTooLarge:
      return ResourceExhausted("the store ", host_, " sends more than ",
                               HumanBytes(static_cast<uint64_t>(options_.max_object_bytes)),
                               " for one object");
    case Trouble::kStalled:
      return DeadlineExceeded("the store ", host_, " has neither sent nor taken anything for ",
                              options_.stall_timeout.count(), " ms");
    case Trouble::kTooLong:
      return DeadlineExceeded("the store ", host_, " has not answered within ",
                              options_.request_timeout.count(), " ms");
    case Trouble::kSentAgain:
      return Unavailable("the connection to the store ", host_,
                         " broke before its answer: the write may have happened");
    case Trouble::kLongError:
    case Trouble::kNone:
      break;
  }
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return DeadlineExceeded("the store ", host_, " cannot be reached within ",
                              options_.connect_timeout.count(), " ms");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return PermissionDenied("the certificate of the store ", host_, " cannot be trusted (",
                              reason, "): set SSL_CERT_FILE to your authority's certificate");
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
      return Internal("what the store ", host_, " sends is not HTTP: check the endpoint");
    case CURLE_OUT_OF_MEMORY:
      return ResourceExhausted("out of memory for a request to the store ", host_);
    default:
      return Unavailable("the store ", host_, " cannot be reached (", reason, ")");
  }
}

Status S3Store::RefusalOf(const Answer& answer) const {
  const int status = answer.status;
  const std::string_view code = answer.code();
  const std::string said = StrCat("the store ", host_, " answers ", status, code.empty() ? "" : " ",
                                  Printable(code, 100));
  const std::string bucket = StrCat("the bucket ", Printable(options_.bucket, 100));
  if (status >= 300 && status <= 399) {
    return InvalidArgument(
        said, ": ", bucket, " is elsewhere", answer.region.empty() ? "" : ", in the region ",
        Printable(answer.region, 100), "; correct --store-endpoint or AWS_REGION");
  }
  if (code == "NoSuchBucket") {
    return InvalidArgument(said, ": there is no bucket ", Printable(options_.bucket, 100),
                           "; create it, or correct --store");
  }
  if (code == "AuthorizationHeaderMalformed") {
    return InvalidArgument(said, ": ", bucket, " is not in the region ", options_.region,
                           "; correct AWS_REGION");
  }
  if (code == "RequestTimeTooSkewed") {
    return PermissionDenied(said, ": the clocks differ; set this machine's");
  }
  if (code == "ExpiredToken") {
    return PermissionDenied(said, ": the temporary key of AWS_SESSION_TOKEN has expired; restart ",
                            "the server with a new one, or with a key that does not expire");
  }
  if (status == 401 || status == 403) {
    return PermissionDenied(said, ": AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be a key ",
                            "that may list ", bucket,
                            " (s3:ListBucket), and read, write and delete its objects");
  }
  if (status == 501) {
    return Unimplemented(said, ": it is no store for conversations, which need conditional writes");
  }
  if (status == 408 || status == 409 || status == 429 || status >= 500 ||
      code == "RequestTimeout") {
    return Unavailable(said, ": try again");
  }
  if (status == 404) return InvalidArgument(said, ": nothing is there; correct --store-endpoint");
  if (status >= 400) return InvalidArgument(said, " and does not take the request");
  return Internal(said, ", which S3 would not; correct --store-endpoint");
}

absl::StatusOr<ObjectStore::Object> S3Store::Get(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(Answer answer, Send({.method = "GET", .name = name}));
  if (answer.status == 404 && answer.code() == "NoSuchKey") {
    return NotFound("the store ", host_, " has no ", Printable(name, 200));
  }
  if (answer.status != 200) return RefusalOf(answer);
  if (answer.tag.empty()) return Internal("the store ", host_, " sends an object without its ETag");
  return Object{.body = std::move(answer.body), .tag = std::move(answer.tag)};
}

absl::StatusOr<std::string> S3Store::Put(const std::string& name, std::string_view body,
                                         const Condition& condition) {
  const bool needs_tag = condition.kind == Condition::kUnchanged;
  if (needs_tag &&
      (condition.tag.empty() || condition.tag.size() > kMaxTagBytes || !IsPlain(condition.tag))) {
    return InvalidArgument("\"", Printable(condition.tag, 100), "\" is no tag of an object");
  }
  WEFT_ASSIGN_OR_RETURN(
      Answer answer, Send({.method = "PUT", .name = name, .body = body, .condition = condition}));
  // An object that is gone is not unchanged.
  const bool is_gone = answer.status == 404 && answer.code() == "NoSuchKey";
  if (condition.kind != Condition::kNone && (answer.status == 412 || (needs_tag && is_gone))) {
    return FailedPrecondition("another writer was there before: ", Printable(name, 200),
                              needs_tag ? " has changed" : " exists already");
  }
  if (answer.status != 200 && answer.status != 201 && answer.status != 204) {
    return RefusalOf(answer);
  }
  if (answer.tag.empty()) {
    return Internal("the store ", host_, " takes an object and does not say its ETag");
  }
  return std::move(answer.tag);
}

absl::Status S3Store::Remove(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const Answer answer, Send({.method = "DELETE", .name = name}));
  const bool is_gone = answer.status == 404 && answer.code() == "NoSuchKey";
  if (is_gone || (answer.status >= 200 && answer.status <= 299)) return OkStatus();
  return RefusalOf(answer);
}

}  // namespace weft::stores
