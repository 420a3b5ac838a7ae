#include "doors/api/ollama/routes.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "base/clock.h"
#include "base/strings.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/support.h"
#include "doors/api/ndjson.h"
#include "doors/api/ollama/oldest_turns.h"
#include "doors/api/ollama/request.h"
#include "doors/api/reply_json.h"
#include "doors/api/request_turns.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

enum class OllamaRoute { kChat, kGenerate };

int64_t Nanoseconds(int64_t us) { return us * 1000; }

Json OllamaCall(const std::string& id, int index, const std::string& name,
                const std::string& arguments) {
  Json parsed = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) parsed = Json::object();
  return {{"id", id},
          {"function", {{"index", index}, {"name", name}, {"arguments", std::move(parsed)}}}};
}

// The content of one object of an answer.
struct Said {
  std::string content;
  std::string thinking;
  Json calls = Json::array();
};

// Builds the objects of one answer.
class OllamaAnswer {
 public:
  OllamaAnswer(Host& host, const OllamaRequest& read, OllamaRoute route)
      : host_(host), read_(read), route_(route), begin_us_(NowMicros()) {}

  Json Object(Said said) const {
    Json object = {{"model", read_.model}, {"created_at", UtcTime(WallClockMicros())}};
    const bool is_chat = route_ == OllamaRoute::kChat;
    Json message = Json::object();
    if (is_chat) message["role"] = "assistant";
    message[is_chat ? "content" : "response"] = std::move(said.content);
    if (!said.thinking.empty()) message["thinking"] = std::move(said.thinking);
    if (!said.calls.empty()) message["tool_calls"] = std::move(said.calls);
    if (is_chat) {
      object["message"] = std::move(message);
    } else {
      object.update(message);
    }
    object["done"] = false;
    return object;
  }

  void AddLogprobs(const std::vector<TokenEvent>& tokens, Json* object) const {
    if (read_.ask.turn.top_logprobs < 0 || tokens.empty()) return;
    Json entries = LogprobEntries(*host_.model().tokenizer(), tokens);
    if (!entries.empty()) (*object)["logprobs"] = std::move(entries);
  }

  // Adds the final statistics to the last object.
  void AddEnd(FinishReason reason, const Answer& stream, Json* object) const {
    const AnswerUsage usage = stream.usage();
    (*object)["done"] = true;
    (*object)["done_reason"] = IsCut(reason) ? "length" : "stop";
    if (reason == FinishReason::kContext) (*object)["stop_reason"] = kContextIsFull;
    if (reason == FinishReason::kLoop) (*object)["stopped_in_loop"] = true;
    if (read_.ask.keeps_context) (*object)["context"] = stream.context();
    (*object)["total_duration"] = Nanoseconds(NowMicros() - begin_us_);
    (*object)["load_duration"] = 0;  // the model is already loaded
    (*object)["prompt_eval_count"] = usage.prompt_tokens;
    (*object)["cached_tokens"] = usage.cached_tokens;
    (*object)["disk_tokens"] = usage.disk_tokens;
    // Clients divide by these.
    (*object)["prompt_eval_duration"] = Nanoseconds(std::max<int64_t>(usage.prompt_us, 1));
    (*object)["eval_count"] = usage.completion_tokens;
    (*object)["eval_duration"] = Nanoseconds(std::max<int64_t>(usage.decode_us, 1));
    AddCacheReport(usage.cache_report, object);
  }

 private:
  Host& host_;
  const OllamaRequest& read_;
  const OllamaRoute route_;
  const int64_t begin_us_;
};

void AnswerProbe(const OllamaAnswer& answer, const OllamaRequest& read, HttpResponder& responder) {
  Json object = answer.Object({});
  object["done"] = true;
  object["done_reason"] = read.probe == OllamaRequest::Probe::kUnload ? "unload" : "load";
  SendJson(responder, object, read.ignored, read.warnings);
}

void AnswerWhole(const OllamaAnswer& answer, const OllamaRequest& read, HttpResponder& responder,
                 const Answer& stream, const StatusOr<std::vector<Reply>>& replies) {
  if (!replies.ok()) return SendError(responder, replies.status(), kOllamaErrors);
  const Reply& reply = replies->front();
  Said said{.content = reply.Joined(ReplyBlock::Kind::kContent),
            .thinking = reply.Joined(ReplyBlock::Kind::kReasoning)};
  for (const ReplyBlock& block : reply.blocks) {
    // Clients run every call they see: a call that was cut is not told.
    if (block.kind != ReplyBlock::Kind::kCall || block.is_cut) continue;
    const auto index = static_cast<int>(said.calls.size());
    said.calls.push_back(OllamaCall(block.call_id, index, block.name, block.text));
  }
  Json object = answer.Object(std::move(said));
  answer.AddLogprobs(reply.tokens, &object);
  answer.AddEnd(reply.end.reason, stream, &object);
  SendJson(responder, object, read.ignored, read.warnings);
}

// Writes a line for each piece of text, and for each completed call.
class OllamaWriter {
 public:
  OllamaWriter(const OllamaAnswer& answer, const OllamaRequest& read, HttpResponder& responder)
      : answer_(answer), lines_(responder, NoticeHeaders(read.ignored, read.warnings)) {}

  bool begun() const { return lines_.begun(); }

  Task<void> Run(Answer* stream) {
    bool goes_on = true;
    while (goes_on) {
      const std::optional<AnswerPiece> piece = co_await stream->Next();
      goes_on = piece.has_value() && Take(*piece, *stream);
    }
  }

  void TellAlive(const AnswerUsage& usage) {
    Json object = answer_.Object({});
    if (usage.waits_behind_tokens > 0) object["waits_behind_tokens"] = usage.waits_behind_tokens;
    lines_.Line(object);
  }

  void Fail(const Status& status) {
    lines_.Line(ErrorBody(ToDetailedApiError(status), kOllamaErrors));
    lines_.End();
  }

 private:
  // False after the last piece.
  bool Take(const AnswerPiece& piece, const Answer& stream) {
    if (!piece.status.ok()) {
      Fail(piece.status);
      return false;
    }
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
    if (piece.kind != AnswerPiece::Kind::kEnd) return Write(piece);
    Json last = answer_.Object({});
    TakeLogprobs(&last);
    answer_.AddEnd(piece.end.reason, stream, &last);
    lines_.Line(last);
    lines_.End();
    return false;
  }

  bool Write(const AnswerPiece& piece) {
    switch (piece.kind) {
      case AnswerPiece::Kind::kReasoning:
        return Line({.thinking = piece.text});
      case AnswerPiece::Kind::kContent:
        return Line({.content = piece.text});
      case AnswerPiece::Kind::kCallBegin:
        call_id_ = piece.id;
        call_name_ = piece.name;
        arguments_.clear();
        return true;
      case AnswerPiece::Kind::kCallArguments:
        arguments_ += piece.text;
        return true;
      case AnswerPiece::Kind::kCallEnd:
        return Line(
            {.calls = Json::array({OllamaCall(call_id_, n_calls_++, call_name_, arguments_)})});
      case AnswerPiece::Kind::kEnd:
        break;
    }
    return true;
  }

  bool Line(Said said) {
    Json object = answer_.Object(std::move(said));
    TakeLogprobs(&object);
    return lines_.Line(object);
  }

  void TakeLogprobs(Json* object) {
    answer_.AddLogprobs(tokens_, object);
    tokens_.clear();
  }

  const OllamaAnswer& answer_;
  NdjsonStream lines_;
  std::vector<TokenEvent> tokens_;  // not reported yet
  std::string call_id_, call_name_, arguments_;
  int n_calls_ = 0;
};

// False, and nothing is answered, if the prompt is too long and may be shortened.
Task<bool> AnswerRead(HttpResponder& responder, RequestTurns& turns, const OllamaRequest& read,
                      const OllamaAnswer& answer) {
  OllamaWriter writer(answer, read, responder);
  StreamSigns signs;
  if (read.stream) signs.alive = [&writer](const AnswerUsage& usage) { writer.TellAlive(usage); };
  auto opening = turns.Open(read.ask, std::move(signs));
  auto stream = co_await opening;
  if (!stream.ok() && writer.begun()) {
    writer.Fail(stream.status());
  } else if (stream.status().code() == StatusCode::kOutOfRange && read.truncate &&
             read.ask.input == Ask::Input::kConversation) {
    co_return false;
  } else if (!stream.ok()) {
    SendError(responder, stream.status(), kOllamaErrors);
  } else if (read.stream) {
    co_await writer.Run(stream->get());
  } else {
    const auto replies = co_await CollectReplies(stream->get(), 1);
    AnswerWhole(answer, read, responder, **stream, replies);
  }
  co_return true;
}

Task<void> AnswerTurn(Host& host, const HttpRequest& request, HttpResponder& responder,
                      OllamaRoute route) {
  StatusOr<OllamaRequest> read = route == OllamaRoute::kChat ? ReadOllamaChat(host, request)
                                                             : ReadOllamaGenerate(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOllamaErrors);
    co_return;
  }
  const OllamaAnswer answer(host, *read, route);
  if (read->probe != OllamaRequest::Probe::kNone) {
    AnswerProbe(answer, *read, responder);
    co_return;
  }
  RequestTurns turns(host, responder);
  const bool is_answered = co_await AnswerRead(responder, turns, *read, answer);
  if (!is_answered) {
    read->truncate = false;
    std::string told = DropOldestTurns(host, &read->ask);
    if (!told.empty()) read->warnings.push_back(std::move(told));
    co_await AnswerRead(responder, turns, *read, answer);
  }
  co_await turns.End();
}

bool Accepts(const HttpRequest& request, std::string_view type) {
  return AsciiLower(request.Header("Accept")).find(type) != std::string::npos;
}

}  // namespace

bool AnsweredAsOllama(const HttpRequest& request, HttpResponder& responder) {
  if (Accepts(request, "text/html")) return false;
  if (!request.by_second_port && !Accepts(request, "application/json")) return false;
  responder.Send(200, "text/plain; charset=utf-8", "Ollama is running");
  return true;
}

void RegisterOllamaApi(Router& router, Host& host, OllamaPull pull) {
  router.SetShapeBelow("/api", kOllamaErrors);
  const auto add = [&](const char* path, OllamaRoute route) {
    router.AddTask("POST", path, kOllamaErrors,
                   [&host, route](const HttpRequest& request, HttpResponder& responder) {
                     return AnswerTurn(host, request, responder, route);
                   });
  };
  add("/api/chat", OllamaRoute::kChat);
  add("/api/generate", OllamaRoute::kGenerate);
  RegisterOllamaModels(router, host, std::move(pull));
}

}  // namespace weft::serve
