// How every API tells that a session of a shared store cannot be used, before and within an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "engine/state/session_trouble.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kScriptedOwner;
using testing::MemoryResponder;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kLlama[] = "/completion";

// An API: where its errors have their code, alone and as the end of a stream; and the mark of a
// complete stream.
struct Api {
  std::string path;
  Json::json_pointer code, code_in_stream;
  std::string end;
};

std::vector<Api> Apis() {
  using At = Json::json_pointer;
  return {{kChat, At("/error/code"), At("/error/code"), "[DONE]"},
          {kCompletions, At("/error/code"), At("/error/code"), "[DONE]"},
          {kResponses, At("/error/code"), At("/response/error/code"), "response.completed"},
          {kMessages, At("/error/code"), At("/error/code"), "message_stop"},
          {kOllamaChat, At("/code"), At("/code"), "\"done\":true"},
          {kOllamaGenerate, At("/code"), At("/code"), "\"done\":true"},
          {kLlama, At("/error/type"), At("/error/type"), "\"stop\":true"}};
}

class SessionTroubleTest : public testing::ApiTest {
 protected:
  static MemoryResponder Ask(const std::string& path, const std::string& say, bool stream) {
    Json body = {{"model", "scripted"}, {"stream", stream}};
    const Json message = Say(say);
    if (path == kResponses) {
      body["input"] = message["content"];
    } else if (path == kChat || path == kMessages || path == kOllamaChat) {
      body["messages"] = Json::array({message});
    } else {
      body["prompt"] = message["content"];
    }
    if (path == kMessages) body["max_tokens"] = 100;
    return Post(path, body);
  }

  // The last object of a stream.
  static Json LastOf(const MemoryResponder& response) {
    if (response.type().find("ndjson") == std::string::npos) {
      return response.Events().back().json();
    }
    Json last;
    for (const std::string_view line : StrSplit(response.body(), '\n')) {
      if (!line.empty()) last = Json::parse(line);
    }
    return last;
  }
};

TEST_F(SessionTroubleTest, BeforeAnAnswerItIsAnErrorOfItsOwn) {
  struct Case {
    const char *say, *code;
    int status;
    std::string owner, retry_after;
  };
  const std::vector<Case> cases = {{"<<elsewhere>>", "session_elsewhere", 409, kScriptedOwner, "7"},
                                   {"<<moved>>", "session_moved", 409, "", ""},
                                   {"<<unavailable>>", "state_unavailable", 503, "", "1"}};
  for (const Api& api : Apis()) {
    for (const Case& trouble : cases) {
      for (const bool stream : {false, true}) {
        const std::string place = StrCat(api.path, " ", trouble.code, stream ? " streamed" : "");
        const MemoryResponder response = Ask(api.path, trouble.say, stream);
        EXPECT_EQ(response.status(), trouble.status) << place;
        EXPECT_EQ(response.type(), "application/json") << place;
        EXPECT_EQ(response.json().value(api.code, ""), trouble.code) << response.body();
        EXPECT_EQ(response.Header("X-Weft-Owner"), trouble.owner) << place;
        EXPECT_EQ(response.Header("Retry-After"), trouble.retry_after) << place;
      }
    }
  }
}

TEST_F(SessionTroubleTest, WithinAStreamItIsTheLastEvent) {
  for (const Api& api : Apis()) {
    EXPECT_THAT(Ask(api.path, "abc", true).body(), HasSubstr(api.end)) << api.path;
    for (const auto& [say, code] : {std::pair("abc<<moved>>", "session_moved"),
                                    std::pair("abc<<unavailable>>", "state_unavailable")}) {
      const MemoryResponder response = Ask(api.path, say, true);
      EXPECT_EQ(response.status(), 200) << api.path;
      EXPECT_TRUE(response.ended()) << api.path;
      EXPECT_THAT(response.body(), AllOf(HasSubstr("\"a\""), HasSubstr("\"c\""))) << api.path;
      EXPECT_THAT(response.body(), Not(HasSubstr(api.end))) << api.path;
      EXPECT_THAT(response.body(), Not(HasSubstr("[DONE]"))) << api.path;
      EXPECT_EQ(LastOf(response).value(api.code_in_stream, ""), code) << response.body();
    }
  }
}

TEST_F(SessionTroubleTest, AWholeAnswerIsReplacedByTheError) {
  for (const Api& api : Apis()) {
    const MemoryResponder moved = Ask(api.path, "abc<<moved>>", false);
    EXPECT_EQ(moved.status(), 409) << api.path;
    EXPECT_EQ(moved.json().value(api.code, ""), "session_moved") << moved.body();
    const MemoryResponder away = Ask(api.path, "abc<<unavailable>>", false);
    EXPECT_EQ(away.status(), 503) << api.path;
    EXPECT_EQ(away.Header("Retry-After"), "1") << api.path;
  }
}

TEST_F(SessionTroubleTest, OtherFailuresEndAsBefore) {
  EXPECT_THAT(Ask(kChat, "abc<<fail>>", true).body(), HasSubstr("[DONE]"));
  EXPECT_THAT(Ask(kCompletions, "abc<<fail>>", true).body(), HasSubstr("[DONE]"));
  EXPECT_FALSE(ToDetailedApiError(Aborted("something else")).is_session_trouble);
}

// The store's text does not become a header of its own, and the error keeps its details when its
// message gets a prefix.
TEST_F(SessionTroubleTest, TheOwnersAddressIsAHeaderOnlyIfItCanBe) {
  const auto owner_of = [](std::string_view owner, int64_t retry_s) {
    return ToDetailedApiError(Annotate(SessionElsewhere(owner, retry_s), "kitchen: "));
  };
  const ApiError error = owner_of("http://10.0.0.2:8080", 0);
  EXPECT_THAT(error.message, ::testing::StartsWith("kitchen: "));
  EXPECT_EQ(error.code, "session_elsewhere");
  EXPECT_EQ(error.retry_after_s, 1);
  ASSERT_EQ(error.headers.size(), 1u);
  EXPECT_EQ(error.headers[0].second, "http://10.0.0.2:8080");
  EXPECT_EQ(owner_of("http://x", int64_t{1} << 40).retry_after_s, 3600);
  for (const std::string& bad :
       {std::string("http://x\r\nSet-Cookie: a=b"), std::string(), std::string(2000, 'x')}) {
    EXPECT_TRUE(owner_of(bad, 3).headers.empty()) << bad;
    EXPECT_EQ(owner_of(bad, 3).http_status, 409) << bad;
  }
}

}  // namespace
}  // namespace weft::serve
