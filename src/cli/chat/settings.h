// How weft chat samples and thinks: set by flags at first, then by /set.
//
// A value; one thread.
#ifndef WEFT_CLI_CHAT_SETTINGS_H_
#define WEFT_CLI_CHAT_SETTINGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::cli {

class ChatSettings {
 public:
  // The flags' settings over the model's.
  ChatSettings(SamplingFlags sampling, ReplyFlags reply, SamplingAdvice of_model);

  // INVALID_ARGUMENT lists the settings, or the values a setting accepts. The value "default"
  // restores the initial one.
  Status Set(std::string_view name, std::string_view value);
  // "temperature 0.8": one setting; errors as in Set.
  StatusOr<std::string> Show(std::string_view name) const;
  // All settings, one per line.
  std::string Text() const;
  static std::vector<std::string> Names();

  const SamplingFlags& sampling() const { return sampling_; }
  const ReplyFlags& reply() const { return reply_; }
  const SamplingAdvice& of_model() const { return of_model_; }

 private:
  StatusOr<std::string> ValueOf(std::string_view name) const;

  SamplingFlags sampling_;
  ReplyFlags reply_;
  const SamplingFlags first_sampling_;
  const ReplyFlags first_reply_;
  const SamplingAdvice of_model_;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_SETTINGS_H_
