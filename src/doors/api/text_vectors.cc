#include "doors/api/text_vectors.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "answer/row_file.h"
#include "base/strings.h"
#include "doors/api/fields/mixed_text.h"
#include "doors/api/model_wish.h"
#include "doors/api/request_turns.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

// Texts of one request at a time: enough to fill a step, and few enough that others find a place.
constexpr size_t kTextsAtOnce = 16;

// The events of one text's turn, to the end.
Task<Status> TakeResult(Generation* generation, TextResults* results) {
  Status status = Internal("the turn ended without a result");
  while (true) {
    std::optional<TurnEvent> event = co_await generation->Next();
    if (!event) break;
    if (auto* started = std::get_if<StartedEvent>(&*event)) {
      results->texts.push_back(std::move(started->vectors));
      status = OkStatus();
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      if (!done->status.ok()) status = done->status;
      if (done->reason == FinishReason::kCancelled) status = Cancelled("the request was cancelled");
      results->prompt_tokens += done->usage.prompt_tokens;
      results->cached_tokens += done->usage.cached_tokens;
      results->queued_us = std::max(results->queued_us, done->usage.queued_us);
      results->prompt_us += done->usage.prompt_us;
    }
  }
  co_return status;
}

Task<Status> TakeAll(const HttpRequest& request, RequestTurns& turns,
                     const std::vector<AdapterScale>& adapters,
                     std::vector<std::vector<int32_t>> texts, TextResults* results) {
  std::deque<std::shared_ptr<Generation>> ahead;
  size_t n_submitted = 0;
  while (results->texts.size() < texts.size()) {
    while (ahead.size() < kTextsAtOnce && n_submitted < texts.size()) {
      Ask ask{.input = Ask::Input::kPrompt};
      ask.turn.tokens = texts[n_submitted];
      ask.turn.vector = true;
      ask.turn.max_tokens = 0;
      ask.turn.adapters = adapters;
      ask.turn.adapters_are_default = adapters.empty();
      SetOwner(request, &ask);
      auto submitting = turns.Submit(std::move(ask), /*ready=*/nullptr);
      auto generation = co_await submitting;
      // A text that finds no place waits until earlier ones are done.
      if (generation.status().code() == StatusCode::kResourceExhausted && !ahead.empty()) break;
      if (!generation.ok()) co_return generation.status();
      ahead.push_back(*std::move(generation));
      ++n_submitted;
    }
    auto taking = TakeResult(ahead.front().get(), results);
    const Status status = co_await taking;
    if (!status.ok()) co_return status;
    ahead.pop_front();
  }
  co_return OkStatus();
}

using Json = nlohmann::ordered_json;

bool HasNumber(const Json& array) {
  return std::any_of(array.begin(), array.end(), [](const Json& part) { return part.is_number(); });
}

// The texts of an array of parts, one after the other.
std::optional<std::string> TextOfParts(const Json& parts) {
  if (!parts.is_array()) return std::nullopt;
  std::string text;
  for (const Json& part : parts) {
    if (!part.is_object() || part.value("type", Json()) != "text") return std::nullopt;
    const Json piece = part.value("text", Json());
    if (!piece.is_string()) return std::nullopt;
    text += piece.get_ref<const std::string&>();
  }
  return text;
}

bool ReadText(const Json& value, const Model& model, int64_t max_tokens,
              std::vector<std::vector<int32_t>>* texts) {
  if (value.is_object() && value.contains("content")) {
    const auto text = TextOfParts(value["content"]);
    if (text) texts->push_back(EncodeText(model, *text, max_tokens));
    return text.has_value();
  }
  const Json& text = value.is_object() ? ValueIn(value, "prompt_string") : value;
  if (text.is_array() && !HasNumber(text)) return false;
  const TextEncoder encode = [&model, max_tokens](std::string_view part, bool at_start) {
    return model.tokenizer()->Encode(part, {.add_special = at_start, .max_tokens = max_tokens});
  };
  // The engine says which id is not in the vocabulary.
  return ReadMixedText(text, INT32_MAX, encode, &texts->emplace_back());
}

}  // namespace

Task<StatusOr<TextResults>> ComputeTexts(Host& host, const HttpRequest& request,
                                         HttpResponder& responder,
                                         std::vector<std::vector<int32_t>> texts) {
  TextResults results;
  RequestTurns turns(host, responder);
  std::vector<AdapterScale> adapters;
  if (const auto& known = host.defaults().adapters; known != nullptr) {
    adapters = known->InName(ReadModelWish(request).name);
  }
  auto taking = TakeAll(request, turns, adapters, std::move(texts), &results);
  const Status status = co_await taking;
  co_await turns.End();
  if (!status.ok()) co_return status;
  co_return results;
}

Status CheckGivesVectors(Host& host) { return CheckGivesVectors(host.model(), host.model_id()); }

Status CheckGivesScores(Host& host) {
  if (host.model().uses().scores) return OkStatus();
  return InvalidArgument("the model ", host.model_id(), " does not rank documents: it is for ",
                         host.model().purpose());
}

std::vector<int32_t> EncodeText(const Model& model, std::string_view text, int64_t max_tokens) {
  return model.tokenizer()->Encode(text, {.add_special = true, .max_tokens = max_tokens});
}

void ReadTexts(ApiFields* fields, std::string_view name, const Model& model, int64_t max_tokens,
               std::vector<std::vector<int32_t>>* texts) {
  constexpr char kShape[] =
      "must be a string, an array of token ids and strings, {\"prompt_string\": ...} with either, "
      "{\"content\": ...} with parts of type text, or an array of such texts";
  const Json* const value = fields->Value(name);
  if (value == nullptr) return fields->Fail(name, kShape);
  if (!value->is_array() || HasNumber(*value)) {
    if (!ReadText(*value, model, max_tokens, texts)) fields->Fail(name, kShape);
    return;
  }
  if (value->empty()) return fields->Fail(name, kShape);
  if (value->size() > kMaxTexts) {
    return fields->Fail(
        name, StrCat("has ", value->size(), " texts, and at most ", kMaxTexts, " are taken"));
  }
  for (const Json& entry : *value) {
    if (!ReadText(entry, model, max_tokens, texts)) return fields->Fail(name, kShape);
  }
}

void AppendVectorJson(std::span<const float> vector, std::string* json) {
  *json += '[';
  for (const float value : vector) {
    if (json->back() != '[') *json += ',';
    if (!std::isfinite(value)) {
      *json += "null";
      continue;
    }
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value);
    json->append(digits, end.ptr);
  }
  *json += ']';
}

std::string Base64Of(std::span<const float> vector) {
  std::string bytes(vector.size() * sizeof(float), '\0');
  if (!vector.empty()) std::memcpy(bytes.data(), vector.data(), bytes.size());
  return EncodeBase64(bytes);
}

}  // namespace weft::serve
