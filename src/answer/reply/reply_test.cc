// Replies in every format: how they are parsed, for every way of cutting them.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "answer/reply/reply_test_util.h"
#include "base/strings.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Template sources identified as the formats by their markers.
constexpr char kHermes[] = "<tool_call> <think> </think>";
constexpr char kNemotron[] = "<TOOLCALL>";
constexpr char kQwen[] = "<tool_call> <function= <think> </think>";
constexpr char kMiniMax[] = "<minimax:tool_call>";
constexpr char kLlama[] = "<|start_header_id|> <|python_tag|>";
constexpr char kMistral[] = "[TOOL_CALLS] [THINK] [/THINK]";
constexpr char kGemma[] = "<|tool_call> <|channel>thought <channel|>";
constexpr char kLfm[] = "<|tool_call_start|>";
constexpr char kDeepSeek[] = "<｜tool▁call▁begin｜> </think>";
constexpr char kHarmony[] = "<|channel|> <|message|>";

constexpr char kGlm[] = "<tool_call> <arg_key> <think>";
constexpr char kKimi[] = "<|tool_calls_section_begin|>";
constexpr char kCommandR[] = "Action: \"tool_name\" <|CHATBOT_TOKEN|>";
constexpr char kCommandR7b[] = "<|START_ACTION|> <|START_THINKING|>";
constexpr char kDsml[] = "｜DSML｜ tool_calls> </think>";
constexpr char kGlimmer[] = "<atem:function_calls> <|message|>";
constexpr char kHunyuan[] = "':opensource' <think{}> <tool_call{}> <tool_sep{}>";
constexpr char kMiniCpm[] = "<function name=\"f\"><param name=\"p\"> <think>";
constexpr char kMiniMax3[] = "]<]minimax[>[ <mm:think>";
constexpr char kKimi3[] = "<|open|> <|end_of_msg|>";
constexpr char kOlderDsml[] = "｜DSML｜ function_calls> </think>";

nlohmann::ordered_json Tools() {
  return nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "properties": {
      "s": {"type": "string"}, "i": {"type": "integer"}, "x": {"type": "number"},
      "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
      "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
      "u": {"type": ["string", "integer"]}, "any": {}, "e": {"enum": ["a", "b"]}}}}}])");
}

struct Options {
  bool tools = true;
  bool separate = true;
  bool open = false;  // the prompt ends within reasoning
};

std::unique_ptr<ReplyParser> NewParser(const char* source, const Options& options) {
  return MakeReplyParser(
      std::make_shared<const ReplySyntax>(RecognizeReplySyntax(source)), TypesOf(Tools()),
      {.tools = options.tools, .separate_reasoning = options.separate}, options.open);
}

// The parsed reply; checks that it is the same for every cut in two, byte by byte, and for many
// random cuts.
std::string Reply(const char* source, std::string_view text, const Options& options = {}) {
  const auto parse = [&](std::span<const std::string_view> pieces) {
    return TakenApart(NewParser(source, options).get(), pieces);
  };
  const std::string whole = parse(std::array{text});
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(parse(std::array{text.substr(0, cut), text.substr(cut)}), whole) << "cut at " << cut;
  }
  uint64_t random = 1;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size();) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      const size_t n = round == 0 ? 1 : 1 + (random >> 33) % 12;
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    EXPECT_EQ(parse(pieces), whole) << "round " << round;
  }
  return whole;
}

struct Case {
  const char* source;
  std::string text;
  std::string expected;
};

void Check(std::initializer_list<Case> cases, const Options& options = {}) {
  for (const Case& c : cases) {
    EXPECT_EQ(Reply(c.source, c.text, options), c.expected) << c.text;
  }
}

TEST(ReplyTest, TextAlone) {
  for (const char* source :
       {kHermes, kQwen, kLlama, kMistral, kGemma, kLfm, kDeepSeek, kHarmony, kGlm, kKimi, kCommandR,
        kCommandR7b, kDsml, kMiniMax3, kKimi3, "plain"}) {
    EXPECT_EQ(Reply(source, ""), "");
    EXPECT_EQ(Reply(source, "Hello,\n\n wörld < 5 [x] { } \n"),
              "CHello,\n\n wörld < 5 [x] { } \n\n");
    EXPECT_EQ(Reply(source, " \n a"), "C \n a\n");
  }
}

TEST(ReplyTest, HermesCalls) {
  Check({
      {kHermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"Zürich\", \"i\": 3}}\n</tool_call>",
       "<f\na{\"s\": \"Zürich\", \"i\": 3}\n>\n"},
      {kHermes,
       "Let me "
       "see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":null}],\"c\":-1.5e3}}</"
       "tool_call>\n"
       "<tool_call>\n{\"arguments\": {}, \"name\": \"g\"}\n</tool_call>\n",
       "CLet me see.\n<f\na{\"a\":[1,{\"b\":null}],\"c\":-1.5e3}\n>\n<g\na{}\n>\n"},
      {kHermes, "<tool_call>{\"name\":\"f\"}</tool_call>\nDone.", "<f\na{}\n>\nCDone.\n"},
      {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
       "<f\na{\"a\": 1}\n>\n"},
      {kHermes,
       "<tool_call>{\"id\":\"c1\",\"name\":\"f\",\"arguments\":{\"a\":1},\"x\":[2]}</tool_call>",
       "<f #c1\na{\"a\":1}\n>\n"},
      // The end marker is missing or cut off.
      {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}\n<tool_call>{\"name\":\"g\"}",
       "<f\na{\"a\":1}\n>\n<g\na{}\n>\n"},
      {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_c",
       "<f\na{\"a\":1}\n>\n"},
      {kNemotron,
       "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
       "{}}]</TOOLCALL>",
       "<f\na{}\n>\n<g\na{}\n>\n"},
  });
}

TEST(ReplyTest, JsonThatModelsGetWrongIsMended) {
  Check({
      {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x\ny\t\\d\\'\"}}</tool_call>",
       "<f\na{\"a\":\"x\\ny\\t\\\\d'\"}\n>\n"},
      {kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\ud83d\\ude00 \\ud83d! \\ude00 "
       "\\ud83d\\n\"}}</tool_call>",
       "<f\na{\"a\":\"\\ud83d\\ude00 \\ufffd! \\ufffd \\ufffd\\n\"}\n>\n"},
  });
}

TEST(ReplyTest, MalformedCallsBecomeVisible) {
  Check({
      {kHermes, "<tool_call>get_weather</tool_call>", "C<tool_call>get_weather</tool_call>\n"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {bad}}</tool_call>",
       "C<tool_call>{\"name\": \"f\", \"arguments\": {bad}}</tool_call>\n"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>",
       "C<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>\n"},
      {kHermes, "a <tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
       "Ca <tool_call>{\"arguments\": {\"a\": 1}}</tool_call>\n"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call> b",
       "C<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call> b\n"},
      {kHermes, "<tool_call>{\"name\": \"f", "C<tool_call>{\"name\": \"f\n"},
      {kHermes, "<tool_call>x<tool_call>{\"name\": \"f\"}</tool_call>",
       "C<tool_call>x\n<f\na{}\n>\n"},
      // Emitted parts are completed; parts that do not fit are visible.
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"Par",
       "<f\na{\"s\": \"Par\"}\n>\n"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2",
       "<f\na{\"a\": [1]}\n>\nC, 2\n"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, oops}}</tool_call>",
       "<f\na{\"a\": 1}\n>\nC, oops}}</tool_call>\n"},
  });
  std::string deep(100, '[');
  EXPECT_EQ(Reply(kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + deep),
            "<f\na{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}\n>\nC" +
                std::string(37, '[') + "\n");
}

TEST(ReplyTest, Reasoning) {
  Check({
      {kHermes, "<think>\nhm\n\nso\n</think>\n\nHi", "Rhm\n\nso\nCHi\n"},
      {kHermes, "\n<think></think>Hi", "CHi\n"},
      {kHermes, "<think>never ends ", "Rnever ends \n"},
      {kHermes, "a <think>b</think>", "Ca <think>b</think>\n"},
      {kHermes, "<think>a <tool_call> b</think>\n<tool_call>{\"name\":\"f\"}</tool_call>",
       "Ra <tool_call> b\n<f\na{}\n>\n"},
      {kMistral, "[THINK]a[/THINK]b", "Ra\nCb\n"},
      {kGemma, "<|channel>thought\nhm\n<channel|>Hi", "Rhm\nCHi\n"},
  });
  EXPECT_EQ(Reply(kHermes, "hm\n</think>\n\nHi", {.open = true}), "Rhm\nCHi\n");
  EXPECT_EQ(Reply(kDeepSeek, "hm</think>Hi", {.open = true}), "Rhm\nCHi\n");
  EXPECT_EQ(Reply(kHermes, "<think>\nhm\n</think>\n\nHi", {.separate = false}),
            "C<think>\nhm\n</think>\n\nHi\n");
  EXPECT_EQ(Reply(kHermes, "hm\n</think>\n\nHi", {.separate = false, .open = true}),
            "Chm\n</think>\n\nHi\n");
}

TEST(ReplyTest, WithoutToolsMarkupStaysVisible) {
  for (const Case& c : std::initializer_list<Case>{
           {kHermes, "a\n<tool_call>{\"name\":\"f\"}</tool_call>"},
           {kLlama, "{\"name\":\"f\",\"parameters\":{}}"},
           {kGemma, "<|tool_call>call:f{}<tool_call|>"},
           {kMistral, "[TOOL_CALLS][{\"name\":\"f\"}]"},
           {kHarmony, "<|channel|>commentary to=functions.f<|message|>{}<|call|>"}}) {
    EXPECT_EQ(Reply(c.source, c.text, {.tools = false}), "C" + std::string(c.text) + "\n");
  }
}

TEST(ReplyTest, QwenXmlCalls) {
  Check({
      {kQwen,
       "ok\n<tool_call>\n<function=f>\n<parameter=s>\nline 1\n\"line\" 2\n</parameter>\n"
       "<parameter=i>\n5\n</parameter>\n</function>\n</tool_call>",
       "Cok\n<f\na{\"s\": \"line 1\\n\\\"line\\\" 2\", \"i\": 5}\n>\n"},
      {kQwen,
       "<function=f><parameter=x>1.5</parameter><parameter=b>True</parameter><parameter=o>{\"k\": "
       "[1]}"
       "</parameter><parameter=l>[1, 2]</parameter><parameter=n>null</parameter></function>",
       "<f\na{\"x\": 1.5, \"b\": true, \"o\": {\"k\": [1]}, \"l\": [1, 2], \"n\": null}\n>\n"},
      // Values of another type are strings; so are parameters in no schema.
      {kQwen,
       "<function=f><parameter=i>five</parameter><parameter=u>7</parameter><parameter=e>a</"
       "parameter>"
       "<parameter=s>5</parameter><parameter=zzz>5</parameter><parameter=any>[1]</parameter></"
       "function>",
       "<f\na{\"i\": \"five\", \"u\": 7, \"e\": \"a\", \"s\": \"5\", \"zzz\": \"5\", \"any\": "
       "[1]}\n>\n"},
      {kQwen,
       "<tool_call>\n<function=g>\n</function>\n</tool_call>\n<tool_call>\n<function=h>\n</"
       "function>\n</tool_call>",
       "<g\na{}\n>\n<h\na{}\n>\n"},
      {kQwen, "<function=f><parameter=s>a </param \n</parameter </parameter></function>",
       "<f\na{\"s\": \"a </param \\n</parameter \"}\n>\n"},
      {kQwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": 1}}</tool_call>",
       "<f\na{\"i\": 1}\n>\n"},
      {kQwen, "<function=f><parameter=s>cut", "<f\na{\"s\": \"cut\"}\n>\n"},
      {kQwen, "<function=f> garbage", "C<function=f> garbage\n"},
      {kQwen, "<function=f><parameter=s>a</parameter>garbage",
       "<f\na{\"s\": \"a\"}\n>\nCgarbage\n"},
      {kMiniMax,
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a</parameter>\n</invoke>\n"
       "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       "<f\na{\"s\": \"a\"}\n>\n<g\na{}\n>\n"},
  });
}

TEST(ReplyTest, GlimmerMessages) {
  Check({
      {kGlimmer,
       " to=self<|message|>Hm. <b>\n<|eom|><|start|>assistant to=user<|message|>Hi to=all",
       "RHm. <b>\nCHi to=all\n"},
      {kGlimmer,
       " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n"
       "<atem:parameter name=\"s\">a\n\"b\" </atem:parameter>\n"
       "<atem:parameter name=\"i\">5</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
       "<|eom|><|start|>assistant to=g<|message|><atem:function_calls>\n<atem:invoke name=\"g\">\n"
       "</atem:invoke>\n</atem:function_calls>",
       "<f\na{\"s\": \"a\\n\\\"b\\\" \", \"i\": 5}\n>\n<g\na{}\n>\n"},
      {kGlimmer, "to=user is not an address", "Cto=user is not an address\n"},
  });
}

TEST(ReplyTest, HunyuanCalls) {
  Check({
      {kHunyuan,
       "<think:opensource>Hm.</think:opensource>ok<tool_calls:opensource>\n"
       "<tool_call:opensource>f<tool_sep:opensource>\n"
       "<arg_key:opensource>s</arg_key:opensource>\n"
       "<arg_value:opensource>a\n<b></arg_value:opensource>\n"
       "<arg_key:opensource>i</arg_key:opensource>\n"
       "<arg_value:opensource>5</arg_value:opensource>\n</tool_call:opensource>\n"
       "<tool_call:opensource>g<tool_sep:opensource>\n</tool_call:opensource>\n"
       "</tool_calls:opensource>",
       "RHm.\nCok\n<f\na{\"s\": \"a\\n<b>\", \"i\": 5}\n>\n<g\na{}\n>\n"},
      {kHunyuan, "<tool_calls:opensource>\n<tool_call:opensource>no separator",
       "C<tool_calls:opensource>\n<tool_call:opensource>no separator\n"},
  });
}

TEST(ReplyTest, MiniCpmCalls) {
  Check({
      {kMiniCpm,
       "<think>Hm.</think>ok<function name=\"f\"><param name=\"s\"><![CDATA[a <b>\n]]]></param>"
       "<param name=\"i\">5</param></function><function name=\"g\"></function>",
       "RHm.\nCok\n<f\na{\"s\": \"a <b>\\n]\", \"i\": 5}\n>\n<g\na{}\n>\n"},
      {kMiniCpm,
       "<function name=\"f\"><param name=\"s\"><![CDA</param><param name=\"e\"></param></function>",
       "<f\na{\"s\": \"<![CDA\", \"e\": \"\"}\n>\n"},
      {kMiniCpm, "<function name=\"f\"><param name=\"s\"><![CDATA[cut",
       "<f\na{\"s\": \"cut\"}\n>\n"},
  });
}

TEST(ReplyTest, MiniMax3Calls) {
  Check({
      {kMiniMax3, "</mm:think>Hello", "CHello\n"},
      {kMiniMax3,
       "<mm:think>Hm.</mm:think>ok]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">"
       "]<]minimax[>[<s>a\n<b> ]<]minimax[>[ ]<]minimax[>[</s>]<]minimax[>[<i>5]<]minimax[>[</i>"
       "]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"g\">]<]minimax[>[</invoke>\n"
       "]<]minimax[>[</tool_call>",
       "RHm.\nCok\n<f\na{\"s\": \"a\\n<b> ]<]minimax[>[ \", \"i\": 5}\n>\n<g\na{}\n>\n"},
      // Objects and lists are elements; an unknown part is a string.
      {kMiniMax3,
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">"
       "]<]minimax[>[<o>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</o>"
       "]<]minimax[>[<l>]<]minimax[>[<item>]<]minimax[>[<k>x]<]minimax[>[</k>]<]minimax[>[</item>"
       "]<]minimax[>[<item>2]<]minimax[>[</item>]<]minimax[>[</l>"
       "]<]minimax[>[<l>]<]minimax[>[</l>]<]minimax[>[<o>{\"a\": 1}]<]minimax[>[</o>"
       "]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
       "<f\na{\"o\": {\"item\": \"1\"}, \"l\": [{\"k\": \"x\"}, \"2\"], \"l\": [], "
       "\"o\": {\"a\": 1}}\n>\n"},
      {kMiniMax3, "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<s>cut",
       "<f\na{\"s\": \"cut\"}\n>\n"},
      {kMiniMax3, "]<]minimax[>[<invoke name=\"f\">no tag",
       "C]<]minimax[>[<invoke name=\"f\">no tag\n"},
  });
}

TEST(ReplyTest, Kimi3Calls) {
  const std::string call =
      "<|open|>call tool=\"f\" index=\"1\"<|sep|>"
      "<|open|>argument key=\"s\" type=\"string\"<|sep|>5 <|open|>\n<|close|>argument<|sep|>"
      "<|open|>argument key=\"i\" type=\"number\"<|sep|>5<|close|>argument<|sep|>"
      "<|open|>argument key=\"o\" type=\"object\"<|sep|>{\"a\": [1]}<|close|>argument<|sep|>"
      "<|close|>call<|sep|>";
  const std::string called = "<f\na{\"s\": \"5 <|open|>\\n\", \"i\": 5, \"o\": {\"a\": [1]}}\n>\n";
  const std::string answer = "<|open|>response<|sep|>ok<|close|>response<|sep|>";
  Check({
      {kKimi3, "<|open|>think<|sep|>Hm.<|close|>think<|sep|>" + answer + "<|close|>message<|sep|>",
       "RHm.\nCok\n"},
      {kKimi3,
       answer + "<|open|>tools<|sep|>" + call +
           "<|open|>call tool=\"g\" index=\"2\"<|sep|><|close|>call<|sep|>"
           "<|close|>tools<|sep|><|close|>message<|sep|>",
       "Cok\n" + called + "<g\na{}\n>\n"},
      {kKimi3, "<|open|>response<|sep|><|close|>response<|sep|>" + call, called},
      {kKimi3, "<|open|>call tool=\"f\"<|sep|>", "C<|open|>call tool=\"f\"<|sep|>\n"},
  });
  Check({{kKimi3, "Hm.<|close|>think<|sep|>" + answer, "RHm.\nCok\n"}}, {.open = true});
}

TEST(ReplyTest, LlamaCalls) {
  Check({
      {kLlama, "{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}", "<f\na{\"s\": \"x\"}\n>\n"},
      {kLlama, "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
       "<f\na{}\n>\n"},
      {kLlama, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
       "<f\na{}\n>\n<g\na{}\n>\n"},
      {kLlama, "{\"name\": \"Bob\", \"age\": 5}", "C{\"name\": \"Bob\", \"age\": 5}\n"},
      {kLlama, "So: {\"name\": \"f\", \"parameters\": {}}",
       "CSo: {\"name\": \"f\", \"parameters\": {}}\n"},
      {kLlama, "{}", "C{}\n"},
      {kLlama, "<|python_tag|>print(1)", "C<|python_tag|>print(1)\n"},
  });
}

TEST(ReplyTest, MistralCalls) {
  Check({
      {kMistral,
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc\"}, {\"name\": "
       "\"g\", \"arguments\": {}}]",
       "<f\na{\"a\": 1}\n>\n<g\na{}\n>\n"},
      {kMistral, "x [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
       "Cx\n<f\na{\"a\": 1}\n>\n<g #123456789\na{}\n>\n"},
      {kMistral, "[TOOL_CALLS]f{\"a\": \"b\"}", "<f\na{\"a\": \"b\"}\n>\n"},
      {kMistral, "[TOOL_CALLS]f[OTHER]{}", "C[TOOL_CALLS]f[OTHER]{}\n"},
      {kMistral, "[TOOL_CALLS] and so on", "C[TOOL_CALLS] and so on\n"},
  });
}

TEST(ReplyTest, GemmaCalls) {
  Check({
      {kGemma,
       "<|tool_call>call:f{city:<|\"|>Zü<|\"x\"rich<|\"|>,n:3,l:[1,<|\"|>a<|\"|>],o:{k:true,<|\"|>"
       "q:<|\"|>:null}}<tool_call|>",
       "<f\na{\"city\": \"Zü<|\\\"x\\\"rich\", \"n\": 3, \"l\": [1, \"a\"], \"o\": {\"k\": true, "
       "\"q:\": null}}\n>\n"},
      {kGemma, "Hm. <|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:<|\"|><|\"|>}<tool_call|>",
       "CHm.\n<f\na{}\n>\n<g\na{\"a\": \"\"}\n>\n"},
      {kGemma, "<|tool_call>call:f{a:b}<tool_call|>", "C<|tool_call>call:f{a:b}<tool_call|>\n"},
      {kGemma, "<|tool_call>call:f{a:<|\"|>cut <|\"", "<f\na{\"a\": \"cut \"}\n>\nC<|\"\n"},
  });
}

TEST(ReplyTest, PythonCalls) {
  Check({
      {kLfm,
       "<|tool_call_start|>[f(a=1, b='it\\'s', c=[True, None, -2.5], d={\"k\": (1,)}), "
       "g()]<|tool_call_end|>Done",
       "<f\na{\"a\": 1, \"b\": \"it's\", \"c\": [true, null, -2.5], \"d\": {\"k\": "
       "[1]}}\n>\n<g\na{}\n>\nCDone\n"},
      {kLfm, "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>",
       "<f\na{\"a\": 1}\n>\n"},
      {kLfm, "<|tool_call_start|>[f(a=\"\\u00e9\\x41\\n\\q\")]",
       "<f\na{\"a\": \"éA\\n\\\\q\"}\n>\n"},
      {kLfm, "<|tool_call_start|>[f(1)]<|tool_call_end|>",
       "C<|tool_call_start|>[f(1)]<|tool_call_end|>\n"},
      {kLfm, "<|tool_call_start|>[f(a=x)]", "C<|tool_call_start|>[f(a=x)]\n"},
  });
}

TEST(ReplyTest, DeepSeekCalls) {
  Check({
      {kDeepSeek,
       "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Cok\n<f\na{\"a\": 1}\n>\n<g\na{}\n>\n"},
      {kDeepSeek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
       "1}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<f\na{\"a\": 1}\n>\n<g\na{}\n>\n"},
      {kDeepSeek, "<｜tool▁calls▁begin｜>oops", "C<｜tool▁calls▁begin｜>oops\n"},
  });
}

TEST(ReplyTest, DeepSeekTaggedCalls) {
  Check({
      {kDsml,
       "So.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
       "<｜DSML｜parameter name=\"i\" string=\"true\">5</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"s\" string=\"true\">\nline\n</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"zzz\" string=\"false\">[1, {\"a\": null}]</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "CSo.\n<f\na{\"i\": \"5\", \"s\": \"\\nline\\n\", \"zzz\": [1, {\"a\": null}]}\n>\n"
       "<g\na{}\n>\n"},
      // Without the mark the schema decides; text that is not JSON is a string.
      {kDsml,
       "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"i\">5</｜DSML｜parameter>"
       "<｜DSML｜parameter name=\"s\" string=\"false\">so</｜DSML｜parameter></｜DSML｜invoke>",
       "<f\na{\"i\": 5, \"s\": \"so\"}\n>\n"},
      {kOlderDsml,
       "hm</think><｜DSML｜function_calls><｜DSML｜invoke name=\"g\"></｜DSML｜invoke>"
       "</｜DSML｜function_calls>",
       "Chm</think>\n<g\na{}\n>\n"},
      {kDsml, "<｜DSML｜tool_calls>oops", "C<｜DSML｜tool_calls>oops\n"},
      {kDsml, "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"s\" string=\"maybe not\">",
       "C<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"s\" string=\"maybe not\">\n"},
  });
}

TEST(ReplyTest, GlmCalls) {
  Check({
      {kGlm,
       "<think>hm</think>\nLet me see.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Zürich\n"
       "</arg_value>\n<arg_key>i</arg_key>\n<arg_value>5</arg_value>\n</tool_call>\n"
       "<tool_call>g\n</tool_call>",
       "Rhm\nCLet me see.\n<f\na{\"s\": \"Zürich\\n\", \"i\": 5}\n>\n<g\na{}\n>\n"},
      {kGlm,
       "<tool_call>f<arg_key>o</arg_key><arg_value>{\"k\": [1]}</arg_value><arg_key>zzz</arg_key>"
       "<arg_value>5</arg_value></tool_call>",
       "<f\na{\"o\": {\"k\": [1]}, \"zzz\": \"5\"}\n>\n"},
      {kGlm, "<tool_call>f<arg_key>s</arg_key><arg_value>cut", "<f\na{\"s\": \"cut\"}\n>\n"},
      {kGlm, "<tool_call> f</tool_call>", "C<tool_call> f</tool_call>\n"},
      {kGlm, "<tool_call>f is a function", "C<tool_call>f is a function\n"},
  });
}

TEST(ReplyTest, KimiCalls) {
  Check({
      {kKimi,
       "ok<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "Cok\n<f #functions.f:0\na{\"a\": 1}\n>\n<g #functions.g:1\na{}\n>\n"},
      {kKimi, "<|tool_call_begin|> f <|tool_call_argument_begin|> {\"a\": 1}",
       "<f #f\na{\"a\": 1}\n>\n"},
      {kKimi, "<|tool_calls_section_begin|>oops", "C<|tool_calls_section_begin|>oops\n"},
      {kKimi, "<|tool_call_begin|>:0<|tool_call_argument_begin|>{}",
       "C<|tool_call_begin|>:0<|tool_call_argument_begin|>{}\n"},
  });
}

TEST(ReplyTest, CommandRCalls) {
  Check({
      {kCommandR,
       "Plan: look.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n"
       "        \"parameters\": {\"a\": 1}\n    },\n {\"tool_name\": \"g\", \"parameters\": {}}"
       "\n]```\n",
       "CPlan: look.\n<f\na{\"a\": 1}\n>\n<g\na{}\n>\n"},
      {kCommandR, "My Action: run.", "CMy Action: run.\n"},
      {kCommandR, "Action: ```json\n[1]```", "CAction: ```json\n[1]```\n"},
      {kCommandR7b,
       "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
       "\"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
       "Rhm\n<f\na{\"a\": 1}\n>\n"},
      {kCommandR7b, "<|START_RESPONSE|>Hello <b>.<|END_RESPONSE|>", "CHello <b>.\n"},
  });
}

TEST(ReplyTest, HarmonyMessages) {
  Check({
      {kHarmony,
       "<|channel|>analysis<|message|>hm <b><|end|><|start|>assistant<|channel|>final<|message|>Hi",
       "Rhm <b>\nCHi\n"},
      {kHarmony,
       "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f "
       "<|constrain|>json<|message|>{\"a\": 1}",
       "Rhm\n<f\na{\"a\": 1}\n>\n"},
      {kHarmony,
       " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|><|start|>assistant"
       "<|channel|>commentary<|message|>One more.<|end|><|start|>assistant to=functions.g"
       "<|channel|>commentary<|message|>{}<|call|>",
       "<f\na{\"a\": 1}\n>\nCOne more.\n<g\na{}\n>\n"},
      {kHarmony, "<|channel|>commentary to=functions.f<|message|>oops<|call|>",
       "C<|channel|>commentary to=functions.f<|message|>oops<|call|>\n"},
      {kHarmony, "<|channel|>final", "C<|channel|>final\n"},
      {kHarmony, "assist", "Cassist\n"},
  });
  EXPECT_EQ(
      Reply(
          kHarmony,
          "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi",
          {.separate = false}),
      "C<|channel|>analysis<|message|>hm<|end|>Hi\n");
}

// Arguments are emitted while the model writes them, not at the end.
TEST(ReplyTest, ArgumentsStream) {
  const auto parser = NewParser(kHermes, {});
  EXPECT_TRUE(parser->Push("<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": ").empty());
  const auto begun = parser->Push("\"ab");
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0].kind, ReplyDelta::Kind::kCallBegin);
  EXPECT_EQ(begun[1].text, "{\"s\": \"ab");
  const auto more = parser->Push("cd");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].text, "cd");
  EXPECT_EQ(parser->Push("\"}").back().kind, ReplyDelta::Kind::kCallEnd);
}

// A reply that was cut: nothing of an incomplete call is text, and no call is completed.
TEST(ReplyTest, ACallThatWasCutIsNeitherTextNorWhole) {
  struct Cut {
    const char* source;
    std::string_view call;
    std::string_view arguments;
  };
  constexpr std::string_view kA = "{\"s\": \"ab\"}";
  const Cut cuts[] = {
      {kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"ab\"}}\n</tool_call>", kA},
      {kQwen,
       "<tool_call>\n<function=f>\n<parameter=s>\nab\n</parameter>\n</function>\n</tool_call>", kA},
      {kMistral, "[TOOL_CALLS]f[ARGS]{\"s\": \"ab\"}", kA},
      {kGemma, "<|tool_call>call:f{s:<|\"|>ab<|\"|>}<tool_call|>", kA},
      {kLfm, "<|tool_call_start|>[f(s=\"ab\")]<|tool_call_end|>", kA},
      {kDeepSeek, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"ab\"}<｜tool▁call▁end｜>", kA},
      {kHarmony, "<|channel|>commentary to=functions.f<|message|>{\"s\": \"ab\"}<|call|>", kA},
      {kKimi,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
       "<|tool_call_argument_begin|>{\"s\": \"ab\"}<|tool_call_end|>",
       kA},
      {kGlm, "<tool_call>f<arg_key>s</arg_key><arg_value>ab</arg_value></tool_call>", kA},
      {kLlama, "{\"name\": \"f\", \"parameters\": {\"s\": \"ab\"}}", kA},
  };
  for (const Cut& c : cuts) {
    size_t n_whole = 0;
    for (size_t n = 11; n <= c.call.size(); ++n) {
      if (n < c.call.size() && (static_cast<unsigned char>(c.call[n]) & 0xc0) == 0x80) continue;
      const auto parser = NewParser(c.source, {});
      const std::string told =
          TakenApart(parser.get(), std::array{c.call.substr(0, n)}, ReplyEnd::kCut);
      if (told.ends_with("C<\n")) continue;  // any text may begin like this
      EXPECT_EQ(told.find('C'), told.npos) << c.call.substr(0, n) << ": " << told;
      if (told.ends_with("\n>\n")) {
        ++n_whole;
        EXPECT_NE(told.find(c.arguments), told.npos) << c.call.substr(0, n) << ": " << told;
      }
    }
    EXPECT_GT(n_whole, 0u) << c.call;
  }
  // Text that is no call stays.
  for (const char* source : {kHermes, kLlama, kHarmony}) {
    const std::string_view text = "Is {\"x\": 1} < 2";
    EXPECT_EQ(TakenApart(NewParser(source, {}).get(), std::array{text}, ReplyEnd::kCut),
              StrCat("C", text, "\n"));
  }
  const std::string_view json = "{\"name\": \"Bob\", \"age\": 4";
  EXPECT_EQ(TakenApart(NewParser(kLlama, {}).get(), std::array{json}, ReplyEnd::kCut),
            StrCat("C", json, "\n"));
}

TEST(ReplyTest, CallsAtTheEndOfAThoughtThatIsNotEnded) {
  constexpr std::string_view kCall =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": 1}}</tool_call>";
  const std::string call(kCall);
  const std::string told = "<f\na{\"i\": 1}\n>\n";
  Check({{kHermes, "<think>Hm, " + call, "RHm, \n" + told},
         {kHermes, "<think>Hm.\n" + call + "\n" + call + "\n", "RHm.\n\n" + told + told},
         {kQwen,
          "<think><tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</function>\n</"
          "tool_call>",
          "<f\na{\"i\": 1}\n>\n"},
         // The model considers a call.
         {kHermes, "<think>" + call + " or not?</think>No.", "R" + call + " or not?\nCNo.\n"},
         {kHermes, "<think>" + call + "</think>No.", "R" + call + "\nCNo.\n"},
         {kHermes, "<think>" + call + " or not?", "R" + call + " or not?\n"},
         {kHermes, "<think>a <tool_call> is JSON", "Ra <tool_call> is JSON\n"},
         // Not offered; not complete.
         {kHermes, "<think><tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
          "R<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>\n"},
         {kHermes, "<think>" + call.substr(0, 40), "R" + call.substr(0, 40) + "\n"},
         // The next call is of the answer.
         {kHermes, "<think>x</think>" + call, "Rx\n" + told}});
  Check({{kHermes, "x " + call, "Rx \n" + told}}, {.open = true});
  Check({{kHermes, "x " + call, "Rx " + call + "\n"}}, {.tools = false, .open = true});
}

// Neither unfinished markup nor white space is held without limit.
TEST(ReplyTest, HoldsLittle) {
  const auto parser = NewParser(kHermes, {});
  std::string given;
  const auto take = [&](const std::vector<ReplyDelta>& deltas) {
    for (const ReplyDelta& delta : deltas) given += delta.text;
  };
  const std::string head = "<tool_call>{\"name\": \"";
  take(parser->Push(head));
  const std::string name(size_t{3} << 20, 'x');
  take(parser->Push(name));
  EXPECT_GT(given.size(), size_t{2} << 20);
  const std::string space(100000, '\n');
  take(parser->Push(space));
  EXPECT_GT(given.size(), name.size() + 90000);
  take(parser->Finish(ReplyEnd::kWhole));
  EXPECT_EQ(given, head + name + space);
}

TEST(ReplyTest, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(Reply(kHermes, "a\xFF\xC3"), "Ca\uFFFD\uFFFD\n");
  EXPECT_EQ(
      Reply(kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\xE2\x82\"}}</tool_call>"),
      "<f\na{\"a\":\"\uFFFD\uFFFD\"}\n>\n");
}

}  // namespace
}  // namespace weft
