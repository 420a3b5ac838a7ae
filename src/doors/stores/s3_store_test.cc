#include "doors/stores/s3_store.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "doors/stores/s3_server_test_util.h"
#include "doors/stores/store_probe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::stores {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Condition = ObjectStore::Condition;

S3Reply Ok(std::string_view body) { return {S3Answer(200, "ETag: \"t1\"\r\n", body)}; }

// A store and its server, which answers everything alike.
struct Pair {
  explicit Pair(S3TestServer::Handler handler, S3Options options = OptionsFor(""))
      : server(std::move(handler)), store([&] {
          options.endpoint = server.url();
          return options;
        }()) {}
  S3TestServer server;
  S3Store store;
};

TEST(S3StoreTest, SendsWhatS3Wants) {
  Pair pair([](const S3Request& request) {
    return request.method == "DELETE" ? S3Reply{"HTTP/1.1 204 X\r\n\r\n"} : Ok("");
  });
  EXPECT_TRUE(pair.store.Get("sessions/@me/s-1").ok());
  EXPECT_TRUE(pair.store.Put("blocks/b", "bytes", Condition::None()).ok());
  EXPECT_TRUE(pair.store.Put("blocks/b", "", Condition::Absent()).ok());
  EXPECT_TRUE(pair.store.Put("blocks/b", "more", Condition::Unchanged("\"t0\"")).ok());
  EXPECT_EQ(pair.store.Remove("blocks/b"), OkStatus());
  const std::vector<S3Request> requests = pair.server.requests();
  ASSERT_EQ(requests.size(), 5u);
  for (const S3Request& request : requests) {
    EXPECT_EQ(SignatureProblem(request, S3Key()), "") << request.method;
    EXPECT_EQ(request.Header("host"), pair.server.host());
    EXPECT_THAT(request.Header("authorization"), HasSubstr("AWS4-HMAC-SHA256 Credential="));
    EXPECT_EQ(request.Header("x-amz-security-token"), "");
  }
  EXPECT_EQ(requests[0].method, "GET");
  EXPECT_EQ(requests[0].path, "/talks/weft/a/sessions/%40me/s-1");
  EXPECT_EQ(requests[1].method, "PUT");
  EXPECT_EQ(requests[1].path, "/talks/weft/a/blocks/b");
  EXPECT_EQ(requests[1].body, "bytes");
  EXPECT_EQ(requests[1].Header("content-type"), "application/octet-stream");
  EXPECT_EQ(requests[1].Header("if-match") + requests[1].Header("if-none-match"), "");
  EXPECT_EQ(requests[2].Header("if-none-match"), "*");
  EXPECT_EQ(requests[2].Header("content-length"), "0");
  EXPECT_EQ(requests[3].Header("if-match"), "\"t0\"");
  EXPECT_EQ(requests[3].Header("if-none-match"), "");
  EXPECT_EQ(PartOfAuthorization(requests[3], "SignedHeaders="),
            "content-type;host;if-match;x-amz-content-sha256;x-amz-date");
  EXPECT_EQ(requests[4].method, "DELETE");
  EXPECT_EQ(pair.server.n_connections(), 1) << "the connection stays open";
}

TEST(S3StoreTest, SignsASessionToken) {
  S3Options options = OptionsFor("");
  options.session_token = "token/of+a=session";
  Pair pair([](const S3Request&) { return Ok(""); }, options);
  EXPECT_TRUE(pair.store.Get("x").ok());
  const S3Request request = pair.server.requests().at(0);
  EXPECT_EQ(request.Header("x-amz-security-token"), options.session_token);
  EXPECT_EQ(SignatureProblem(request, S3Key()), "");
}

TEST(S3StoreTest, NamesArriveAsTheyAre) {
  const auto fake = std::make_shared<FakeS3>();
  Pair pair([fake](const S3Request& request) { return (*fake)(request); });
  const std::vector<std::string> names = {"a%40b",     "@key=1/s%2f..%", "100%",
                                          "%25",       "a=b&c=d+e f",    "a?b#c",
                                          "p.q_r-s~t", "\xC3\xA9/!'()*"};
  for (const std::string& name : names) {
    const auto put = pair.store.Put(name, "of " + name, Condition::Absent());
    ASSERT_TRUE(put.ok()) << name << ": " << put.status();
  }
  for (const std::string& name : names) {
    const auto object = pair.store.Get(name);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->body, "of " + name);
  }
  EXPECT_EQ(pair.server.requests().at(0).path, "/talks/weft/a/a%2540b");
  EXPECT_EQ(pair.server.requests().at(1).path, "/talks/weft/a/%40key%3D1/s%252f..%25");
}

TEST(S3StoreTest, RefusesNamesThatCouldLeadElsewhere) {
  Pair pair([](const S3Request&) { return Ok(""); });
  for (const char* const name : {"", "/a", "a/", "a//b", "../a", "a/..", "./a", "a\nb"}) {
    EXPECT_EQ(pair.store.Get(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(pair.store.Remove(std::string(1100, 'x')).code(), StatusCode::kInvalidArgument);
  for (const char* const tag : {"", "\"a\"\r\nx-evil: 1"}) {
    EXPECT_EQ(pair.store.Put("a", "", Condition::Unchanged(tag)).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(pair.server.requests().size(), 0u);
}

TEST(S3StoreTest, ReadsAndWritesByConditions) {
  const auto fake = std::make_shared<FakeS3>();
  Pair pair([fake](const S3Request& request) { return (*fake)(request); });
  EXPECT_EQ(pair.store.Get("head").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pair.store.Put("head", "0", Condition::Unchanged("\"none\"")).status().code(),
            StatusCode::kFailedPrecondition);
  const auto first = pair.store.Put("head", "1", Condition::Absent());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(*first, AllOf(HasSubstr("\""), Not(HasSubstr("\r"))));
  EXPECT_EQ(pair.store.Put("head", "2", Condition::Absent()).status().code(),
            StatusCode::kFailedPrecondition);
  const auto second = pair.store.Put("head", "2", Condition::Unchanged(*first));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(pair.store.Put("head", "3", Condition::Unchanged(*first)).status().code(),
            StatusCode::kFailedPrecondition);
  const auto object = pair.store.Get("head");
  ASSERT_TRUE(object.ok());
  EXPECT_EQ(object->body, "2");
  EXPECT_EQ(object->tag, *second);
  EXPECT_EQ(pair.store.Remove("head"), OkStatus());
  EXPECT_EQ(pair.store.Remove("head"), OkStatus());
  EXPECT_EQ(pair.store.Get("head").status().code(), StatusCode::kNotFound);
}

TEST(S3StoreTest, CarriesLargeBodies) {
  const auto fake = std::make_shared<FakeS3>();
  Pair pair([fake](const S3Request& request) { return (*fake)(request); });
  std::string body(5'000'000, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 + i / 977);
  ASSERT_TRUE(pair.store.Put("blocks/large", body, Condition::Absent()).ok());
  const auto object = pair.store.Get("blocks/large");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_TRUE(object->body == body);
}

TEST(S3StoreTest, IsUsedByManyThreads) {
  const auto fake = std::make_shared<FakeS3>();
  Pair pair([fake](const S3Request& request) { return (*fake)(request); });
  std::atomic<int> n_good = 0;
  {
    constexpr int kThreads = 8;
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          const std::string name = StrCat("t", t, "/", i), body(static_cast<size_t>(i * 997), 'x');
          const bool put = pair.store.Put(name, body, Condition::Absent()).ok();
          const auto got = pair.store.Get(name);
          if (put && got.ok() && got->body == body) ++n_good;
        }
      });
    }
  }
  EXPECT_EQ(n_good, 160);
  EXPECT_LE(pair.server.n_connections(), 8);
}

TEST(S3StoreTest, IsFoundGoodByTheProbe) {
  const auto fake = std::make_shared<FakeS3>();
  Pair pair([fake](const S3Request& request) { return (*fake)(request); });
  EXPECT_EQ(ProbeStore(pair.store), OkStatus());
}

struct Reply {
  int status;
  const char* code;
  StatusCode of_get;
  StatusCode of_put;  // with a condition
};

TEST(S3StoreTest, TellsWhyAStoreRefuses) {
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  constexpr auto kDenied = StatusCode::kPermissionDenied;
  constexpr auto kAgain = StatusCode::kUnavailable;
  constexpr auto kLost = StatusCode::kFailedPrecondition;
  const std::vector<Reply> replies = {
      {404, "NoSuchKey", StatusCode::kNotFound, kLost},
      {404, "NoSuchBucket", kInvalid, kInvalid},
      {404, "", kInvalid, kInvalid},
      {412, "PreconditionFailed", kInvalid, kLost},
      {409, "ConditionalRequestConflict", kAgain, kAgain},
      {403, "SignatureDoesNotMatch", kDenied, kDenied},
      {403, "RequestTimeTooSkewed", kDenied, kDenied},
      {401, "", kDenied, kDenied},
      {400, "AuthorizationHeaderMalformed", kInvalid, kInvalid},
      {400, "RequestTimeout", kAgain, kAgain},
      {400, "ExpiredToken", kDenied, kDenied},
      {400, "EntityTooLarge", kInvalid, kInvalid},
      {301, "PermanentRedirect", kInvalid, kInvalid},
      {429, "TooManyRequests", kAgain, kAgain},
      {500, "InternalError", kAgain, kAgain},
      {501, "NotImplemented", StatusCode::kUnimplemented, StatusCode::kUnimplemented},
      {503, "SlowDown", kAgain, kAgain},
      {206, "", StatusCode::kInternal, StatusCode::kInternal},
  };
  for (const Reply& reply : replies) {
    Pair pair([&](const S3Request&) { return S3Error(reply.status, reply.code); });
    const Status get = pair.store.Get("x").status();
    const Status put = pair.store.Put("x", "", Condition::Unchanged("\"t\"")).status();
    EXPECT_EQ(get.code(), reply.of_get) << reply.status << reply.code << ": " << get;
    EXPECT_EQ(put.code(), reply.of_put) << reply.status << reply.code << ": " << put;
    if (reply.of_get == StatusCode::kNotFound) continue;
    EXPECT_THAT(get.ToString(), AllOf(HasSubstr(pair.server.host()), HasSubstr(reply.code)));
    for (const std::string& secret : {S3Key().id, S3Key().secret}) {
      EXPECT_THAT(get.ToString(), Not(HasSubstr(secret)));
    }
  }
}

TEST(S3StoreTest, NamesTheBucketThatIsMissingAndTheRegionOfOneElsewhere) {
  Pair missing([](const S3Request&) { return S3Error(404, "NoSuchBucket"); });
  EXPECT_THAT(missing.store.Get("x").status().ToString(), HasSubstr("no bucket talks"));
  EXPECT_FALSE(missing.store.Remove("x").ok());
  Pair elsewhere([](const S3Request&) {
    return S3Reply{S3Answer(301, "x-amz-bucket-region: ap-south-9\r\nLocation: /\r\n", "")};
  });
  EXPECT_THAT(elsewhere.store.Get("x").status().ToString(), HasSubstr("ap-south-9"));
  EXPECT_EQ(elsewhere.server.requests().size(), 1u) << "redirects are not followed";
}

TEST(S3StoreTest, TellsWhichKeyItNeeds) {
  Pair denied([](const S3Request&) { return S3Error(403, "AccessDenied"); });
  EXPECT_THAT(ProbeStore(denied.store).ToString(),
              AllOf(HasSubstr("s3:ListBucket"), HasSubstr("talks"), HasSubstr("read, write")));
  Pair expired([](const S3Request&) { return S3Error(400, "ExpiredToken"); });
  EXPECT_THAT(expired.store.Get("x").status().ToString(),
              AllOf(HasSubstr("AWS_SESSION_TOKEN has expired"), HasSubstr("restart")));
}

TEST(S3StoreTest, WantsTagsAndEnds) {
  Pair no_tag([](const S3Request&) { return S3Reply{S3Answer(200, "", "body")}; });
  EXPECT_EQ(no_tag.store.Get("x").status().code(), StatusCode::kInternal);
  EXPECT_EQ(no_tag.store.Put("x", "", Condition::None()).status().code(), StatusCode::kInternal);
  Pair no_end([](const S3Request&) {
    return S3Reply{.bytes = "HTTP/1.1 200 X\r\nETag: \"a\"\r\n\r\nhalf a bo", .closes = true};
  });
  EXPECT_EQ(no_end.store.Get("x").status().code(), StatusCode::kInternal);
  Pair old_proxy([](const S3Request&) {
    return S3Reply{.bytes = "HTTP/1.0 502 Bad Gateway\r\n\r\n<html>nobody is there</html>",
                   .closes = true};
  });
  EXPECT_EQ(old_proxy.store.Get("x").status().code(), StatusCode::kUnavailable);
}

TEST(S3StoreTest, ReadsOnlyTheBeginningOfAnError) {
  const std::string error = S3Error(503, "SlowDown").bytes;
  const std::string xml = error.substr(error.find("\r\n\r\n") + 4);
  const std::string head = "HTTP/1.1 503 X\r\nContent-Length: 1000000000000\r\n\r\n";
  Pair pair([&](const S3Request&) {
    return S3Reply{.bytes = head + xml + std::string(100'000, 'x'), .stalls = true};
  });
  for (const Status& status :
       {pair.store.Get("x").status(), pair.store.Put("x", "", Condition::Absent()).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("503 SlowDown"));
  }
  EXPECT_EQ(pair.server.n_connections(), 2) << "the rest of an answer is not the next one";
}

TEST(S3StoreTest, SeesABodyThatIsCut) {
  Pair cut([](const S3Request&) {
    return S3Reply{.bytes = "HTTP/1.1 200 X\r\nETag: \"a\"\r\nContent-Length: 100\r\n\r\nhalf",
                   .closes = true};
  });
  EXPECT_EQ(cut.store.Get("x").status().code(), StatusCode::kUnavailable);
  Pair chunks([](const S3Request&) {
    return S3Reply{
        .bytes = "HTTP/1.1 200 X\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf",
        .closes = true};
  });
  EXPECT_EQ(chunks.store.Get("x").status().code(), StatusCode::kUnavailable);
}

TEST(S3StoreTest, ReadsNoMoreThanItMay) {
  S3Options options = OptionsFor("");
  options.max_object_bytes = 1000;
  for (const std::string length : {"Content-Length: 1001\r\n", "Transfer-Encoding: chunked\r\n"}) {
    const std::string head = StrCat("HTTP/1.1 200 X\r\nETag: \"a\"\r\n", length, "\r\n");
    const std::string body = std::string(1001, 'x');
    const bool is_chunked = length.starts_with("T");
    Pair pair(
        [&](const S3Request&) {
          return S3Reply{is_chunked ? StrCat(head, "3e9\r\n", body, "\r\n0\r\n\r\n") : head + body};
        },
        options);
    EXPECT_EQ(pair.store.Get("x").status().code(), StatusCode::kResourceExhausted);
  }
  Pair fits([](const S3Request&) { return Ok(std::string(1000, 'x')); }, options);
  EXPECT_TRUE(fits.store.Get("x").ok());
}

TEST(S3StoreTest, GivesUpAConnectionThatStalls) {
  S3Options options = OptionsFor("");
  options.stall_timeout = milliseconds(200);
  for (const char* const bytes :
       {"", "HTTP/1.1 200 X\r\nETag: \"a\"\r\nContent-Length: 100\r\n\r\nhalf"}) {
    Pair pair([&](const S3Request&) { return S3Reply{.bytes = bytes, .stalls = true}; }, options);
    const Status status = pair.store.Get("x").status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(pair.server.host()));
  }
  options = OptionsFor("");
  options.request_timeout = milliseconds(200);
  Pair slow([](const S3Request&) { return S3Reply{.stalls = true}; }, options);
  EXPECT_EQ(slow.store.Put("x", "", Condition::None()).status().code(),
            StatusCode::kDeadlineExceeded);
}

// The system takes connections and requests for it, as for a program that is stopped.
TEST(S3StoreTest, GivesUpAStoreThatHangs) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 64), 0);
  socklen_t size = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  S3Options options = OptionsFor(StrCat("http://127.0.0.1:", ntohs(address.sin_port)));
  options.stall_timeout = milliseconds(200);
  S3Store store(options);
  EXPECT_EQ(store.Put("x", "body", Condition::Absent()).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store.Remove("x").code(), StatusCode::kDeadlineExceeded);
  const Status probed = ProbeStore(store);
  EXPECT_EQ(probed.code(), StatusCode::kDeadlineExceeded) << probed;
  EXPECT_THAT(probed.ToString(), HasSubstr("the store cannot be probed"));
  close(listener);
}

TEST(S3StoreTest, GoesOnWithAStoreThatHung) {
  const auto fake = std::make_shared<FakeS3>();
  std::atomic<bool> hangs = true;
  S3Options options = OptionsFor("");
  options.stall_timeout = milliseconds(200);
  Pair pair(
      [&](const S3Request& request) {
        const S3Reply reply = (*fake)(request);
        return hangs ? S3Reply{.stalls = true} : reply;
      },
      options);
  EXPECT_EQ(pair.store.Put("x", "kept", Condition::Absent()).status().code(),
            StatusCode::kDeadlineExceeded);
  hangs = false;
  const auto object = pair.store.Get("x");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->body, "kept") << "a write without an answer may have happened";
  EXPECT_TRUE(pair.store.Put("x", "next", Condition::Unchanged(object->tag)).ok());
}

TEST(S3StoreTest, SaysThatNobodyIsThere) {
  std::string url;
  {
    S3TestServer server([](const S3Request&) { return Ok(""); });
    url = server.url();
  }
  S3Store store(OptionsFor(url));
  EXPECT_EQ(store.Get("x").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ProbeStore(store).code(), StatusCode::kUnavailable);
}

// The first request opens the connection; the next one's is cut before the answer.
S3TestServer::Handler CutsSecondRequest() {
  const auto n = std::make_shared<int>(0);
  return [n](const S3Request&) { return ++*n == 2 ? S3Reply{.closes = true} : Ok("body"); };
}

TEST(S3StoreTest, NeverSendsAConditionalWriteTwice) {
  for (const Condition& condition : {Condition::Absent(), Condition::Unchanged("\"t\"")}) {
    Pair pair(CutsSecondRequest());
    ASSERT_TRUE(pair.store.Get("x").ok());
    const Status status = pair.store.Put("x", "new", condition).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_EQ(pair.server.requests().size(), 2u);
  }
  Pair pair(CutsSecondRequest());
  ASSERT_TRUE(pair.store.Get("x").ok());
  EXPECT_TRUE(pair.store.Get("x").ok()) << "a read may be sent again";
  EXPECT_EQ(pair.server.requests().size(), 3u);
}

TEST(S3StoreTest, SaysWhereItIs) {
  EXPECT_EQ(S3Store(OptionsFor("http://127.0.0.1:9")).Place(),
            "s3://talks/weft/a at http://127.0.0.1:9");
}

}  // namespace
}  // namespace weft::stores
