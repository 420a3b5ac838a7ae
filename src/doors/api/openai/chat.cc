#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "doors/api/fields/support.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/openai/routes.h"
#include "doors/api/reply_json.h"
#include "doors/api/request_turns.h"
#include "doors/api/sse.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr char kLlamaChatPath[] = "/chat/completions";

// --- whole answers ------------------------------------------------------------------

// A completed call.
ordered_json CallJson(const ToolCatalog& tools, const std::string& id, const std::string& name,
                      const std::string& arguments) {
  if (tools.Find(name).kind == ClientTool::Kind::kCustom) {
    return {{"id", id},
            {"type", "custom"},
            {"custom", {{"name", name}, {"input", CustomInput(arguments)}}}};
  }
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

ordered_json MessageJson(const Reply& reply, const ToolCatalog& tools, bool show_reasoning) {
  ordered_json calls = ordered_json::array();
  for (const ReplyBlock& block : reply.blocks) {
    if (block.kind != ReplyBlock::Kind::kCall) continue;
    // A call that was cut is shown with the arguments it has; a text is not known.
    if (block.is_cut && tools.Find(block.name).kind == ClientTool::Kind::kCustom) continue;
    calls.push_back(CallJson(tools, block.call_id, block.name, block.text));
  }
  ordered_json message = {{"role", "assistant"}};
  const std::string content = reply.Joined(ReplyBlock::Kind::kContent);
  message["content"] = content.empty() && !calls.empty() ? ordered_json() : ordered_json(content);
  const std::string reasoning = reply.Joined(ReplyBlock::Kind::kReasoning);
  if (show_reasoning && !reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

void AnswerWhole(Host& host, HttpResponder& responder, const ChatCompletionRequest& read,
                 const Answer& stream, const StatusOr<std::vector<Reply>>& replies,
                 const ordered_json& verbose, bool wants_logprobs) {
  if (!replies.ok()) return SendError(responder, replies.status(), kOpenAiErrors);
  ordered_json choices = ordered_json::array();
  for (const Reply& reply : *replies) {
    choices.push_back(
        {{"index", choices.size()},
         {"message", MessageJson(reply, read.tools, read.ask.show_reasoning)},
         {"logprobs", wants_logprobs ? ChatLogprobs(*host.model().tokenizer(), reply.tokens)
                                     : ordered_json()}});
    SetFinish(reply.end, &choices.back());
  }
  ordered_json body = OpenAiEnvelope(host, "chatcmpl-").Make("chat.completion");
  body["choices"] = std::move(choices);
  body["usage"] = OpenAiUsage(stream.usage());
  body["timings"] = LlamaTimings(stream.usage());
  if (!verbose.is_null()) body["__verbose"] = verbose;
  SendJson(responder, body, read.ignored, read.warnings);
}

// --- streamed answers ---------------------------------------------------------------

class ChunkWriter {
 public:
  ChunkWriter(Host& host, const HttpRequest& request, HttpResponder& responder,
              const ChatCompletionRequest& read, bool wants_logprobs)
      : host_(host),
        is_llama_(request.path == kLlamaChatPath),
        envelope_(host, "chatcmpl-"),
        sse_(responder, NoticeHeaders(read.ignored, read.warnings)),
        read_(read),
        wants_logprobs_(wants_logprobs) {}

  bool begun() const { return sse_.begun(); }

  // `verbose`, if not null, is included in the last chunk that has a choice.
  Task<void> Run(Answer* stream, const ordered_json& verbose) {
    if (!TellRoles()) co_return;
    int open = read_.ask.turn.n_choices;
    while (true) {
      std::optional<AnswerPiece> piece = co_await stream->Next();
      if (!piece) break;
      if (!piece->status.ok()) {
        Fail(piece->status);
        co_return;
      }
      if (piece->kind == AnswerPiece::Kind::kEnd) --open;
      // A call of a custom tool is reported at its end, any other from its beginning.
      const bool is_told = GatherCustom(*piece) == (piece->kind == AnswerPiece::Kind::kCallEnd);
      ordered_json chunk = PieceChunk(*piece, is_told);
      const bool is_last = open == 0;
      if (read_.timings_per_token || (is_last && !read_.include_usage)) {
        chunk["timings"] = LlamaTimings(stream->usage());
      }
      if (is_last && !verbose.is_null()) chunk["__verbose"] = verbose;
      if (is_told && !sse_.Data(chunk)) co_return;
    }
    if (read_.include_usage) {
      ordered_json last = envelope_.Make("chat.completion.chunk");
      last["choices"] = ordered_json::array();
      last["usage"] = OpenAiUsage(stream->usage());
      last["timings"] = LlamaTimings(stream->usage());
      if (!sse_.Data(last)) co_return;
    }
    sse_.Done();
  }

  // First the roles, then empty chunks: clients that count events ignore comments, and some append
  // a second role to the first.
  void TellAlive() {
    if (has_told_roles_) {
      sse_.Data(Chunk(0, ordered_json::object()));
    } else {
      TellRoles();
    }
  }

  // Before the answer begins.
  void TellProgress(const ProgressEvent& progress) {
    ordered_json chunk = Chunk(0, RoleDelta());
    chunk["prompt_progress"] = LlamaProgress(progress);
    if (read_.timings_per_token) chunk["timings"] = LlamaTimings(progress);
    sse_.Data(chunk);
  }

  void Fail(const Status& status) { sse_.Fail(status); }

 private:
  bool TellRoles() {
    if (std::exchange(has_told_roles_, true)) return true;
    for (int i = 0; i < read_.ask.turn.n_choices; ++i) {
      if (!sse_.Data(Chunk(i, RoleDelta()))) return false;
    }
    return true;
  }

  // Clients on OpenAI's path concatenate all content and cannot handle null; those on
  // llama-server's own path expect the null.
  ordered_json RoleDelta() const {
    ordered_json delta = {{"role", "assistant"}};
    if (is_llama_) delta["content"] = nullptr;
    return delta;
  }

  ordered_json Chunk(int choice, ordered_json delta) const {
    ordered_json chunk = envelope_.Make("chat.completion.chunk");
    chunk["choices"] = ordered_json::array(
        {{{"index", choice}, {"delta", std::move(delta)}, {"finish_reason", nullptr}}});
    return chunk;
  }

  static ordered_json CallDelta(int call, const ordered_json& rest) {
    ordered_json entry = {{"index", call}};
    entry.update(rest);
    return {{"tool_calls", ordered_json::array({std::move(entry)})}};
  }

  // Whether the piece belongs to a call of a custom tool. Its text is known once the JSON around it
  // is complete.
  bool GatherCustom(const AnswerPiece& piece) {
    Custom& custom = customs_[piece.choice];
    if (piece.kind == AnswerPiece::Kind::kCallBegin) {
      custom = {.is_open = read_.tools.Find(piece.name).kind == ClientTool::Kind::kCustom,
                .call_id = piece.id,
                .name = piece.name,
                .arguments = ""};
    } else if (piece.kind == AnswerPiece::Kind::kCallArguments) {
      if (custom.is_open) custom.arguments += piece.text;
    } else if (piece.kind != AnswerPiece::Kind::kCallEnd) {
      return false;
    }
    return custom.is_open;
  }

  ordered_json Delta(const AnswerPiece& piece) {
    switch (piece.kind) {
      case AnswerPiece::Kind::kReasoning:
        return {{"reasoning_content", piece.text}};
      case AnswerPiece::Kind::kContent:
        return {{"content", piece.text}};
      case AnswerPiece::Kind::kCallBegin:
        return CallDelta(piece.call, {{"id", piece.id},
                                      {"type", "function"},
                                      {"function", {{"name", piece.name}, {"arguments", ""}}}});
      case AnswerPiece::Kind::kCallArguments:
        return CallDelta(piece.call, {{"function", {{"arguments", piece.text}}}});
      case AnswerPiece::Kind::kCallEnd: {
        const Custom& custom = customs_[piece.choice];
        return CallDelta(piece.call,
                         CallJson(read_.tools, custom.call_id, custom.name, custom.arguments));
      }
      case AnswerPiece::Kind::kEnd:
        break;
    }
    return ordered_json::object();
  }

  // Tokens of pieces without a chunk of their own are added to the next one.
  ordered_json PieceChunk(const AnswerPiece& piece, bool is_told) {
    std::vector<TokenEvent>& tokens = tokens_[piece.choice];
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    if (!is_told) return {};
    ordered_json chunk = Chunk(piece.choice, Delta(piece));
    ordered_json& choice = chunk["choices"][0];
    if (piece.kind == AnswerPiece::Kind::kEnd) {
      SetFinish(piece.end, &choice);
    }
    if (wants_logprobs_) {
      choice["logprobs"] = ChatLogprobs(*host_.model().tokenizer(), tokens);
      tokens.clear();
    }
    return chunk;
  }

  Host& host_;
  const bool is_llama_;  // on the path that only llama-server has
  const OpenAiEnvelope envelope_;
  SseStream sse_;
  const ChatCompletionRequest& read_;
  const bool wants_logprobs_;
  bool has_told_roles_ = false;
  struct Custom {
    bool is_open = false;
    std::string call_id;
    std::string name;
    std::string arguments;
  };
  std::map<int, std::vector<TokenEvent>> tokens_;  // by choice, not reported yet
  std::map<int, Custom> customs_;                  // by choice: its latest call
};

// Adds the prompt's text if it is wanted. False if it has answered with an error.
bool TellPrompt(Host& host, HttpResponder& responder, const ChatCompletionRequest& read,
                ordered_json* verbose) {
  if (!read.verbose) return true;
  auto prompt = host.answerer().PromptText(read.ask);
  if (!prompt.ok()) {
    SendError(responder, prompt.status(), kOpenAiErrors);
    return false;
  }
  (*verbose)["prompt"] = *std::move(prompt);
  return true;
}

Task<void> AnswerChat(Host& host, const HttpRequest& request, HttpResponder& responder,
                      RequestTurns& turns) {
  auto read = ReadChatCompletion(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOpenAiErrors);
    co_return;
  }
  // llama-server's report of how the messages were rendered.
  ordered_json verbose;
  if (!TellPrompt(host, responder, *read, &verbose)) co_return;
  const bool wants_logprobs = read->ask.turn.top_logprobs >= 0;
  ChunkWriter writer(host, request, responder, *read, wants_logprobs);
  StreamSigns signs;
  if (read->stream) signs.alive = [&writer](const AnswerUsage&) { writer.TellAlive(); };
  if (read->stream && read->return_progress) {
    signs.progress = [&writer](const ProgressEvent& progress) { writer.TellProgress(progress); };
  }
  auto opening = turns.Open(read->ask, std::move(signs));
  auto stream = co_await opening;
  read->ask.pictures.clear();  // the stream frees its own once they are encoded
  if (!stream.ok() && writer.begun()) {
    writer.Fail(stream.status());
  } else if (!stream.ok()) {
    SendError(responder, stream.status(), kOpenAiErrors);
  } else if (read->stream) {
    co_await writer.Run(stream->get(), verbose);
  } else {
    const auto replies = co_await CollectReplies(stream->get(), read->ask.turn.n_choices);
    AnswerWhole(host, responder, *read, **stream, replies, verbose, wants_logprobs);
  }
}

}  // namespace

Task<void> HandleChatCompletions(Host& host, const HttpRequest& request, HttpResponder& responder) {
  RequestTurns turns(host, responder);
  co_await AnswerChat(host, request, responder, turns);
  co_await turns.End();
}

void HandleChatInputTokens(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto read = ReadChatCompletion(host, request);
  if (!read.ok()) return SendError(responder, read.status(), kOpenAiErrors);
  auto count = host.answerer().CountTokens(read->ask);
  if (!count.ok()) return SendError(responder, count.status(), kOpenAiErrors);
  SendJson(responder, {{"input_tokens", *count}}, read->ignored, read->warnings);
}

}  // namespace weft::serve
