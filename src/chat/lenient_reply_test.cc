// Calls in other shapes than a format's own: which texts are calls, which stay as they are,
// and what is held back meanwhile.
#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "chat/reply_test_util.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// One source of each format, by the markers that it is recognised by.
constexpr const char* kSources[] = {
    "plain",
    "<tool_call> <think> </think>",
    "<TOOLCALL>",
    "<tool_call> <function= <think> </think>",
    "<minimax:tool_call>",
    "<|start_header_id|> <|python_tag|>",
    "[TOOL_CALLS] [THINK] [/THINK]",
    "<|tool_call> <|channel>thought <channel|>",
    "<|tool_call_start|>",
    "<｜tool▁call▁begin｜> </think>",
    "<|channel|> <|message|>",
    "<tool_call> <arg_key> <think>",
    "<|tool_calls_section_begin|>",
    "Action: \"tool_name\" <|CHATBOT_TOKEN|>",
    "<|START_ACTION|> <|START_THINKING|>",
    "｜DSML｜ tool_calls> </think>",
};

Json Tool(const char* name, const Json& types) {
  Json properties = Json::object();
  for (const auto& [key, type] : types.items()) properties[key] = {{"type", type}};
  return {{"type", "function"},
          {"function",
           {{"name", name}, {"parameters", {{"type", "object"}, {"properties", properties}}}}}};
}

Json Tools() {
  return Json::array({
      Tool("get_weather", {{"city", "string"}, {"unit", "string"}}),
      Tool("search_files", {{"pattern", "string"}, {"path", "string"}}),
      Tool("write_file", {{"path", "string"}, {"content", "string"}}),
      Tool("run_command", {{"command", "string"}, {"timeout", "integer"}, {"quiet", "boolean"}}),
      Tool("add", {{"a", "number"}, {"b", "number"}}),
      Tool("create_user", {{"name", "string"}, {"age", "integer"}}),
      Tool("list_tasks", Json::object()),
  });
}

std::unique_ptr<ReplyParser> NewParser(const char* source, const ReplyOptions& options) {
  return MakeReplyParser(std::make_shared<const ReplySyntax>(RecognizeReplySyntax(source)),
                         ParameterTypes(Tools()), options, /*reasoning_is_open=*/false);
}

constexpr ReplyOptions kLenient = {.tools = true, .lenient_calls = true};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t Below(size_t n) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state_ >> 33) % n;
  }

 private:
  uint64_t state_;
};

std::vector<std::string_view> Pieces(std::string_view text, size_t most, Random* random) {
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t n = 1 + random->Below(most);
    pieces.push_back(text.substr(at, n));
    at += n;
  }
  return pieces;
}

// The reply whole, as ReplyListener tells it; checked to be the same for many cuts.
std::string Reply(const char* source, std::string_view text, const ReplyOptions& options = kLenient,
                  int rounds = 12) {
  const auto parse = [&](std::span<const std::string_view> pieces) {
    return TakenApart(NewParser(source, options).get(), pieces);
  };
  const std::string whole = parse(std::array{text});
  Random random(text.size() + 1);
  for (int round = 0; round < rounds; ++round) {
    const auto pieces = Pieces(text, round == 0 ? 1 : 1 + random.Below(16), &random);
    EXPECT_EQ(parse(pieces), whole) << source << ", round " << round;
  }
  return whole;
}

// --- calls -----------------------------------------------------------------------------

struct Case {
  std::string reply, calls, content;
};

std::vector<Case> ReadCases() {
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/src/chat/testdata/loose_calls.txt");
  std::vector<Case> cases;
  std::string* part = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line == "@@ reply") {
      cases.emplace_back();
      part = &cases.back().reply;
    } else if (line == "@@ calls") {
      part = &cases.back().calls;
    } else if (line == "@@ content") {
      part = &cases.back().content;
    } else if (part != nullptr) {
      *part += line + "\n";
    }
  }
  for (Case& c : cases) {
    c.reply.pop_back();
    for (std::string* text : {&c.calls, &c.content}) {
      while (text->ends_with('\n')) text->pop_back();
    }
  }
  return cases;
}

// The calls and the content of a reply, as the cases say them.
Case Read(const char* source, const std::string& reply) {
  Case read;
  std::string arguments;
  const auto parser = NewParser(source, kLenient);
  std::vector<ReplyDelta> deltas = parser->Push(reply);
  for (ReplyDelta& delta : parser->Finish()) deltas.push_back(std::move(delta));
  for (const ReplyDelta& delta : deltas) {
    switch (delta.kind) {
      case ReplyDelta::Kind::kCallBegin:
        read.calls += (read.calls.empty() ? "" : "\n") + delta.name + " ";
        break;
      case ReplyDelta::Kind::kCallArguments:
        arguments += delta.text;
        break;
      case ReplyDelta::Kind::kCallEnd:
        read.calls += Json::parse(arguments).dump();
        arguments.clear();
        break;
      default:
        read.content += delta.text;
    }
  }
  return read;
}

std::string Normal(const std::string& calls) {
  std::string normal;
  for (size_t at = 0; at < calls.size();) {
    const size_t end = std::min(calls.find('\n', at), calls.size());
    const std::string line = calls.substr(at, end - at);
    at = end + 1;
    const size_t space = line.find(' ');
    if (!normal.empty()) normal += '\n';
    normal += line.substr(0, space + 1) + Json::parse(line.substr(space + 1)).dump();
  }
  return normal;
}

TEST(LenientReplyTest, CallsInManyShapesInEveryFormat) {
  const std::vector<Case> cases = ReadCases();
  ASSERT_GE(cases.size(), 60U);
  for (const Case& c : cases) {
    for (const char* source : kSources) {
      Reply(source, c.reply);
      const Case read = Read(source, c.reply);
      EXPECT_EQ(read.calls, Normal(c.calls)) << source << "\n" << c.reply;
      EXPECT_EQ(read.content, c.content) << source << "\n" << c.reply;
    }
  }
}

}  // namespace
}  // namespace weft
