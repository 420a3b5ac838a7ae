#include "doors/api/openai/completions_request.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "answer/chat/chat_context.h"
#include "base/strings.h"
#include "doors/api/fields/answer_rule.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/fill_in_prompt.h"
#include "doors/api/fields/prompt_embeds.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;
using Prompt = CompletionRequest::Prompt;

constexpr size_t kMaxPrompts = 256;
constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's default

constexpr char kPromptShape[] =
    "must be a string, an array of strings, an array of token ids, or an array of such arrays";

bool IsTokens(const ordered_json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const ordered_json& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return false;
    }
  }
  return true;
}

// Treats control tokens as plain text.
std::vector<int32_t> EncodePlain(const Model& model, std::string_view text) {
  return model.Encode(text, /*add_special=*/false, /*parse_special=*/false);
}

// Encodes text as tokens.
using EncodePrompt = std::function<std::vector<int32_t>(const std::string& text)>;

bool ReadPrompt(const ordered_json& value, const Model& model, const EncodePrompt& encode,
                std::vector<Prompt>* prompts) {
  Prompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
    prompt.is_text = true;
    prompt.tokens = encode(prompt.text);
  } else if (IsTokens(value)) {
    prompt.tokens = value.get<std::vector<int32_t>>();
    prompt.text = model.Decode(prompt.tokens, /*render_special=*/true);
  } else {
    return false;
  }
  prompts->push_back(std::move(prompt));
  return true;
}

// Vectors in place of prompts: one matrix, or several of them. They come before those of text.
void ReadEmbeddedPrompts(ApiFields* fields, Host& host, std::vector<Prompt>* prompts) {
  const ordered_json* const value = fields->Value("prompt_embeds");
  if (value == nullptr) return;
  const auto read = [&](const ordered_json& matrix, std::string_view place) {
    auto rows = ReadPromptEmbeds(host, matrix, place);
    if (!rows.ok()) return fields->Adopt(rows.status());
    std::vector<PromptPart> parts(1);
    parts[0].rows = *std::move(rows);
    prompts->push_back(
        {.parts = std::make_shared<const std::vector<PromptPart>>(std::move(parts))});
  };
  if (!value->is_array()) return read(*value, "prompt_embeds");
  if (value->empty() || value->size() > kMaxPrompts) {
    return fields->Fail("prompt_embeds", StrCat("must be one matrix, or 1 to ", kMaxPrompts));
  }
  for (size_t i = 0; i < value->size() && fields->ok(); ++i) {
    read((*value)[i], StrCat("prompt_embeds[", i, "]"));
  }
}

void ReadPrompts(ApiFields* fields, const Model& model, const EncodePrompt& encode,
                 std::vector<Prompt>* prompts) {
  const ordered_json* const value = fields->Value("prompt");
  if (value == nullptr && !prompts->empty()) return;
  if (value == nullptr) return fields->Fail("prompt", kPromptShape);
  if (value->is_string() || IsTokens(*value)) {
    ReadPrompt(*value, model, encode, prompts);
    return;
  }
  if (!value->is_array() || value->empty()) return fields->Fail("prompt", kPromptShape);
  if (value->size() > kMaxPrompts) {
    return fields->Fail(
        "prompt", StrCat("has ", value->size(), " prompts, at most ", kMaxPrompts, " are taken"));
  }
  for (const ordered_json& entry : *value) {
    if (!ReadPrompt(entry, model, encode, prompts)) return fields->Fail("prompt", kPromptShape);
  }
}

// This many are sampled, and the likeliest of them returned.
void ReadBestOf(ApiFields* fields, CompletionRequest* read) {
  TurnOptions& turn = read->ask.turn;
  read->n_answers = turn.n_choices;
  const auto best_of = fields->Integer("best_of", 1, kMaxChoices);
  if (!best_of || *best_of == turn.n_choices) return;
  if (*best_of < turn.n_choices) return fields->Fail("best_of", "must be at least n");
  if (turn.max_tokens == 0) return fields->Fail("best_of", "must be 1 where max_tokens is 0");
  turn.n_choices = static_cast<int>(*best_of);
  turn.top_logprobs = std::max(turn.top_logprobs, 0);
}

void ReadLegacyFields(ApiFields* fields, CompletionRequest* read) {
  TurnOptions& turn = read->ask.turn;
  read->echo = fields->Bool("echo").value_or(false);
  for (const char* name : {"logprobs", "n_probs"}) {
    if (const auto n = fields->Integer(name, 0, kMaxTopLogprobs)) {
      if (*n > 0 || std::string_view(name) == "logprobs") turn.top_logprobs = static_cast<int>(*n);
    }
  }
  const auto has_rows = [](const Prompt& prompt) { return prompt.parts != nullptr; };
  if (read->echo && std::ranges::any_of(read->prompts, has_rows)) {
    fields->Fail("echo", "cannot repeat vectors (prompt_embeds)");
  }
  read->wants_logprobs = turn.top_logprobs >= 0;
  turn.prompt_logprobs = read->echo && read->wants_logprobs;
  ReadChoices(fields, &turn);
  turn.max_tokens = kDefaultMaxTokens;
  ReadMaxTokens(fields, /*least=*/0, &turn);
  if (turn.max_tokens == 0 && turn.n_choices > 1) {
    fields->Fail("n", "must be 1 where max_tokens is 0");
  }
  ReadBestOf(fields, read);
  fields->Refuse("return_tokens", "is not supported; use /completion", false);
  fields->Refuse("post_sampling_probs", "is not supported here; use /completion", false);
}

// The text after the gap that the answer fills; the prompts' tokens come before the gap.
void ReadSuffix(ApiFields* fields, const Model& model, const std::string& suffix,
                CompletionRequest* read) {
  if (suffix.empty() || !fields->ok()) return;
  const auto ids = NeedFillInTokens(model);
  if (!ids.ok())
    return fields->Unsupported("suffix", StrCat("cannot be used: ", Message(ids.status())));
  if (read->echo) return fields->Unsupported("echo", "cannot be combined with suffix");
  const std::vector<int32_t> behind = EncodePlain(model, suffix);
  for (Prompt& prompt : read->prompts) {
    if (!prompt.is_text) return fields->Fail("prompt", "must be text if there is a suffix");
    prompt.tokens =
        FillInPrompt(model, *ids, {.prefix = std::move(prompt.tokens), .suffix = behind},
                     read->ask.turn.max_tokens);
  }
}

}  // namespace

StatusOr<CompletionRequest> ReadCompletion(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const ordered_json body, ParseJson(request.body, {}));
  CompletionRequest read;
  ApiFields fields(body);
  const auto model = fields.String("model");
  const std::string suffix = fields.String("suffix").value_or("");
  const EncodePrompt encode = [&model = host.model(),
                               fills_in = !suffix.empty()](const std::string& text) {
    if (fills_in) return EncodePlain(model, text);
    return MakePromptEncoder(model.tokenizer(), model.context_tokens())
        .encode(text, /*at_start=*/true);
  };
  ReadEmbeddedPrompts(&fields, host, &read.prompts);
  ReadPrompts(&fields, host.model(), encode, &read.prompts);
  ReadSampling(&fields, host.model(), RulesOf(host), &read.ask.turn);
  ReadStops(&fields, &read.ask.turn);
  AddEnds(host.defaults().ends, &read.ask.turn);
  ReadLegacyFields(&fields, &read);
  ReadSuffix(&fields, host.model(), suffix, &read);
  ReadForeignFields(&fields, &read.ask.turn);
  ReadTextRule(&fields, host.model(), request.Account(), &read.ask.turn);
  RefuseProgress(&fields);
  ReadAccountFields(&fields);
  read.stream = ReadStreamChoice(&fields, &read.ignored);
  if (read.stream.stream && read.n_answers < read.ask.turn.n_choices) {
    fields.Fail("best_of",
                "cannot be more than n in a stream: the best answers are known only at the end");
  }
  read.ask.tells_cache_report = WantsCacheReport(request, &fields);
  WEFT_RETURN_IF_ERROR(
      FinishFields(host, request, model, read.prompts.size(), &fields, &read.ignored, &read.ask));
  return read;
}

}  // namespace weft::serve
