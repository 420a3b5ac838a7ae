#include "doors/api/page/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/strings.h"
#include "doors/api/page/channel_chats.h"
#include "tests/support/api_fixture.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// A client that keeps a channel open and can be queried from another thread.
class Listener : public serve::HttpResponder {
 public:
  void Send(int status, std::string_view type, std::string body, serve::HttpHeaders) override {
    MutexLock lock(&mutex_);
    status_ = status;
    text_ = std::move(body);
    changed_.NotifyAll();
  }
  bool Begin(int status, std::string_view type, serve::HttpHeaders) override {
    MutexLock lock(&mutex_);
    status_ = status;
    return !gone_;
  }
  bool Write(std::string_view data) override {
    MutexLock lock(&mutex_);
    text_.append(data);
    changed_.NotifyAll();
    return !gone_;
  }
  void End() override {}
  bool gone() const override {
    MutexLock lock(&mutex_);
    return gone_;
  }
  std::stop_token cancellation() const override { return gone_source_.get_token(); }

  void Leave() {
    {
      MutexLock lock(&mutex_);
      gone_ = true;
    }
    gone_source_.request_stop();
  }

  // Waits until it has read `text`.
  void WaitFor(std::string_view text) {
    MutexLock lock(&mutex_);
    while (text_.find(text) == std::string::npos) changed_.Wait(&mutex_);
  }

  int status() const {
    MutexLock lock(&mutex_);
    return status_;
  }

  // The data of all events with that name.
  std::vector<std::string> Events(std::string_view name) const {
    MutexLock lock(&mutex_);
    std::vector<std::string> events;
    const std::string head = StrCat("event: ", name, "\ndata: ");
    for (size_t at = 0; (at = text_.find(head, at)) != std::string::npos;) {
      at += head.size();
      events.push_back(text_.substr(at, text_.find("\n\n", at) - at));
    }
    return events;
  }

  // The model's text in that chat.
  std::string Said(std::string_view name) const {
    std::string said;
    for (const std::string& event : Events(name)) {
      const auto json = nlohmann::json::parse(event, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || !json.contains("choices") || json["choices"].empty()) continue;
      const auto& delta = json["choices"][0]["delta"];
      if (delta.contains("content") && delta["content"].is_string()) {
        said += delta["content"].get<std::string>();
      }
    }
    return said;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int status_ WEFT_GUARDED_BY(mutex_) = 0;
  bool gone_ WEFT_GUARDED_BY(mutex_) = false;
  std::string text_ WEFT_GUARDED_BY(mutex_);
  std::stop_source gone_source_;
};

class ChannelTest : public ApiTest {
 protected:
  ChannelTest() { serve::RegisterChannelApi(router_, host()); }
  ~ChannelTest() override {
    for (const auto& listener : listeners_) listener->Leave();
    for (std::thread& thread : threads_) thread.join();
  }

  void Limit(const serve::ChannelLimits& limits) {
    router_ = serve::Router();
    serve::RegisterChannelApi(router_, host(), limits);
  }

  void Ask(std::string_view method, std::string_view path, const Json& body,
           serve::HttpResponder* responder, std::string_view domain = "") {
    serve::HttpRequest request;
    if (const size_t mark = path.find('?'); mark != path.npos) {
      for (std::string_view pair : StrSplit(path.substr(mark + 1), '&')) {
        const size_t equals = pair.find('=');
        request.query[std::string(pair.substr(0, equals))] = pair.substr(equals + 1);
      }
      path = path.substr(0, mark);
    }
    request.method = std::string(method);
    request.path = std::string(path);
    request.domain = std::string(domain);
    if (!body.is_null()) request.body = body.dump();
    std::vector<std::string> segments;
    ASSERT_TRUE(serve::SplitPath(path, &segments));
    serve::Router::Match match = router_.Find(method, segments);
    ASSERT_NE(match.route, nullptr) << path;
    request.path_arguments = std::move(match.arguments);
    RunHandler(*match.route, request, *responder);
  }

  MemoryResponder Ask(std::string_view method, std::string_view path, const Json& body = nullptr,
                      std::string_view domain = "") {
    MemoryResponder responder;
    Ask(method, path, body, &responder, domain);
    return responder;
  }

  // Keeps `path` open on a separate thread until the test ends.
  Listener& Open(const std::string& path, const std::string& domain = "") {
    listeners_.push_back(std::make_unique<Listener>());
    Listener* const listener = listeners_.back().get();
    threads_.emplace_back([=, this] { Ask("GET", path, nullptr, listener, domain); });
    listener->WaitFor(": open");
    return *listener;
  }

  // Starts a chat on a separate thread, since its handler runs until the end.
  void Begin(const std::string& path, const std::string& text) {
    const Json body = {{"messages", Json::array({Say(text)})}, {"stream", true}};
    threads_.emplace_back([=, this] { EXPECT_EQ(Ask("POST", path, body).status(), 202); });
  }

 private:
  serve::Router router_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::thread> threads_;
};

TEST_F(ChannelTest, CarriesManyChats) {
  Listener& listener = Open("/v1/channels/page");
  for (int i = 0; i < 8; ++i) {
    Begin(StrCat("/v1/channels/page/chats/c", i), StrCat("<<slow>>I am number ", i, "."));
  }
  for (int i = 0; i < 8; ++i) {
    const std::string name = StrCat("c", i);
    listener.WaitFor(StrCat("event: ", name, "\ndata: {\"ended\":true}"));
    EXPECT_EQ(listener.Said(name), StrCat("I am number ", i, "."));
    const std::vector<std::string> events = listener.Events(name);
    ASSERT_GE(events.size(), 2u);
    EXPECT_EQ(events[events.size() - 2], "[DONE]");
  }
  ExpectIdle();
}

TEST_F(ChannelTest, AnErrorIsAnEventWithItsStatus) {
  Listener& listener = Open("/v1/channels/page");
  const auto answer = Ask("POST", "/v1/channels/page/chats/bad", {{"messages", Json::array()}});
  EXPECT_EQ(answer.status(), 202);
  listener.WaitFor("\"ended\"");
  const std::vector<std::string> events = listener.Events("bad");
  ASSERT_THAT(events, SizeIs(2));
  const Json error = Json::parse(events[0]);
  EXPECT_EQ(error["status"], 400);
  EXPECT_EQ(error["body"]["error"]["param"], "messages");
}

TEST_F(ChannelTest, StopsOneChatAndNoOther) {
  Listener& listener = Open("/v1/channels/page");
  const std::string text(2000, 'x');
  Begin("/v1/channels/page/chats/long", "<<slow>>" + text);
  Begin("/v1/channels/page/chats/other", "<<slow>>This one goes on to its end.");
  listener.WaitFor("event: long");
  EXPECT_EQ(Ask("DELETE", "/v1/channels/page/chats/long").status(), 200);
  listener.WaitFor("event: long\ndata: {\"ended\":true}");
  listener.WaitFor("event: other\ndata: {\"ended\":true}");
  EXPECT_LT(listener.Said("long").size(), text.size());
  EXPECT_EQ(listener.Said("other"), "This one goes on to its end.");
}

TEST_F(ChannelTest, ChatsEndWithTheirChannel) {
  const int64_t before = host().engine().Stats().turns_cancelled;
  Listener& listener = Open("/v1/channels/page");
  Begin("/v1/channels/page/chats/long", "<<slow>>" + std::string(2000, 'x'));
  listener.WaitFor("event: long");
  listener.Leave();
  while (host().engine().Stats().turns_cancelled == before) std::this_thread::yield();
  while (Ask("POST", "/v1/channels/page/chats/late", {}).status() != 404) {
    std::this_thread::yield();
  }
}

TEST_F(ChannelTest, TheSameChannelOpenedAgainIsANewOne) {
  Listener& first = Open("/v1/channels/page");
  Begin("/v1/channels/page/chats/long", "<<slow>>" + std::string(2000, 'x'));
  first.WaitFor("event: long");
  Listener& second = Open("/v1/channels/page");
  Begin("/v1/channels/page/chats/long", "Here.");
  second.WaitFor("\"ended\"");
  EXPECT_EQ(second.Said("long"), "Here.");
  EXPECT_LT(first.Said("long").size(), 2000u);
}

TEST_F(ChannelTest, KeptChatsGoOnAndAreToldFromTheBeginning) {
  const std::string text = "This one goes on while nobody listens, to its end.";
  Listener& first = Open("/v1/channels/page?keep=1");
  EXPECT_EQ(first.Events("long").size(), 0u);
  Begin("/v1/channels/page/chats/long", "<<slow>>" + text);
  first.WaitFor("event: long");
  first.Leave();
  const int64_t finished = host().engine().Stats().turns_finished;
  while (host().engine().Stats().turns_running > 0) std::this_thread::yield();
  EXPECT_GE(host().engine().Stats().turns_finished, finished);
  EXPECT_LT(first.Said("long").size(), text.size());

  Listener& second = Open("/v1/channels/page?keep=1");
  second.WaitFor("event: long\ndata: {\"ended\":true}");
  second.WaitFor("data: {\"chats\":[\"long\"]}");
  EXPECT_EQ(second.Said("long"), text);
  // Once it says that it has the answer, the next one does not get it.
  EXPECT_EQ(Ask("DELETE", "/v1/channels/page/chats/long").status(), 200);
  Listener& third = Open("/v1/channels/page?keep=1");
  third.WaitFor("data: {\"chats\":[]}");
  EXPECT_EQ(third.Events("long").size(), 0u);
  ExpectIdle();
}

TEST_F(ChannelTest, TellsAReaderThatAnotherOneHasTakenIt) {
  Listener& first = Open("/v1/channels/page?keep=1");
  const auto refused = Ask("GET", "/v1/channels/page?keep=1&free=1");
  EXPECT_EQ(refused.status(), 409);
  EXPECT_THAT(refused.body(), HasSubstr("another page reads this channel"));
  Listener& second = Open("/v1/channels/page?keep=1");
  first.WaitFor("data: {\"taken\": true}");
  Begin("/v1/channels/page/chats/c", "Still here.");
  second.WaitFor("event: c\ndata: {\"ended\":true}");
  second.Leave();
  Listener& third = Open("/v1/channels/page?keep=1&free=1");
  third.WaitFor("event: c\ndata: {\"ended\":true}");
}

TEST_F(ChannelTest, AKeptChatIsReadByTheLatestClient) {
  const std::string text(300, 'x');
  Listener& first = Open("/v1/channels/page?keep=1");
  Begin("/v1/channels/page/chats/long", "<<slow>>" + text);
  first.WaitFor("event: long");
  Listener& second = Open("/v1/channels/page?keep=1");
  second.WaitFor("event: long\ndata: {\"ended\":true}");
  EXPECT_EQ(second.Said("long"), text);
  EXPECT_LT(first.Said("long").size(), text.size());
}

TEST_F(ChannelTest, AKeptChatIsStoppedByDelete) {
  const int64_t before = host().engine().Stats().turns_cancelled;
  Listener& first = Open("/v1/channels/page?keep=1");
  Begin("/v1/channels/page/chats/long", "<<slow>>" + std::string(2000, 'x'));
  first.WaitFor("event: long");
  first.Leave();
  EXPECT_EQ(Ask("DELETE", "/v1/channels/page/chats/long").status(), 200);
  while (host().engine().Stats().turns_cancelled == before) std::this_thread::yield();
  Listener& second = Open("/v1/channels/page?keep=1");
  second.WaitFor("event: long\ndata: {\"ended\":true}");
}

// Whenever clients come and go, the last one has every frame of every chat once and in order.
TEST(ChannelChatsTest, TheLastReaderHasAllFrames) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    serve::Channel channel(/*keeps=*/true);
    std::vector<std::shared_ptr<serve::Chat>> chats;
    std::vector<std::string> said;
    serve::Channel::Reader reader;
    for (int step = 0; step < 60; ++step) {
      const auto which = random() % 6;
      if (which == 0 && chats.size() < 4) {
        chats.push_back(channel.Add(StrCat("c", chats.size())));
        said.emplace_back();
      } else if (which == 1) {
        reader = channel.Attach();
      } else if (which == 2) {
        channel.Detach(reader);
      } else if (which == 3) {
        std::string frames;
        (void)channel.Take(reader, /*draining=*/false, &frames);
      } else if (!chats.empty()) {
        const size_t at = random() % chats.size();
        const std::string frame = StrCat("<", at, ":", step, ">");
        EXPECT_TRUE(channel.Push(*chats[at], frame));
        said[at] += frame;
      }
    }
    // Some have ended before the last client comes, some end after it.
    for (size_t at = 0; at < chats.size(); at += 2) channel.End(*chats[at], "<end>");
    reader = channel.Attach();
    for (size_t at = 1; at < chats.size(); at += 2) channel.End(*chats[at], "<end>");
    std::string frames;
    ASSERT_TRUE(channel.Take(reader, false, &frames));
    for (size_t at = 0; at < chats.size(); ++at) {
      std::string of_it;
      const std::string head = StrCat("<", at, ":");
      for (size_t place = 0; (place = frames.find(head, place)) != frames.npos;) {
        const size_t end = frames.find('>', place) + 1;
        of_it += frames.substr(place, end - place);
        place = end;
      }
      EXPECT_EQ(of_it, said[at]);
    }
    size_t ends = 0;
    for (size_t place = 0; (place = frames.find("<end>", place)) != frames.npos; ++place) ++ends;
    EXPECT_EQ(ends, chats.size());
  }
}

TEST(ChannelChatsTest, OfTooLongAnAnswerTheNextReaderGetsAnError) {
  serve::Channel channel(/*keeps=*/true);
  const auto longer = channel.Add("longer");
  const auto shorter = channel.Add("shorter");
  channel.Push(*shorter, "<short>");
  const std::string frame(64 << 10, 'x');
  for (size_t n = 0; n <= serve::Channel::kMaxKeptBytes; n += frame.size()) {
    EXPECT_TRUE(channel.Push(*longer, frame));
  }
  std::string frames;
  const auto reader = channel.Attach();
  ASSERT_TRUE(channel.Take(reader, false, &frames));
  EXPECT_THAT(frames, HasSubstr("event: longer\ndata: {\"error\":{\"code\":507"));
  EXPECT_THAT(frames, HasSubstr("<short>"));
  EXPECT_LT(frames.size(), 1000u);
  channel.End(*longer, "<end>");
  (void)channel.Attach();
  EXPECT_FALSE(channel.Take(reader, false, &frames)) << "another one reads now";
  ASSERT_TRUE(channel.Take(channel.Attach(), false, &frames));
  EXPECT_THAT(frames, HasSubstr("507"));
  EXPECT_THAT(frames, HasSubstr("<end>")) << "it is over all the same";
}

TEST(ChannelChatsTest, IsForgottenWhenNobodyNeedsIt) {
  using Clock = std::chrono::steady_clock;
  serve::Channel channel(/*keeps=*/true);
  const auto later = [] { return Clock::now() + std::chrono::hours(1); };
  const auto reader = channel.Attach();
  EXPECT_FALSE(channel.IsForgotten(later())) << "it has a client";
  channel.Detach(reader);
  EXPECT_TRUE(channel.IsForgotten(Clock::time_point::min())) << "it has no chats";
  const auto chat = channel.Add("a");
  EXPECT_FALSE(channel.IsForgotten(later())) << "the chat runs";
  channel.End(*chat, "<end>");
  EXPECT_FALSE(channel.IsForgotten(Clock::time_point::min())) << "the answer may be fetched";
  EXPECT_TRUE(channel.IsForgotten(later()));
}

TEST_F(ChannelTest, OneNameIsOneChatAtATime) {
  Listener& listener = Open("/v1/channels/page");
  Begin("/v1/channels/page/chats/a", "<<slow>>" + std::string(2000, 'x'));
  listener.WaitFor("event: a");
  const auto answer = Ask("POST", "/v1/channels/page/chats/a", {{"messages", Json::array()}});
  EXPECT_EQ(answer.status(), 409);
  EXPECT_THAT(answer.body(), HasSubstr("already"));
}

TEST_F(ChannelTest, BelongsToOneDomain) {
  Open("/v1/channels/page", "theirs");
  const auto answer = Ask("POST", "/v1/channels/page/chats/a", {{"messages", Json::array()}});
  EXPECT_EQ(answer.status(), 404);
  EXPECT_THAT(answer.body(), HasSubstr("open it with GET first"));
}

TEST_F(ChannelTest, RefusesNamesThatWouldBreakTheStream) {
  EXPECT_EQ(Ask("GET", "/v1/channels/a%0Ab").status(), 400);
  Open("/v1/channels/page");
  const Json body = {{"messages", Json::array({Say("hi")})}};
  EXPECT_EQ(Ask("POST", "/v1/channels/page/chats/a%0Ab", body).status(), 400);
}

TEST_F(ChannelTest, ThereAreOnlySoMany) {
  for (int i = 0; i < serve::kMaxChannels; ++i) Open(StrCat("/v1/channels/c", i));
  const auto answer = Ask("GET", "/v1/channels/more");
  EXPECT_EQ(answer.status(), 429);
  EXPECT_THAT(answer.body(), HasSubstr("close one"));
}

TEST_F(ChannelTest, AKeyHasOnlySoMany) {
  Limit({.all = 5, .of_one_key = 3});
  for (int i = 0; i < 3; ++i) Open(StrCat("/v1/channels/c", i), "greedy");
  const auto own = Ask("GET", "/v1/channels/more", nullptr, "greedy");
  EXPECT_EQ(own.status(), 429);
  EXPECT_THAT(own.body(), HasSubstr("all 3 channels"));
  Open("/v1/channels/c0", "other");
  Open("/v1/channels/c1", "other");
  const auto all = Ask("GET", "/v1/channels/c2", nullptr, "other");
  EXPECT_EQ(all.status(), 429);
  EXPECT_THAT(all.body(), Not(HasSubstr("5"))) << "how many others have is theirs to know";
}

}  // namespace
}  // namespace weft::testing
