#include "doors/api/openai/chat_request.h"

#include <optional>
#include <string_view>
#include <utility>

#include "answer/chat/openai_form.h"
#include "base/strings.h"
#include "doors/api/fields/answer_rule.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/pictures.h"
#include "doors/api/fields/prompt_cache.h"
#include "doors/api/fields/prompt_embeds.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/repeated_calls.h"
#include "doors/api/template_fields.h"
#include "doors/api/tool_choice.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

void ReadConversation(ApiFields* fields, Host& host, const HttpRequest& request,
                      ChatCompletionRequest* read) {
  Ask* const ask = &read->ask;
  const ordered_json* messages = fields->Value("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields->Fail("messages", "must be an array of at least one message");
    return;
  }
  Conversation& conversation = ask->chat.conversation;
  MessagesWithRows with_rows;
  if (HavePromptEmbeds(*messages)) {
    auto taken = TakePromptEmbeds(host, *messages);
    if (!taken.ok()) return fields->Adopt(taken.status());
    with_rows = *std::move(taken);
    ask->rows = std::move(with_rows.rows);
    messages = &with_rows.messages;
  }
  ordered_json with_marks;
  PictureReader reader(host, request, ask);
  if (HavePictures(*messages)) {
    auto taken = TakePictures(reader, *messages);
    if (!taken.ok()) return fields->Adopt(taken.status());
    with_marks = *std::move(taken);
    messages = &with_marks;
  }
  auto converted = ReadOpenAiMessages(*messages);
  if (!converted.ok()) return fields->Adopt(AtPlace(converted.status()));
  conversation.messages = *std::move(converted);
  if (const ordered_json* const tools = fields->Value("tools")) {
    auto catalog = ReadChatTools(*tools);
    if (!catalog.ok()) return fields->Adopt(catalog.status());
    read->tools = *std::move(catalog);
    conversation.tools = read->tools.functions();
  }
  ask->tool_choice = ReadToolChoice(fields, read->tools);
  read->tools.CheckUsable(ask->tool_choice.calls_allowed, fields);
  read->tools.Warn(&read->warnings);
  fields->Refuse("functions", "is not supported; use tools", ordered_json::array());
  fields->Refuse("function_call", "is not supported; use tools and tool_choice", "auto");
  TellRepeatedCalls(host.defaults().server.note_repeated_calls, &conversation, &read->warnings);
  fields->Adopt(CheckCounts(conversation));
}

void ReadReasoning(ApiFields* fields, Ask* ask) {
  for (const char* name : {"return_reasoning", "include_reasoning"}) {
    if (const auto show = fields->Bool(name)) ask->show_reasoning = *show;
  }
  if (const auto format = fields->String("reasoning_format")) {
    if (*format == "none") {
      ask->separate_reasoning = false;
    } else if (*format != "auto" && *format != "deepseek") {
      fields->Fail("reasoning_format", "must be \"auto\", \"deepseek\" or \"none\"");
    }
  }
}

void ReadLogprobs(ApiFields* fields, TurnOptions* turn) {
  const bool wanted = fields->Bool("logprobs").value_or(false);
  const auto top = fields->Integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top.value_or(0) > 0 && !wanted) {
    return fields->Fail("top_logprobs", "needs logprobs to be true");
  }
  if (wanted) turn->top_logprobs = static_cast<int>(top.value_or(0));
  // llama-server's name for both.
  const auto n_probs = fields->Integer("n_probs", 0, kMaxTopLogprobs);
  if (n_probs.value_or(0) > 0) turn->top_logprobs = static_cast<int>(*n_probs);
  fields->Refuse("post_sampling_probs", "is not supported here; use /completion", false);
}

// Features of OpenAI's own models only.
void ReadOpenAiOnly(ApiFields* fields) {
  fields->Refuse("modalities", "can be [\"text\"] only", ordered_json::array({"text"}));
  fields->Refuse("audio", "is not supported");
  fields->Refuse("prompt_embeds", "belongs into the content of a message, as a part of that type");
  fields->Refuse("web_search_options", "is not supported");
  fields->Refuse("verbosity", "is not supported", "medium");
  fields->Refuse("echo", "is not supported for chats", false);
  fields->Refuse("best_of", "is not supported; use n", 1);
  fields->Refuse("return_tokens", "is not supported for chats", false);
}

// {"type": "content", "content": text or text parts}
void ReadPrediction(ApiFields* fields, const Model& model, TurnOptions* turn) {
  const ordered_json* const given = fields->Value("prediction");
  if (given == nullptr) return;
  static constexpr std::string_view kShape =
      "must be {\"type\": \"content\", \"content\": a text or an array of text parts}";
  const auto is = [](const ordered_json& value, const char* name, std::string_view text) {
    return value.is_object() && value.contains(name) && value[name] == text;
  };
  if (!is(*given, "type", "content") || !given->contains("content")) {
    return fields->Fail("prediction", kShape);
  }
  const ordered_json& content = (*given)["content"];
  std::string text;
  if (content.is_string()) {
    text = content.get<std::string>();
  } else if (content.is_array()) {
    for (const ordered_json& part : content) {
      if (!is(part, "type", "text") || !part.contains("text") || !part["text"].is_string()) {
        return fields->Fail("prediction", kShape);
      }
      text += part["text"].get_ref<const std::string&>();
    }
  } else {
    return fields->Fail("prediction", kShape);
  }
  turn->prediction = model.Encode(text, /*add_special=*/false, /*parse_special=*/false);
  if (turn->prediction.size() > kMaxPredictionTokens) {
    fields->Fail("prediction", StrCat("has ", turn->prediction.size(), " tokens, at most ",
                                      kMaxPredictionTokens, " are taken"));
  }
}

}  // namespace

void ReadTemplateVariables(ApiFields* fields, const RequestDefaults& defaults, Ask* ask) {
  ReadTemplateKwargs(fields, ask);
  ordered_json& variables = ask->chat.variables;
  if (const auto thinking = fields->Bool("enable_thinking")) {
    SetMissing("enable_thinking", *thinking, &variables);
  }
  if (const auto effort = fields->String("reasoning_effort")) {
    SetReasoningEffort(*effort, &variables);
  }
  ReadThoughtLimit(fields, defaults.thinking, ask);
  ReadEnding(fields, &ask->chat);
  fields->Refuse("chat_template", "is not supported: the server's template is used");
}

StreamChoice ReadStreamChoice(ApiFields* fields, std::vector<std::string>* ignored) {
  StreamChoice choice;
  choice.stream = fields->Bool("stream").value_or(false);
  choice.timings_per_token = fields->Bool("timings_per_token").value_or(false);
  if (const ordered_json* const options = fields->Value("stream_options")) {
    ApiFields inner(*options, "stream_options.");
    choice.include_usage = inner.Bool("include_usage").value_or(false);
    inner.CannotMatter({"include_obfuscation", "continuous_usage_stats"});
    fields->Adopt(inner.Finish(ignored));
  }
  return choice;
}

void ReadAccountFields(ApiFields* fields) {
  fields->CannotMatter({"store", "metadata", "user", "service_tier", "safety_identifier",
                        "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"});
}

StatusOr<ChatCompletionRequest> ReadChatCompletion(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const ordered_json body, ParseJson(request.body, {}));
  ChatCompletionRequest read;
  ApiFields fields(body);
  const auto model = fields.String("model");
  ReadConversation(&fields, host, request, &read);
  ReadTemplateVariables(&fields, host.defaults(), &read.ask);
  ReadReasoning(&fields, &read.ask);
  TurnOptions& turn = read.ask.turn;
  ReadSampling(&fields, host.model(), RulesOf(host), &turn);
  ReadStops(&fields, &turn);
  turn.max_tokens = host.defaults().max_tokens;
  ReadMaxTokens(&fields, /*least=*/1, &turn);
  ReadLogprobs(&fields, &turn);
  ReadChoices(&fields, &turn);
  ReadPrediction(&fields, host.model(), &turn);
  read.ask.answer = ReadAnswerRule(&fields, turn);
  ReadOpenAiOnly(&fields);
  ReadForeignFields(&fields, &turn);
  ReadPromptCache(&fields, "messages", {}, read.ask.chat.conversation.messages, &read.ask.marks);
  ReadAccountFields(&fields);
  const StreamChoice stream = ReadStreamChoice(&fields, &read.ignored);
  read.stream = stream.stream;
  read.include_usage = stream.include_usage;
  read.timings_per_token = stream.timings_per_token;
  read.return_progress = fields.Bool("return_progress").value_or(false);
  read.verbose = fields.Bool("verbose").value_or(false);
  read.ask.tells_cache_report = WantsCacheReport(request, &fields);
  const auto slot = ReadSlot(&fields, host, 1);
  WEFT_RETURN_IF_ERROR(FinishFields(host, request, model, 1, &fields, &read.ignored, &read.ask));
  if (slot && read.ask.session.name.empty()) read.ask.session = SlotSession(*slot);
  return read;
}

}  // namespace weft::serve
