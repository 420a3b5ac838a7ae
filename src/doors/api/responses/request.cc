#include "doors/api/responses/request.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "doors/api/fields/answer_rule.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/pictures.h"
#include "doors/api/fields/prompt_cache.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/repeated_calls.h"
#include "doors/api/responses/sealed_reasoning.h"
#include "doors/api/template_fields.h"
#include "doors/api/tool_choice.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// A string, or an array of parts, joined. `pictures`: null if there may be texts only.
StatusOr<std::string> PartsText(const ordered_json& content, std::string_view place,
                                PictureReader* pictures = nullptr) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return Misshapen(place, "must be a string or an array of parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string here = StrCat(place, "[", i, "]");
    const ordered_json& part = content[i];
    if (!part.is_object()) return Misshapen(here, "must be an object");
    const std::string type = StringOr(part, "type");
    if (pictures != nullptr && IsPicture(part)) {
      WEFT_ASSIGN_OR_RETURN(const std::string mark, pictures->TakePart(part, here));
      text += mark;
      continue;
    }
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" ||
                         type == "summary_text" || type == "reasoning_text";
    if (!is_text && type != "refusal") {
      return Misshapen(
          here, StrCat("the model reads text only, no part of type \"", Printable(type), "\""));
    }
    WEFT_ASSIGN_OR_RETURN(const std::string piece,
                          NeedString(part, is_text ? "text" : "refusal", here));
    text += piece;
  }
  return text;
}

// Items of tools that run on OpenAI's servers, or that nobody could have called here.
bool IsOfForeignTool(std::string_view type) {
  static constexpr std::string_view kTypes[] = {
      "web_search_call",       "file_search_call",        "code_interpreter_call",
      "image_generation_call", "computer_call",           "computer_call_output",
      "local_shell_call",      "local_shell_call_output", "shell_call",
      "shell_call_output",     "apply_patch_call",        "apply_patch_call_output",
      "tool_search_call",      "mcp_list_tools",          "mcp_call",
      "mcp_approval_request",  "mcp_approval_response"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

class ItemConverter {
 public:
  ItemConverter(ToolCatalog* tools, PictureReader* pictures)
      : tools_(*tools), pictures_(pictures) {}

  // `index` is the item's in the request.
  Status Add(const ordered_json& item, size_t index) {
    index_ = index;
    const std::string place = StrCat("input[", index, "]");
    if (!item.is_object()) return Misshapen(place, "must be an object");
    const std::string type = StringOr(item, "type", "message");
    if (type == "message") return AddMessage(item, place);
    if (type == "function_call" || type == "custom_tool_call") return AddCall(item, place);
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return AddOutput(item, place);
    }
    if (type == "reasoning") return AddReasoning(item, place);
    if (type == "tool_search_output" || type == "additional_tools") {
      return AddFoundTools(item, place);
    }
    if (type == "tool_search_call" && IsOfClient(item)) return AddSearch(item, place);
    if (IsOfForeignTool(type)) {
      left_out_.Add(type);
      return OkStatus();
    }
    return Misshapen(place, StrCat("items of type \"", Printable(type),
                                   "\" are not accepted: only messages, reasoning, calls of "
                                   "functions and custom tools, and their outputs"));
  }

  void Push(Role role, std::string text) {
    Flush();
    Append({.role = role, .parts = {std::move(text)}}, index_);
  }

  std::vector<ChatMessage> Take() {
    Flush();
    return std::move(messages_);
  }

  // For each message so far, the index of its first item.
  const std::vector<size_t>& places() const { return places_; }

  void Warn(std::vector<std::string>* warnings) const {
    left_out_.Warn("input that the model cannot read was left out", warnings);
  }

 private:
  Status AddMessage(const ordered_json& item, const std::string& place) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, NeedString(item, "role", place));
    WEFT_ASSIGN_OR_RETURN(std::string text,
                          PartsText(ValueIn(item, "content"), place + ".content", pictures_));
    const auto role = RoleNamed(name);
    if (!role || *role == Role::kTool) {
      return Misshapen(place + ".role", "must be user, assistant, system or developer");
    }
    if (*role != Role::kAssistant) {
      Push(*role, std::move(text));
      return OkStatus();
    }
    if (answer_ && (!answer_->parts.empty() || !answer_->calls.empty())) Flush();
    Answer().parts = {std::move(text)};
    return OkStatus();
  }

  Status AddReasoning(const ordered_json& item, const std::string& place) {
    const bool has_content = !ValueIn(item, "content").empty();
    const char* const field = has_content ? "content" : "summary";
    WEFT_ASSIGN_OR_RETURN(std::string text,
                          PartsText(ValueIn(item, field), StrCat(place, ".", field)));
    if (!has_content) {
      // Clients may keep nothing else. Another server's is as good as none.
      auto sealed = UnsealReasoning(StringOr(item, "encrypted_content"));
      if (sealed) text = *std::move(sealed);
    }
    Flush();
    if (!text.empty()) Answer().reasoning = std::move(text);
    return OkStatus();
  }

  Status AddCall(const ordered_json& item, const std::string& place) {
    ToolCall call;
    WEFT_ASSIGN_OR_RETURN(call.id, NeedString(item, "call_id", place));
    WEFT_ASSIGN_OR_RETURN(const std::string name, NeedString(item, "name", place));
    call.name = FunctionName(StringOr(item, "namespace"), name);
    if (call.name.empty()) return Misshapen(place + ".name", "must not be empty");
    const bool is_custom = item["type"] == "custom_tool_call";
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          NeedString(item, is_custom ? "input" : "arguments", place));
    call.arguments = is_custom ? CustomArguments(text) : CallArguments(text);
    Answer().calls.push_back(std::move(call));
    return OkStatus();
  }

  // A search that the client ran; those on OpenAI's servers have no id of a call.
  static bool IsOfClient(const ordered_json& item) { return ValueIn(item, "call_id").is_string(); }

  Status AddSearch(const ordered_json& item, const std::string& place) {
    ToolCall call{.name = kToolSearch};
    WEFT_ASSIGN_OR_RETURN(call.id, NeedString(item, "call_id", place));
    const ordered_json& arguments = ValueIn(item, "arguments");
    if (arguments.is_object()) {
      call.arguments = arguments;
    } else if (arguments.is_string()) {
      call.arguments = CallArguments(arguments.get_ref<const std::string&>());
    }
    Answer().calls.push_back(std::move(call));
    return OkStatus();
  }

  Status AddFoundTools(const ordered_json& item, const std::string& place) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                          OfferFoundTools(ValueIn(item, "tools"), place + ".tools", &tools_));
    if (item["type"] != "tool_search_output") return OkStatus();
    if (!IsOfClient(item)) {
      left_out_.Add("tool_search_output");
      return OkStatus();
    }
    std::vector<std::string> texts;
    texts.reserve(found.size() + 1);
    for (const std::string& name : found) texts.push_back(FoundToolText(name, true));
    if (texts.empty()) texts.emplace_back("No tool was found.");
    Flush();
    Append({.role = Role::kTool,
            .parts = {StrJoin(texts, "\n")},
            .call_id = item["call_id"].get<std::string>()},
           index_);
    return OkStatus();
  }

  Status AddOutput(const ordered_json& item, const std::string& place) {
    WEFT_ASSIGN_OR_RETURN(std::string id, NeedString(item, "call_id", place));
    ordered_json copy;
    const bool sees = pictures_ != nullptr && pictures_->sees();
    const char* const unseen = sees ? "input_file" : "input_image";
    const ordered_json& output = left_out_.AddPictures(
        {unseen, "input_file"}, "an output", "input_text", ValueIn(item, "output"), &copy);
    WEFT_ASSIGN_OR_RETURN(std::string text, PartsText(output, place + ".output", pictures_));
    Flush();
    Append({.role = Role::kTool, .parts = {std::move(text)}, .call_id = std::move(id)}, index_);
    return OkStatus();
  }

  ChatMessage& Answer() {
    if (!answer_) {
      answer_ = ChatMessage{.role = Role::kAssistant};
      answer_index_ = index_;
    }
    return *answer_;
  }

  void Flush() {
    if (answer_) Append(*std::exchange(answer_, std::nullopt), answer_index_);
  }

  void Append(ChatMessage message, size_t index) {
    messages_.push_back(std::move(message));
    places_.push_back(index);
  }

  ToolCatalog& tools_;
  PictureReader* const pictures_;
  std::vector<ChatMessage> messages_;
  std::vector<size_t> places_;
  size_t index_ = 0, answer_index_ = 0;
  std::optional<ChatMessage> answer_;  // the model's answer, still incomplete
  LeftOut left_out_;
};

void ReadConversation(ApiFields* fields, Host& host, const HttpRequest& request,
                      ResponsesRequest* read) {
  const ordered_json* const instructions = fields->Value("instructions");
  const ordered_json* const input = fields->Value("input");
  if (input == nullptr) {
    return fields->Fail("input", "must be a string or an array of items");
  }
  read->ask.list.name = "input";
  if (const ordered_json* const tools = fields->Value("tools")) {
    auto catalog = ReadResponsesTools(*tools);
    if (!catalog.ok()) return fields->Adopt(catalog.status());
    read->tools = *std::move(catalog);
    read->echo["tools"] = *tools;
  }
  PictureReader pictures(host, request, &read->ask);
  auto messages = ItemsToChatMessages(instructions, *input, &read->tools, &read->warnings,
                                      &read->ask.list.places, &pictures);
  if (!messages.ok()) return fields->Adopt(messages.status());
  Conversation& conversation = read->ask.chat.conversation;
  conversation.messages = *std::move(messages);
  conversation.tools = read->tools.functions();
  TellRepeatedCalls(host.defaults().server.note_repeated_calls, &conversation, &read->warnings);
  if (instructions != nullptr) read->echo["instructions"] = *instructions;
  fields->Adopt(CheckCounts(conversation));
}

void ReadCalls(ApiFields* fields, ResponsesRequest* read) {
  read->ask.tool_choice = ReadToolChoice(fields, read->tools);
  if (const ordered_json* const choice = fields->Value("tool_choice")) {
    read->echo["tool_choice"] = *choice;
  }
  read->echo["parallel_tool_calls"] = !read->ask.tool_choice.single_call;
  fields->Refuse("max_tool_calls", "is not supported: no tools are run here");
  read->tools.CheckUsable(read->ask.tool_choice.calls_allowed, fields);
  read->tools.Warn(&read->warnings);
}

void ReadInclude(ApiFields* fields, ResponsesRequest* read) {
  for (const std::string& name :
       fields->Strings("include", 64).value_or(std::vector<std::string>())) {
    if (name == "message.output_text.logprobs") {
      read->include_logprobs = true;
    } else if (name == "reasoning.encrypted_content") {
      read->include_sealed_reasoning = true;
    } else {
      fields->Ignore(StrCat("include.", name));
    }
  }
}

void ReadReasoningAndText(ApiFields* fields, ResponsesRequest* read) {
  ReadTemplateKwargs(fields, &read->ask);
  if (const ordered_json* const reasoning = fields->Value("reasoning")) {
    ApiFields inner(*reasoning, "reasoning.");
    if (const auto effort = inner.String("effort")) {
      SetReasoningEffort(*effort, &read->ask.chat.variables);
      read->echo["reasoning"]["effort"] = *effort;
    }
    // Summaries need another model; the answer contains the reasoning itself.
    inner.CannotMatter({"summary", "generate_summary"});
    fields->Adopt(inner.Finish(&read->ignored));
  }
  if (const ordered_json* const text = fields->Value("text")) {
    ApiFields inner(*text, "text.");
    read->ask.answer = ReadFormat(&inner, "format");
    if (read->ask.answer) read->ask.answer->field.insert(0, "text.");
    if (const ordered_json* const format = inner.Value("format")) {
      read->echo["text"]["format"] = *format;
    }
    inner.Refuse("verbosity", "is not supported", "medium");
    fields->Adopt(inner.Finish(&read->ignored));
  }
  const auto top = fields->Integer("top_logprobs", 0, kMaxTopLogprobs);
  ReadInclude(fields, read);
  if (top.value_or(0) > 0 && !read->include_logprobs) {
    fields->Fail("top_logprobs", "needs \"message.output_text.logprobs\" in include");
  }
  if (read->include_logprobs) read->ask.turn.top_logprobs = static_cast<int>(top.value_or(0));
}

constexpr char kStateless[] =
    "is not supported: responses are not stored; send the whole conversation as input";

void ReadServerSide(ApiFields* fields) {
  fields->Refuse("previous_response_id", kStateless);
  fields->Refuse("conversation", kStateless);
  fields->Refuse("background", "is not supported: responses are not stored", false);
  fields->Refuse("truncation", "can be \"disabled\" only", "disabled");
  fields->Refuse("prompt", "is not supported: no prompts are stored here");
  fields->CannotMatter({"stream_options"});  // obfuscation against eavesdroppers
}

}  // namespace

StatusOr<std::vector<ChatMessage>> ItemsToChatMessages(
    const ordered_json* instructions, const ordered_json& input, ToolCatalog* tools,
    std::vector<std::string>* warnings, std::vector<size_t>* places, PictureReader* pictures) {
  ItemConverter converter(tools, pictures);
  if (instructions != nullptr) {
    if (!instructions->is_string()) return Misshapen("instructions", "must be a string");
    if (*instructions != "") converter.Push(Role::kSystem, instructions->get<std::string>());
  }
  if (input.is_string()) {
    converter.Push(Role::kUser, input.get<std::string>());
    return converter.Take();
  }
  if (!input.is_array() || input.empty()) {
    return Misshapen("input", "must be a string or an array of at least one item");
  }
  if (input.size() > kMaxMessages) {
    return Misshapen("input", StrCat("has more than ", kMaxMessages, " items"));
  }
  for (size_t i = 0; i < input.size(); ++i) {
    WEFT_RETURN_IF_ERROR(converter.Add(input[i], i));
  }
  converter.Warn(warnings);
  std::vector<ChatMessage> messages = converter.Take();
  if (places != nullptr) *places = converter.places();
  return messages;
}

namespace {

// Whether OpenAI's cache diagnostics are asked for. Their other options cannot matter here.
bool ReadComparison(ApiFields* fields) {
  const ordered_json* const options = fields->Value("prompt_cache_options");
  return options != nullptr && ValueIn(*options, "comparison_response_id").is_string();
}

}  // namespace

StatusOr<ResponsesRequest> ReadResponses(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const ordered_json body, ParseJson(request.body, {}));
  ResponsesRequest read;
  ApiFields fields(body);
  const auto model = fields.String("model");
  ReadConversation(&fields, host, request, &read);
  ReadCalls(&fields, &read);
  ReadReasoningAndText(&fields, &read);
  ReadThoughtLimit(&fields, host.defaults().thinking, &read.ask);
  TurnOptions& turn = read.ask.turn;
  ReadSampling(&fields, host.model(), RulesOf(host), &turn);
  turn.max_tokens = host.defaults().max_tokens;
  if (const auto most = fields.Integer("max_output_tokens", 1, INT32_MAX)) {
    turn.max_tokens = *most;
    read.echo["max_output_tokens"] = *most;
  }
  read.stream = fields.Bool("stream").value_or(false);
  if (const ordered_json* const metadata = fields.Value("metadata")) {
    read.echo["metadata"] = *metadata;
  }
  AddAnswerRule(&fields, turn, &read.ask.answer);
  ReadForeignFields(&fields, &turn);
  read.timings_per_token = fields.Bool("timings_per_token").value_or(false);
  read.return_progress = fields.Bool("return_progress").value_or(false);
  ReadServerSide(&fields);
  ReadPromptCache(&fields, "input", read.ask.list.places, read.ask.chat.conversation.messages,
                  &read.ask.marks);
  ReadAccountFields(&fields);
  read.ask.tells_cache_report = WantsCacheReport(request, &fields);
  read.tells_diagnostics = ReadComparison(&fields);
  WEFT_RETURN_IF_ERROR(FinishFields(host, request, model, 1, &fields, &read.ignored, &read.ask));
  return read;
}

}  // namespace weft::serve
