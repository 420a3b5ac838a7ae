#include "doors/api/ollama/request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "answer/chat/chat_context.h"
#include "answer/chat/openai_form.h"
#include "base/strings.h"
#include "doors/api/fields/answer_rule.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/fill_in_prompt.h"
#include "doors/api/fields/pictures.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/repeated_calls.h"
#include "doors/api/template_fields.h"
#include "doors/api/tool_catalog.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kLatest = ":latest";

// --- options ---------------------------------------------------------------------------

// An unsupported sampler: ignored with a warning. Clients send settings made for other models, and
// Ollama itself has long ignored several of them.
void PassOver(ApiFields* options, std::string_view name, const ordered_json& harmless,
              std::vector<std::string>* warnings) {
  const ordered_json* const value = options->Value(name);
  if (value == nullptr || *value == harmless) return;
  warnings->push_back(
      StrCat("options.", name, " was ignored: this server supports ", SamplerList()));
}

// The context size is fixed when the server loads the model.
void ReadContextSize(ApiFields* options, const Model& model, std::vector<std::string>* warnings) {
  const auto wanted = options->Integer("num_ctx", 0, std::numeric_limits<int64_t>::max());
  if (wanted.value_or(0) <= model.context_tokens()) return;
  warnings->push_back(StrCat("options.num_ctx of ", *wanted, " was ignored: the context has ",
                             model.context_tokens(), " tokens, as set by the server's --ctx"));
}

void ReadOptions(ApiFields* fields, Host& host, OllamaRequest* read) {
  const ordered_json none = ordered_json::object();
  const ordered_json* const given = fields->Value("options");
  ApiFields options(given == nullptr ? none : *given, "options.");
  TurnOptions* const turn = &read->ask.turn;
  ReadSampling(&options, host.model(), WideRulesOf(host), turn);
  ReadStops(&options, turn);
  turn->max_tokens = host.defaults().max_tokens;
  // -1 means unlimited, -2 until the context is full: the same here.
  constexpr int64_t kMaxPredict = std::numeric_limits<int32_t>::max();
  if (const auto most = options.Integer("num_predict", -kMaxPredict, kMaxPredict)) {
    turn->max_tokens = *most > 0 ? *most : -1;
  }
  ReadContextSize(&options, host.model(), &read->warnings);
  for (const ForeignSampler& sampler : ForeignSamplers()) {
    PassOver(&options, sampler.name, sampler.off, &read->warnings);
  }
  PassOver(&options, "penalize_newline", true, &read->warnings);
  for (const std::string_view name : ForeignTuning()) options.CannotMatter({name});
  // Model loading options.
  options.CannotMatter({"num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "low_vram",
                        "f16_kv", "logits_all", "vocab_only", "embedding_only", "use_mmap",
                        "use_mlock", "numa"});
  fields->Adopt(options.Finish(&read->ignored));
}

// --- common to both --------------------------------------------------------------------

void ReadThink(ApiFields* fields, Host& host, Ask* ask) {
  ReadTemplateKwargs(fields, ask);
  ordered_json& variables = ask->chat.variables;
  ask->thought.tokens = host.defaults().thinking.limit.tokens;
  ReadThoughtMessage(fields, host.defaults().thinking, ask);
  if (const ordered_json* const think = fields->Value("think")) {
    const bool is_level = *think == "low" || *think == "medium" || *think == "high";
    if (!think->is_boolean() && !is_level) {
      return fields->Fail("think", "must be true, false, \"low\", \"medium\" or \"high\"");
    }
    const bool wanted = *think != false;
    if (wanted && !host.chat().has_reasoning()) {
      return fields->Unsupported("think",
                                 StrCat("is not supported by ", host.model_id(),
                                        ", which does not think; omit it, or set it to false"));
    }
    SetMissing("enable_thinking", wanted, &variables);
    if (is_level) SetReasoningEffort(think->get<std::string>(), &variables);
    ask->show_reasoning = wanted;
  }
  SetThinking(host.defaults().thinking, ask->thought, &ask->chat);
}

void ReadOllamaLogprobs(ApiFields* fields, TurnOptions* turn) {
  const bool wanted = fields->Bool("logprobs").value_or(false);
  const auto top = fields->Integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top.value_or(0) > 0 && !wanted) {
    return fields->Fail("top_logprobs", "needs logprobs to be true");
  }
  if (wanted) turn->top_logprobs = static_cast<int>(top.value_or(0));
}

// "json", or a schema.
void ReadOllamaFormat(ApiFields* fields, Ask* ask) {
  const ordered_json* const format = fields->Value("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    ask->answer = ObjectRule("format");
  } else if (format->is_object()) {
    ask->answer = SchemaRule(*format, "format");
  } else {
    fields->Fail("format", "must be \"json\" or a JSON Schema, an object");
  }
}

// 0, "0", "0s": unload the model now.
bool IsZeroDuration(const ordered_json& value) {
  if (value.is_number()) return value == 0;
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return text.find('0') != text.npos && text.find_first_of("123456789") == text.npos;
}

// `says_nothing`: there is no prompt.
void ReadProbe(ApiFields* fields, bool says_nothing, OllamaRequest* read) {
  const ordered_json* const keep = fields->Value("keep_alive");
  if (keep != nullptr && !keep->is_number() && !keep->is_string()) {
    return fields->Fail("keep_alive", "must be a number of seconds, or a duration such as \"5m\"");
  }
  if (!says_nothing) return;
  const bool unloads = keep != nullptr && IsZeroDuration(*keep);
  read->probe = unloads ? OllamaRequest::Probe::kUnload : OllamaRequest::Probe::kLoad;
}

void ReadShared(ApiFields* fields, Host& host, OllamaRequest* read) {
  read->stream = fields->Bool("stream").value_or(true);
  ReadOptions(fields, host, read);
  ReadThink(fields, host, &read->ask);
  ReadOllamaLogprobs(fields, &read->ask.turn);
  ReadOllamaFormat(fields, &read->ask);
  AddAnswerRule(fields, read->ask.turn, &read->ask.answer);
  read->truncate = fields->Bool("truncate").value_or(true);
  fields->Refuse("shift", "is not supported: an answer ends when the context is full", false);
}

// --- /api/chat -------------------------------------------------------------------------

bool HasPictures(const ordered_json& message) {
  const ordered_json& images = ValueIn(message, "images");
  return !images.is_null() && !images.empty();
}

// The unanswered calls of the last message that had any.
class OpenCalls {
 public:
  // Assigns ids to calls without one.
  void Open(std::vector<ToolCall>* calls) {
    open_.clear();
    for (ToolCall& call : *calls) {
      if (call.id.empty()) call.id = StrCat("call_", n_named_++);
      open_.emplace_back(call.id, call.name);
    }
  }
  // `name`: the tool's, or empty.
  void Answer(const std::string& name, ChatMessage* result) {
    const std::string& id = result->call_id;
    auto it = std::find_if(open_.begin(), open_.end(), [&](const auto& call) {
      return id.empty() ? call.second == name : call.first == id;
    });
    if (it == open_.end() && id.empty()) it = open_.begin();
    if (it != open_.end()) {
      result->call_id = it->first;
      open_.erase(it);
    }
    if (!name.empty()) result->fields["name"] = name;
    result->fields.erase("tool_name");
  }

 private:
  std::vector<std::pair<std::string, std::string>> open_;  // ids and names
  int n_named_ = 0;
};

void ReadOllamaConversation(ApiFields* fields, Host& host, const HttpRequest& request,
                            OllamaRequest* read) {
  ChatRequest& chat = read->ask.chat;
  const ordered_json* const messages = fields->Value("messages");
  const bool is_empty = messages == nullptr || (messages->is_array() && messages->empty());
  if (!is_empty && !messages->is_array()) {
    return fields->Fail("messages", "must be an array of messages");
  }
  if (!is_empty) {
    PictureReader pictures(host, request, &read->ask);
    auto converted = FromOllamaMessages(*messages, &read->warnings, &pictures);
    if (!converted.ok()) return fields->Adopt(converted.status());
    chat.conversation.messages = *std::move(converted);
  }
  if (const ordered_json* const tools = fields->Value("tools")) {
    auto catalog = ReadChatTools(*tools);
    if (!catalog.ok()) return fields->Adopt(catalog.status());
    chat.conversation.tools = catalog->functions();
    catalog->CheckUsable(/*calls_allowed=*/true, fields);
    catalog->Warn(&read->warnings);
  }
  TellRepeatedCalls(host.defaults().server.note_repeated_calls, &chat.conversation,
                    &read->warnings);
  if (!is_empty) ReadEnding(fields, &chat);
  fields->Adopt(CheckCounts(chat.conversation));
  ReadProbe(fields, is_empty, read);
}

// --- /api/generate ---------------------------------------------------------------------

std::vector<int32_t> EncodeRaw(const Model& model, const std::string& text) {
  return MakePromptEncoder(model.tokenizer(), model.context_tokens())
      .encode(text, /*at_start=*/true);
}

std::vector<int32_t> EncodeAsText(const Model& model, const std::string& text) {
  return model.Encode(text, /*add_special=*/false, /*parse_special=*/false);
}

// The `context` of an earlier answer.
void ReadOllamaContext(ApiFields* fields, const Model& model, Ask* ask) {
  const ordered_json* const context = fields->Value("context");
  if (context == nullptr) return;
  const bool fits = context->is_array() &&
                    std::all_of(context->begin(), context->end(), [&](const ordered_json& id) {
                      return id.is_number_integer() && id.get<int64_t>() >= 0 &&
                             id.get<int64_t>() < model.n_vocab();
                    });
  if (!fits) return fields->Fail("context", "must be the array from an earlier answer");
  ask->before = context->get<std::vector<int32_t>>();
}

// The suffix: the text after the gap that the answer fills.
void ReadGap(ApiFields* fields, const Model& model, const std::string& prompt,
             const std::string& suffix, OllamaRequest* read) {
  const auto ids = NeedFillInTokens(model);
  if (!ids.ok()) {
    return fields->Unsupported("suffix", StrCat("cannot be used: ", Message(ids.status())));
  }
  FillIn parts{.prefix = EncodeAsText(model, prompt), .suffix = EncodeAsText(model, suffix)};
  TurnOptions& turn = read->ask.turn;
  read->ask.input = Ask::Input::kPrompt;
  turn.tokens = FillInPrompt(model, *ids, std::move(parts), turn.max_tokens);
}

// Refuses fields that only make sense with a template.
void RefuseBeside(ApiFields* fields, std::string_view other, bool has_system, const Ask& ask) {
  const std::string why = StrCat("cannot be combined with ", other);
  if (has_system) fields->Unsupported("system", why);
  if (!ask.before.empty()) fields->Unsupported("context", why);
  fields->Refuse("chat_template_kwargs", why, ordered_json::object());
}

// The texts that stand for a prompt's pictures. `is_plain`: no template shows them.
std::string ReadPromptImages(ApiFields* fields, Host& host, const HttpRequest& request,
                             bool is_plain, Ask* ask) {
  const ordered_json* const images = fields->Value("images");
  if (images == nullptr || images->empty()) return "";
  if (is_plain || !ask->before.empty()) {
    fields->Unsupported("images", "cannot be combined with raw, suffix or context; use /api/chat");
    return "";
  }
  PictureReader reader(host, request, ask);
  auto marks = TakeImages(reader, *images, "images");
  fields->Adopt(marks.status());
  return marks.value_or("");
}

void ReadOllamaPrompt(ApiFields* fields, Host& host, const HttpRequest& request,
                      OllamaRequest* read) {
  const Model& model = host.model();
  Ask* const ask = &read->ask;
  const std::string prompt = fields->String("prompt").value_or("");
  const std::string suffix = fields->String("suffix").value_or("");
  const std::string system = fields->String("system").value_or("");
  const bool raw = fields->Bool("raw").value_or(false);
  ReadOllamaContext(fields, model, ask);
  fields->Refuse("template",
                 "is not supported: this server does not implement Ollama's template language; use "
                 "raw, and send the prompt exactly as the model should see it",
                 "");
  const std::string pictures = ReadPromptImages(fields, host, request, raw || !suffix.empty(), ask);
  ReadProbe(fields, prompt.empty() && suffix.empty(), read);
  if (raw && !suffix.empty()) fields->Unsupported("suffix", "cannot be combined with raw");
  if (raw || !suffix.empty()) {
    RefuseBeside(fields, raw ? "raw" : "suffix", !system.empty(), *ask);
  }
  if (!fields->ok() || read->probe != OllamaRequest::Probe::kNone) return;
  if (raw || !suffix.empty()) AddEnds(host.defaults().ends, &ask->turn);
  if (raw) {
    ask->input = Ask::Input::kPrompt;
    ask->turn.tokens = EncodeRaw(model, prompt);
  } else if (!suffix.empty()) {
    ReadGap(fields, model, prompt, suffix, read);
  } else {
    ask->keeps_context = true;
    std::vector<ChatMessage>& messages = ask->chat.conversation.messages;
    if (!system.empty()) messages.push_back({.role = Role::kSystem, .parts = {system}});
    messages.push_back({.parts = {pictures + prompt}});
  }
}

template <typename ReadPrompt>
StatusOr<OllamaRequest> Read(Host& host, const HttpRequest& request, ReadPrompt read_prompt) {
  WEFT_ASSIGN_OR_RETURN(const ordered_json body, ParseJson(request.body, {}));
  OllamaRequest read;
  ApiFields fields(body);
  WEFT_ASSIGN_OR_RETURN(read.model, ReadOllamaModel(host, &fields));
  ReadShared(&fields, host, &read);
  read_prompt(&fields, &read);
  read.ask.tells_cache_report = WantsCacheReport(request, &fields);
  std::string_view name = read.model;
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  if (const auto& adapters = host.defaults().adapters; adapters != nullptr) {
    read.ask.turn.adapters = adapters->InName(name);
  }
  // The name was checked already.
  WEFT_RETURN_IF_ERROR(
      FinishFields(host, request, std::nullopt, 1, &fields, &read.ignored, &read.ask));
  return read;
}

}  // namespace

StatusOr<OllamaRequest> ReadOllamaChat(Host& host, const HttpRequest& request) {
  return Read(host, request, [&](ApiFields* fields, OllamaRequest* read) {
    ReadOllamaConversation(fields, host, request, read);
  });
}

StatusOr<OllamaRequest> ReadOllamaGenerate(Host& host, const HttpRequest& request) {
  return Read(host, request, [&](ApiFields* fields, OllamaRequest* read) {
    ReadOllamaPrompt(fields, host, request, read);
  });
}

bool IsServedModel(Host& host, std::string_view name) {
  if (FindModel(host, name).ok() || FindModel(host, StrCat(name, kLatest)).ok()) return true;
  return name.ends_with(kLatest) &&
         FindModel(host, name.substr(0, name.size() - kLatest.size())).ok();
}

StatusOr<std::string> ReadOllamaModel(Host& host, ApiFields* fields) {
  const auto model = fields->String("model");
  const auto name = fields->String("name");
  const std::string wanted = model.value_or(name.value_or(""));
  if (wanted.empty()) fields->Fail("model", "must name a model; /api/tags lists this server's");
  if (!fields->ok()) {
    std::vector<std::string> unused;
    return fields->Finish(&unused);
  }
  if (!IsServedModel(host, wanted)) return NotFound("model '", Printable(wanted), "' not found");
  return wanted;
}

StatusOr<std::vector<ChatMessage>> FromOllamaMessages(const ordered_json& messages,
                                                      std::vector<std::string>* warnings,
                                                      PictureReader* pictures) {
  LeftOut left_out;
  OpenCalls calls;
  std::vector<ChatMessage> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string place = StrCat("messages[", i, "]");
    auto message = ReadOpenAiMessage(messages[i], place);
    if (!message.ok()) return AtPlace(message.status());
    const bool is_result = message->role == Role::kTool;
    const bool sees = pictures != nullptr && pictures->sees();
    if (HasPictures(messages[i]) && is_result && !sees) {
      left_out.Add("images of a tool");
    } else if (HasPictures(messages[i])) {
      if (pictures == nullptr) return Misshapen(place, "pictures cannot be taken here");
      WEFT_ASSIGN_OR_RETURN(const std::string marks,
                            TakeImages(*pictures, messages[i]["images"], StrCat(place, ".images")));
      if (message->parts.empty()) message->parts.emplace_back();
      message->parts[0].insert(0, marks);
    }
    message->fields.erase("images");
    if (is_result) calls.Answer(StringOr(messages[i], "tool_name"), &*message);
    if (!message->calls.empty()) calls.Open(&message->calls);
    out.push_back(*std::move(message));
  }
  left_out.Warn("parts that the model cannot read were left out", warnings);
  return out;
}

}  // namespace weft::serve
