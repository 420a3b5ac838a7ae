// What constrained calls cost: call_bench MODEL.gguf [REQUEST.json [TOOLS]]
//
// With the tools of a chat request (the first TOOLS of them), or some of its own: compiling, and
// masks in free text and in calls, the first time and when all is known.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "answer/chat/chat_format.h"
#include "answer/chat/openai_form.h"
#include "constraint/constraint.h"
#include "engine/loading/token_table_of.h"
#include "model/formats/model_file.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double MicrosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

constexpr char kTools[] = R"([{"type": "function", "function": {"name": "write_file",
  "parameters": {"type": "object", "properties": {"path": {"type": "string"},
    "content": {"type": "string"}, "mode": {"enum": ["new", "append"]}, "line": {"type":
    "integer"}}, "required": ["path", "content"]}}}])";

void Print(const char* name, std::vector<double> values) {
  if (values.empty()) return;
  std::ranges::sort(values);
  double sum = 0;
  for (const double value : values) sum += value;
  std::printf("%-22s %6zu  average %8.1f  median %8.1f  p99 %8.1f  largest %10.1f us\n", name,
              values.size(), sum / static_cast<double>(values.size()), values[values.size() / 2],
              values[values.size() * 99 / 100], values.back());
}

// Whether all of the text was taken.
bool Walk(const constraint::Constraint& constraint, const Tokenizer& tokenizer,
          const std::string& text, std::vector<double>* times) {
  constraint::ConstraintState state = constraint.Begin();
  std::vector<uint32_t> mask(constraint.tokens().mask_words());
  for (const TokenId token : tokenizer.Encode(text, {.parse_special = true})) {
    const auto begin = Clock::now();
    state.FillMask(mask);
    times->push_back(MicrosSince(begin));
    if (!state.Advance(token)) {
      std::printf("not allowed: token %d behind %s\n", token, state.text().c_str());
      return false;
    }
  }
  return true;
}

Status Run(int argc, char** argv) {
  WEFT_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(argv[1]));
  WEFT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(*file));
  WEFT_ASSIGN_OR_RETURN(const auto source, file->GetStringOr("tokenizer.chat_template", ""));
  WEFT_ASSIGN_OR_RETURN(const auto format, ChatFormat::Create(std::string(source), tokenizer));
  Json offered = Json::parse(kTools);
  if (argc > 2) {
    std::ifstream in(argv[2]);
    const Json request = Json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (!request.contains("tools")) return InvalidArgument("the request has no tools");
    offered = request["tools"];
  }
  WEFT_ASSIGN_OR_RETURN(ToolList tools, ReadOpenAiTools(offered));
  if (argc > 3) tools.resize(std::min(tools.size(), static_cast<size_t>(std::atoi(argv[3]))));
  auto begin = Clock::now();
  const auto table = TokenTableOf(*tokenizer);
  std::printf("%s, %zu tools; table of %d tokens: %.1f ms\n",
              std::string(format->reply_format()).c_str(), tools.size(), table->size(),
              MicrosSince(begin) / 1000);
  for (const auto choice : {CallPolicy::Choice::kAuto, CallPolicy::Choice::kRequired}) {
    const bool automatic = choice == CallPolicy::Choice::kAuto;
    begin = Clock::now();
    WEFT_ASSIGN_OR_RETURN(const CallStructure calls, format->CallsOf(tools, {.choice = choice}));
    WEFT_ASSIGN_OR_RETURN(const auto constraint, constraint::Constraint::Structured(
                                                     calls.structure, calls.options, table));
    std::printf("%s: compiled in %.1f ms\n", automatic ? "auto" : "required",
                MicrosSince(begin) / 1000);
    std::vector<double> first, again;
    if (automatic) {
      const std::string text =
          "The file <b>main.cc</b> has a bug: it reads `x < 0` where \"x <= 0\" was meant.\n\n"
          "```cpp\nif (x <= 0) return {};\n```\nI shall mend it now. Größe: 5 µm, 大丈夫です。\n";
      Walk(*constraint, *tokenizer, text, &first);
      for (int i = 0; i < 100; ++i) Walk(*constraint, *tokenizer, text, &again);
      Print("free text, first", first);
      Print("free text, again", again);
      continue;
    }
    if (argc > 2) continue;
    ChatRequest request;
    request.add_generation_prompt = false;
    request.conversation.messages = {
        {.parts = {"the-user-asks"}},
        {.role = Role::kAssistant,
         .calls = {{.id = "abc123def",
                    .name = "write_file",
                    .arguments = {{"path", "src/main.cc"},
                                  {"content",
                                   "#include <cstdio>\n\nint main() {\n  "
                                   "std::puts(\"Hello, <world>\");\n}\n"},
                                  {"line", 12}}}}}};
    WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, format->Render(request));
    const size_t open = prompt.text.find("<tool_call>", prompt.text.rfind("the-user-asks"));
    if (open == prompt.text.npos) continue;
    const size_t close = prompt.text.find("</tool_call>", open);
    const std::string text = prompt.text.substr(open, close + 12 - open);
    Walk(*constraint, *tokenizer, text, &first);
    for (int i = 0; i < 100; ++i) Walk(*constraint, *tokenizer, text, &again);
    Print("a call, first", first);
    Print("a call, again", again);
  }
  return OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("call_bench MODEL.gguf [REQUEST.json [TOOLS]]: nothing to measure\n");
    return 0;
  }
  const weft::Status done = weft::Run(argc, argv);
  if (!done.ok()) std::fprintf(stderr, "%s\n", std::string(done.message()).c_str());
  return done.ok() ? 0 : 1;
}
