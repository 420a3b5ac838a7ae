#include "cli/flags/reply_flags.h"

#include <limits>
#include <string>
#include <utility>

#include "answer/chat/template_variables.h"
#include "base/strings.h"
#include "json/json_fields.h"

namespace weft::cli {
namespace {

constexpr char kKwargs[] = "--chat-template-kwargs";

nlohmann::ordered_json VariablesOf(const std::string& text) {
  auto variables = ParseJson(text, {});
  if (!variables.ok()) {
    throw CLI::ValidationError(kKwargs, std::string(Message(variables.status())));
  }
  if (!variables->is_object()) {
    throw CLI::ValidationError(
        kKwargs, "must be a JSON object of variables, such as {\"enable_thinking\": false}");
  }
  if (const char* const name = ReservedVariableIn(*variables)) {
    throw CLI::ValidationError(kKwargs, StrCat("cannot set ", name));
  }
  return *std::move(variables);
}

}  // namespace

void AddReplyFlags(CLI::App* app, ReplyFlags* flags) {
  app->add_option("--reasoning", flags->reasoning,
                  "Whether models reason, if the template supports it and the request does not "
                  "say: on, off, or the API's default (auto)")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  app->add_option("--reasoning-budget", flags->reasoning_budget,
                  "Max reasoning tokens if the request gives no limit; then the answer follows "
                  "(-1: no limit; 0: no reasoning)")
      ->check(CLI::Range(int64_t{-1}, int64_t{std::numeric_limits<int32_t>::max()}))
      ->capture_default_str();
  app->add_option("--reasoning-budget-message", flags->reasoning_budget_message,
                  "The last words of a reasoning that its limit ends, for example \"Time is up: I "
                  "answer now.\"; without them some models go on reasoning in the answer");
  app->add_flag_callback(
      "--context-shift",
      [] {
        throw CLI::ValidationError(
            "--context-shift",
            "shifting the context is not supported: the KV cache of later tokens depends on the "
            "dropped ones, so it would change answers. Omit the option; an answer ends when the "
            "context is full (--ctx)");
      },
      "Not supported: an answer ends when the context is full");
  app->add_flag_callback(
      "--no-context-shift", [] {}, "Always the case; accepted for command lines of llama-server");
}

void AddTemplateVariableFlags(CLI::App* app, ReplyFlags* flags) {
  app->add_option_function<std::string>(
         kKwargs, [flags](const std::string& text) { flags->variables.update(VariablesOf(text)); },
         "Variables for the chat template, a JSON object; those of a request override them")
      ->type_name("JSON");
  const auto set = [flags](bool keeps) {
    return [flags, keeps] { flags->variables["preserve_reasoning"] = keeps; };
  };
  app->add_flag_callback("--reasoning-preserve", set(true),
                         "Show the model its reasoning of earlier turns, if the template can: the "
                         "default");
  app->add_flag_callback("--no-reasoning-preserve", set(false),
                         "Show the model only the reasoning since the last user message");
}

serve::ThinkingDefaults ThinkingOf(const ReplyFlags& flags) {
  serve::ThinkingDefaults thinking{
      .limit = {.tokens = flags.reasoning_budget, .message = flags.reasoning_budget_message},
      .variables = flags.variables};
  if (flags.reasoning != "auto") thinking.thinks = flags.reasoning == "on";
  return thinking;
}

}  // namespace weft::cli
