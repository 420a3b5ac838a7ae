#include "doors/api/anthropic/request.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "doors/api/anthropic/blocks.h"
#include "doors/api/anthropic/tools.h"
#include "doors/api/fields/answer_rule.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/prompt_cache.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/repeated_calls.h"
#include "doors/api/template_fields.h"
#include "doors/api/tool_choice.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kDefaultMaxTokens = 4096;
constexpr std::string_view kToolSearchResult = "tool_search_tool_result";
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

std::string TypeOf(const ordered_json& block) { return StringOr(block, "type"); }

StatusOr<std::string> SystemText(const BlockReader& blocks, const ordered_json& system) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> texts, blocks.Texts(system, "system"));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (system.is_array() && texts[i].empty()) {
      return Misshapen(StrCat("system[", i, "]"), "must have text that is not empty");
    }
    texts[i] = WithoutBillingHeader(texts[i]);
  }
  std::erase(texts, "");  // texts that were only the header
  return StrJoin(texts, "\n\n");
}

// Blocks of tools that Anthropic's servers run.
bool IsOfServerTool(std::string_view type) {
  static constexpr std::string_view kTypes[] = {"server_tool_use",
                                                "mcp_tool_use",
                                                "mcp_tool_result",
                                                "web_search_tool_result",
                                                "web_fetch_tool_result",
                                                "code_execution_tool_result",
                                                "bash_code_execution_tool_result",
                                                "text_editor_code_execution_tool_result",
                                                kToolSearchResult};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

// Converts one of Anthropic's messages to one or more.
class MessageConverter {
 public:
  // `left_out` receives the types of blocks that no model here can use.
  // `marks` receives where blocks have cache_control.
  MessageConverter(Role role, std::string place, std::vector<ChatMessage>* out, BlockReader* blocks,
                   LeftOut* left_out, std::vector<PromptMark>* marks)
      : role_(role),
        place_(std::move(place)),
        out_(*out),
        blocks_(*blocks),
        left_out_(*left_out),
        marks_(*marks) {}

  // `may_be_empty`: it is an answer begun by the client.
  Status Convert(const ordered_json& content, bool may_be_empty) {
    if ((content == "" || content == ordered_json::array()) && !may_be_empty) {
      return Misshapen(
          place_,
          "must have content that is not empty; only a final assistant message may be empty");
    }
    if (content.is_string()) {
      out_.push_back({.role = role_, .parts = {content.get<std::string>()}});
      return OkStatus();
    }
    if (!content.is_array()) {
      return Misshapen(place_ + ".content", "must be a string or an array of blocks");
    }
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string here = StrCat(place_, ".content[", i, "]");
      WEFT_RETURN_IF_ERROR(AddBlock(content[i], here));
      WEFT_RETURN_IF_ERROR(AddMark(ValueIn(content[i], "cache_control"), here));
    }
    if (role_ == Role::kAssistant) {
      answer_.parts = {std::move(text_)};
      out_.push_back(std::move(answer_));
    } else {
      FlushText();
    }
    return OkStatus();
  }

 private:
  Status AddBlock(const ordered_json& block, const std::string& here) {
    const std::string type = TypeOf(block);
    const bool is_assistant = role_ == Role::kAssistant;
    if (type == "text") return AddText(block, here);
    if (is_assistant && type == "thinking") return AddThinking(block, here);
    if (is_assistant && type == "redacted_thinking") return OkStatus();  // unreadable
    if (is_assistant && type == "tool_use") return AddToolUse(block, here);
    if (!is_assistant && type == "tool_result") return AddToolResult(block, here);
    if (!is_assistant && (type == "document" || type == "search_result")) {
      WEFT_ASSIGN_OR_RETURN(const std::string text, blocks_.SourceText(block, here));
      AppendText(text);
      return OkStatus();
    }
    if (is_assistant && IsOfServerTool(type)) {
      left_out_.Add(type);
      if (type != kToolSearchResult) return OkStatus();
      return blocks_.ReadFoundTools(block, here);
    }
    if (!is_assistant && type == "image") {
      WEFT_ASSIGN_OR_RETURN(const std::string mark, blocks_.Picture(block, here));
      text_ += mark;
      follows_picture_ = true;
      return OkStatus();
    }
    return Misshapen(here, StrCat("a block of type \"", Printable(type),
                                  "\" is not accepted from a \"", NameOf(role_), "\""));
  }

  Status AddText(const ordered_json& block, const std::string& here) {
    WEFT_ASSIGN_OR_RETURN(const std::string text, NeedString(block, "text", here));
    // An answer may have been only white space, and is sent again with every later request.
    const bool says_nothing =
        role_ == Role::kAssistant ? text.empty() : text.find_first_not_of(" \t\r\n") == text.npos;
    if (says_nothing)
      return Misshapen(here, "must have text that is not empty or only white space");
    AppendText(text);
    return OkStatus();
  }

  // Separate parts of a client's message stay separate; those of an answer were one text.
  void AppendText(std::string_view text) {
    const bool is_joined = role_ == Role::kAssistant || std::exchange(follows_picture_, false);
    if (!text_.empty() && !is_joined) text_ += "\n";
    text_ += text;
  }

  Status AddThinking(const ordered_json& block, const std::string& here) {
    WEFT_ASSIGN_OR_RETURN(const std::string text, NeedString(block, "thinking", here));
    answer_.reasoning += text;
    return OkStatus();
  }

  Status AddToolUse(const ordered_json& block, const std::string& here) {
    ToolCall call;
    WEFT_ASSIGN_OR_RETURN(call.id, NeedString(block, "id", here));
    WEFT_ASSIGN_OR_RETURN(call.name, NeedString(block, "name", here));
    if (call.name.empty()) return Misshapen(here + ".name", "must not be empty");
    const auto input = block.find("input");
    if (input == block.end() || !input->is_object()) {
      return Misshapen(here, "needs the object \"input\"");
    }
    call.arguments = *input;
    answer_.calls.push_back(std::move(call));
    return OkStatus();
  }

  Status AddToolResult(const ordered_json& block, const std::string& here) {
    WEFT_ASSIGN_OR_RETURN(std::string id, NeedString(block, "tool_use_id", here));
    WEFT_ASSIGN_OR_RETURN(std::string text,
                          blocks_.ToolResultText(ValueIn(block, "content"), here + ".content"));
    FlushText();
    out_.push_back({.role = Role::kTool, .parts = {std::move(text)}, .call_id = std::move(id)});
    return OkStatus();
  }

  // The mark of a block that has just been added.
  Status AddMark(const ordered_json& control, const std::string& here) {
    if (control.is_null()) return OkStatus();
    WEFT_ASSIGN_OR_RETURN(PromptMark mark, ReadCacheControl(control, here));
    const bool is_answer = role_ == Role::kAssistant;
    mark.n_messages = out_.size() + (is_answer || !text_.empty() ? 1 : 0);
    if (!is_answer && !text_.empty()) mark.n_bytes = text_.size();
    marks_.push_back(mark);
    return OkStatus();
  }

  void FlushText() {
    if (text_.empty()) return;
    out_.push_back({.role = role_, .parts = {std::exchange(text_, std::string())}});
  }

  const Role role_;
  const std::string place_;
  std::vector<ChatMessage>& out_;
  BlockReader& blocks_;
  LeftOut& left_out_;
  std::vector<PromptMark>& marks_;
  std::string text_;
  bool follows_picture_ = false;                  // `text_` ends with one
  ChatMessage answer_{.role = Role::kAssistant};  // what it has besides text
};

// Marks of tools or of the system prompt, which begin every conversation: up to the end of both.
Status AddHeadMarks(const ordered_json& entries, std::string_view place, size_t n_messages,
                    std::vector<PromptMark>* marks) {
  if (!entries.is_array()) return OkStatus();
  for (size_t i = 0; i < entries.size(); ++i) {
    const ordered_json& control = ValueIn(entries[i], "cache_control");
    if (control.is_null()) continue;
    WEFT_ASSIGN_OR_RETURN(PromptMark mark, ReadCacheControl(control, StrCat(place, "[", i, "]")));
    mark.n_messages = n_messages;
    marks->push_back(mark);
  }
  return OkStatus();
}

void ReadThinking(ApiFields* fields, const ThinkingDefaults& defaults, Ask* ask) {
  ordered_json& variables = ask->chat.variables;
  ask->thought.tokens = defaults.limit.tokens;
  ReadThoughtMessage(fields, defaults, ask);
  if (const ordered_json* const thinking = fields->Value("thinking")) {
    const std::string type = TypeOf(*thinking);
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return fields->Fail("thinking", "must be an object of type enabled, disabled or adaptive");
    }
    const auto budget = thinking->find("budget_tokens");
    if (budget != thinking->end() && budget->is_number_integer()) {
      ask->thought.tokens = std::max<int64_t>(budget->get<int64_t>(), 0);
    }
    if (thinking->value("display", ordered_json()) == "omitted") ask->show_reasoning = false;
    SetMissing("enable_thinking", type != "disabled" && ask->thought.tokens != 0, &variables);
  }
  if (const ordered_json* const output = fields->Value("output_config")) {
    if (!output->is_object()) return fields->Fail("output_config", "must be an object");
    ApiFields inner(*output, "output_config.");
    if (const auto effort = inner.String("effort")) SetReasoningEffort(*effort, &variables);
    ask->answer = ReadFormat(&inner, "format");
    if (ask->answer) ask->answer->field.insert(0, "output_config.");
    std::vector<std::string> ignored;
    fields->Adopt(inner.Finish(&ignored));
    for (const std::string& name : ignored) fields->Ignore(name);
  }
  // Its name before it became part of output_config.
  auto older = ReadFormat(fields, "output_format");
  if (older && ask->answer) {
    fields->Fail("output_format",
                 "cannot be combined with output_config.format; use only one of them");
  }
  if (older) ask->answer = std::move(older);
}

// What an edit keeps of earlier thoughts: kDefault if it asks for something that is not known here.
// No value if it is malformed.
std::optional<PastThoughts> KeptBy(const ordered_json& edit) {
  const ordered_json& keep = ValueIn(edit, "keep");
  if (keep.is_null()) return PastThoughts::kClear;  // all but the last turn's
  const std::string kind = keep.is_string() ? keep.get<std::string>() : TypeOf(keep);
  if (kind.empty()) return std::nullopt;
  if (kind == "all") return PastThoughts::kKeep;
  if (kind != "thinking_turns") return PastThoughts::kDefault;
  const ordered_json& turns = ValueIn(keep, "value");
  if (!turns.is_number_integer() || turns < 1) return std::nullopt;
  return PastThoughts::kClear;
}

// Claude Code asks in each request that all earlier thoughts be kept.
void ReadContextManagement(ApiFields* fields, Ask* ask) {
  constexpr char kField[] = "context_management";
  constexpr std::string_view kClearThinking = "clear_thinking_20251015";
  const ordered_json* const given = fields->Value(kField);
  if (given == nullptr) return;
  ApiFields inner(*given, "context_management.");
  const ordered_json none = ordered_json::array();
  const ordered_json* const list = inner.Value("edits");
  const ordered_json& edits = list == nullptr ? none : *list;
  if (!edits.is_array()) return fields->Fail(kField, "must have an array of edits");
  for (const ordered_json& edit : edits) {
    const std::string type = TypeOf(edit);
    if (type.empty()) return fields->Fail(kField, "must have edits that are objects with a type");
    if (type != kClearThinking) {
      fields->Ignore(StrCat(kField, ".", type));
      continue;
    }
    const std::optional<PastThoughts> kept = KeptBy(edit);
    if (!kept) {
      return fields->Fail(kField, StrCat("has a ", kClearThinking,
                                         " whose keep is neither \"all\" nor {\"type\": "
                                         "\"thinking_turns\", \"value\": N}"));
    }
    if (kept == PastThoughts::kDefault) fields->Ignore(StrCat(kField, ".", type, ".keep"));
    if (ask->chat.past_thoughts == PastThoughts::kDefault) ask->chat.past_thoughts = *kept;
  }
  std::vector<std::string> ignored;
  fields->Adopt(inner.Finish(&ignored));
  for (const std::string& name : ignored) fields->Ignore(name);
}

void ReadTemplateFields(ApiFields* fields, const ThinkingDefaults& defaults, Ask* ask) {
  ReadTemplateKwargs(fields, ask);
  ReadContextManagement(fields, ask);
  ReadThinking(fields, defaults, ask);
  SetThinking(defaults, ask->thought, &ask->chat);
  // Anthropic's models do not think unless they are asked to.
  SetMissing("enable_thinking", false, &ask->chat.variables);
}

void ReadConversation(ApiFields* fields, Host& host, const HttpRequest& request,
                      MessagesRequest* read) {
  Ask* const ask = &read->ask;
  const ordered_json* const messages = fields->Value("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields->Fail("messages", "must be an array of at least one message");
  }
  if (messages->size() > kMaxMessages) {
    return fields->Fail("messages", StrCat("has more than ", kMaxMessages, " entries"));
  }
  if (const ordered_json* const tools = fields->Value("tools")) {
    auto catalog = ReadAnthropicTools(*tools);
    if (!catalog.ok()) return fields->Adopt(catalog.status());
    read->tools = *std::move(catalog);
  }
  PictureReader pictures(host, request, ask);
  auto converted = ToChatMessages(fields->Value("system"), *messages, &read->tools, &read->warnings,
                                  &ask->marks, &ask->list.places, &pictures);
  if (!converted.ok()) return fields->Adopt(converted.status());
  Conversation& conversation = ask->chat.conversation;
  conversation.messages = *std::move(converted);
  conversation.tools = read->tools.functions();
  TellRepeatedCalls(host.defaults().server.note_repeated_calls, &conversation, &read->warnings);
  // An answer begun by the client.
  if (!conversation.messages.empty() && conversation.messages.back().role == Role::kAssistant) {
    ask->chat.continuation = Continuation::kAuto;
  }
  if (const ordered_json* const tools = fields->Value("tools")) {
    const bool has_system =
        !conversation.messages.empty() && conversation.messages.front().role == Role::kSystem;
    fields->Adopt(AddHeadMarks(*tools, "tools", has_system ? 1 : 0, &ask->marks));
  }
  fields->Adopt(CheckCounts(conversation));
}

}  // namespace

std::string WithoutBillingHeader(std::string_view system) {
  if (!system.starts_with(kBillingHeader)) return std::string(system);
  const size_t end = system.find('\n');
  if (end == std::string_view::npos) return "";
  return std::string(system.substr(end + 1));
}

StatusOr<std::vector<ChatMessage>> ToChatMessages(const ordered_json* system,
                                                  const ordered_json& messages, ToolCatalog* tools,
                                                  std::vector<std::string>* warnings,
                                                  std::vector<PromptMark>* marks,
                                                  std::vector<size_t>* places,
                                                  PictureReader* pictures) {
  LeftOut left_out;
  BlockReader blocks(tools, &left_out, pictures);
  std::vector<PromptMark> unused;
  if (marks == nullptr) marks = &unused;
  std::vector<ChatMessage> out;
  if (system != nullptr) {
    WEFT_ASSIGN_OR_RETURN(std::string text, SystemText(blocks, *system));
    if (!text.empty()) out.push_back({.role = Role::kSystem, .parts = {std::move(text)}});
    WEFT_RETURN_IF_ERROR(AddHeadMarks(*system, "system", out.size(), marks));
  }
  if (places != nullptr) places->assign(out.size(), 0);
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string place = StrCat("messages[", i, "]");
    if (!messages[i].is_object()) return Misshapen(place, "must be an object");
    WEFT_ASSIGN_OR_RETURN(const std::string name, NeedString(messages[i], "role", place));
    const auto role = RoleNamed(name);
    if (role != Role::kUser && role != Role::kAssistant && role != Role::kSystem) {
      return Misshapen(place + ".role", "must be \"user\" or \"assistant\"");
    }
    MessageConverter converter(*role, place, &out, &blocks, &left_out, marks);
    const bool is_begun = i + 1 == messages.size() && role == Role::kAssistant;
    WEFT_RETURN_IF_ERROR(converter.Convert(ValueIn(messages[i], "content"), is_begun));
    if (places != nullptr) places->resize(out.size(), i);
  }
  left_out.Warn("blocks that the model cannot read were left out", warnings);
  blocks.Warn(warnings);
  return out;
}

namespace {

MessagesRequest::Diagnostics ReadDiagnostics(ApiFields* fields) {
  using Diagnostics = MessagesRequest::Diagnostics;
  const ordered_json* const diagnostics = fields->Value("diagnostics");
  if (diagnostics == nullptr) return Diagnostics::kNone;
  const ordered_json& id = ValueIn(*diagnostics, "previous_message_id");
  if (!diagnostics->is_object() || !(id.is_null() || id.is_string())) {
    fields->Fail("diagnostics",
                 "must be an object with previous_message_id, a message's id or null");
  }
  return id.is_string() ? Diagnostics::kCompared : Diagnostics::kFirstTurn;
}

}  // namespace

StatusOr<MessagesRequest> ReadMessages(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const ordered_json body, ParseJson(request.body, {}));
  MessagesRequest read;
  read.ask.call_id_prefix = "toolu_";
  ApiFields fields(body);
  const auto model = fields.String("model");
  ReadConversation(&fields, host, request, &read);
  read.ask.tool_choice = ReadAnthropicToolChoice(&fields, read.tools);
  read.tools.CheckUsable(read.ask.tool_choice.calls_allowed, &fields);
  read.tools.Warn(&read.warnings);
  ReadTemplateFields(&fields, host.defaults().thinking, &read.ask);
  TurnOptions& turn = read.ask.turn;
  ReadSampling(&fields, host.model(), RulesOf(host), &turn);
  turn.max_tokens = fields.Integer("max_tokens", 1, INT32_MAX).value_or(kDefaultMaxTokens);
  if (auto stops = fields.Strings("stop_sequences", kMaxStopStrings))
    turn.stop_strings = *std::move(stops);
  read.stream = fields.Bool("stream").value_or(false);
  AddAnswerRule(&fields, turn, &read.ask.answer);
  ReadForeignFields(&fields, &turn);
  RefuseProgress(&fields);
  fields.Refuse("container", "is not supported");
  fields.Refuse("mcp_servers", "is not supported", ordered_json::array());
  if (const ordered_json* const control = fields.Value("cache_control")) {
    auto mark = ReadCacheControl(*control, "");
    fields.Adopt(mark.status());
    if (mark.ok()) read.ask.marks.push_back(*mark);
  }
  fields.CannotMatter({"metadata", "service_tier", "inference_geo"});
  read.ask.tells_cache_report = WantsCacheReport(request, &fields);
  read.diagnostics = ReadDiagnostics(&fields);
  WEFT_RETURN_IF_ERROR(FinishFields(host, request, model, 1, &fields, &read.ignored, &read.ask));
  return read;
}

}  // namespace weft::serve
