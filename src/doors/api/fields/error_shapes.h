// How each API writes its errors: OpenAI's {"error":{message,type,param,code}}, Anthropic's
// {"type":"error","error":{type,message}}, llama-server's {"error":{code,message,type}}, Ollama's
// {"error":message}. If a session of a shared store cannot be used, Anthropic's and Ollama's have a
// "code" too, and llama-server's has it as its type.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_ERROR_SHAPES_H_
#define WEFT_DOORS_API_FIELDS_ERROR_SHAPES_H_

#include <string_view>

#include "doors/http/api_error.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// Includes the request id.
nlohmann::ordered_json AnthropicErrorBody(const ApiError& error, std::string_view request_id);
nlohmann::ordered_json LlamaErrorBody(const ApiError& error, std::string_view request_id);
nlohmann::ordered_json OllamaErrorBody(const ApiError& error, std::string_view request_id);

inline constexpr ErrorShape kOpenAiErrors = kPlainErrors;
inline constexpr ErrorShape kAnthropicErrors{.body = &AnthropicErrorBody,
                                             .id_header = "request-id"};
inline constexpr ErrorShape kLlamaErrors{.body = &LlamaErrorBody};
inline constexpr ErrorShape kOllamaErrors{.body = &OllamaErrorBody};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_ERROR_SHAPES_H_
