#include "serve/api_llama.h"

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "serve/api_support.h"
#include "serve/chat_turn.h"
#include "serve/llama_request.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// The bytes of a piece: a string where they are UTF-8, else numbers.
Json PieceJson(const std::string& piece) {
  std::string repaired;
  if (RepairUtf8(piece, &repaired) == piece) return piece;
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

StatusOr<Json> Tokenize(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const bool add_special = fields.Bool("add_special").value_or(false);
  const bool parse_special = fields.Bool("parse_special").value_or(true);
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  const Model& model = host.model();
  std::vector<int32_t> ids;
  const Json* const content = fields.Value("content");
  if (content != nullptr) {
    const TextEncoder encode = [&](std::string_view text, bool at_start) {
      return model.Encode(text, add_special && at_start, parse_special);
    };
    if (!ReadMixedText(*content, model.n_vocab(), encode, &ids)) {
      fields.Fail("content", "must be a string, or an array of strings and token ids");
    }
  }
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  Json tokens = Json::array();
  for (const int32_t id : ids) {
    if (with_pieces) {
      const std::string piece = model.tokenizer()->Piece(id, /*render_special=*/true);
      tokens.push_back({{"id", id}, {"piece", PieceJson(piece)}});
    } else {
      tokens.push_back(id);
    }
  }
  return Json{{"tokens", std::move(tokens)}};
}

StatusOr<Json> Detokenize(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const Json* const list = fields.Value("tokens");
  std::vector<int32_t> tokens;
  const int64_t n_vocab = host.model().n_vocab();
  if (list != nullptr && !list->is_array()) fields.Fail("tokens", "must be an array of token ids");
  for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
    const Json& id = (*list)[i];
    const bool valid =
        id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < n_vocab;
    if (!valid) {
      fields.Fail("tokens", StrCat("must be an array of token ids from 0 to ", n_vocab - 1));
      break;
    }
    tokens.push_back(id.get<int32_t>());
  }
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  return Json{{"content", host.model().Decode(tokens, /*render_special=*/true)}};
}

StatusOr<Json> ApplyTemplate(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  ChatRequest chat;
  if (const Json* const messages = fields.Value("messages")) chat.messages = *messages;
  if (const Json* const tools = fields.Value("tools")) chat.tools = *tools;
  ReadEnding(&fields, &chat);
  if (const Json* const variables = fields.Value("chat_template_kwargs")) {
    if (variables->is_object()) {
      chat.variables = *variables;
    } else {
      fields.Fail("chat_template_kwargs", "must be an object");
    }
  }
  if (!chat.messages.is_array() || chat.messages.empty()) {
    fields.Fail("messages", "must be an array of messages");
  }
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, host.chat().Render(chat));
  return Json{{"prompt", prompt.text}};
}

}  // namespace

void RegisterLlamaApi(Router& router, Host& host) {
  using Action = StatusOr<Json> (*)(Host&, const HttpRequest&);
  const auto add = [&](const char* path, Action action) {
    router.Add("POST", path, ErrorShape::kLlama,
               [&host, action](const HttpRequest& request, HttpResponder& responder) {
                 const StatusOr<Json> answer = action(host, request);
                 if (!answer.ok()) return SendError(responder, answer.status(), ErrorShape::kLlama);
                 SendJson(responder, *answer);
               });
  };
  add("/tokenize", Tokenize);
  add("/detokenize", Detokenize);
  add("/apply-template", ApplyTemplate);
  for (const char* const path : {"/completion", "/completions"}) {
    router.Add("POST", path, ErrorShape::kLlama,
               [&host](const HttpRequest& request, HttpResponder& responder) {
                 HandleLlamaCompletion(host, request, responder);
               });
  }
}

}  // namespace weft::serve
