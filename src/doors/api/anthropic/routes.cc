#include "doors/api/anthropic/routes.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "doors/api/anthropic/request.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/support.h"
#include "doors/api/reply_json.h"
#include "doors/api/request_turns.h"
#include "doors/api/sse.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// Not a real signature. But clients treat thinking without one as part of an answer that was cut
// off, and send it back as text: the session would not find its tokens.
constexpr char kSignature[] = "weft";

const char* StopReason(const AnswerEnd& end) {
  if (end.by_calls) return "tool_use";
  if (end.reason == FinishReason::kStopString) return "stop_sequence";
  if (end.reason == FinishReason::kContext) return kContextIsFull;
  return IsCut(end.reason) ? "max_tokens" : "end_turn";
}

ordered_json StopSequence(const AnswerEnd& end) {
  return end.reason == FinishReason::kStopString ? ordered_json(end.stop_string) : ordered_json();
}

ordered_json UsageJson(const AnswerUsage& usage) {
  const int64_t written = usage.written_tokens();
  ordered_json json = {{"input_tokens", usage.prompt_tokens - usage.cached_tokens - written},
                       {"cache_creation_input_tokens", written},
                       {"cache_read_input_tokens", usage.cached_tokens},
                       {"disk_tokens", usage.disk_tokens},
                       {"output_tokens", usage.completion_tokens},
                       {"output_tokens_details", {{"thinking_tokens", usage.reasoning_tokens}}}};
  AddCacheReport(usage.cache_report, &json);
  return json;
}

// Anthropic's cache diagnostics, if the request asks for them. `report` is null before the prompt
// is computed.
void AddDiagnostics(const MessagesRequest& read, const std::shared_ptr<const CacheReport>& report,
                    ordered_json* message) {
  if (read.diagnostics == MessagesRequest::Diagnostics::kNone) return;
  ordered_json& diagnostics = (*message)["diagnostics"];
  if (read.diagnostics == MessagesRequest::Diagnostics::kFirstTurn) return;
  diagnostics = report != nullptr ? AnthropicDiagnostics(*report)
                                  : ordered_json{{"cache_miss_reason", nullptr}};
}

ordered_json EmptyMessage(Host& host) {
  return {{"id", NewId("msg_")},
          {"type", "message"},
          {"role", "assistant"},
          {"model", host.model_id()},
          {"content", ordered_json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// --- whole answers ------------------------------------------------------------------

ordered_json BlockJson(const ReplyBlock& block) {
  switch (block.kind) {
    case ReplyBlock::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", block.text}, {"signature", kSignature}};
    case ReplyBlock::Kind::kContent:
      return {{"type", "text"}, {"text", block.text}};
    case ReplyBlock::Kind::kCall:
      break;
  }
  ordered_json input = ordered_json::parse(block.text, nullptr, /*allow_exceptions=*/false);
  if (!input.is_object()) input = ordered_json::object();
  return {{"type", "tool_use"},
          {"id", block.call_id},
          {"name", block.name},
          {"input", std::move(input)}};
}

// Blank text next to other blocks is only spacing and not a block: Anthropic refuses such blocks
// when a client sends the message back.
ordered_json ContentJson(const Reply& reply) {
  ordered_json content = ordered_json::array();
  for (const ReplyBlock& block : reply.blocks) {
    const bool is_space = block.kind == ReplyBlock::Kind::kContent && IsBlank(block.text);
    if (!is_space || reply.blocks.size() == 1) content.push_back(BlockJson(block));
  }
  return content;
}

void AnswerWhole(Host& host, HttpResponder& responder, const MessagesRequest& read,
                 const Answer& stream, const StatusOr<std::vector<Reply>>& replies) {
  if (!replies.ok()) return SendError(responder, replies.status(), kAnthropicErrors);
  const Reply& reply = replies->front();
  ordered_json message = EmptyMessage(host);
  message["content"] = ContentJson(reply);
  message["stop_reason"] = StopReason(reply.end);
  message["stop_sequence"] = StopSequence(reply.end);
  message["usage"] = UsageJson(stream.usage());
  AddDiagnostics(read, stream.cache_report(), &message);
  SendJson(responder, message, read.ignored, read.warnings);
}

// --- streamed answers ---------------------------------------------------------------

// Opens and closes blocks one after another; every method returns false once the client has left.
class MessageWriter {
 public:
  MessageWriter(Host& host, HttpResponder& responder, const MessagesRequest& read)
      : host_(host),
        responder_(responder),
        read_(read),
        sse_(responder, NoticeHeaders(read.ignored, read.warnings)) {}

  bool begun() const { return sse_.begun(); }

  Task<void> Run(Answer* stream) {
    report_ = stream->cache_report();
    bool goes_on = Start(stream->usage());
    while (goes_on) {
      const std::optional<AnswerPiece> piece = co_await stream->Next();
      goes_on = piece.has_value() && Take(*piece, stream->usage());
    }
  }

  // Clients that count events ignore comments, and Claude Code ignores pings too and gives up after
  // 300 s: its SDK does not pass them on. A message_delta that changes nothing does count. But
  // LiteLLM takes it for the end, so it is sent rarely, only when pings would not suffice.
  void TellAlive(const AnswerUsage& usage) {
    if (!has_started_) {
      Start(usage);
      return;
    }
    ordered_json wait = ordered_json::object();
    if (usage.waits_behind_tokens > 0) wait["waits_behind_tokens"] = usage.waits_behind_tokens;
    Event("ping", wait);
    if (++signs_in_a_row_ % SignsPerDelta() != 0) return;
    Event("message_delta", {{"delta", {{"stop_reason", nullptr}, {"stop_sequence", nullptr}}},
                            {"usage", {{"output_tokens", usage.completion_tokens}}}});
  }

  void Fail(const Status& status) {
    sse_.Event("error",
               ErrorBody(ToDetailedApiError(status), kAnthropicErrors, responder_.request_id()));
    sse_.End();
  }

 private:
  enum class Open { kNothing, kThinking, kText, kToolUse };

  // False after the last piece.
  bool Take(const AnswerPiece& piece, const AnswerUsage& usage) {
    if (!piece.status.ok()) {
      Fail(piece.status);
      return false;
    }
    if (piece.kind != AnswerPiece::Kind::kEnd) return Write(piece);
    Finish(piece, usage);
    return false;
  }

  // About every 100 seconds.
  int64_t SignsPerDelta() const {
    constexpr std::chrono::milliseconds kWanted{100'000};
    const auto interval =
        std::max(host_.defaults().server.ping_interval, std::chrono::milliseconds(1));
    return std::clamp<int64_t>(kWanted / interval, 1, 10);
  }

  bool Start(const AnswerUsage& usage) {
    if (std::exchange(has_started_, true)) return true;
    ordered_json message = EmptyMessage(host_);
    message["usage"] = UsageJson(usage);
    AddDiagnostics(read_, report_, &message);
    return Event("message_start", {{"message", std::move(message)}}) &&
           Event("ping", ordered_json::object());
  }

  bool Event(std::string_view type, const ordered_json& rest) {
    ordered_json data = {{"type", type}};
    data.update(rest);
    return sse_.Event(type, data);
  }

  bool Delta(ordered_json delta) {
    return Event("content_block_delta", {{"index", index_}, {"delta", std::move(delta)}});
  }

  bool Close() {
    const Open was = std::exchange(open_, Open::kNothing);
    if (was == Open::kNothing) return true;
    if (was == Open::kThinking &&
        !Delta({{"type", "signature_delta"}, {"signature", kSignature}})) {
      return false;
    }
    return Event("content_block_stop", {{"index", index_++}});
  }

  bool Begin(Open kind, ordered_json block) {
    if (!Close()) return false;
    open_ = kind;
    return Event("content_block_start", {{"index", index_}, {"content_block", std::move(block)}});
  }

  bool Write(const AnswerPiece& piece) {
    signs_in_a_row_ = 0;
    switch (piece.kind) {
      case AnswerPiece::Kind::kReasoning:
        space_.clear();
        if (open_ != Open::kThinking &&
            !Begin(Open::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}})) {
          return false;
        }
        return Delta({{"type", "thinking_delta"}, {"thinking", piece.text}});
      case AnswerPiece::Kind::kContent:
        return WriteText(piece.text);
      case AnswerPiece::Kind::kCallBegin:
        space_.clear();
        return Begin(Open::kToolUse, {{"type", "tool_use"},
                                      {"id", piece.id},
                                      {"name", piece.name},
                                      {"input", ordered_json::object()}});
      case AnswerPiece::Kind::kCallArguments:
        return Delta({{"type", "input_json_delta"}, {"partial_json", piece.text}});
      case AnswerPiece::Kind::kCallEnd:
        return Close();
      case AnswerPiece::Kind::kEnd:
        break;
    }
    return true;
  }

  // Leading white space of a block waits for the text after it.
  bool WriteText(const std::string& text) {
    if (open_ != Open::kText) {
      space_ += text;
      if (IsBlank(space_)) return true;
      if (!Begin(Open::kText, {{"type", "text"}, {"text", ""}})) return false;
      return Delta({{"type", "text_delta"}, {"text", std::exchange(space_, std::string())}});
    }
    return Delta({{"type", "text_delta"}, {"text", text}});
  }

  void Finish(const AnswerPiece& end, const AnswerUsage& usage) {
    if (index_ == 0 && open_ == Open::kNothing && !space_.empty()) {
      if (!Begin(Open::kText, {{"type", "text"}, {"text", ""}})) return;
      if (!Delta({{"type", "text_delta"}, {"text", space_}})) return;
    }
    if (!Close()) return;
    const bool is_there =
        Event("message_delta",
              {{"delta",
                {{"stop_reason", StopReason(end.end)}, {"stop_sequence", StopSequence(end.end)}}},
               {"usage", UsageJson(usage)}});
    if (!is_there) return;
    Event("message_stop", ordered_json::object());
    sse_.End();
  }

  Host& host_;
  HttpResponder& responder_;
  const MessagesRequest& read_;
  std::shared_ptr<const CacheReport> report_;  // null until the prompt is computed
  SseStream sse_;
  bool has_started_ = false;
  int64_t signs_in_a_row_ = 0;
  Open open_ = Open::kNothing;
  int index_ = 0;
  std::string space_;
};

Task<void> AnswerMessages(Host& host, const HttpRequest& request, HttpResponder& responder,
                          RequestTurns& turns) {
  auto read = ReadMessages(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kAnthropicErrors);
    co_return;
  }
  MessageWriter writer(host, responder, *read);
  StreamSigns signs;
  if (read->stream) signs.alive = [&writer](const AnswerUsage& usage) { writer.TellAlive(usage); };
  auto opening = turns.Open(read->ask, std::move(signs));
  auto stream = co_await opening;
  read->ask.pictures.clear();  // the stream frees its own once they are encoded
  if (!stream.ok() && writer.begun()) {
    writer.Fail(stream.status());
  } else if (!stream.ok()) {
    SendError(responder, stream.status(), kAnthropicErrors);
  } else if (read->stream) {
    co_await writer.Run(stream->get());
  } else {
    const auto replies = co_await CollectReplies(stream->get(), 1);
    AnswerWhole(host, responder, *read, **stream, replies);
  }
}

Task<void> HandleMessages(Host& host, const HttpRequest& request, HttpResponder& responder) {
  RequestTurns turns(host, responder);
  co_await AnswerMessages(host, request, responder, turns);
  co_await turns.End();
}

void HandleCountTokens(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto read = ReadMessages(host, request);
  if (!read.ok()) return SendError(responder, read.status(), kAnthropicErrors);
  auto count = host.answerer().CountTokens(read->ask);
  if (!count.ok()) return SendError(responder, count.status(), kAnthropicErrors);
  SendJson(responder, {{"input_tokens", *count}}, read->ignored, read->warnings);
}

}  // namespace

void RegisterAnthropicApi(Router& router, Host& host) {
  router.SetShapeBelow("/v1/messages", kAnthropicErrors);
  router.AddStream("POST", "/v1/messages", kAnthropicErrors,
                   [&host](const HttpRequest& request, HttpResponder& responder) {
                     return HandleMessages(host, request, responder);
                   });
  router.Add("POST", "/v1/messages/count_tokens", kAnthropicErrors,
             [&host](const HttpRequest& request, HttpResponder& responder) {
               HandleCountTokens(host, request, responder);
             });
}

}  // namespace weft::serve
