// Fuzzing of chat templates: the input is a template, parsed and, when accepted,
// rendered with a small conversation under small limits.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "jinja/template.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

const nlohmann::ordered_json& Conversation() {
  static const auto* const conversation =
      new nlohmann::ordered_json(nlohmann::ordered_json::parse(R"({
        "messages": [
          {"role": "system", "content": "S\u00e4tze \n in a row"},
          {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
          {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "function": {"name": "f", "arguments": {"a": 1, "b": [2.5, true]}}}]},
          {"role": "tool", "content": "{}", "tool_call_id": "c1"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "n": 3, "x": 1.5, "s": "a<b>\u65e5\u672c", "l": [3, 1, 2], "d": {"k": "v", "j": [1]},
        "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})"));
  return *conversation;
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed =
      weft::ChatTemplate::Parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  weft::RenderOptions options;
  options.wall_clock_s = 1768480245;
  options.limits.max_steps = 100'000;
  options.limits.max_bytes = size_t{4} << 20;
  const auto first = (*parsed)->Render(weft::Conversation(), options);
  const auto second = (*parsed)->Render(weft::Conversation(), options);
  WEFT_CHECK(first.ok() == second.ok(), "rendering twice differs");
  if (first.ok()) WEFT_CHECK(first->size() <= options.limits.max_bytes, "a limit did not hold");
  return 0;
}
