// Fuzzing of reply parsers: the input is a reply, in every format. However it is cut, it
// is taken apart into the same; and no letter of it is lost or changes its place, unless
// it is markup.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "answer/reply/reply_test_util.h"
#include "base/check.h"

namespace weft {
namespace {

constexpr std::string_view kSources[] = {
    "<tool_call> <think>",
    "<TOOLCALL>",
    "<tool_call> <function= <think>",
    "<minimax:tool_call>",
    "<|start_header_id|> <|python_tag|>",
    "[TOOL_CALLS] [THINK]",
    "<|tool_call> <|channel>thought",
    "<|tool_call_start|> <think>",
    "<｜tool▁call▁begin｜> <think>",
    "<|channel|> <|message|>",
    "<tool_call> <arg_key> <think>",
    "<|tool_calls_section_begin|> <think>",
    "Action: \"tool_name\" <|CHATBOT_TOKEN|>",
    "<|START_ACTION|> <|START_THINKING|>",
    "｜DSML｜ tool_calls> <think>",
    "generic",
};

const std::vector<std::shared_ptr<const ReplySyntax>>& Syntaxes() {
  static const auto* const syntaxes = [] {
    auto* const all = new std::vector<std::shared_ptr<const ReplySyntax>>;
    for (const std::string_view source : kSources) {
      all->push_back(std::make_shared<const ReplySyntax>(RecognizeReplySyntax(source)));
    }
    return all;
  }();
  return *syntaxes;
}

const ParameterTypes& Types() {
  static const auto* const types = [] {
    const auto parameters = nlohmann::ordered_json::parse(
        R"({"properties": {"a": {"type": "string"}, "i": {"type": "integer"}, "any": {}}})");
    auto* const filled = new ParameterTypes;
    filled->Add("f", &parameters);
    return filled;
  }();
  return *types;
}

// Letters and digits of a reply without calls, in order. Those of its markup are missing from the
// output.
std::string Letters(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) letters += c;
  }
  return letters;
}

bool IsSubsequence(std::string_view part, std::string_view of) {
  size_t at = 0;
  for (const char c : of) at += at < part.size() && part[at] == c;
  return at == part.size();
}

struct Result {
  std::string joined;  // as ReplyListener tells it
  std::string text;    // reasoning and content
  int n_calls = 0;
  bool reasoned = false;
};

Result Parse(ReplyParser* parser, const std::vector<std::string_view>& pieces) {
  ReplyListener listener;
  Result result;
  const auto take = [&](const std::vector<ReplyDelta>& deltas) {
    listener.Take(deltas);
    for (const ReplyDelta& delta : deltas) {
      result.reasoned = result.reasoned || delta.kind == ReplyDelta::Kind::kReasoning;
      if (delta.kind == ReplyDelta::Kind::kContent || delta.kind == ReplyDelta::Kind::kReasoning) {
        result.text += delta.text;
      }
    }
  };
  for (const std::string_view piece : pieces) take(parser->Push(piece));
  take(parser->Finish(ReplyEnd::kWhole));
  result.joined = listener.Finish();
  result.n_calls = listener.n_calls();
  return result;
}

void CheckSyntax(std::shared_ptr<const ReplySyntax> syntax, std::string_view text,
                 const ReplyOptions& options, bool open,
                 const std::vector<std::string_view>& pieces) {
  const auto parser = [&] { return MakeReplyParser(syntax, Types(), options, open); };
  const Result whole = Parse(parser().get(), {text});
  const Result cut = Parse(parser().get(), pieces);
  WEFT_CHECK(whole.joined == cut.joined, "the result depends on the cuts");
  WEFT_CHECK(IsSubsequence(Letters(whole.text), Letters(text)), "text was made up or reordered");
  const bool drops_markup = syntax->form == CallForm::kHarmony || !syntax->silent.empty();
  if (options.separate_reasoning || drops_markup || !options.control_tokens.empty()) return;
  // The layer over a format alone takes nothing out where it finds no call.
  if (options.tools && (!options.lenient_calls || whole.n_calls > 0)) return;
  WEFT_CHECK(Letters(whole.text) == Letters(text), "text was lost");
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t flags = data[0];
  uint32_t random = data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at < text.size();) {
    random = random * 1664525 + 1013904223;
    const size_t n = 1 + (random >> 24) % 16;
    pieces.push_back(text.substr(at, n));
    at += n;
  }
  weft::ReplyOptions options{.tools = (flags & 1) == 0,
                             .lenient_calls = (flags & 8) != 0,
                             .separate_reasoning = (flags & 2) == 0};
  if ((flags & 16) != 0) options.control_tokens = {"<|im_start|>", "<think>", "<s>"};
  const bool open = (flags & 4) != 0;
  for (const auto& syntax : weft::Syntaxes()) {
    weft::CheckSyntax(syntax, text, options, open, pieces);
  }
  return 0;
}
