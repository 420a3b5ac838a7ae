#include "cli/flags/reply_flags.h"

#include <limits>

namespace weft::cli {

void AddReplyFlags(CLI::App* app, ReplyFlags* flags) {
  app->add_option("--reasoning", flags->reasoning,
                  "Whether templates that know of it have models think, where a request does not "
                  "say: on, off, or as the API has it (auto)")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  app->add_option("--reasoning-budget", flags->reasoning_budget,
                  "Tokens of a thought, where a request does not say; then it is ended and the "
                  "answer goes on (-1: as many as it takes; 0: none)")
      ->check(CLI::Range(int64_t{-1}, int64_t{std::numeric_limits<int32_t>::max()}))
      ->capture_default_str();
  app->add_flag_callback(
      "--context-shift",
      [] {
        throw CLI::ValidationError(
            "--context-shift",
            "the context is not shifted here: what a model has computed for later tokens depends "
            "on those that would be dropped, so that answers would be others than without it. "
            "Leave it out; an answer ends when the context is full (--ctx)");
      },
      "Refused, with the reason: an answer ends when the context is full");
  app->add_flag_callback(
      "--no-context-shift", [] {}, "What happens anyway; for command lines of llama-server");
}

void SetReplyDefaults(const ReplyFlags& flags, serve::RequestDefaults* defaults) {
  if (flags.reasoning != "auto") defaults->thinking = flags.reasoning == "on";
  defaults->thought_tokens = flags.reasoning_budget;
}

}  // namespace weft::cli
