#include "doors/api/llama/routes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "answer/ask.h"
#include "answer/chat/openai_form.h"
#include "base/strings.h"
#include "base/unicode.h"
#include "doors/api/fields/mixed_text.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/request.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/repeated_calls.h"
#include "json/json_text.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// Limits for /tokenize: more than any prompt that fits, and whole documents. A very long word costs
// more than its bytes.
constexpr uint64_t kTokenizedBytes = uint64_t{1} << 20, kTokenizedBytesPerToken = 16;

Status CheckTextBytes(const Model& model, uint64_t n_bytes, const char* field) {
  const uint64_t most = std::max(
      kTokenizedBytes, kTokenizedBytesPerToken * static_cast<uint64_t>(model.context_tokens()));
  if (n_bytes <= most) return OkStatus();
  return Misshapen(field, StrCat("has ", n_bytes, " bytes of text, and at most ", most,
                                 " are tokenized in one request; send the text in parts"));
}

// Total size of the strings in `content`, a string or an array that contains some.
uint64_t TextBytes(const Json& content) {
  if (content.is_string()) return content.get_ref<const std::string&>().size();
  if (!content.is_array()) return 0;
  uint64_t bytes = 0;
  for (const Json& part : content) bytes += part.is_string() ? TextBytes(part) : 0;
  return bytes;
}

// The bytes of a piece: a string if they are UTF-8, otherwise numbers.
Json PieceJson(const std::string& piece) {
  std::string repaired;
  if (RepairUtf8(piece, &repaired) == piece) return piece;
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

// Reads the body of /apply-template, and of vLLM's /tokenize for a conversation.
ChatRequest ReadTemplateRequest(ApiFields* fields, const RequestDefaults& defaults) {
  Ask ask;
  const Json* const messages = fields->Value("messages");
  const Json* const tools = fields->Value("tools");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields->Fail("messages", "must be an array of messages");
    return {};
  }
  auto read = ReadOpenAiMessages(*messages);
  auto offered = ReadOpenAiTools(tools == nullptr ? Json() : *tools);
  for (const Status& status : {read.status(), offered.status()}) {
    if (!status.ok()) fields->Adopt(AtPlace(status));
  }
  if (read.ok() && offered.ok()) {
    ask.chat.conversation = {.messages = *std::move(read), .tools = *std::move(offered)};
  }
  std::vector<std::string> unheard;
  TellRepeatedCalls(defaults.server.note_repeated_calls, &ask.chat.conversation, &unheard);
  ReadTemplateVariables(fields, defaults, &ask);
  return std::move(ask.chat);
}

// Built as text directly: as JSON values, the pieces of a long text would take eight times the
// memory.
std::string WithPieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text = "{\"tokens\":[";
  for (const int32_t id : ids) {
    const std::string piece = tokenizer.Piece(id, /*render_special=*/true);
    if (text.back() != '[') text += ',';
    StrAppend(&text, "{\"id\":", id, ",\"piece\":", CompactJson(PieceJson(piece)), "}");
  }
  return text += "]}";
}

StatusOr<std::string> LlamaTokenize(Host& host, ApiFields* fields) {
  const bool add_special = fields->Bool("add_special").value_or(false);
  const bool parse_special = fields->Bool("parse_special").value_or(true);
  const bool with_pieces = fields->Bool("with_pieces").value_or(false);
  const Model& model = host.model();
  std::vector<int32_t> ids;
  const Json* const content = fields->Value("content");
  if (content != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckTextBytes(model, TextBytes(*content), "content"));
    const TextEncoder encode = [&](std::string_view text, bool at_start) {
      return model.Encode(text, add_special && at_start, parse_special);
    };
    if (!ReadMixedText(*content, model.n_vocab(), encode, &ids)) {
      fields->Fail("content", "must be a string, or an array of strings and token ids");
    }
  }
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields->Finish(&ignored));
  if (with_pieces) return WithPieces(*model.tokenizer(), ids);
  return CompactJson({{"tokens", ids}});
}

// vLLM's and SGLang's form: a prompt, or the messages for one.
StatusOr<std::string> VllmTokenize(Host& host, ApiFields* fields, bool is_chat) {
  const Model& model = host.model();
  const auto name = fields->String("model");
  const bool wants_texts = fields->Bool("return_token_strs").value_or(false);
  const auto add_special = fields->Bool("add_special_tokens");
  ChatRequest chat;
  std::string text;
  if (is_chat) {
    chat = ReadTemplateRequest(fields, host.defaults());
  } else if (const auto prompt = fields->String("prompt")) {
    text = *prompt;
  } else {
    fields->Fail("prompt", "must be a string");
  }
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields->Finish(&ignored));
  WEFT_RETURN_IF_ERROR(CheckModel(host, name));
  if (is_chat) {
    WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, host.answerer().prompts().Render(chat));
    text = std::move(prompt.text);
  }
  WEFT_RETURN_IF_ERROR(CheckTextBytes(model, text.size(), is_chat ? "messages" : "prompt"));
  const std::vector<int32_t> ids =
      model.Encode(text, add_special.value_or(!is_chat), /*parse_special=*/true);
  Json answer = {{"count", ids.size()}, {"max_model_len", model.context_tokens()}, {"tokens", ids}};
  if (wants_texts) {
    answer["token_strs"] = Json::array();
    for (const int32_t id : ids) {
      answer["token_strs"].push_back(model.tokenizer()->RawText(id));
    }
  }
  return CompactJson(answer);
}

StatusOr<std::string> Tokenize(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const bool is_chat = body.is_object() && body.contains("messages");
  const bool is_vllm = is_chat || (body.is_object() && body.contains("prompt"));
  if (!is_vllm) return LlamaTokenize(host, &fields);
  if (body.contains("content")) {
    fields.Fail("content",
                "is llama-server's, prompt and messages are vLLM's: use only one of them");
  }
  return VllmTokenize(host, &fields, is_chat);
}

StatusOr<std::string> Detokenize(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const Json* const list = fields.Value("tokens");
  const auto name = fields.String("model");
  const bool skips_special = fields.Bool("skip_special_tokens").value_or(false);
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
  WEFT_RETURN_IF_ERROR(CheckModel(host, name));
  const std::string text = host.model().Decode(tokens, /*render_special=*/!skips_special);
  // Under the names of llama-server, vLLM and SGLang, whose requests look the same.
  return CompactJson({{"content", text}, {"prompt", text}, {"text", text}});
}

StatusOr<std::string> ApplyTemplate(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const ChatRequest chat = ReadTemplateRequest(&fields, host.defaults());
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, host.answerer().prompts().Render(chat));
  return CompactJson({{"prompt", prompt.text}});
}

}  // namespace

void RegisterLlamaApi(Router& router, Host& host) {
  using Action = StatusOr<std::string> (*)(Host&, const HttpRequest&);
  const auto add = [&](const char* path, Action action, uint32_t work_bytes_per_byte) {
    router.Add({.method = "POST",
                .pattern = path,
                .shape = kLlamaErrors,
                .handler =
                    [&host, action](const HttpRequest& request, HttpResponder& responder) {
                      StatusOr<std::string> answer = action(host, request);
                      if (!answer.ok()) {
                        return SendError(responder, answer.status(), kLlamaErrors);
                      }
                      responder.Send(200, "application/json", *std::move(answer));
                    },
                .work_bytes_per_byte = work_bytes_per_byte});
  };
  // Each byte of a text may become a token, and each token a long text.
  add("/tokenize", Tokenize, 80);
  add("/detokenize", Detokenize, 40);
  add("/apply-template", ApplyTemplate, 0);
  RegisterAdapterRoutes(router, host);
  router.AddStream("POST", "/infill", kLlamaErrors,
                   [&host](const HttpRequest& request, HttpResponder& responder) {
                     return HandleLlamaInfill(host, request, responder);
                   });
  for (const char* const path : {"/embedding", "/embeddings"}) {
    router.AddTask("POST", path, kLlamaErrors,
                   [&host](const HttpRequest& request, HttpResponder& responder) {
                     return HandleLlamaEmbedding(host, request, responder);
                   });
  }
  for (const char* const path :
       {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"}) {
    router.AddTask("POST", path, kOpenAiErrors,
                   [&host](const HttpRequest& request, HttpResponder& responder) {
                     return HandleRerank(host, request, responder);
                   });
  }
  for (const char* const path : {"/completion", "/completions"}) {
    router.AddStream("POST", path, kLlamaErrors,
                     [&host](const HttpRequest& request, HttpResponder& responder) {
                       return HandleLlamaCompletion(host, request, responder);
                     });
  }
}

}  // namespace weft::serve
