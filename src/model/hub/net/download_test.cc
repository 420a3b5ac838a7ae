#include "model/hub/net/download.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "base/files/mapped_file.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/hub/refusals.h"
#include "tests/support/tiny_http_server.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::HttpFile;
using testing::HttpText;
using ::testing::Not;
using testing::TinyHttpServer;
using testing::TinyRequest;

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    root_ = fs::path(::testing::TempDir()) / StrCat("weft_download_test_", getpid());
    fs::remove_all(root_);
    hooks_ = LoadHooks::Default();
    hooks_.sleep = [this](int ms) { slept_ms_ += ms; };
    std::mt19937 random(7);
    for (int i = 0; i < 300'000; ++i) file_.push_back(static_cast<char>(random()));
  }
  ~DownloadTest() override { fs::remove_all(root_); }

  WantedFile Wanted(const std::string& url) const {
    const std::string path = root_ / "blobs/file";
    return {.url = url,
            .name = "m.gguf",
            .path = path,
            .gathering = path + ".incomplete",
            .lock = root_ / "locks/file.lock",
            .n_bytes = std::ssize(file_),
            .checksum = {DigestKind::kSha256, Sha256Hex(file_)}};
  }
  Status Load(const WantedFile& wanted) {
    HttpOptions options;
    options.stall_s = 1;
    options.budget = hooks_.budget;
    return LoadFile(
        HttpClient(options), hooks_, wanted,
        [&](const HttpAnswer& answer) { return RefusalOf(answer, AddressWish(wanted.url)); },
        check_);
  }
  Status Load(const TinyHttpServer& server) { return Load(Wanted(server.url() + "/m.gguf")); }
  bool IsThere() const { return fs::exists(root_ / "blobs/file"); }
  bool IsRight() const {
    const auto text = ReadFile(root_ / "blobs/file", size_t{1} << 30);
    return text.ok() && *text == file_ && !fs::exists(root_ / "blobs/file.incomplete");
  }

  fs::path root_;
  LoadHooks hooks_;
  std::atomic<int> slept_ms_ = 0;
  std::string file_;
  std::function<Status(const std::string&)> check_;
};

TEST_F(DownloadTest, ArrivesAndIsNotLoadedAgain) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_TRUE(IsRight());
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_EQ(server.n_requests(), 1);
}

TEST_F(DownloadTest, ACutAnywhereIsGoneOnFrom) {
  std::mt19937 random(11);
  std::atomic<int> n_cuts = 0;
  std::set<int64_t> firsts;
  TinyHttpServer server([&](const TinyRequest& request) {
    firsts.insert(testing::FirstByteOf(request));
    if (n_cuts == 200) return HttpFile(request, file_);
    ++n_cuts;
    return HttpFile(request, file_, random() % 3000);
  });
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_TRUE(IsRight());
  EXPECT_GE(n_cuts, 100);
  EXPECT_GT(firsts.size(), 90u) << "it went on by ranges";
}

TEST_F(DownloadTest, EndsWhenNobodyWantsIt) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  int64_t arrived = 0;
  std::string digest;
  hooks_.progress = [&](const Progress& progress) {
    arrived = progress.done_bytes;
    digest = progress.sha256;
  };
  hooks_.is_cancelled = [&] { return arrived > 0; };
  EXPECT_EQ(Load(server).code(), StatusCode::kCancelled);
  EXPECT_FALSE(IsThere());
  EXPECT_EQ(server.n_requests(), 1);
  EXPECT_EQ(digest, Sha256Hex(file_));
  hooks_.is_cancelled = {};
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_TRUE(IsRight());
}

TEST_F(DownloadTest, ABudgetEndsDownloads) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  const int64_t n_bytes = std::ssize(file_);
  hooks_.budget = std::make_shared<ByteBudget>(2 * n_bytes - 1);
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_EQ(Load(server), OkStatus()) << "what is here costs nothing";
  fs::remove(root_ / "blobs/file");
  const Status status = Load(server);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--pull-budget"));
  EXPECT_FALSE(IsThere());
  EXPECT_FALSE(fs::exists(root_ / "blobs/file.incomplete")) << "it is refused before it begins";
  hooks_.budget = nullptr;
  EXPECT_EQ(Load(server), OkStatus());
}

TEST_F(DownloadTest, LinksAreNotFollowed) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  const fs::path victim = root_ / "victim";
  const std::string kept = "kept";
  for (const char* const name : {"blobs/file", "blobs/file.incomplete", "locks/file.lock"}) {
    for (const bool is_there : {true, false}) {
      fs::remove_all(root_);
      fs::create_directories(root_ / "blobs");
      fs::create_directories(root_ / "locks");
      if (is_there) {
        EXPECT_EQ(WriteFile(victim, std::as_bytes(std::span(kept))), OkStatus());
      }
      fs::create_symlink(victim, root_ / name);
      const Status status = Load(server);
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << name << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("symbolic link"));
      EXPECT_EQ(fs::exists(victim), is_there) << name;
      if (is_there) {
        EXPECT_EQ(*ReadFile(victim, 99), kept) << name;
      }
    }
  }
  EXPECT_EQ(server.n_requests(), 0);
}

TEST_F(DownloadTest, TagsAreNeitherWrittenNorReadThroughLinks) {
  std::vector<std::string> asked;
  int n = 0;
  TinyHttpServer server([&](const TinyRequest& request) {
    asked.push_back(request.Header("If-Range"));
    std::string answer = HttpFile({}, file_, ++n == 1 ? 1000 : SIZE_MAX);
    return answer.insert(answer.find("\r\n") + 2, "ETag: \"one\"\r\n");
  });
  const fs::path victim = root_ / "victim";
  const std::string secret = "\"secret\"";
  WantedFile wanted = Wanted(server.url() + "/m.gguf");
  wanted.checksum = {};
  fs::create_directories(root_ / "blobs");
  EXPECT_EQ(WriteFile(victim, std::as_bytes(std::span(secret))), OkStatus());
  EXPECT_EQ(WriteFile(wanted.gathering, std::as_bytes(std::span(file_).first(9))), OkStatus());
  fs::create_symlink(victim, wanted.gathering + ".etag");
  EXPECT_EQ(Load(wanted), OkStatus());
  EXPECT_TRUE(IsRight());
  EXPECT_EQ(*ReadFile(victim, 99), secret);
  EXPECT_THAT(asked, ::testing::ElementsAre("", "\"one\""));
}

TEST_F(DownloadTest, WithoutRangesItBeginsAnew) {
  int n = 0;
  TinyHttpServer server([&](const TinyRequest&) {
    return HttpFile({}, file_, ++n < 4 ? static_cast<size_t>(n) * 1000 : SIZE_MAX);
  });
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_TRUE(IsRight());
}

TEST_F(DownloadTest, GivesUpWhereNothingArrives) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_, 0); });
  const Status status = Load(server);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("try again"));
  EXPECT_EQ(server.n_requests(), hooks_.max_tries);
  EXPECT_FALSE(IsThere());
}

TEST_F(DownloadTest, TheWrongFileGetsNoName) {
  std::string wrong = file_;
  wrong[1000] ^= 1;
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, wrong); });
  const Status status = Load(server);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("checksum"), HasSubstr("nothing was kept")));
  EXPECT_FALSE(IsThere());
  EXPECT_FALSE(fs::exists(root_ / "blobs/file.incomplete"));
}

TEST_F(DownloadTest, AWrongStartOfAnEarlierTryIsLoadedAgain) {
  fs::create_directories(root_ / "blobs");
  const std::string start(5000, 'x');
  ASSERT_EQ(WriteFile(root_ / "blobs/file.incomplete", std::as_bytes(std::span(start))),
            OkStatus());
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_TRUE(IsRight());
  EXPECT_EQ(server.n_requests(), 2);
}

TEST_F(DownloadTest, SizesThatContradictAreRefused) {
  for (const bool longer : {false, true}) {
    const std::string other = longer ? file_ + "more" : file_.substr(0, 1000);
    TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, other); });
    EXPECT_THAT(std::string(Load(server).message()), HasSubstr("should have 300000 bytes"));
    EXPECT_FALSE(IsThere());
  }
}

TEST_F(DownloadTest, WhatHasNoSizeIsRefused) {
  TinyHttpServer server([&](const TinyRequest&) {
    return StrCat("HTTP/1.1 200 X\r\nConnection: close\r\n\r\n", file_);
  });
  EXPECT_THAT(std::string(Load(server).message()), HasSubstr("does not say how large"));
  EXPECT_FALSE(IsThere());
}

TEST_F(DownloadTest, StalledConnectionsAreGivenUp) {
  std::atomic<bool> done = false;
  TinyHttpServer server([&](const TinyRequest& request) {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return HttpFile(request, file_);
  });
  hooks_.max_tries = 1;
  const Status status = Load(server);
  done = true;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("almost nothing"));
}

// As from a server that always sends just enough.
TEST_F(DownloadTest, TextsMustArriveInTime) {
  std::atomic<bool> done = false;
  TinyHttpServer server([&](const TinyRequest&) {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return HttpText(200, "", "{}");
  });
  const HttpClient http({.stall_bytes_per_s = 0, .text_s = 1});
  const Status status = http.FetchText({.url = server.url()}, 100).status();
  done = true;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("within 1 seconds"));
}

TEST_F(DownloadTest, TheDiskIsLookedAtFirst) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  hooks_.free_bytes = [](const std::string&) -> StatusOr<int64_t> { return 1000; };
  const Status status = Load(server);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("m.gguf needs"), HasSubstr("weft rm")));
  EXPECT_FALSE(IsThere());
}

TEST_F(DownloadTest, AnswersThatAreErrorsAreSentences) {
  const std::pair<int, const char*> kCases[] = {
      {401, "only to logged-in users"}, {403, "refuses"},      {404, "check the name"},
      {418, "unexpected answer"},       {429, "in 7 seconds"}, {503, "server error (503)"}};
  for (const auto& [status, says] : kCases) {
    slept_ms_ = 0;
    TinyHttpServer server([status = status](const TinyRequest&) {
      return HttpText(status, status == 429 ? "Retry-After: 7\r\n" : "", "<html>");
    });
    const Status error = Load(server);
    EXPECT_THAT(std::string(error.message()), AllOf(HasSubstr(says), Not(HasSubstr("\n"))))
        << status;
    EXPECT_FALSE(IsThere());
    const bool may_pass = status == 429 || status >= 500;
    EXPECT_EQ(server.n_requests(), may_pass ? hooks_.max_tries : 1) << status;
    EXPECT_EQ(slept_ms_ >= 4 * 7000, status == 429) << status;
  }
}

TEST_F(DownloadTest, TroubleThatPassesIsWaitedFor) {
  int n = 0;
  TinyHttpServer server([&](const TinyRequest& request) {
    return ++n < 4 ? HttpText(503, "", "") : HttpFile(request, file_);
  });
  EXPECT_EQ(Load(server), OkStatus());
  EXPECT_TRUE(IsRight());
}

TEST_F(DownloadTest, NobodyThereIsToldAtOnce) {
  const Status status = Load(Wanted("http://127.0.0.1:1/m.gguf"));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot reach 127.0.0.1"), HasSubstr("proxy")));
  EXPECT_EQ(slept_ms_, 0);
}

TEST_F(DownloadTest, TheTokenStaysWithItsHost) {
  Mutex mutex;
  std::vector<std::string> seen;
  const auto note = [&](const TinyRequest& request) {
    MutexLock lock(&mutex);
    seen.push_back(request.Header("Authorization"));
  };
  TinyHttpServer store([&](const TinyRequest& request) {
    note(request);
    return HttpFile(request, file_);
  });
  TinyHttpServer hub([&](const TinyRequest& request) {
    note(request);
    const bool first = request.path == "/m.gguf";
    return HttpText(302, StrCat("Location: ", first ? "/again" : store.url() + "/x", "\r\n"),
                    "gone");
  });
  WantedFile wanted = Wanted(hub.url() + "/m.gguf");
  wanted.token = "hf_secret";
  EXPECT_EQ(Load(wanted), OkStatus());
  EXPECT_TRUE(IsRight());
  EXPECT_THAT(seen, ::testing::ElementsAre("Bearer hf_secret", "Bearer hf_secret", ""));
}

TEST_F(DownloadTest, RedirectsEnd) {
  TinyHttpServer server(
      [](const TinyRequest&) { return HttpText(302, "Location: /round\r\n", ""); });
  EXPECT_THAT(std::string(Load(server).message()), HasSubstr("endlessly"));
  TinyHttpServer nowhere([](const TinyRequest&) { return HttpText(302, "", ""); });
  EXPECT_THAT(std::string(Load(nowhere).message()), HasSubstr("to nowhere"));
  TinyHttpServer local(
      [](const TinyRequest&) { return HttpText(302, "Location: file:///etc/passwd\r\n", ""); });
  EXPECT_FALSE(Load(local).ok());
  EXPECT_FALSE(IsThere());
}

TEST_F(DownloadTest, TwoAtOnceShareOne) {
  std::atomic<bool> waited = false;
  TinyHttpServer server([&](const TinyRequest& request) {
    // Until the other one is waiting for the lock.
    for (int i = 0; i < 500 && !waited; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return HttpFile(request, file_);
  });
  hooks_.sleep = [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  hooks_.progress = [&](const Progress& progress) {
    if (progress.stage == Progress::Stage::kWaiting) waited = true;
  };
  std::thread other([&] { EXPECT_EQ(Load(server), OkStatus()); });
  EXPECT_EQ(Load(server), OkStatus());
  other.join();
  EXPECT_TRUE(waited);
  EXPECT_TRUE(IsRight());
  EXPECT_EQ(server.n_requests(), 1);
}

TEST_F(DownloadTest, WithoutAChecksumOnlyTheSameFileIsGoneOnWith) {
  std::string now = file_;
  std::string tag = "\"one\"";
  std::atomic<int> n = 0;
  TinyHttpServer server([&](const TinyRequest& request) {
    const bool same = request.Header("If-Range").empty() || request.Header("If-Range") == tag;
    std::string answer = HttpFile(same ? request : TinyRequest(), now, ++n == 1 ? 5000 : SIZE_MAX);
    answer.insert(answer.find("\r\n") + 2, StrCat("ETag: ", tag, "\r\n"));
    if (n == 1) {  // from here on it is a different file
      now = std::string(2000, 'n');
      tag = "\"two\"";
    }
    return answer;
  });
  WantedFile wanted = Wanted(server.url() + "/m.gguf");
  wanted.n_bytes = -1;
  wanted.checksum = {};
  EXPECT_EQ(Load(wanted), OkStatus());
  EXPECT_EQ(*ReadFile(wanted.path, 1 << 20), std::string(2000, 'n'));
  EXPECT_FALSE(fs::exists(wanted.gathering + ".etag"));
}

TEST_F(DownloadTest, WhatTheCheckRefusesGetsNoName) {
  TinyHttpServer server([&](const TinyRequest& request) { return HttpFile(request, file_); });
  check_ = [](const std::string&) { return InvalidArgument("no model"); };
  EXPECT_EQ(Load(server).message(), "no model");
  EXPECT_FALSE(IsThere());
}

TEST(DigestTest, KnowsBothKinds) {
  Digest git(DigestKind::kGitBlob, 6);
  git.Update(std::as_bytes(std::span("hello\n", 6)));
  EXPECT_EQ(git.Finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace weft::hub
