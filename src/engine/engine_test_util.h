// Shared by the tests of the public engine.
#ifndef WEFT_ENGINE_ENGINE_TEST_UTIL_H_
#define WEFT_ENGINE_ENGINE_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tests/support/engine_harness.h"
#include "weft/engine.h"

namespace weft {

using testing::Bytes;
using testing::ChoiceOutcome;
using testing::Collect;
using testing::Greedy;
using testing::RandomTokens;
using testing::RunAlone;
using testing::RunTurn;
using testing::Script;
using testing::TinyModel;
using testing::TurnOutcome;

inline EngineOptions SmallEngine() {
  EngineOptions options;
  options.n_threads = 1;
  options.page_tokens = 16;
  options.memory_bytes = int64_t{16} << 20;
  options.max_step_tokens = 64;
  options.state_disk_bytes = int64_t{1} << 30;  // whatever is free where the test runs
  return options;
}

inline std::unique_ptr<Engine> StartEngine(const EngineOptions& options = SmallEngine(),
                                           std::shared_ptr<const Model> model = nullptr) {
  if (model == nullptr) model = TinyModel("llama");
  auto engine = Engine::Start(std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

inline SessionId NewSession(Engine* engine, std::string name = "", std::string domain = "") {
  const auto session =
      engine->CreateSession({.name = std::move(name), .domain = std::move(domain)});
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *session : SessionId{};
}

inline std::shared_ptr<Turn> SubmitTurn(Engine* engine, SessionId session,
                                        const TurnOptions& options) {
  auto turn = engine->Submit(session, options);
  EXPECT_TRUE(turn.ok()) << turn.status();
  return turn.ok() ? *turn : nullptr;
}

inline SessionState StateOf(Engine* engine, SessionId session) {
  const auto info = engine->Inspect(session);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->state : SessionState::kPoisoned;
}

inline std::vector<int32_t> TokensOf(Engine* engine, SessionId session) {
  const auto tokens = engine->Tokens(session);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.ok() ? *tokens : std::vector<int32_t>();
}

// Polls until the condition holds; false after 20 s.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Reads events up to the first token, when the turn is decoding.
inline void ReadToFirstToken(Turn* turn, TurnOutcome* outcome) {
  while (auto event = turn->Next()) {
    const bool token = std::holds_alternative<TokenEvent>(*event);
    testing::AddEvent(*std::move(event), outcome);
    if (token) return;
  }
  ADD_FAILURE() << "the turn ended before its first token";
}

MATCHER(IsOk, "") { return arg.ok(); }
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::weft::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::weft::IsOk())

// Matches a status by its code and a part of its message.
MATCHER_P2(IsError, code, part, "") {
  return arg.code() == code && std::string(Message(arg)).find(part) != std::string::npos;
}

// Names a parameterised test after its model: "recurrent_llama" for "recurrent-llama".
inline constexpr auto kNameOfModel = [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};

// The same tokens, texts, ends and bits of log-probabilities.
inline void ExpectSameAnswer(const TurnOutcome& got, const TurnOutcome& plain) {
  ASSERT_EQ(got.choices.size(), plain.choices.size());
  for (size_t c = 0; c < got.choices.size(); ++c) {
    const ChoiceOutcome& a = got.choices[c];
    const ChoiceOutcome& b = plain.choices[c];
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.text, b.text);
    EXPECT_EQ(a.done->reason, b.done->reason);
    EXPECT_EQ(a.done->stop_string, b.done->stop_string);
    EXPECT_EQ(a.done->usage.completion_tokens, b.done->usage.completion_tokens);
    ASSERT_EQ(a.events.size(), b.events.size());
    for (size_t i = 0; i < a.events.size(); ++i) {
      EXPECT_EQ(a.events[i].text, b.events[i].text);
      EXPECT_EQ(std::bit_cast<uint32_t>(a.events[i].logprob),
                std::bit_cast<uint32_t>(b.events[i].logprob));
    }
  }
}

// A temporary directory for one test.
class TestFolder {
 public:
  TestFolder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) /
            StrCat("weft_", info->test_suite_name(), "_", info->name(), "_", getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_TEST_UTIL_H_
