#include "doors/worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/strings.h"
#include "doors/worker/worker_request.h"
#include "tests/support/engine_harness.h"
#include "tests/support/scripted_host.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

// --- without a model --------------------------------------------------------------------

TEST(WorkerRequest, ReadsEveryField) {
  const auto request = ParseWorkerRequest(
      R"({"max_new_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":3,"seed":11,"stop":["a","","b"],)"
      R"("session_id":"s","prompt_segments":[{"text":"x"},{"ids":[1,2]}],"novel":1})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->op, WorkerRequest::Op::kGenerate);
  EXPECT_EQ(request->max_new_tokens, 7);
  EXPECT_FLOAT_EQ(request->sampling.temperature.value(), 0.5f);
  EXPECT_FLOAT_EQ(request->sampling.top_p.value(), 0.9f);
  EXPECT_EQ(request->sampling.top_k, 3);
  EXPECT_EQ(request->seed, 11u);
  EXPECT_THAT(request->stop, ElementsAre("a", "b"));
  EXPECT_EQ(request->session_id, "s");
  ASSERT_EQ(request->prompt.size(), 2u);
  EXPECT_EQ(std::get<std::string>(request->prompt[0]), "x");
  EXPECT_EQ(std::get<Tokens>(request->prompt[1]), Tokens({1, 2}));
  EXPECT_THAT(request->unknown, ElementsAre("novel"));
}

TEST(WorkerRequest, DefaultsAreGreedyAndUnlimited) {
  const auto request = ParseWorkerRequest(R"({"prompt":"x"})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->max_new_tokens, -1);
  EXPECT_TRUE(request->sampling.empty());
  EXPECT_EQ(request->seed, 0u);
}

TEST(WorkerRequest, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "no valid JSON"},
      {"[]", "must be a JSON object"},
      {"{}", "exactly one of prompt / prompt_segments is required"},
      {R"({"prompt":"a","prompt_segments":[]})",
       "exactly one of prompt / prompt_segments is required"},
      {R"({"prompt":5})", "prompt must be a string"},
      {R"({"prompt":"a","top_p":0})", "top_p must be finite and in (0, 1]"},
      {R"({"prompt":"a","top_p":1.5})", "top_p must be finite and in (0, 1]"},
      {R"({"prompt":"a","top_k":-1})", "top_k must fit in a nonnegative int32"},
      {R"({"prompt":"a","top_k":2147483648})", "top_k must fit in a nonnegative int32"},
      {R"({"prompt":"a","seed":-1})", "seed must be nonnegative"},
      {R"({"prompt":"a","temperature":-1})", "temperature must be a number between"},
      {R"({"prompt":"a","stop":[1]})", "stop must be"},
      {R"({"prompt_segments":[{}]})", "prompt_segment needs `text` or `ids`"},
      {R"({"prompt_segments":[{"text":"a","ids":[1]}]})", "prompt_segment needs `text` or `ids`"},
      {R"({"prompt_segments":[{"ids":[-1]}]})", "prompt_segments[0].ids must be"},
      {R"({"prompt_segments":[{"text":"a"},{"image":{}}]})", "prompt_segments[1] is an image"},
      {R"({"op":"open"})", "session_id required for op"},
      {R"({"op":"close","session_id":""})", "session_id required for op"},
      {R"({"op":"pause","session_id":"a"})", "op 'pause' is not one of"},
      {R"({"op":1})", "op must be a string"},
  };
  for (const auto& [line, message] : cases) {
    const auto request = ParseWorkerRequest(line);
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(Message(request.status())), HasSubstr(message)) << line;
  }
}

TEST(PlanResume, EveryReason) {
  const Tokens one = {1}, two = {1, 2}, other = {1, 9}, none;
  const auto plan = [](const Tokens& resident, const Tokens& prompt, bool dirty = false) {
    const WorkerResume resume = PlanResume(resident, prompt, dirty);
    return StrCat(resume.reason, " ", resume.reused_tokens);
  };
  EXPECT_EQ(plan(none, two), "new 0");
  EXPECT_EQ(plan(one, two), "exact_prefix 1");
  EXPECT_EQ(plan(two, two), "equal 0");
  EXPECT_EQ(plan(other, two), "mismatch 0");
  EXPECT_EQ(plan(two, one), "mismatch 0");
  EXPECT_EQ(plan(one, two, /*dirty=*/true), "dirty 0");
}

// --- with a model ------------------------------------------------------------------------

class WorkerTest : public ::testing::Test {
 protected:
  void Open(const WorkerOptions& options, std::shared_ptr<const Model> model = nullptr,
            const char* chat_template = "") {
    if (model == nullptr) model = testing::TinyModel("llama");
    EngineOptions engine;
    engine.prefix_cache = options.warm_resume;
    auto started = Engine::Start(model, engine);
    ASSERT_TRUE(started.ok()) << started.status();
    worker_ = nullptr;
    engine_ = *std::move(started);
    auto answerer = Answerer::ForCommand(std::move(model), engine_.get(), chat_template);
    ASSERT_TRUE(answerer.ok()) << answerer.status();
    answerer_ = *std::move(answerer);
    worker_ =
        std::make_unique<JsonlWorker>(answerer_.get(), options, [this](std::string_view line) {
          lines_.push_back(Json::parse(line));
          return OkStatus();
        });
  }
  // With the chat format of a model that thinks.
  void OpenThinking(const WorkerOptions& options) {
    Open(options, nullptr,
         "{% for message in messages %}{{ message.content.split('</think>')[-1] }}{% endfor %}"
         "{% if add_generation_prompt %}<think>{% endif %}");
  }
  // The last answer to a request; all answers are in lines_.
  Json Ask(const Json& request) {
    lines_.clear();
    EXPECT_TRUE(worker_->Handle(request.dump()).ok());
    EXPECT_FALSE(lines_.empty());
    return lines_.empty() ? Json() : lines_.back();
  }
  Json Generate(const Tokens& ids, const char* session, int max_new = 4) {
    Json request = {{"max_new_tokens", max_new}, {"prompt_segments", {{{"ids", ids}}}}};
    if (session != nullptr) request["session_id"] = session;
    const Json done = Ask(request);
    EXPECT_EQ(done.value("done", false), true) << done;
    EXPECT_EQ(done["prompt_tokens"], ids.size());
    EXPECT_EQ(
        done["reused_prompt_tokens"].get<size_t>() + done["prefilled_prompt_tokens"].get<size_t>(),
        ids.size());
    return done;
  }

  std::vector<Json> lines_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Answerer> answerer_;
  std::unique_ptr<JsonlWorker> worker_;
};

Tokens Joined(Tokens left, const Json& right, int32_t last) {
  for (const Json& id : right) left.push_back(id.get<int32_t>());
  left.push_back(last);
  return left;
}

TEST_F(WorkerTest, SaysItIsReady) {
  Open({.max_sessions = 3});
  ASSERT_TRUE(worker_->Start().ok());
  EXPECT_EQ(lines_.at(0), Json({{"ready", true}, {"max_sessions", 3}, {"max_named_sessions", 2}}));
}

// Without flags and recommendations of the model, the protocol's default: greedy.
TEST_F(WorkerTest, SamplingIsTheRequestsThenTheAdvicesThenTheProtocols) {
  const Json request = {{"max_new_tokens", 24}, {"prompt", "tell"}};
  const auto said = [&](const SamplingAdvice& advice, const Json& more) {
    Open({.advice = advice, .seed = 3});
    Json asked = request;
    asked.update(more);
    return Ask(asked)["generated_token_ids"];
  };
  const Json greedy = said({}, {{"temperature", 0}});
  EXPECT_EQ(said({}, Json::object()), greedy);
  const Json hot = said({.temperature = 5}, Json::object());
  EXPECT_NE(hot, greedy);
  EXPECT_EQ(said({.temperature = 5}, {{"temperature", nullptr}}), hot);
  EXPECT_EQ(said({}, {{"temperature", 5}}), hot);
  EXPECT_EQ(said({.temperature = 5}, {{"temperature", 0}}), greedy);
}

TEST_F(WorkerTest, WhatTheModelEndsAnswersWith) {
  Open({});
  const Json request = {{"max_new_tokens", 8}, {"prompt", "tell"}};
  const Json free = Ask(request);
  ASSERT_EQ(free["generated_token_ids"].size(), 8u);
  Open({.ends = {.tokens = {free["generated_token_ids"][2].get<int32_t>()}}});
  const Json ended = Ask(request);
  EXPECT_EQ(ended["finish_reason"], "stop");
  EXPECT_LE(ended["generated_token_ids"].size(), 2u);
}

TEST_F(WorkerTest, AThoughtIsEndedBehindItsBudget) {
  const Json request = {{"max_new_tokens", 12}, {"prompt", "tell<think>"}};
  const auto text = [&](int64_t most) {
    OpenThinking({.thought = {.tokens = most}});
    Ask(request);
    std::string all;
    for (const Json& line : lines_) all += line.value("token", "");
    return all;
  };
  EXPECT_EQ(text(-1).find("</think>"), std::string::npos);
  EXPECT_EQ(text(0).find("</think>"), 0u);
  const size_t at = text(2).find("</think>");
  EXPECT_GT(at, 1u);
  EXPECT_NE(at, std::string::npos);
}

TEST_F(WorkerTest, AThoughtIsFoundWhereverThePartsOfThePromptEnd) {
  const auto ids = [](std::string_view text) {
    return testing::TinyModel("llama")->Encode(text, /*add_special=*/false, /*parse_special=*/true);
  };
  struct Prompt {
    std::string prefix;
    Json segments;
    bool thinks;
  };
  for (const Prompt& prompt : std::vector<Prompt>{
           {"", Json::array({{{"ids", ids("tell<think>")}}}), true},
           {"", Json::array({{{"ids", ids("tell<think>")}}, {{"text", " why"}}}), true},
           {"", Json::array({{{"text", "tell<thi"}}, {{"text", "nk>"}}}), true},
           {"<think>", Json::array({{{"text", "tell"}}}), true},
           {"", Json::array({{{"text", "tell<think>"}}, {{"ids", ids("so</think>")}}}), false},
           {"", Json::array({{{"ids", ids("<think>so</think>")}}, {{"text", "tell"}}}), false},
           {"<think>", Json::array({{{"text", "so</think>tell"}}}), false}}) {
    OpenThinking({.prompt_prefix = ids(prompt.prefix), .thought = {.tokens = 0}});
    Ask({{"max_new_tokens", 12}, {"prompt_segments", prompt.segments}});
    std::string all;
    for (const Json& line : lines_) all += line.value("token", "");
    EXPECT_EQ(all.starts_with("</think>"), prompt.thinks) << prompt.prefix << prompt.segments;
  }
}

TEST_F(WorkerTest, AnAnswerOfAGivenFormComesBehindTheThought) {
  OpenThinking({.thought = {.tokens = 3}});
  for (const char* const prompt : {"tell", "tell<think>"}) {
    const Json last = Ask({{"prompt", prompt}, {"regex", "yes|no"}, {"max_new_tokens", 60}});
    EXPECT_EQ(last["finish_reason"], "stop");
    std::string all;
    for (const Json& line : lines_) all += line.value("token", "");
    const size_t end = all.find("</think>");
    const bool thinks =
        std::string_view(prompt).ends_with("<think>") || all.find("<think>") != std::string::npos;
    EXPECT_EQ(end != std::string::npos, thinks) << all;
    EXPECT_THAT(all, ::testing::AnyOf(::testing::EndsWith("yes"), ::testing::EndsWith("no")));
  }
}

TEST_F(WorkerTest, AnswersAreWhatTheRequestSaysTheyMustBe) {
  Open({});
  const auto text = [&](Json request) {
    request.update({{"prompt", "tell"}, {"max_new_tokens", 60}, {"temperature", 1}});
    const Json last = Ask(request);
    if (last.contains("error")) return std::string(last["error"]);
    EXPECT_EQ(last["finish_reason"], "stop");
    std::string all;
    for (const Json& line : lines_) all += line.value("token", "");
    return all;
  };
  EXPECT_THAT(text({{"regex", "[0-9]{4}"}}), ::testing::MatchesRegex("[0-9][0-9][0-9][0-9]"));
  EXPECT_THAT(text({{"grammar", "root ::= \"warp\" | \"weft\""}}),
              ::testing::AnyOf("warp", "weft"));
  for (const Json& schema : {Json{{"enum", {"a", 1}}}, Json(R"({"enum": ["a", 1]})")}) {
    const Json answer = Json::parse(text({{"json_schema", schema}}));
    EXPECT_TRUE(answer == "a" || answer == 1) << answer;
  }
  EXPECT_THAT(text({{"regex", "(a"}}), HasSubstr("regular expression"));
  EXPECT_THAT(text({{"regex", "a"}, {"grammar", "root ::= \"a\""}}),
              HasSubstr("cannot be combined with"));
  EXPECT_THAT(text({{"json_schema", 7}}), HasSubstr("json_schema must be"));
}

TEST_F(WorkerTest, WarmResumeReusesAllOfTheLastTurn) {
  Open({});
  const Tokens prompt = testing::RandomTokens(40, 1);
  const Json first = Generate(prompt, "s");
  EXPECT_EQ(first["session_reset_reason"], "new");
  EXPECT_EQ(first["reused_prompt_tokens"], 0);
  EXPECT_EQ(first["generated_token_ids"].size(), first["completion_tokens"]);

  const Tokens longer = Joined(prompt, first["generated_token_ids"], 100);
  const Json second = Generate(longer, "s");
  EXPECT_EQ(second["session_reset_reason"], "exact_prefix");
  EXPECT_EQ(second["reused_prompt_tokens"], longer.size() - 1);
  EXPECT_EQ(second["cached_tokens"], longer.size() - 1);

  const Tokens equal = [&] {
    Tokens tokens = Joined(longer, second["generated_token_ids"], 0);
    tokens.pop_back();
    return tokens;
  }();
  EXPECT_EQ(Generate(equal, "s")["session_reset_reason"], "equal");
  EXPECT_EQ(Generate({5, 6, 7}, "s")["session_reset_reason"], "mismatch");
  EXPECT_EQ(Ask({{"op", "reset"}, {"session_id", "s"}}),
            Json({{"reset", true}, {"session_id", "s"}}));
  EXPECT_EQ(Generate({5, 6, 7, 8}, "s")["session_reset_reason"], "new");
}

TEST_F(WorkerTest, TheReplyDoesNotDependOnReuse) {
  Open({});
  const Tokens prompt = testing::RandomTokens(60, 2);
  const Json first = Generate(prompt, "s", 8);
  const Tokens longer = Joined(prompt, first["generated_token_ids"], 90);
  const Json warm = Generate(longer, "s", 8);

  Open({.warm_resume = false});
  const Json cold = Generate(longer, "s", 8);
  EXPECT_EQ(cold["session_reset_reason"], "new");
  EXPECT_EQ(cold["cached_tokens"], 0);
  EXPECT_EQ(cold["generated_token_ids"], warm["generated_token_ids"]);
  const Json again = Generate(longer, "s", 8);
  EXPECT_EQ(again["cached_tokens"], 0);
  EXPECT_EQ(Generate(longer, nullptr, 8)["cached_tokens"], 0);
}

TEST_F(WorkerTest, AnonymousRequestsAreAlwaysNew) {
  Open({});
  const Tokens prompt = testing::RandomTokens(20, 3);
  const Json first = Generate(prompt, nullptr);
  const Json second = Generate(Joined(prompt, first["generated_token_ids"], 100), nullptr);
  EXPECT_EQ(second["session_reset_reason"], "new");
  EXPECT_EQ(second["reused_prompt_tokens"], 0);
}

TEST_F(WorkerTest, AStopStringMakesTheSessionDirty) {
  Open({});
  const Tokens prompt = testing::RandomTokens(20, 4);
  Generate(prompt, "s", 16);
  std::string text;
  for (const Json& line : lines_) text += line.value("token", "");
  ASSERT_GT(text.size(), 4u);
  const std::string stop = text.substr(text.size() / 2, 2);

  const Json done = Ask({{"max_new_tokens", 16},
                         {"session_id", "t"},
                         {"stop", {stop}},
                         {"prompt_segments", {{{"ids", prompt}}}}});
  EXPECT_EQ(done["finish_reason"], "stop");
  EXPECT_FALSE(done.contains("generated_token_ids"));
  std::string trimmed;
  for (const Json& line : lines_) trimmed += line.value("token", "");
  EXPECT_EQ(trimmed, text.substr(0, text.find(stop)));
  EXPECT_EQ(Generate(Joined(prompt, Json::array(), 9), "t")["session_reset_reason"], "dirty");
  EXPECT_EQ(Generate({5, 6}, "t")["session_reset_reason"], "mismatch");
}

TEST_F(WorkerTest, TheEndTokenIsNeitherShownNorCounted) {
  Open({});
  const Tokens prompt = testing::RandomTokens(20, 5);
  const Json free = Generate(prompt, "s", 5);
  ASSERT_EQ(free["finish_reason"], "length");
  const Tokens ids = free["generated_token_ids"];

  Open({.prompt_prefix = {1}, .stop_tokens = {ids[3]}});
  const Json done =
      Ask({{"session_id", "s"}, {"prompt_segments", {{{"ids", prompt}}}}, {"max_new_tokens", 400}});
  EXPECT_EQ(done["prompt_tokens"], prompt.size() + 1);

  Open({.stop_tokens = {ids[3]}});
  const Json stopped = Generate(prompt, "s", 400);
  const Tokens shown = stopped["generated_token_ids"];
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["completion_tokens"], shown.size());
  EXPECT_EQ(shown, Tokens(ids.begin(), std::find(ids.begin(), ids.end(), ids[3])));
  // It can continue with anything after the shown text.
  const Json next = Generate(Joined(prompt, stopped["generated_token_ids"], 77), "s");
  EXPECT_EQ(next["session_reset_reason"], "exact_prefix");
  EXPECT_EQ(next["reused_prompt_tokens"], prompt.size() + shown.size());
}

TEST_F(WorkerTest, CapacityIsKept) {
  Open({.max_sessions = 2});
  const Json opened = {{"opened", true}, {"session_id", "a"}};
  EXPECT_EQ(Ask({{"op", "open"}, {"session_id", "a"}}), opened);
  EXPECT_EQ(Ask({{"op", "open"}, {"session_id", "a"}}), opened);
  const Json full = {
      {"error", "cannot open session"}, {"code", "capacity_exhausted"}, {"session_id", "b"}};
  EXPECT_EQ(Ask({{"op", "open"}, {"session_id", "b"}}), full);
  EXPECT_EQ(Ask({{"prompt", "x"}, {"session_id", "b"}}), full);
  Generate({5, 6}, nullptr);
  EXPECT_EQ(Ask({{"op", "close"}, {"session_id", "a"}})["closed"], true);
  EXPECT_EQ(Ask({{"op", "close"}, {"session_id", "a"}})["closed"], true);
  EXPECT_EQ(Ask({{"op", "reset"}, {"session_id", "a"}})["reset"], true);
  EXPECT_EQ(Ask({{"op", "open"}, {"session_id", "b"}})["opened"], true);

  Open({.max_sessions = 1});
  EXPECT_EQ(Ask({{"op", "open"}, {"session_id", "a"}})["code"], "unsupported_session");
  Generate({5, 6}, nullptr);
}

TEST_F(WorkerTest, BadRequestsAreAnsweredAndForgotten) {
  Open({});
  const auto error = [this](const Json& request) { return Ask(request).value("error", ""); };
  EXPECT_EQ(error({{"prompt", ""}}), "empty prompt");
  EXPECT_EQ(error({{"prompt_segments", {{{"ids", testing::RandomTokens(512, 1)}}}}}),
            "prompt fills the context window; no room to generate");
  EXPECT_THAT(error({{"prompt_segments", {{{"ids", {100000}}}}}}), HasSubstr("vocabulary"));
  lines_.clear();
  ASSERT_TRUE(worker_->Handle("  \r").ok());
  EXPECT_TRUE(lines_.empty());
  Generate({5, 6}, nullptr);
  // Without a limit the reply fills the context.
  const Json done = Ask({{"prompt_segments", {{{"ids", testing::RandomTokens(480, 6)}}}}});
  EXPECT_LE(done["completion_tokens"], 32);
}

TEST_F(WorkerTest, AFailedForwardMakesTheSessionDirty) {
  testing::FaultyBackend backend;
  Open({}, testing::TinyModel("llama", 1, &backend));
  const Tokens prompt = testing::RandomTokens(20, 7);
  const Json first = Generate(prompt, "s");
  backend.faults().fail_forward = backend.faults().forwards + 1;
  const Tokens longer = Joined(prompt, first["generated_token_ids"], 100);
  const Json request = {
      {"max_new_tokens", 4}, {"session_id", "s"}, {"prompt_segments", {{{"ids", longer}}}}};
  EXPECT_EQ(Ask(request)["error"], "prefill failed");
  backend.faults().fail_forward = backend.faults().forwards + 2;
  EXPECT_EQ(Ask(request)["error"], "decode failed");
  EXPECT_EQ(Generate(longer, "s")["session_reset_reason"], "dirty");
  EXPECT_EQ(Generate({5, 6}, nullptr)["session_reset_reason"], "new");
}

TEST_F(WorkerTest, StopEndsWhatRuns) {
  testing::FaultyBackend backend;
  Open({}, testing::TinyModel("llama", 1, &backend));
  backend.faults().step_delay_us = 20'000;
  std::thread stopper([&] {
    while (backend.faults().forwards < 5) std::this_thread::yield();
    worker_->Stop();
  });
  const Json answer = Ask({{"prompt", "abc"}, {"max_new_tokens", 400}});
  stopper.join();
  EXPECT_EQ(answer, Json({{"error", "the worker is shutting down"}}));
  EXPECT_EQ(Ask({{"prompt", "abc"}}), Json({{"error", "the worker is shutting down"}}));
}

TEST(ScriptedWorkerTest, TellsWhyASharedSessionCannotBeUsed) {
  EngineOptions engine;
  engine.n_threads = 1;
  const auto model = testing::ScriptedModel::Start(engine);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<Json> lines;
  JsonlWorker worker(&(*model)->host().answerer(), {}, [&lines](std::string_view line) {
    lines.push_back(Json::parse(line));
    return OkStatus();
  });
  const auto answer = [&](std::string_view script) {
    const Json request = {{"prompt", StrCat("<<say>>", script, "<</say>>")}};
    EXPECT_TRUE(worker.Handle(request.dump()).ok());
    return lines.back();
  };
  EXPECT_EQ(answer("<<elsewhere>>")["code"], "session_elsewhere");
  const Json moved = answer("abc<<moved>>");
  EXPECT_EQ(moved["code"], "session_moved");
  EXPECT_EQ(moved["error"], "decode failed");
  EXPECT_EQ(lines[lines.size() - 2]["token"], "c");
  EXPECT_EQ(answer("a<<unavailable>>")["code"], "state_unavailable");
  EXPECT_FALSE(answer("a<<fail>>").contains("code"));
}

}  // namespace
}  // namespace weft::serve
