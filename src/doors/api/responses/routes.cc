#include "doors/api/responses/routes.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/support.h"
#include "doors/api/reply_json.h"
#include "doors/api/request_turns.h"
#include "doors/api/responses/request.h"
#include "doors/api/responses/sealed_reasoning.h"
#include "doors/api/sse.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

ordered_json UsageJson(const AnswerUsage& usage) {
  ordered_json json = {{"input_tokens", usage.prompt_tokens},
                       {"input_tokens_details",
                        {{"cached_tokens", usage.cached_tokens},
                         {"cache_write_tokens", usage.written_tokens()},
                         {"disk_tokens", usage.disk_tokens}}},
                       {"output_tokens", usage.completion_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                       {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  AddCacheReport(usage.cache_report, &json);
  return json;
}

// The response before any output.
ordered_json NewResponse(Host& host, const ResponsesRequest& read) {
  const SamplingOptions& sampling = read.ask.turn.sampling;
  ordered_json response = {{"id", NewId("resp_")},
                           {"object", "response"},
                           {"created_at", NowSeconds()},
                           {"status", "in_progress"},
                           {"background", false},
                           {"error", nullptr},
                           {"incomplete_details", nullptr},
                           {"instructions", nullptr},
                           {"max_output_tokens", nullptr},
                           {"model", host.model_id()},
                           {"output", ordered_json::array()},
                           {"parallel_tool_calls", true},
                           {"previous_response_id", nullptr},
                           {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                           {"store", false},
                           {"temperature", sampling.temperature},
                           {"text", {{"format", {{"type", "text"}}}}},
                           {"tool_choice", "auto"},
                           {"tools", ordered_json::array()},
                           {"top_p", sampling.top_p},
                           {"truncation", "disabled"},
                           {"usage", nullptr},
                           {"metadata", ordered_json::object()}};
  if (!read.echo.is_null()) response.merge_patch(read.echo);
  return response;
}

// OpenAI's reasons are "max_output_tokens" and "content_filter". Clients take any other text, but
// not all of them null (the AI SDK), and without a reason they take the answer for a whole one.
const char* WhyIncomplete(FinishReason reason) {
  if (reason == FinishReason::kContext) return kContextIsFull;
  return reason == FinishReason::kLoop ? "loop" : "max_output_tokens";
}

// Sets the final fields.
void Conclude(FinishReason reason, const AnswerUsage& usage, ordered_json* response) {
  const bool cut = IsCut(reason);
  (*response)["status"] = cut ? "incomplete" : "completed";
  if (cut) (*response)["incomplete_details"] = {{"reason", WhyIncomplete(reason)}};
  (*response)["usage"] = UsageJson(usage);
}

ordered_json TextPart(std::string_view text, ordered_json logprobs) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", ordered_json::array()},
          {"logprobs", std::move(logprobs)}};
}

// One output item in progress.
struct Item {
  ReplyBlock::Kind kind = ReplyBlock::Kind::kContent;
  std::string id;
  std::string text;  // or the arguments
  std::string call_id;
  ClientTool tool;  // for a call
  bool is_cut = false;
  ordered_json logprobs = ordered_json::array();
  bool is_sealed = false;  // reasoning is also given as encrypted_content

  ordered_json Json(const char* status, bool with_text) const {
    ordered_json parts = ordered_json::array();
    switch (kind) {
      case ReplyBlock::Kind::kReasoning:
        if (with_text) parts.push_back({{"type", "reasoning_text"}, {"text", text}});
        return ReasoningJson(status, std::move(parts), with_text && is_sealed);
      case ReplyBlock::Kind::kContent:
        if (with_text) parts.push_back(TextPart(text, logprobs));
        return {{"id", id},
                {"type", "message"},
                {"status", status},
                {"role", "assistant"},
                {"content", std::move(parts)}};
      case ReplyBlock::Kind::kCall:
        break;
    }
    if (tool.kind == ClientTool::Kind::kSearch) {
      return {{"id", id},
              {"type", "tool_search_call"},
              {"status", status},
              {"call_id", call_id},
              {"execution", "client"},
              {"arguments", with_text ? CallArguments(text) : ordered_json::object()}};
    }
    ordered_json call = {{"id", id},
                         {"type", is_custom() ? "custom_tool_call" : "function_call"},
                         {"status", status},
                         {"call_id", call_id},
                         {"name", tool.name}};
    if (!tool.name_space.empty()) call["namespace"] = tool.name_space;
    call[is_custom() ? "input" : "arguments"] = with_text ? CallText() : std::string();
    return call;
  }

  ordered_json ReasoningJson(const char* status, ordered_json parts, bool with_sealed) const {
    ordered_json item = {{"id", id},
                         {"type", "reasoning"},
                         {"summary", ordered_json::array()},
                         {"content", std::move(parts)},
                         {"status", status}};
    if (with_sealed) item["encrypted_content"] = SealReasoning(text);
    return item;
  }

  bool is_custom() const {
    return kind == ReplyBlock::Kind::kCall && tool.kind == ClientTool::Kind::kCustom;
  }
  // The arguments, or a custom tool's text.
  std::string CallText() const {
    if (!is_custom()) return text;
    return is_cut ? std::string() : CustomInput(text);  // a part of the JSON around it is no text
  }
};

std::string ItemId(const Item& item) {
  if (item.kind == ReplyBlock::Kind::kReasoning) return NewId("rs_");
  if (item.kind == ReplyBlock::Kind::kContent) return NewId("msg_");
  if (item.tool.kind == ClientTool::Kind::kSearch) return NewId("tsc_");
  return NewId(item.is_custom() ? "ctc_" : "fc_");
}

// Reports a reply as items that are added, grow and are done, and as the matching events. The same
// for both kinds of answer: without a stream the events are discarded.
class ResponseWriter {
 public:
  // If `sse` is null, the whole answer is returned at once.
  ResponseWriter(Host& host, const ResponsesRequest& read, SseStream* sse)
      : host_(host), read_(read), sse_(sse), response_(NewResponse(host, read)) {}

  // Clients that count events ignore comments; this event may be repeated.
  void TellAlive() {
    if (begun_) {
      ResponseEvent("response.in_progress");
    } else {
      Begin();
    }
  }

  // Before the answer begins, in llama-server's form.
  void TellProgress(const ProgressEvent& progress) {
    ordered_json extra = {{"prompt_progress", LlamaProgress(progress)}};
    if (read_.timings_per_token) extra["timings"] = LlamaTimings(progress);
    if (Begin()) ResponseEvent("response.in_progress", extra);
  }

  // The error of a failed reply; `gone` is set if the client has left.
  Task<Status> Run(Answer* stream, bool* gone) {
    if (const auto report = stream->cache_report(); read_.tells_diagnostics && report != nullptr) {
      response_["prompt_cache_diagnostics"] = OpenAiDiagnostics(*report);
    }
    *gone = !Begin();
    while (!*gone) {
      const std::optional<AnswerPiece> piece = co_await stream->Next();
      if (!piece) break;
      if (!piece->status.ok()) co_return piece->status;
      if (piece->kind == AnswerPiece::Kind::kEnd) {
        AddLogprobs(*piece);
        item_.is_cut = true;
        *gone = !CloseItem(IsCut(piece->end.reason) ? "incomplete" : "completed");
        Conclude(piece->end.reason, stream->usage(), &response_);
        if (*gone) break;
        ResponseEvent(IsCut(piece->end.reason) ? "response.incomplete" : "response.completed",
                      {{"timings", LlamaTimings(stream->usage())}});
        break;
      }
      *gone = !Write(*piece, stream->usage());
    }
    co_return OkStatus();
  }

  void Fail(const Status& status) {
    const ApiError error = ToDetailedApiError(status);
    response_["status"] = "failed";
    const std::string code = error.is_session_trouble ? error.code : "server_error";
    response_["error"] = {{"code", code}, {"message", error.message}};
    Event("error", {{"code", error.code.empty() ? error.type : error.code},
                    {"message", error.message},
                    {"param", nullptr}});
    ResponseEvent("response.failed");
  }

  const ordered_json& response() const { return response_; }

 private:
  bool Event(const std::string& type, const ordered_json& rest) {
    if (sse_ == nullptr) return true;
    ordered_json data = {{"type", type}, {"sequence_number", sequence_++}};
    data.update(rest);
    return sse_->Event(type, data);
  }

  bool ResponseEvent(const std::string& type, const ordered_json& rest = {}) {
    ordered_json data = {{"response", response_}};
    // Clients take this as everything so far, and append later deltas.
    if (open_) data["response"]["output"].push_back(item_.Json("in_progress", true));
    if (!rest.is_null()) data.update(rest);
    return Event(type, data);
  }

  bool Begin() {
    if (std::exchange(begun_, true)) return true;
    return ResponseEvent("response.created") && ResponseEvent("response.in_progress");
  }

  // An event about the open item.
  bool ItemEvent(const std::string& type, const ordered_json& rest) {
    ordered_json data = {{"item_id", item_.id}, {"output_index", response_["output"].size()}};
    data.update(rest);
    return Event(type, data);
  }

  bool PartEvent(const std::string& type, const ordered_json& rest) {
    ordered_json data = {{"content_index", 0}};
    data.update(rest);
    return ItemEvent(type, data);
  }

  bool OpenItem(Item item) {
    if (!CloseItem("completed")) return false;
    item_ = std::move(item);
    item_.id = ItemId(item_);
    open_ = true;
    if (!Event("response.output_item.added", {{"output_index", response_["output"].size()},
                                              {"item", item_.Json("in_progress", false)}})) {
      return false;
    }
    if (item_.kind == ReplyBlock::Kind::kCall) return true;
    return PartEvent("response.content_part.added", {{"part", Part("")}});
  }

  ordered_json Part(std::string_view text) const {
    if (item_.kind == ReplyBlock::Kind::kReasoning) {
      return {{"type", "reasoning_text"}, {"text", text}};
    }
    return TextPart(text, item_.logprobs);
  }

  bool CloseItem(const char* status) {
    if (!open_) return true;
    open_ = false;
    if (!CloseText()) return false;
    ordered_json item = item_.Json(status, true);
    const bool heard = Event("response.output_item.done",
                             {{"output_index", response_["output"].size()}, {"item", item}});
    response_["output"].push_back(std::move(item));
    return heard;
  }

  bool CloseText() {
    switch (item_.kind) {
      case ReplyBlock::Kind::kCall:
        if (item_.is_custom()) return TellCustomInput();
        if (item_.tool.kind == ClientTool::Kind::kSearch) return true;
        return ItemEvent("response.function_call_arguments.done",
                         {{"name", item_.tool.name}, {"arguments", item_.text}});
      case ReplyBlock::Kind::kReasoning:
        if (!PartEvent("response.reasoning_text.done", {{"text", item_.text}})) return false;
        break;
      case ReplyBlock::Kind::kContent:
        if (!PartEvent("response.output_text.done",
                       {{"text", item_.text}, {"logprobs", item_.logprobs}})) {
          return false;
        }
    }
    return PartEvent("response.content_part.done", {{"part", Part(item_.text)}});
  }

  // The model writes the text as JSON: it is known once that is complete.
  bool TellCustomInput() {
    const std::string input = item_.CallText();
    if (!input.empty() && !ItemEvent("response.custom_tool_call_input.delta", {{"delta", input}})) {
      return false;
    }
    return ItemEvent("response.custom_tool_call_input.done", {{"input", input}});
  }

  // The log-probabilities of a piece; those of reasoning and calls have no place in the output.
  ordered_json AddLogprobs(const AnswerPiece& piece) {
    ordered_json added = ordered_json::array();
    if (!read_.include_logprobs || !open_ || item_.kind != ReplyBlock::Kind::kContent) return added;
    added = LogprobEntries(*host_.model().tokenizer(), piece.tokens);
    for (const ordered_json& entry : added) item_.logprobs.push_back(entry);
    return added;
  }

  bool Write(const AnswerPiece& piece, const AnswerUsage& usage) {
    ordered_json delta = {{"delta", piece.text}};
    if (read_.timings_per_token) delta["timings"] = LlamaTimings(usage);
    switch (piece.kind) {
      case AnswerPiece::Kind::kReasoning:
        return WriteText(ReplyBlock::Kind::kReasoning, "response.reasoning_text.delta", piece,
                         std::move(delta));
      case AnswerPiece::Kind::kContent:
        return WriteText(ReplyBlock::Kind::kContent, "response.output_text.delta", piece,
                         std::move(delta));
      case AnswerPiece::Kind::kCallBegin:
        return OpenItem({.kind = ReplyBlock::Kind::kCall,
                         .call_id = piece.id,
                         .tool = read_.tools.Find(piece.name)});
      case AnswerPiece::Kind::kCallArguments:
        item_.text += piece.text;
        if (item_.tool.kind != ClientTool::Kind::kFunction) return true;  // told when complete
        return ItemEvent("response.function_call_arguments.delta", delta);
      case AnswerPiece::Kind::kCallEnd:
        return CloseItem("completed");
      case AnswerPiece::Kind::kEnd:
        break;
    }
    return true;
  }

  bool WriteText(ReplyBlock::Kind kind, const std::string& event, const AnswerPiece& piece,
                 ordered_json data) {
    if ((!open_ || item_.kind != kind) &&
        !OpenItem({.kind = kind, .is_sealed = read_.include_sealed_reasoning})) {
      return false;
    }
    item_.text += piece.text;
    ordered_json logprobs = AddLogprobs(piece);
    if (kind == ReplyBlock::Kind::kContent) data["logprobs"] = std::move(logprobs);
    return PartEvent(event, data);
  }

  Host& host_;
  const ResponsesRequest& read_;
  SseStream* const sse_;
  ordered_json response_;
  Item item_;
  bool begun_ = false;
  bool open_ = false;
  int64_t sequence_ = 0;
};

Task<void> AnswerResponse(Host& host, const HttpRequest& request, HttpResponder& responder,
                          RequestTurns& turns) {
  auto read = ReadResponses(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOpenAiErrors);
    co_return;
  }
  SseStream sse(responder, NoticeHeaders(read->ignored, read->warnings));
  SseStream* const to = read->stream ? &sse : nullptr;
  ResponseWriter writer(host, *read, to);
  StreamSigns signs;
  if (read->stream) signs.alive = [&writer](const AnswerUsage&) { writer.TellAlive(); };
  if (read->stream && read->return_progress) {
    signs.progress = [&writer](const ProgressEvent& progress) { writer.TellProgress(progress); };
  }
  auto opening = turns.Open(read->ask, std::move(signs));
  auto stream = co_await opening;
  read->ask.pictures.clear();  // the stream frees its own once they are encoded
  bool gone = false;
  Status status = stream.status();
  if (status.ok()) status = co_await writer.Run(stream->get(), &gone);
  if (!status.ok() && !sse.begun()) {
    SendError(responder, status, kOpenAiErrors);
  } else if (!read->stream) {
    SendJson(responder, writer.response(), read->ignored, read->warnings);
  } else if (!gone) {
    if (!status.ok()) writer.Fail(status);
    sse.End();
  }
}

Task<void> HandleResponses(Host& host, const HttpRequest& request, HttpResponder& responder) {
  RequestTurns turns(host, responder);
  co_await AnswerResponse(host, request, responder, turns);
  co_await turns.End();
}

void HandleInputTokens(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto read = ReadResponses(host, request);
  if (!read.ok()) return SendError(responder, read.status(), kOpenAiErrors);
  auto count = host.answerer().CountTokens(read->ask);
  if (!count.ok()) return SendError(responder, count.status(), kOpenAiErrors);
  SendJson(responder, {{"object", "response.input_tokens"}, {"input_tokens", *count}},
           read->ignored, read->warnings);
}

}  // namespace

void RegisterResponsesApi(Router& router, Host& host) {
  for (const char* path : {"/v1/responses", "/responses"}) {
    router.AddStream("POST", path, kOpenAiErrors,
                     [&host](const HttpRequest& request, HttpResponder& responder) {
                       return HandleResponses(host, request, responder);
                     });
  }
  for (const char* path : {"/v1/responses/input_tokens", "/responses/input_tokens"}) {
    router.Add("POST", path, kOpenAiErrors,
               [&host](const HttpRequest& request, HttpResponder& responder) {
                 HandleInputTokens(host, request, responder);
               });
  }
}

}  // namespace weft::serve
