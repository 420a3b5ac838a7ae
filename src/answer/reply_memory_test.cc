#include "answer/reply_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "answer/chat/chat_format.h"
#include "answer/chat/chat_format_test_util.h"
#include "answer/prompt_memory.h"
#include "base/strings.h"
#include "base/unicode.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/vocabulary.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// --- a vocabulary with the control tokens of many templates ----------------------------

// Has the control tokens that `source` contains. Model files of GLM name the token that ends a
// call.
std::shared_ptr<const Tokenizer> ControlsOf(const std::string& source) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto add = [&](const std::string& text, int32_t type) {
    tokens.push_back(text);
    types.push_back(type);
  };
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), &text);
    add(text, 1);
  }
  for (const char* const control : {"<s>",
                                    "</s>",
                                    "<|im_start|>",
                                    "<|im_end|>",
                                    "<|eot_id|>",
                                    "<|eom_id|>",
                                    "<end_of_turn>",
                                    "<start_of_turn>",
                                    "<|end|>",
                                    "<|start|>",
                                    "<|channel|>",
                                    "<|message|>",
                                    "<|return|>",
                                    "<|call|>",
                                    "<|user|>",
                                    "<|observation|>",
                                    "<|assistant|>",
                                    "<｜end▁of▁sentence｜>",
                                    "<｜User｜>",
                                    "<|end_of_text|>",
                                    "<|start_of_role|>",
                                    "<turn|>",
                                    "<|turn>",
                                    "<|tool_response>",
                                    "[e~[",
                                    "<seed:eos>",
                                    "<|END_OF_TURN_TOKEN|>",
                                    "<|endoftext|>",
                                    "<|end_of_msg|>",
                                    "<SPECIAL_12>"}) {
    if (source.find(control) != source.npos || tokens.size() < 258) add(control, 3);
  }
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "gpt-2");
  writer.AddStringArray("tokenizer.ggml.tokens", tokens);
  writer.AddInt32Array("tokenizer.ggml.token_type", types);
  writer.AddStringArray("tokenizer.ggml.merges", {});
  writer.AddUint32("tokenizer.ggml.bos_token_id", 256);
  writer.AddUint32("tokenizer.ggml.eos_token_id", 257);
  for (const char* const eom : {"<|observation|>", "<|end_of_msg|>", "<SPECIAL_12>"}) {
    const auto it = std::ranges::find(tokens, eom);
    if (it == tokens.end()) continue;
    writer.AddUint32("tokenizer.ggml.eom_token_id", static_cast<uint32_t>(it - tokens.begin()));
  }
  const std::string bytes = writer.ToBytes();
  auto file = ModelFile::FromBytes("test.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status();
  auto tokenizer = Tokenizer::Load(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

// --- a scripted agent ---------------------------------------------------------------------

// What a client makes of a reply before it sends it back.
using Habit = std::function<void(Json* message)>;

void Drop(Json* message) { message->erase("reasoning_content"); }

void Trim(Json* message) {
  Drop(message);
  Json& content = (*message)["content"];
  if (content.is_string()) content = std::string(Trimmed(content.get<std::string>()));
}

void WriteAnew(Json* message) {
  Drop(message);
  if ((*message)["content"] == "") (*message)["content"] = nullptr;
  if (!message->contains("tool_calls")) return;
  for (Json& call : (*message)["tool_calls"]) {
    Json& text = call["function"]["arguments"];
    // Members in another order, other white space.
    const auto sorted = nlohmann::json::parse(text.get<std::string>());
    text = sorted.dump(2);
  }
}

void Reorder(Json* message) {
  Drop(message);
  if (!message->contains("tool_calls")) return;
  Json& calls = (*message)["tool_calls"];
  std::reverse(calls.begin(), calls.end());
}

const std::map<std::string, Habit> kHabits = {{"keeps", [](Json*) {}},
                                              {"drops", Drop},
                                              {"trims", Trim},
                                              {"writes anew", WriteAnew},
                                              {"reorders", Reorder}};

// An agent loop of twelve turns, with a user's message every fourth.
class Loop {
 public:
  Loop(std::shared_ptr<const ChatFormat> format, std::shared_ptr<const Tokenizer> tokenizer,
       Habit habit)
      : format_(std::move(format)),
        tokenizer_(std::move(tokenizer)),
        prompts_(tokenizer_, {}),
        habit_(std::move(habit)) {}

  static constexpr int kTurns = 12;

  // The first position at which a prompt differs from the computed one.
  const std::string& miss() const { return miss_; }

  // In how many turns the prompt begins with everything computed so far. -1: the template refuses.
  int Run(bool thinks, bool remembers) {
    thinks_ = thinks;
    int exact = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn % 4 == 0) Say({{"role", "user"}, {"content", StrCat("Do thing ", turn, ".")}});
      auto found = memory_.Find("d", conversation_);
      if (!remembers) found.own.clear();
      ChatRequest request = RequestFor(conversation_);
      request.own = found.own;
      request.keep_hidden_reasoning = remembers;
      const auto prompt = format_->Render(request);
      if (!prompt.ok()) {
        miss_ = prompt.status().ToString();
        return -1;
      }
      const auto tokens = prompts_.Encode("d", prompt->text, prompt->own);
      const bool is_exact = tokens.size() >= computed_.size() &&
                            std::equal(computed_.begin(), computed_.end(), tokens.begin());
      exact += is_exact;
      if (!is_exact && miss_.empty()) miss_ = Difference(prompt->text);
      Answer(turn, *prompt, tokens, found.place);
    }
    return exact;
  }

 private:
  std::string Difference(const std::string& prompt) const {
    std::string computed;
    for (const TokenId id : computed_) computed += tokenizer_->Piece(id, true);
    const auto at = std::ranges::mismatch(computed, prompt);
    const size_t same = static_cast<size_t>(at.in1 - computed.begin());
    const size_t from = same < 200 ? 0 : same - 200;
    return StrCat("computed: ", Printable(computed.substr(from, 500), 900),
                  "\nprompt: ", Printable(prompt.substr(from, 500), 900));
  }

  ChatRequest RequestFor(Conversation conversation) const {
    ChatRequest request{.conversation = std::move(conversation)};
    request.variables["enable_thinking"] = thinks_;
    request.render.wall_clock_s = 0;
    return request;
  }

  void Say(const Json& message) { conversation_.messages.push_back(MessageOf(message)); }

  // What the model says in a turn, as far as the template can show it.
  Json Reply(int turn) const {
    const bool calls = turn % 4 != 3;
    Json message = {{"role", "assistant"}};
    message["content"] = calls ? "" : StrCat("It is done, ", turn, ". \n");
    if (thinks_) message["reasoning_content"] = StrCat("I wonder about ", turn, ".");
    for (int i = 0; calls && i < 1 + turn % 2; ++i) {
      Json with_call = message;
      with_call["tool_calls"].push_back(
          {{"id", StrCat("call0000", i)},
           {"type", "function"},
           {"function",
            {{"name", "get_weather"},
             {"arguments", StrCat(R"({"city":"Bonn","at":)", turn * 10 + i, "}")}}}});
      if (i == 0 || Shows(with_call)) message = with_call;
    }
    return message;
  }

  // Whether the template shows the calls one after the other.
  bool Shows(const Json& message) const {
    Conversation after = conversation_;
    after.messages.push_back(MessageOf(message));
    for (const Json& call : message["tool_calls"]) {
      after.messages.push_back(
          MessageOf({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "The result"}}));
    }
    const auto prompt = format_->Render(RequestFor(after));
    if (!prompt.ok()) return false;
    const size_t last = prompt->text.rfind("Bonn");
    const size_t before = prompt->text.rfind("Bonn", last - 1);
    return prompt->text.substr(before, last - before).find("result") == std::string::npos;
  }

  void Answer(int turn, const ChatPrompt& prompt, const std::vector<TokenId>& tokens,
              const ReplyMemory::Place& place) {
    const Json written = Reply(turn);
    Remember(MessageOf(written), prompt, tokens, place);
    Json sent = written;
    habit_(&sent);
    Say(sent);
    if (!written.contains("tool_calls")) return;
    for (const Json& call : written["tool_calls"]) {
      Say({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", StrCat("sunny ", turn)}});
    }
  }

  // The model writes nearly what the template would, and a blank that it would not.
  void Remember(const ChatMessage& said, const ChatPrompt& prompt,
                const std::vector<TokenId>& tokens, const ReplyMemory::Place& place) {
    Conversation after = conversation_;
    after.messages.push_back(said);
    ChatRequest request = RequestFor(after);
    request.own = memory_.Find("d", conversation_).own;
    request.keep_hidden_reasoning = true;
    request.add_generation_prompt = false;
    const auto rendered = format_->Render(request);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    const auto differs = std::ranges::mismatch(rendered->text, prompt.text);
    std::string text(differs.in1, rendered->text.end());
    size_t end = text.size();
    for (const TokenId id : tokenizer_->EndsOfGeneration()) {
      end = std::min(end, text.rfind(tokenizer_->Piece(id, true)));
    }
    text.resize(end);
    text += " ";
    const auto spelled = tokenizer_->Encode(text, {.parse_special = true});
    computed_ = tokens;
    computed_.insert(computed_.end(), spelled.begin(), spelled.end());
    memory_.Remember(
        {.domain = "d",
         .place = place,
         .reply = std::make_shared<OwnReply>(OwnReply{.reasoning = said.reasoning,
                                                      .content = TextOf(said),
                                                      .calls = said.calls,
                                                      .text = text,
                                                      .tokens = spelled,
                                                      .prompt = EndOfPrompt(prompt.text),
                                                      .conversation = place.conversation,
                                                      .id = ++ids_})});
  }

  const std::shared_ptr<const ChatFormat> format_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  ReplyMemory memory_{1 << 20};
  PromptMemory prompts_;
  const Habit habit_;
  bool thinks_ = false;
  Conversation conversation_{.tools = ToolsOf(Json::parse(
                                 R"([{"type": "function", "function": {"name": "get_weather",
      "description": "The weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string", "description": "Where"},
                     "at": {"type": "integer", "description": "When"}}}}}])"))};
  std::vector<TokenId> computed_;
  std::string miss_;
  uint64_t ids_ = 0;
};

// Templates that write what precedes a reply otherwise once it is there: no prompt of theirs is
// what was computed.
const std::map<std::string, std::string> kRewrites = {
    {"CohereForAI-c4ai-command-r-plus-tool_use", "ends a prompt with a message that it leaves out"},
    {"Apriel-1.6-15b-Thinker-fixed", "begins a reply with a sentence that it leaves out later"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "moves the tools to the last question"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "moves the tools to the last question"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "ends results otherwise before a message"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "ends results otherwise before a message"}};

TEST(OwnPromptTest, AgentLoopsComputeOnlyWhatIsNew) {
  WEFT_REQUIRE_GOLDENS();
  int n_templates = 0, n_before = 0, n_after = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::GoldensDir() + "/chat")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem();
    const std::string source = GoldenSource(name);
    const auto tokenizer = ControlsOf(source);
    const auto format = ChatFormat::Create(source, tokenizer);
    ASSERT_TRUE(format.ok()) << name << format.status();
    ++n_templates;
    for (const auto& [what, habit] : kHabits) {
      for (const bool thinks : {true, false}) {
        SCOPED_TRACE(StrCat(name, " ", what, thinks ? " thinking" : ""));
        Loop loop(*format, tokenizer, habit);
        const int exact = loop.Run(thinks, /*remembers=*/true);
        n_after += exact;
        n_before += Loop(*format, tokenizer, habit).Run(thinks, /*remembers=*/false);
        if (kRewrites.contains(name)) {
          EXPECT_GE(exact, 1) << loop.miss();
        } else {
          EXPECT_EQ(exact, Loop::kTurns) << loop.miss();
        }
      }
    }
  }
  std::cout << n_templates << " templates: " << n_after << " turns compute only what is new, "
            << n_before << " without the memory\n";
}

// --- the memory alone -----------------------------------------------------------------------

Conversation Told(std::initializer_list<ChatMessage> messages) { return {.messages = messages}; }

ChatMessage User(std::string text) { return {.role = Role::kUser, .parts = {std::move(text)}}; }

ChatMessage Assistant(std::string text, std::vector<ToolCall> calls = {}) {
  return {.role = Role::kAssistant, .parts = {std::move(text)}, .calls = std::move(calls)};
}

class ReplyMemoryTest : public ::testing::Test {
 protected:
  // The model answers `conversation`, thinking `reasoning`.
  void Answer(const std::string& domain, const Conversation& conversation,
              const ChatMessage& message, const std::string& reasoning,
              const std::string& session = "") {
    const auto place = memory_.Find(domain, conversation).place;
    memory_.Remember(
        {.domain = domain,
         .session = session,
         .place = place,
         .reply = std::make_shared<OwnReply>(OwnReply{.reasoning = reasoning,
                                                      .content = TextOf(message),
                                                      .calls = message.calls,
                                                      .text = TextOf(message),
                                                      .conversation = place.conversation,
                                                      .id = ++ids_})});
  }

  // What is known to have been thought before the message at `i`; "-" if it is not known.
  std::string Thought(const std::string& domain, const Conversation& conversation, size_t i) {
    const auto found = memory_.Find(domain, conversation);
    if (found.own.empty() || found.own[i].reply == nullptr) return "-";
    return found.own[i].reply->reasoning + (found.own[i].is_in_place ? "" : " elsewhere");
  }

  ReplyMemory memory_{1 << 20};
  uint64_t ids_ = 0;
};

TEST_F(ReplyMemoryTest, AReplyIsFoundWhereItWasGiven) {
  Answer("d", Told({User("Hi.")}), Assistant("Yes. "), "first");
  Answer("d", Told({User("Ho.")}), Assistant("Yes."), "second");
  EXPECT_EQ(Thought("d", Told({User("Hi."), Assistant("Yes.")}), 1), "first");
  EXPECT_EQ(Thought("d", Told({User("Ho."), Assistant(" Yes.\n"), User("x")}), 1), "second");
  EXPECT_EQ(Thought("d", Told({User("Hu."), Assistant("Yes.")}), 1), "-");
  EXPECT_EQ(Thought("d", Told({User("Hi."), Assistant("Yes!")}), 1), "-");
  EXPECT_EQ(Thought("e", Told({User("Hi."), Assistant("Yes.")}), 1), "-") << "another key's";
  // The same question after another beginning.
  EXPECT_EQ(Thought("d", Told({User("A."), Assistant("B."), User("Hi."), Assistant("Yes.")}), 3),
            "first elsewhere");
}

TEST_F(ReplyMemoryTest, AMessageThatSaysMoreOrElseIsNotTheReply) {
  Answer("d", Told({User("Hi.")}), Assistant("", {{.id = "a", .name = "f"}}), "thought");
  const auto with = [&](ChatMessage message) {
    return Thought("d", Told({User("Hi."), std::move(message)}), 1);
  };
  EXPECT_EQ(with(Assistant("", {{.id = "a", .name = "f"}})), "thought");
  ChatMessage kept = Assistant("", {{.id = "a", .name = "f"}});
  kept.reasoning = "thought\n";
  EXPECT_EQ(with(kept), "thought");
  kept.reasoning = "another";
  EXPECT_EQ(with(kept), "-");
  EXPECT_EQ(with(Assistant("And", {{.id = "a", .name = "f"}})), "-");
  EXPECT_EQ(with(Assistant("", {{.id = "a", .name = "g"}})), "-");
  EXPECT_EQ(with(Assistant("", {{.id = "a", .name = "f", .arguments = {{"x", 1}}}})), "-");
  EXPECT_EQ(with(Assistant("", {{.id = "a", .name = "f"}, {.id = "b", .name = "f"}})), "-");
}

TEST_F(ReplyMemoryTest, CallsAreFoundByTheirIdsElsewhere) {
  const ToolCall call{.id = "call_1", .name = "f", .arguments = {{"x", 1}, {"y", {2, 3}}}};
  Answer("d", Told({User("Hi.")}), Assistant("", {call}), "one");
  const ToolCall anew{.id = "call_1", .name = "f", .arguments = {{"y", {2, 3}}, {"x", 1}}};
  EXPECT_EQ(Thought("d", Told({User("Changed."), Assistant("", {anew})}), 1), "one elsewhere");
  // Models that number their calls say the same id again: then it tells nothing.
  Answer("d", Told({User("Ho.")}), Assistant("", {call}), "two");
  EXPECT_EQ(Thought("d", Told({User("Changed."), Assistant("", {anew})}), 1), "-");
  EXPECT_EQ(Thought("d", Told({User("Ho."), Assistant("", {anew})}), 1), "two");
  EXPECT_EQ(Thought("d", Told({User("Hi."), Assistant("", {anew})}), 1), "one");
}

TEST_F(ReplyMemoryTest, TheOneThatHoldsMostForgetsItsOldest) {
  const std::string long_thought(100'000, 'x');
  Answer("small", Told({User("Hi.")}), Assistant("Yes."), "kept");
  for (int i = 0; i < 20; ++i) {
    Answer("large", Told({User(StrCat(i))}), Assistant("Yes."), long_thought);
    EXPECT_LE(memory_.bytes(), size_t{1} << 20);
  }
  EXPECT_EQ(Thought("small", Told({User("Hi."), Assistant("Yes.")}), 1), "kept");
  EXPECT_EQ(Thought("large", Told({User("0"), Assistant("Yes.")}), 1), "-");
  EXPECT_EQ(Thought("large", Told({User("19"), Assistant("Yes.")}), 1), long_thought);
}

TEST_F(ReplyMemoryTest, ASessionsRepliesGoWithIt) {
  Answer("d", Told({User("Hi.")}), Assistant("Yes."), "one", "kitchen");
  Answer("d", Told({User("Ho.")}), Assistant("Yes."), "two", "attic");
  memory_.Forget("e", "kitchen");
  EXPECT_EQ(memory_.size(), 2u);
  memory_.Forget("d", "kitchen");
  EXPECT_EQ(Thought("d", Told({User("Hi."), Assistant("Yes.")}), 1), "-");
  EXPECT_EQ(Thought("d", Told({User("Ho."), Assistant("Yes.")}), 1), "two");
}

}  // namespace
}  // namespace weft::serve
