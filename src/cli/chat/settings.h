// How weft chat samples and thinks: the flags to begin with, and /set from then on.
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
#include "formats/sampling_advice.h"

namespace weft::cli {

class ChatSettings {
 public:
  // What the flags say and, below them, the model.
  ChatSettings(SamplingFlags sampling, ReplyFlags reply, SamplingAdvice of_model);

  // INVALID_ARGUMENT says what there is, or which values a setting takes. The value "default"
  // is what it was in the beginning.
  Status Set(std::string_view name, std::string_view value);
  // "temperature 0.8": one of them; NOT_FOUND-like errors as of Set.
  StatusOr<std::string> Show(std::string_view name) const;
  // All of them, a line each.
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
