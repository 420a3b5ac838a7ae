#include "chat/chat_format.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/strings.h"
#include "chat/builtin_templates.h"
#include "chat/call_text.h"
#include "chat/chat_messages.h"
#include "chat/template_traits.h"
#include "chat/template_variables.h"
#include "reply/syntax.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Appended temporarily to a text that is to be continued, to find its end in the rendered text.
// Letters and digits, which no template trims or escapes.
constexpr char kGoesOnHere[] = "WeftGoesOnHere5d1f0c7e";

bool HasTools(const Json& tools) { return tools.is_array() && !tools.empty(); }

bool HasText(const Json& message, const char* key) {
  const auto it = message.find(key);
  return it != message.end() && !ContentText(*it).empty();
}

// Whether reasoning is still open at the end of `text`.
bool EndsInReasoning(std::string_view text, const ReasoningMarkers& markers) {
  const size_t open = text.rfind(markers.open);
  return open != std::string_view::npos && text.find(markers.close, open) == std::string_view::npos;
}

class ChatFormatImpl final : public ChatFormat {
 public:
  ChatFormatImpl(std::shared_ptr<const ChatTemplate> chat_template, std::string bos,
                 std::string eos, std::shared_ptr<const Tokenizer> tokenizer)
      : template_(std::move(chat_template)),
        bos_(std::move(bos)),
        eos_(std::move(eos)),
        syntax_(std::make_shared<const ReplySyntax>(RecognizeReplySyntax(template_->source()))),
        traits_(ProbeTemplate(*template_, *syntax_, bos_, eos_)),
        tokenizer_(std::move(tokenizer)) {
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->IsControl(id) && !tokenizer_->IsEndOfGeneration(id)) control_.push_back(id);
    }
    const std::vector<std::string_view> markers = MarkersOf(*syntax_);
    markers_ = ControlTokensIn({markers.begin(), markers.end()});
    // A harmony reply has several messages, each with an end.
    if (syntax_->form != CallForm::kHarmony) FindEnd();
  }

  StatusOr<ChatPrompt> Render(const ChatRequest& request) const override {
    WEFT_RETURN_IF_ERROR(CheckMessages(request.messages));
    WEFT_RETURN_IF_ERROR(CheckTools(request.tools));
    return request.continuation == Continuation::kNone ? RenderWhole(request)
                                                       : RenderContinued(request);
  }

  std::unique_ptr<ReplyParser> NewReplyParser(const ChatPrompt& prompt,
                                              const ReplyOptions& options) const override {
    return MakeReplyParser(syntax_, ParameterTypes(prompt.tools), options,
                           prompt.reasoning_is_open);
  }

  ControlTokens ControlTokensFor(const std::vector<std::string>& stop_strings) const override {
    ControlTokens tokens = markers_;
    ControlTokens in_stops = ControlTokensIn(stop_strings);
    std::move(in_stops.ids.begin(), in_stops.ids.end(), std::back_inserter(tokens.ids));
    std::move(in_stops.texts.begin(), in_stops.texts.end(), std::back_inserter(tokens.texts));
    return tokens;
  }

  StatusOr<CallStructure> CallsOf(const Json& tools, const CallPolicy& policy) const override {
    WEFT_RETURN_IF_ERROR(CheckTools(tools));
    const std::string example = TwoCalls();
    CallWriting writing{.syntax = *syntax_, .example = example};
    for (size_t i = 0; i < markers_.ids.size(); ++i) {
      writing.controls.emplace_back(markers_.ids[i], markers_.texts[i]);
    }
    return MakeCallStructure(writing, tools, policy);
  }

  const AnswerEnds& ends() const override { return ends_; }
  const ChatTemplate& chat_template() const override { return *template_; }
  std::string_view reply_format() const override { return syntax_->name; }
  int call_id_length() const override { return syntax_->call_id_length; }
  bool template_has_tools() const override { return traits_.tools; }
  bool has_reasoning() const override {
    return syntax_->reasoning.has_value() || syntax_->form == CallForm::kHarmony;
  }

  ThoughtMarks thought_marks() const override {
    if (syntax_->reasoning) {
      const std::string close(syntax_->reasoning->close);
      return {.open = std::string(syntax_->reasoning->open), .close = close, .answer = close};
    }
    return {.open = "<|channel|>analysis<|message|>",
            .close = "<|end|>",
            .answer = "<|end|><|start|>assistant<|channel|>final<|message|>"};
  }

 private:
  // REQUIRES: messages and tools have been checked.
  StatusOr<ChatPrompt> RenderWhole(const ChatRequest& request) const;
  StatusOr<ChatPrompt> RenderContinued(const ChatRequest& request) const;
  Status AddSystemMessages(const ChatRequest& whole, std::string* text) const;
  ControlTokens ControlTokensIn(const std::vector<std::string>& texts) const;
  void FindEnd();
  // Example calls as the model writes them.
  std::string TwoCalls() const;
  // The longest token of `ids` whose text is a prefix of `text`.
  TokenId TokenAt(std::string_view text, const std::vector<TokenId>& ids) const;
  // Whether the prompt opens reasoning that the reply continues.
  bool OpensReasoning(std::string_view prompt) const {
    if (!syntax_->reasoning) return false;
    const std::string_view open = syntax_->reasoning->open;
    const size_t at = prompt.rfind(open);
    return at != std::string_view::npos &&
           prompt.find_first_not_of(" \t\r\n", at + open.size()) == std::string_view::npos;
  }

  const std::shared_ptr<const ChatTemplate> template_;
  const std::string bos_, eos_;
  const std::shared_ptr<const ReplySyntax> syntax_;
  const TemplateTraits traits_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TokenId> control_;  // all control tokens, except those that end a reply
  ControlTokens markers_;
  AnswerEnds ends_;
};

TokenId ChatFormatImpl::TokenAt(std::string_view text, const std::vector<TokenId>& ids) const {
  TokenId found = kNoToken;
  size_t length = 0;
  for (const TokenId id : ids) {
    const std::string piece = tokenizer_->Piece(id, /*render_special=*/true);
    if (piece.size() <= length || !text.starts_with(piece)) continue;
    found = id;
    length = piece.size();
  }
  return found;
}

std::string ChatFormatImpl::TwoCalls() const {
  // Calls in a form that no reader understands are no use as examples.
  const bool readable = syntax_->bare_calls || syntax_->opens.empty() ||
                        traits_.two_calls.find(syntax_->opens[0]) != std::string::npos;
  if (!traits_.two_calls.empty() && readable) return traits_.two_calls;
  Json calls = Json::array();
  for (const char* const name : {kProbedTool, kProbedOther}) {
    const Json call = {{"function", {{"name", name}, {"arguments", {{kProbedKey, kProbedValue}}}}}};
    calls.push_back(call);
  }
  return CallsText(calls, *syntax_);
}

void ChatFormatImpl::FindEnd() {
  constexpr size_t kLeastBytes = 4;  // shorter texts would occur in any answer
  const std::string_view text = traits_.after_answer;
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return;
  const std::vector<TokenId>& ends = tokenizer_->EndsOfGeneration();
  if (TokenAt(text.substr(begin), ends) != kNoToken) return;
  if (const TokenId id = TokenAt(text.substr(begin), control_); id != kNoToken) {
    ends_.tokens.push_back(id);
    return;
  }
  // The rest of its line, as far as that is text.
  size_t end = begin;
  while (end < text.size() && text[end] != '\n' && TokenAt(text.substr(end), ends) == kNoToken &&
         TokenAt(text.substr(end), control_) == kNoToken) {
    ++end;
  }
  std::string stop(text.substr(begin, end - begin));
  stop.erase(stop.find_last_not_of(" \t\r") + 1);
  if (stop.size() < kLeastBytes) return;
  // The same words in the middle of a line do not end the answer.
  if (text.substr(0, begin).find('\n') != text.npos) stop.insert(0, "\n");
  ends_.texts.push_back(std::move(stop));
}

// The control tokens that are part of one of the texts.
ChatFormat::ControlTokens ChatFormatImpl::ControlTokensIn(
    const std::vector<std::string>& texts) const {
  ControlTokens found;
  if (texts.empty()) return found;
  for (const TokenId id : control_) {
    std::string piece = tokenizer_->Piece(id, /*render_special=*/true);
    if (piece.empty()) continue;
    const bool is_in = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return text.find(piece) != std::string::npos;
    });
    if (!is_in) continue;
    found.ids.push_back(id);
    found.texts.push_back(std::move(piece));
  }
  return found;
}

StatusOr<ChatPrompt> ChatFormatImpl::RenderWhole(const ChatRequest& request) const {
  Json context = request.variables.is_object() ? request.variables : Json::object();
  context["messages"] = ShapeMessages(request.messages, request.tools, traits_, *syntax_);
  const bool shows_tools = HasTools(request.tools) && traits_.tools;
  context.erase("tools");
  if (shows_tools || !traits_.omits_no_tools) {
    context["tools"] = shows_tools ? request.tools : Json(nullptr);
  }
  context["add_generation_prompt"] = request.add_generation_prompt;
  context["bos_token"] = bos_;
  context["eos_token"] = eos_;
  if (!context.contains("documents")) context["documents"] = nullptr;
  static const Json kNone;
  AddTemplateVariables(*template_, HasTools(request.tools) ? request.tools : kNone,
                       WallClock(request.render), &context);
  ChatPrompt prompt;
  WEFT_ASSIGN_OR_RETURN(prompt.text, template_->Render(context, request.render));
  prompt.reasoning_is_open = request.add_generation_prompt && OpensReasoning(prompt.text);
  if (HasTools(request.tools)) prompt.tools = request.tools;
  return prompt;
}

// Renders the conversation as if the last message were complete, then cuts it where that message's
// text ends.
StatusOr<ChatPrompt> ChatFormatImpl::RenderContinued(const ChatRequest& request) const {
  ChatRequest whole = request;
  whole.add_generation_prompt = false;
  Json& last = whole.messages.back();
  const std::string place = StrCat("messages[", whole.messages.size() - 1, "]");
  if (last["role"] != "assistant") {
    return InvalidArgument(place, ".role: only a message of role 'assistant' can be continued");
  }
  if (const auto calls = last.find("tool_calls"); calls != last.end() && !calls->empty()) {
    return InvalidArgument(place, ".tool_calls: a message with calls is complete; answer them");
  }
  bool in_reasoning = request.continuation == Continuation::kReasoning;
  if (in_reasoning && HasText(last, "content")) {
    return InvalidArgument(place, ".content: reasoning that is followed by content is complete");
  }
  if (request.continuation == Continuation::kAuto) {
    in_reasoning = !HasText(last, "content") && !ReasoningText(last).empty();
  }
  if (in_reasoning) {
    if (!syntax_->reasoning) {
      return InvalidArgument(place, ".content: with this model only content can be continued");
    }
    std::string begun = ReasoningText(last);
    EraseReasoning(&last);
    last["reasoning_content"] = StrCat(begun, kGoesOnHere);
  } else {
    const std::string said = last.contains("content") ? ContentText(last["content"]) : "";
    in_reasoning = syntax_->reasoning && EndsInReasoning(said, *syntax_->reasoning);
    last["content"] = StrCat(said, kGoesOnHere);
  }
  WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, RenderWhole(whole));
  const size_t end = prompt.text.rfind(kGoesOnHere);
  if (end == std::string::npos) {
    return InvalidArgument(place, ": the chat template does not show this text, so that it ",
                           "cannot be continued");
  }
  prompt.text.resize(end);
  if (!traits_.system_before_answer) {
    WEFT_RETURN_IF_ERROR(AddSystemMessages(whole, &prompt.text));
  }
  prompt.reasoning_is_open = in_reasoning || OpensReasoning(prompt.text);
  return prompt;
}

// If the template drops system messages once an answer has begun: takes the prompt before the
// answer and appends the answer's beginning. `text` is the rendering of all messages of `whole`.
Status ChatFormatImpl::AddSystemMessages(const ChatRequest& whole, std::string* text) const {
  ChatRequest asked = whole;
  asked.add_generation_prompt = true;
  asked.messages.erase(asked.messages.size() - 1);
  const auto is_system = [](const Json& message) {
    return message["role"] == "system" || message["role"] == "developer";
  };
  ChatRequest without = asked;
  Json& others = without.messages;
  others.erase(std::remove_if(others.begin(), others.end(), is_system), others.end());
  if (others.empty() || others.size() == asked.messages.size()) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt plain, RenderWhole(without));
  if (!text->starts_with(plain.text)) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, RenderWhole(asked));
  *text = std::move(prompt.text) + text->substr(plain.text.size());
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const ChatFormat>> ChatFormat::Create(
    std::string template_source, std::shared_ptr<const Tokenizer> tokenizer) {
  if (template_source.empty()) {
    WEFT_ASSIGN_OR_RETURN(template_source, FindBuiltinTemplate("chatml"));
  }
  auto parsed = ChatTemplate::Parse(std::move(template_source));
  if (!parsed.ok()) return parsed.status();
  const auto text = [&](TokenId id) { return tokenizer->Piece(id, /*render_special=*/true); };
  return std::make_shared<const ChatFormatImpl>(*std::move(parsed), text(tokenizer->bos()),
                                                text(tokenizer->eos()), tokenizer);
}

}  // namespace weft
