// Builds formats from template sources, and conversations to render with them.
#ifndef WEFT_ANSWER_CHAT_CHAT_FORMAT_TEST_UTIL_H_
#define WEFT_ANSWER_CHAT_CHAT_FORMAT_TEST_UTIL_H_

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "answer/chat/chat_format.h"
#include "answer/chat/openai_form.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/goldens.h"

namespace weft {

inline std::shared_ptr<const ChatFormat> Format(std::string source) {
  auto format = ChatFormat::Create(std::move(source), testing::TinyModel("llama")->tokenizer());
  EXPECT_TRUE(format.ok()) << format.status();
  return format.ok() ? *format : nullptr;
}

inline std::string GoldenSource(const std::string& name) {
  std::ifstream in(testing::GoldensDir() + "/chat/" + name + ".jinja", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// In OpenAI's form, as are the arguments below.
inline ToolList ToolsOf(const nlohmann::ordered_json& tools) {
  auto read = ReadOpenAiTools(tools);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *std::move(read) : ToolList();
}

inline ChatMessage MessageOf(const nlohmann::ordered_json& message) {
  auto read = ReadOpenAiMessage(message, "message");
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *std::move(read) : ChatMessage();
}

inline ChatRequest Request(const char* messages, bool with_tools = false) {
  ChatRequest request;
  auto read = ReadOpenAiMessages(nlohmann::ordered_json::parse(messages));
  EXPECT_TRUE(read.ok()) << read.status();
  if (read.ok()) request.conversation.messages = *std::move(read);
  if (with_tools) {
    request.conversation.tools = ToolsOf(
        nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "get_weather",
      "description": "The weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string", "description": "Where"}}}}}])"));
  }
  request.render.wall_clock_s = 0;
  return request;
}

inline ChatPrompt Rendered(const ChatFormat& format, const ChatRequest& request) {
  auto prompt = format.Render(request);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return prompt.ok() ? *std::move(prompt) : ChatPrompt();
}

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CHAT_FORMAT_TEST_UTIL_H_
