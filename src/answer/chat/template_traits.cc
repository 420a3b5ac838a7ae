#include "answer/chat/template_traits.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/chat/conversation.h"
#include "answer/chat/template_variables.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSystem[] = "weft-probe-system";
constexpr char kUser[] = "weft-probe-user";
constexpr const char* kTool = kProbedTool;
constexpr const char* kOtherTool = kProbedOther;
constexpr const char* kKey = kProbedKey;
constexpr const char* kValue = kProbedValue;
constexpr char kResult[] = "weft-probe-result";

// A template under test.
class Probe {
 public:
  Probe(const ChatTemplate& chat_template, const std::string& bos, const std::string& eos)
      : template_(chat_template), bos_(bos), eos_(eos) {}

  // Empty if rendering fails.
  std::string Render(Json messages, const ToolList& tools = {}, bool begins_reply = true,
                     const Json& variables = Json::object()) const {
    auto text = TryRender(std::move(messages), tools, begins_reply, variables, kLimits);
    return text.ok() ? *std::move(text) : std::string();
  }
  StatusOr<std::string> TryRender(Json messages, const ToolList& tools, bool begins_reply,
                                  const Json& variables, const RenderLimits& limits) const {
    RenderOptions options;
    options.wall_clock_s = 0;
    options.limits = limits;
    Json context = {{"messages", std::move(messages)},
                    {"tools", nullptr},
                    {"add_generation_prompt", begins_reply},
                    {"bos_token", bos_},
                    {"eos_token", eos_}};
    context.update(variables);
    for (const auto& tool : tools) context["tools"].push_back(tool->definition);
    context.update(MissingVariables(template_, context, tools, *options.wall_clock_s));
    return template_.Render(context, options);
  }

  bool omits_no_tools = false;

 private:
  static constexpr RenderLimits kLimits = {.max_steps = 2'000'000, .max_bytes = size_t{32} << 20};

  const ChatTemplate& template_;
  const std::string &bos_, &eos_;
};

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Json User(Json content = kUser) { return {{"role", "user"}, {"content", std::move(content)}}; }

ToolList Tools() {
  const Json parameters = {
      {"type", "object"},
      {"properties", {{kKey, {{"type", "string"}, {"description", "A value"}}}}},
      {"required", {kKey}}};
  return {std::make_shared<const Tool>(Tool{
      .name = kTool,
      .definition = {{"type", "function"},
                     {"function",
                      {{"name", kTool}, {"description", "A tool"}, {"parameters", parameters}}}}})};
}

Json Call(const char* name, const char* id, Json arguments) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

Json Result(const char* name, const char* id) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"name", name}, {"content", kResult}};
}

Json Called(Json content, const Json& arguments, const char* id) {
  return Json::array({User(),
                      {{"role", "assistant"},
                       {"content", std::move(content)},
                       {"tool_calls", Json::array({Call(kTool, id, arguments)})}},
                      Result(kTool, id)});
}

// From the user's text to a little after the last argument.
std::string AroundCalls(const std::string& text) {
  constexpr size_t kBehind = 64;
  const size_t user = text.rfind(kUser);
  const size_t last = text.rfind(kValue);
  if (user == text.npos || last == text.npos || last < user) return "";
  const size_t end = std::min(text.find(kResult, last), last + std::strlen(kValue) + kBehind);
  return text.substr(user + std::strlen(kUser), end - user - std::strlen(kUser));
}

constexpr char kShortId[] = "probe0001";
constexpr char kLongId[] = "call_probe_0001";

// Finds the form in which a call must be given to be shown.
void ProbeCalls(const Probe& probe, TemplateTraits* traits) {
  const Json object = {{kKey, kValue}};
  const Json text = object.dump();
  const auto shows_call = [](const std::string& rendered) {
    return Has(rendered, kTool) && Has(rendered, kValue);
  };
  const std::string with_text = probe.Render(Called("", text, kShortId), Tools());
  std::string with_object = probe.Render(Called("", object, kShortId), Tools());
  // Python's way to print a dictionary is not JSON, so such a template wants text. (It may print
  // tools in that way all the same.)
  const bool printed = Has(with_object, StrCat("'", kKey, "': '", kValue, "'"));
  if (shows_call(with_text) && (!shows_call(with_object) || printed)) {
    traits->string_arguments = true;
    with_object = with_text;
  }
  const Json& arguments = traits->string_arguments ? text : object;
  const std::string with_null = probe.Render(Called(nullptr, arguments, kShortId), Tools());
  traits->null_content =
      shows_call(with_null) && Has(with_null, "None") == Has(with_object, "None");
  traits->calls = shows_call(with_object) || traits->null_content;
  traits->results = Has(with_object, kResult) || Has(with_null, kResult);
  if (!traits->calls) return;
  const Json content = traits->null_content ? Json(nullptr) : Json("");
  traits->short_ids = !shows_call(probe.Render(Called(content, arguments, kLongId), Tools()));
  Json two = Called(content, arguments, kShortId);
  two[1]["tool_calls"].push_back(Call(kOtherTool, "probe0002", arguments));
  two.push_back(Result(kOtherTool, "probe0002"));
  const std::string both = probe.Render(two, Tools());
  traits->several_calls = both.empty() || Has(both, kOtherTool);
  const std::string& shown = Has(both, kTool) && Has(both, kValue) ? both : with_object;
  traits->two_calls = AroundCalls(shows_call(shown) ? shown : with_null);
}

TemplateTraits::Reasoning ReasoningOf(const std::string& source, const ReplySyntax& syntax) {
  if (Has(source, "reasoning_content")) return TemplateTraits::Reasoning::kReasoningContent;
  if (syntax.form == CallForm::kHarmony) return TemplateTraits::Reasoning::kThinking;
  // Such a template removes old reasoning from the content itself.
  if (syntax.reasoning && Has(source, syntax.reasoning->close)) {
    return TemplateTraits::Reasoning::kInline;
  }
  return TemplateTraits::Reasoning::kDropped;
}

constexpr const char* kThoughts[] = {"weft-probe-thought-one", "weft-probe-thought-two"};

Json Thoughtful(Json message, const char* thought, const TemplateTraits& traits,
                const ReplySyntax& syntax) {
  switch (traits.reasoning) {
    case TemplateTraits::Reasoning::kDropped:
      break;
    case TemplateTraits::Reasoning::kReasoningContent:
      message["reasoning_content"] = thought;
      break;
    case TemplateTraits::Reasoning::kThinking:
      message["thinking"] = thought;
      break;
    case TemplateTraits::Reasoning::kInline:
      const std::string text = message["content"].is_string() ? message["content"] : Json("");
      message["content"] = StrCat(syntax.reasoning->open, "\n", thought, "\n",
                                  syntax.reasoning->close, "\n\n", text);
      break;
  }
  return message;
}

// Conversations with two thoughts before the last user message: templates treat those that led to
// calls in other ways than those that led to answers, and may keep both where there are tools.
std::vector<Json> ThoughtfulConversations(const TemplateTraits& traits, const ReplySyntax& syntax) {
  const auto thoughtful = [&](Json message, const char* thought) {
    return Thoughtful(std::move(message), thought, traits, syntax);
  };
  const Json answer = {{"role", "assistant"}, {"content", kValue}};
  std::vector<Json> conversations = {Json::array({User(), thoughtful(answer, kThoughts[0]), User(),
                                                  thoughtful(answer, kThoughts[1]), User()})};
  if (!traits.calls || !traits.results) return conversations;
  const Json object = {{kKey, kValue}};
  Json called = Called(traits.null_content ? Json() : Json(""),
                       traits.string_arguments ? Json(object.dump()) : object, kShortId);
  called[1] = thoughtful(called[1], kThoughts[0]);
  called.push_back(thoughtful(answer, kThoughts[1]));
  called.push_back(User());
  conversations.push_back(std::move(called));
  return conversations;
}

// Finds what makes the template show the reasoning of earlier turns.
void ProbePastThoughts(const Probe& probe, const ChatTemplate& chat_template,
                       const ReplySyntax& syntax, TemplateTraits* traits) {
  if (traits->reasoning == TemplateTraits::Reasoning::kDropped) return;
  const std::vector<Json> conversations = ThoughtfulConversations(*traits, syntax);
  const auto shown = [&](const Json& messages, const Json& variables) {
    const bool has_calls = messages.size() > 1 && messages[1].contains("tool_calls");
    const std::string text = probe.Render(messages, has_calls ? Tools() : ToolList(),
                                          /*begins_reply=*/true, variables);
    return std::ranges::count_if(kThoughts, [&](const char* part) { return Has(text, part); });
  };
  for (const PastThoughtsVariable& variable : PastThoughtsVariables()) {
    if (!chat_template.Mentions(variable.name)) continue;
    const bool decides = std::ranges::any_of(conversations, [&](const Json& messages) {
      return shown(messages, {{variable.name, variable.keep}}) >
             shown(messages, {{variable.name, !variable.keep}});
    });
    if (!decides) continue;
    traits->past_thoughts = variable;
    traits->shows_past_thoughts = true;
    return;
  }
  traits->shows_past_thoughts = std::ranges::all_of(conversations, [&](const Json& messages) {
    return shown(messages, Json::object()) == std::ssize(kThoughts);
  });
}

std::string PictureIn(const Probe& probe) {
  const Json parts = Json::array({{{"type", "text"}, {"text", kSystem}},
                                  {{"type", "image"}},
                                  {{"type", "text"}, {"text", kUser}}});
  const std::string text = probe.Render(Json::array({User(parts)}));
  const size_t before = text.find(kSystem);
  if (before == text.npos) return "";
  const size_t begin = before + std::string_view(kSystem).size();
  const size_t end = text.find(kUser, begin);
  // Such a template shows the list itself.
  if (end == text.npos || Has(text, "'type'")) return "";
  return text.substr(begin, end - begin);
}

std::string AfterAnswer(const Probe& probe) {
  const std::string text = probe.Render(
      Json::array({User(), {{"role", "assistant"}, {"content", kValue}}, User(kResult)}));
  const size_t answer = text.find(kValue);
  if (answer == text.npos) return "";
  const size_t begin = answer + std::string_view(kValue).size();
  const size_t end = text.find(kResult, begin);
  return end == text.npos ? "" : text.substr(begin, end - begin);
}

}  // namespace

Status CheckRenderCost(const ChatTemplate& chat_template, const std::string& bos,
                       const std::string& eos) {
  constexpr int kPart = 100;
  const RenderLimits all;
  const Json messages = {User(), {{"role", "assistant"}, {"content", kResult}}};
  const Status status =
      Probe(chat_template, bos, eos)
          .TryRender(messages, {}, /*begins_reply=*/false, Json::object(),
                     {.max_steps = all.max_steps / kPart, .max_bytes = all.max_bytes / kPart})
          .status();
  if (status.code() != StatusCode::kResourceExhausted) return OkStatus();
  return FailedPrecondition(
      "two short messages exceed a hundredth of what a conversation may cost (", Message(status),
      "): give another template with --template");
}

TemplateTraits ProbeTemplate(const ChatTemplate& chat_template, const ReplySyntax& syntax,
                             const std::string& bos, const std::string& eos) {
  Probe probe(chat_template, bos, eos);
  TemplateTraits traits;
  probe.omits_no_tools = probe.Render(Json::array({User()})).empty();
  const auto shows_message = [&](const char* role) {
    const Json message = {{"role", role}, {"content", kSystem}};
    return Has(probe.Render(Json::array({message, User()})), kSystem);
  };
  traits.system = shows_message("system");
  const Json ended = Json::array({{{"role", "system"}, {"content", kSystem}},
                                  User(),
                                  {{"role", "assistant"}, {"content", kValue}}});
  traits.system_before_answer = Has(probe.Render(ended, {}, /*begins_reply=*/false), kSystem);
  traits.developer = Has(chat_template.source(), "developer") && shows_message("developer");
  if (!Has(probe.Render(Json::array({User()})), kUser)) {
    const Json parts = Json::array({{{"type", "text"}, {"text", kUser}}});
    traits.parts = Has(probe.Render(Json::array({User(parts)})), kUser);
  }
  if (Has(chat_template.source(), "image")) traits.picture = PictureIn(probe);
  traits.omits_no_tools = probe.omits_no_tools;
  traits.tools = Has(probe.Render(Json::array({User()}), Tools()), kTool);
  ProbeCalls(probe, &traits);
  traits.after_answer = AfterAnswer(probe);
  traits.reasoning = ReasoningOf(chat_template.source(), syntax);
  ProbePastThoughts(probe, chat_template, syntax, &traits);
  return traits;
}

}  // namespace weft
