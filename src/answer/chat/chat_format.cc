#include "answer/chat/chat_format.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "answer/chat/builtin_templates.h"
#include "answer/chat/call_text.h"
#include "answer/chat/conversation_view.h"
#include "answer/chat/own_prompt.h"
#include "answer/chat/template_traits.h"
#include "answer/chat/template_variables.h"
#include "answer/reply/syntax.h"
#include "base/strings.h"
#include "jinja/json_value.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Appended temporarily to a text that is to be continued, to find its end in the rendered text.
// Letters and digits, which no template trims or escapes.
constexpr char kGoesOnHere[] = "WeftGoesOnHere5d1f0c7e";

using Messages = std::vector<const ChatMessage*>;

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
    own_rules_ = RulesOfOwn();
  }

  StatusOr<ChatPrompt> Render(const ChatRequest& request) const override {
    if (request.conversation.messages.empty()) {
      return InvalidArgument("messages: there must be at least one");
    }
    Messages messages;
    for (const ChatMessage& message : request.conversation.messages) messages.push_back(&message);
    return request.own.empty() ? RenderGiven(messages, request) : RenderOwn(messages, request);
  }

  std::unique_ptr<ReplyParser> NewReplyParser(const ChatPrompt& prompt,
                                              const ReplyOptions& options) const override {
    return MakeReplyParser(syntax_, TypesOfParameters(prompt.tools), options,
                           prompt.reasoning_is_open);
  }

  ControlTokens ControlTokensFor(const std::vector<std::string>& stop_strings) const override {
    ControlTokens tokens = markers_;
    ControlTokens in_stops = ControlTokensIn(stop_strings);
    std::move(in_stops.ids.begin(), in_stops.ids.end(), std::back_inserter(tokens.ids));
    std::move(in_stops.texts.begin(), in_stops.texts.end(), std::back_inserter(tokens.texts));
    return tokens;
  }

  StatusOr<CallStructure> CallsOf(const ToolList& tools, const CallPolicy& policy) const override {
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
  std::optional<PastThoughtsVariable> past_thoughts() const override {
    return traits_.past_thoughts;
  }
  bool shows_past_thoughts() const override { return traits_.shows_past_thoughts; }

  ThoughtMarks thought_marks() const override {
    if (syntax_->reasoning) {
      const std::string close(syntax_->reasoning->close);
      return {.open = std::string(syntax_->reasoning->open), .close = close, .answer = close};
    }
    return {.open = "<|channel|>analysis<|message|>",
            .close = "<|end|>",
            .answer = "<|end|><|start|>assistant<|channel|>final<|message|>"};
  }

  std::string call_end() const override {
    // A fence or a semicolon ends other things too.
    const bool has_mark = syntax_->form != CallForm::kFenced && !syntax_->bare_calls;
    return has_mark && !syntax_->closes.empty() ? std::string(syntax_->closes.back()) : "";
  }

 private:
  // These render `messages` with everything else of `request`.
  StatusOr<ChatPrompt> RenderOwn(const Messages& messages, const ChatRequest& request) const;
  StatusOr<ChatPrompt> RenderGiven(const Messages& messages, const ChatRequest& request) const {
    return request.continuation == Continuation::kNone
               ? RenderWhole(messages, request, request.add_generation_prompt)
               : RenderContinued(messages, request);
  }
  StatusOr<ChatPrompt> RenderWhole(const Messages& messages, const ChatRequest& request,
                                   bool begins_reply) const;
  StatusOr<ChatPrompt> RenderContinued(Messages messages, const ChatRequest& request) const;
  Status AddSystemMessages(const Messages& messages, const ChatRequest& request,
                           std::string* text) const;
  void TakePictureTexts(const std::vector<std::string>& marks, std::string* text) const;
  ControlTokens ControlTokensIn(const std::vector<std::string>& texts) const;
  void FindEnd();
  OwnPromptRules RulesOfOwn() const;
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
  OwnPromptRules own_rules_;
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
  std::vector<ToolCall> calls;
  for (const char* const name : {kProbedTool, kProbedOther}) {
    calls.push_back({.name = name, .arguments = {{kProbedKey, kProbedValue}}});
  }
  return CallsText(calls, *syntax_);
}

void ChatFormatImpl::FindEnd() {
  constexpr size_t kMinBytes = 4;  // shorter texts would occur in any answer
  std::string_view text = traits_.after_answer;
  if (const auto& answer = syntax_->answer) {
    for (const std::string_view marker : {answer->close, answer->after}) {
      if (text.starts_with(marker)) text.remove_prefix(marker.size());
    }
  }
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
  if (stop.size() < kMinBytes) return;
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

OwnPromptRules ChatFormatImpl::RulesOfOwn() const {
  OwnPromptRules rules;
  const auto add = [&](const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      std::string piece = tokenizer_->Piece(id, /*render_special=*/true);
      if (!piece.empty()) rules.control_ends.push_back(std::move(piece));
    }
  };
  add(tokenizer_->EndsOfGeneration());
  add(ends_.tokens);
  rules.ends = rules.control_ends;
  rules.ends.insert(rules.ends.end(), ends_.texts.begin(), ends_.texts.end());
  // What a reply ends with is written otherwise in later prompts.
  if (syntax_->form == CallForm::kHarmony) rules.ends.emplace_back("<|end|>");
  if (syntax_->reasoning) {
    rules.open = syntax_->reasoning->open;
    rules.close = syntax_->reasoning->close;
  }
  return rules;
}

StatusOr<ChatPrompt> ChatFormatImpl::RenderOwn(const Messages& messages,
                                               const ChatRequest& request) const {
  OwnPromptRules rules = own_rules_;
  rules.keep_hidden_reasoning = request.keep_hidden_reasoning;
  const size_t n_fixed = request.continuation == Continuation::kNone ? 0 : 1;
  OwnPrompt own(messages, request.own, n_fixed, std::move(rules));
  while (own.has_marks()) {
    auto prompt = RenderGiven(own.messages(), request);
    if (!prompt.ok()) {
      own.DropMarks();
    } else if (own.Place(&prompt->text, &prompt->own)) {
      return prompt;
    }
  }
  return RenderGiven(own.messages(), request);
}

StatusOr<ChatPrompt> ChatFormatImpl::RenderWhole(const Messages& messages,
                                                 const ChatRequest& request,
                                                 bool begins_reply) const {
  const ToolList& tools = request.conversation.tools;
  const ConversationView view(messages, tools, traits_, *syntax_, request.pictures);
  Json missing = MissingVariables(*template_, request.variables, tools, WallClock(request.render));
  if (const auto& past = traits_.past_thoughts; past && !request.variables.contains(past->name)) {
    missing[past->name] = past->ValueFor(request.past_thoughts);
  }
  const auto add = [&](jinja::DictObject* variables, jinja::Meter* meter) {
    const auto set = [&](const char* name, jinja::Value value) {
      variables->Set(jinja::Value::Borrowed(name), std::move(value), meter);
    };
    SetMembers(missing, /*depth=*/0, meter, variables);
    view.AddTo(variables, meter);
    set("add_generation_prompt", jinja::Value::Bool(begins_reply));
    set("bos_token", jinja::Value::Borrowed(bos_));
    set("eos_token", jinja::Value::Borrowed(eos_));
  };
  ChatPrompt prompt{.tools = tools};
  WEFT_ASSIGN_OR_RETURN(prompt.text, template_->Render(request.variables, request.render, add));
  TakePictureTexts(request.pictures, &prompt.text);
  prompt.reasoning_is_open = begins_reply && OpensReasoning(prompt.text);
  return prompt;
}

// Replaces the template's own texts for pictures with the pictures' marks.
void ChatFormatImpl::TakePictureTexts(const std::vector<std::string>& marks,
                                      std::string* text) const {
  const std::string& picture = traits_.picture;
  for (const std::string& mark : marks) {
    const size_t at = text->find(mark);
    if (picture.empty() || at == text->npos || at < picture.size()) continue;
    const size_t begin = at - picture.size();
    if (text->compare(begin, picture.size(), picture) == 0) text->erase(begin, picture.size());
  }
}

// Renders the conversation as if the last message were complete, then cuts it where that message's
// text ends.
StatusOr<ChatPrompt> ChatFormatImpl::RenderContinued(Messages messages,
                                                     const ChatRequest& request) const {
  ChatMessage last = *messages.back();
  const std::string place = StrCat("messages[", messages.size() - 1, "]");
  if (last.role != Role::kAssistant) {
    return InvalidArgument(place, ".role: only a message of role 'assistant' can be continued");
  }
  if (!last.calls.empty()) {
    return InvalidArgument(place, ".tool_calls: a message with calls is complete; answer them");
  }
  std::string said = TextOf(last);
  bool in_reasoning = request.continuation == Continuation::kReasoning;
  if (in_reasoning && !said.empty()) {
    return InvalidArgument(place, ".content: reasoning that is followed by content is complete");
  }
  if (request.continuation == Continuation::kAuto) {
    in_reasoning = said.empty() && !last.reasoning.empty();
  }
  if (in_reasoning) {
    if (!syntax_->reasoning) {
      return InvalidArgument(place, ".content: with this model only content can be continued");
    }
    last.reasoning += kGoesOnHere;
  } else {
    in_reasoning = syntax_->reasoning && EndsInReasoning(said, *syntax_->reasoning);
    last.parts = {said += kGoesOnHere};
  }
  messages.back() = &last;
  WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, RenderWhole(messages, request, /*begins_reply=*/false));
  const size_t end = prompt.text.rfind(kGoesOnHere);
  if (end == std::string::npos) {
    return InvalidArgument(place, ": the chat template does not show this text, so that it ",
                           "cannot be continued");
  }
  prompt.text.resize(end);
  if (!traits_.system_before_answer) {
    messages.pop_back();
    WEFT_RETURN_IF_ERROR(AddSystemMessages(messages, request, &prompt.text));
  }
  prompt.reasoning_is_open = in_reasoning || OpensReasoning(prompt.text);
  return prompt;
}

// If the template drops system messages once an answer has begun: takes the prompt for `messages`,
// which precede the answer, and appends the answer's beginning. `text` is the rendering with it.
Status ChatFormatImpl::AddSystemMessages(const Messages& messages, const ChatRequest& request,
                                         std::string* text) const {
  Messages others = messages;
  std::erase_if(others, [](const ChatMessage* message) {
    return message->role == Role::kSystem || message->role == Role::kDeveloper;
  });
  if (others.empty() || others.size() == messages.size()) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt plain,
                        RenderWhole(others, request, /*begins_reply=*/true));
  if (!text->starts_with(plain.text)) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, RenderWhole(messages, request, /*begins_reply=*/true));
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
  const std::string bos = text(tokenizer->bos()), eos = text(tokenizer->eos());
  WEFT_RETURN_IF_ERROR(CheckRenderCost(**parsed, bos, eos));
  return std::make_shared<const ChatFormatImpl>(*std::move(parsed), bos, eos, tokenizer);
}

}  // namespace weft
