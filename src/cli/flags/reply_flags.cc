#include "cli/flags/reply_flags.h"

#include <limits>

namespace weft::cli {

void AddReplyFlags(CLI::App* app, ReplyFlags* flags) {
  app->add_option("--reasoning", flags->reasoning,
                  "Whether models think, if the template supports it and the request does not say: "
                  "on, off, or the API's default (auto)")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  app->add_option("--reasoning-budget", flags->reasoning_budget,
                  "Limit on the tokens of a thought if the request gives none; a longer one is "
                  "ended and the answer follows (-1: no limit; 0: no thought)")
      ->check(CLI::Range(int64_t{-1}, int64_t{std::numeric_limits<int32_t>::max()}))
      ->capture_default_str();
  app->add_flag_callback(
      "--context-shift",
      [] {
        throw CLI::ValidationError(
            "--context-shift",
            "shifting the context is not supported: the state of later tokens depends on the "
            "dropped ones, so it would change answers. Omit the option; an answer ends when the "
            "context is full (--ctx)");
      },
      "Not supported: an answer ends when the context is full");
  app->add_flag_callback(
      "--no-context-shift", [] {}, "Always the case; accepted for command lines of llama-server");
}

void SetReplyDefaults(const ReplyFlags& flags, serve::RequestDefaults* defaults) {
  if (flags.reasoning != "auto") defaults->thinking = flags.reasoning == "on";
  defaults->thought_tokens = flags.reasoning_budget;
}

}  // namespace weft::cli
