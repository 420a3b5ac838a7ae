// Calls in shapes other than the format's own: which texts are calls, which stay unchanged, and
// what is held back meanwhile.
#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "answer/reply/reply_test_util.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// A template source for each format, containing the markers that identify it.
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
                         TypesOf(Tools()), options, /*reasoning_is_open=*/false);
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

// The whole reply as printed by ReplyListener; checks that it is the same for many cuts.
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
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/src/answer/chat/testdata/loose_calls.txt");
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

// The calls and the content of a reply, in the notation of the cases.
Case Read(const char* source, const std::string& reply) {
  Case read;
  std::string arguments;
  const auto parser = NewParser(source, kLenient);
  std::vector<ReplyDelta> deltas = parser->Push(reply);
  for (ReplyDelta& delta : parser->Finish(ReplyEnd::kWhole)) deltas.push_back(std::move(delta));
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

// --- ordinary replies --------------------------------------------------------------------

std::vector<std::string> ReadOrdinaryReplies() {
  std::ifstream file(std::string(WEFT_SOURCE_DIR) +
                     "/src/answer/chat/testdata/ordinary_replies.txt");
  std::vector<std::string> replies;
  bool begun = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "@@ reply") {
      if (begun) replies.back().pop_back();
      begun = true;
      replies.emplace_back();
    } else if (begun) {
      replies.back() += line + "\n";
    }
  }
  return replies;
}

// Generates endless ordinary replies: prose, programs and documents with many words and braces.
class ReplyWriter {
 public:
  explicit ReplyWriter(uint64_t seed) : random_(seed) {}

  std::string Next() {
    std::string reply;
    for (size_t n = 1 + random_.Below(5); n > 0; --n) {
      reply += Block();
      if (n > 1) reply += random_.Below(4) == 0 ? "\n" : "\n\n";
    }
    return reply;
  }

 private:
  std::string Pick(std::initializer_list<const char*> all) {
    return *(all.begin() + random_.Below(all.size()));
  }
  std::string Word() {
    return Pick({"the",         "name",       "tool",        "city",      "of",
                 "arguments",   "weather",    "is",          "a",         "function",
                 "call",        "file",       "and",         "then",      "JSON",
                 "adds",        "numbers",    "get",         "user",      "{x}",
                 "`add`",       "[1]",        "a<b",         "x > y",     "\"quoted\"",
                 "(see below)", "é",          "5",           "{{v}}",     "`{\"name\": 1}`",
                 "**bold**",    "<b>tag</b>", "get_weather", "$\\{a\\}$", ":-)"});
  }
  std::string Sentence() {
    std::string sentence = Word();
    for (size_t n = 2 + random_.Below(9); n > 0; --n) sentence += " " + Word();
    return sentence + Pick({".", ":", "!", "?", "..."});
  }
  std::string Key() {
    return "\"" +
           Pick({"name", "arguments", "parameters", "id", "type", "function", "tool", "input",
                 "version", "description", "key", "args", "tool_calls", "x", "nested"}) +
           "\"";
  }
  // JSON without any tool's name.
  std::string Value(int depth) {
    switch (random_.Below(depth > 2 ? 4 : 7)) {
      case 0:
        return Pick({"1", "-2.5", "true", "null", "1e3"});
      case 1:
        return "\"" + Pick({"Ann", "left-pad", "", "get", "adder", "a b", "function", "x\\ny"}) +
               "\"";
      case 2:
        return Pick({"[]", "{}", "\"{}\"", "\"```\""});
      case 3:
        return "[1, 2]";
      default:
        return Object(depth + 1);
    }
  }
  std::string Object(int depth) {
    const std::string space = Pick({"", " ", "\n  "});
    std::string object = "{" + space;
    for (size_t n = random_.Below(4); n > 0; --n) {
      object += Key() + Pick({": ", ":", " : "}) + Value(depth);
      if (n > 1) object += "," + space;
    }
    return object + space + "}";
  }
  std::string Program() {
    return Pick({"def f(x):\n    return {\"name\": x}",
                 "tools = [\n    {\"name\": \"add\", \"arguments\": {\"a\": 1}},\n]",
                 "int main() { return 0; }", "if (a[i] < b[j]) { std::swap(a[i], b[j]); }",
                 "echo \"${NAME}\" | jq '{name, arguments}'",
                 "{{ user.name }} {% if x %}{{ x }}{% endif %}", "SELECT * FROM t WHERE a < 5;",
                 "<div class=\"a\">{{ b }}</div>\n<tools></tools>",
                 "fn f() -> Vec<u8> { vec![1, 2] }", "print(f\"{{x}} {y}\")\n\n\nprint('```')",
                 "- a: {b: [c, d]}\n- \"e\"", "@@ -1 +1 @@\n-{\"a\": 1}\n+{\"a\": 2}",
                 "\\begin{a}[b] \\frac{{1}}{2} \\end{a}",
                 "log {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}} done"});
  }
  std::string Block() {
    switch (random_.Below(6)) {
      case 0:
        return "```" +
               Pick({"python", "js", "cpp", "bash", "diff", "yaml", "html", "tex", "rust"}) + "\n" +
               Program() + "\n```";
      case 1:
        return "```" + Pick({"json", "", "xml", "text", "jsonc", "JSON"}) + "\n" + Object(0) +
               "\n```";
      case 2:
        return Object(0);
      case 3:
        return Pick({"- ", "* ", "1. ", "> ", "# ", "    "}) + Sentence();
      default:
        return Sentence() + " " + Sentence();
    }
  }

  Random random_;
};

void ExpectUntouched(const char* source, const std::string& reply, Random* random) {
  const std::string expected = reply.empty() ? "" : "C" + reply + "\n";
  for (const size_t most : {reply.size() + 1, 1 + random->Below(20)}) {
    const auto pieces = Pieces(reply, most, random);
    ASSERT_EQ(TakenApart(NewParser(source, kLenient).get(), pieces), expected) << source;
  }
}

TEST(LenientReplyTest, OrdinaryRepliesStayAsTheyAre) {
  const std::vector<std::string> replies = ReadOrdinaryReplies();
  ASSERT_GE(replies.size(), 100U);
  Random random(1);
  for (const std::string& reply : replies) {
    for (const char* source : kSources) ExpectUntouched(source, reply, &random);
  }
}

TEST(LenientReplyTest, ManyMoreOrdinaryRepliesStayAsTheyAre) {
  Random random(2);
  ReplyWriter writer(3);
  for (int i = 0; i < 3000; ++i) {
    const std::string reply = writer.Next();
    ExpectUntouched(kSources[random.Below(std::size(kSources))], reply, &random);
  }
}

// Random concatenations of calls and other text: the result is the same for all cuts.
TEST(LenientReplyTest, TheResultDoesNotDependOnTheCuts) {
  std::vector<std::string> parts = ReadOrdinaryReplies();
  for (const Case& c : ReadCases()) parts.push_back(c.reply);
  Random random(4);
  int n_calls = 0;
  for (int i = 0; i < 600; ++i) {
    std::string reply;
    for (size_t n = 1 + random.Below(5); n > 0; --n) {
      const std::string& part = parts[random.Below(parts.size())];
      const size_t from = random.Below(3) == 0 ? random.Below(part.size() + 1) : 0;
      reply += part.substr(from, random.Below(3) == 0 ? random.Below(part.size() + 1) : part.npos);
      reply += std::array{"", "\n", "\n\n", " "}[random.Below(4)];
    }
    const std::string told =
        Reply(kSources[random.Below(std::size(kSources))], reply, kLenient, /*rounds=*/4);
    n_calls += told.find("\n>\n") != std::string::npos;
  }
  EXPECT_GT(n_calls, 100);
}

// --- timing ------------------------------------------------------------------------------

TEST(LenientReplyTest, OnlyWhatMayBecomeACallIsHeldBack) {
  struct Step {
    std::string_view pushed, given;
  };
  const std::vector<std::vector<Step>> streams = {
      {{"Let me see. ", "Let me see."}, {"{", ""}, {"x", " {x"}, {" }", " }"}},
      {{"{\"na", ""}, {"m", ""}, {"es", "{\"names"}},
      {{"{\"name\": \"get_w", ""}, {"i", "{\"name\": \"get_wi"}},
      {{"```", ""},
       {"p", ""},
       {"y", "```py"},
       {"thon\n{\"name\": \"add", "thon\n{\"name\": \"add"}},
      {{"```json", ""}, {"\n{", ""}, {"\"k", "```json\n{\"k"}, {"\": [{\"", "\": [{\""}},
      {{"`{\"name\": \"add\"", "`{\"name\": \"add\""}},
      {{"[", ""}, {"1", "[1"}},
      {{"{{", ""}, {" ", ""}, {"u", "{{ u"}},
      {{"<", ""},
       {"d", "<d"},
       {"iv><", "iv>"},
       {"tool", ""},
       {"s", ""},
       {">", ""},
       {"t", "<tools>t"}},
      {{"<|", ""}, {" x", "<| x"}},
      {{"{\"description\": ", "{\"description\":"}},
      {{"{\"", ""}, {"p", "{\"p"}, {"arameters\": {", "arameters\": {"}},
  };
  for (const auto& stream : streams) {
    const auto parser = NewParser("plain", kLenient);
    std::string pushed;
    for (const Step& step : stream) {
      std::string given;
      pushed += step.pushed;
      for (const ReplyDelta& delta : parser->Push(step.pushed)) given += delta.text;
      EXPECT_EQ(given, step.given) << pushed;
    }
  }
}

// A call is emitted after its last bracket, before the fence around it ends.
TEST(LenientReplyTest, ACallIsGivenOutWhenItIsComplete) {
  const auto parser = NewParser("plain", kLenient);
  EXPECT_EQ(parser->Push("I look. ```json\n{\"name\": \"add\", \"arguments\": {\"a\": 1}").size(),
            1U);
  const auto call = parser->Push("}");
  ASSERT_EQ(call.size(), 3U);
  EXPECT_EQ(call[0].kind, ReplyDelta::Kind::kCallBegin);
  EXPECT_EQ(call[1].text, "{\"a\": 1}");
  EXPECT_EQ(call[2].kind, ReplyDelta::Kind::kCallEnd);
  EXPECT_TRUE(parser->Push("\n```\n").empty());
  EXPECT_TRUE(parser->Finish(ReplyEnd::kWhole).empty());
}

// What looks like a call may prove to be text as late as at its last bracket, so until then nothing
// of it may have been emitted.
TEST(LenientReplyTest, AnObjectMayProveToBeTextUpToItsLastBracket) {
  constexpr std::string_view kCall = R"({"name": "add", "arguments": {"a": 1, "b": 2})";
  const std::vector<std::pair<std::string, std::string>> replies = {
      {std::string(kCall), R"(, "result": 3})"},
      {std::string(kCall), " and so on"},
      {R"({"name": "add", "parameters": {"type": "object", )", R"("properties": {}}})"},
      {'[' + std::string(kCall) + '}', R"(, {"name": "subtract", "arguments": {}}])"},
      {R"({"name": "add", "arguments": {"a": 1, )", ""},
  };
  for (const auto& [begin, end] : replies) {
    const auto parser = NewParser("plain", kLenient);
    EXPECT_TRUE(parser->Push(begin).empty()) << begin;
    std::string text;
    std::vector<ReplyDelta> deltas = parser->Push(end);
    for (ReplyDelta& delta : parser->Finish(ReplyEnd::kWhole)) deltas.push_back(std::move(delta));
    for (const ReplyDelta& delta : deltas) {
      EXPECT_EQ(delta.kind, ReplyDelta::Kind::kContent) << begin;
      text += delta.text;
    }
    EXPECT_EQ(text, begin + end);
  }
}

// A limit may end the reply anywhere within a call.
TEST(LenientReplyTest, ACallThatWasCutIsNotText) {
  const std::string call = R"({"name": "add", "arguments": {"a": 1, "b": 2}})";
  for (const std::string& reply :
       {call, "I look.\n\n```json\n" + call + "\n```", "[" + call + "]",
        "<tools>\n" + call + "\n</tools>", std::string("<function=add>{\"a\": 1, \"b\": 2}")}) {
    const size_t begin = reply.find("add") + 1;
    for (size_t n = begin; n <= reply.size(); ++n) {
      const std::string told =
          TakenApart(NewParser("plain", kLenient).get(),
                     std::array{std::string_view(reply).substr(0, n)}, ReplyEnd::kCut);
      const bool is_whole = told.find("\n>\n") != told.npos;
      EXPECT_TRUE(is_whole || told.find("ad") == told.npos) << reply.substr(0, n) << ": " << told;
    }
  }
}

TEST(LenientReplyTest, HoldsLittle) {
  for (const char* const head : {"{\"name\": \"write_file\", \"arguments\": {\"content\": \"",
                                 "<function=write_file><parameter=content>"}) {
    const auto parser = NewParser("plain", kLenient);
    std::string given;
    const auto take = [&](const std::vector<ReplyDelta>& deltas) {
      for (const ReplyDelta& delta : deltas) given += delta.text;
    };
    const std::string text = head + std::string(size_t{3} << 20, 'x') + std::string(9000, '\n');
    take(parser->Push(text));
    EXPECT_GT(given.size(), text.size() - 6000);
    take(parser->Finish(ReplyEnd::kWhole));
    EXPECT_EQ(given, text);
  }
}

// --- conditions --------------------------------------------------------------------------

TEST(LenientReplyTest, WithoutToolsOrWhenStrictNothingElseIsACall) {
  const std::string reply = "```json\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n```";
  for (const char* source : kSources) {
    EXPECT_EQ(Reply(source, reply, {.lenient_calls = true}), "C" + reply + "\n") << source;
    EXPECT_EQ(Reply(source, reply, {.tools = true}), "C" + reply + "\n") << source;
  }
}

// The format's own calls are found as before, and both kinds share one numbering.
TEST(LenientReplyTest, OwnCallsAndOthersStandTogether) {
  const char* const hermes = "<tool_call> <think> </think>";
  EXPECT_EQ(Reply(hermes,
                  "<think>{\"name\": \"add\", \"arguments\": {}}</think>I look.\n"
                  "<tool_call>{\"name\": \"other\", \"arguments\": {\"a\": 1}}</tool_call>\n"
                  "{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n"
                  "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>"),
            "R{\"name\": \"add\", \"arguments\": {}}\nCI look.\n<other\na{\"a\": 1}\n>\n"
            "<add\na{\"a\": 1}\n>\n<add\na{}\n>\n");
  // A fence around the format's own call is removed with it, and so is surplus markup after it.
  EXPECT_EQ(
      Reply(hermes, "```xml\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n```"),
      "<add\na{}\n>\n");
  EXPECT_EQ(Reply(hermes, "<tool_call>{\"name\": \"add\", \"arguments\": {}}}</tool_call>"),
            "<add\na{}\n>\n");
  EXPECT_EQ(Reply(hermes, "<tool_call>{{\"name\": \"add\", \"arguments\": {}}}</tool_call>"),
            "<add\na{}\n>\n");
  // Names that the format itself does not check.
  EXPECT_EQ(Reply("<|start_header_id|> <|python_tag|>", "{\"name\": \"Bob\", \"parameters\": {}}"),
            "C{\"name\": \"Bob\", \"parameters\": {}}\n");
}

TEST(LenientReplyTest, ASchemaIsAnArgumentOnlyWhereTheToolTakesOne) {
  Json tools = Tools();
  tools.push_back(Tool("make_form", {{"type", "string"}, {"properties", "object"}}));
  const auto parser =
      MakeReplyParser(std::make_shared<const ReplySyntax>(RecognizeReplySyntax("plain")),
                      TypesOf(tools), kLenient, /*reasoning_is_open=*/false);
  const std::string_view reply =
      R"({"name": "make_form", "parameters": {"type": "object", "properties": {"a": 1}}})";
  EXPECT_EQ(TakenApart(parser.get(), std::array{reply}),
            "<make_form\na{\"type\": \"object\", \"properties\": {\"a\": 1}}\n>\n");
}

// --- control tokens ----------------------------------------------------------------------

TEST(LenientReplyTest, ControlTokensAreNoText) {
  ReplyOptions options = kLenient;
  options.control_tokens = {"<|python_tag|>", "<think>", "<|im_start|>"};
  const char* const llama = "<|start_header_id|> <|python_tag|> <think>";
  EXPECT_EQ(Reply(llama, "a<|python_tag|>b <|im_start|>c<|im_start", options), "Cab c<|im_start\n");
  EXPECT_EQ(Reply(llama, "<think>x<|im_start|>y</think>z<think>", options), "Rxy\nCz\n");
  EXPECT_EQ(
      Reply(llama, "<|python_tag|>{\"name\": \"add\", \"parameters\": {}}<|im_start|>", options),
      "<add\na{}\n>\n");
  options.separate_reasoning = false;
  EXPECT_EQ(Reply(llama, "<think>x</think>z<|im_start|>", options), "C<think>x</think>z\n");
}

}  // namespace
}  // namespace weft
