// One loaded model as something that answers: a conversation or a prompt goes in, a stream of
// pieces comes out. Doors (HTTP APIs, gRPC, the worker, commands) read an Ask from their fields and
// write the Answer in their own form.
//
//   auto beginning = answerer.Begin(std::move(ask), std::move(reader));
//   StatusOr<std::unique_ptr<Answer>> answer = co_await beginning;
//
// Any thread.
#ifndef WEFT_ANSWER_ANSWERER_H_
#define WEFT_ANSWER_ANSWERER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "answer/ask.h"
#include "answer/cache_report.h"
#include "answer/chat/chat_format.h"
#include "answer/generation.h"
#include "answer/prompt_maker.h"
#include "answer/turn_activity.h"
#include "async/task.h"
#include "base/status.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::serve {

// What the operator and the model want of all answers.
struct AnswerPolicy {
  // Calls that begin have the form of an offered tool's, if that can be enforced.
  bool hold_calls = true;
  // Calls of offered tools are also recognised in other formats than the model's own.
  bool lenient_tool_calls = true;
  // The model's texts apply to asks without stop strings of their own.
  AnswerEnds ends = {};
};

class AgentPrompts;
class Pictures;
struct PictureWait;

class Answerer {
 public:
  struct Parts {
    std::shared_ptr<const Model> model;
    std::shared_ptr<const ChatFormat> chat;
    std::shared_ptr<PromptMaker> prompts;
    std::shared_ptr<CacheReports> reports = nullptr;   // null: none are made
    std::shared_ptr<AgentPrompts> agents = nullptr;    // null: nobody remembers their prompts
    std::shared_ptr<TurnActivity> activity = nullptr;  // null: nobody asks for it
    Engine* engine = nullptr;                          // outlives the answerer
    TurnObserver* observer = nullptr;                  // outlives the answerer; null: nobody counts
    std::shared_ptr<Pictures> pictures = nullptr;      // null: the model sees none
    AnswerPolicy policy = {};
    // Asked before each turn: an error refuses it. `is_begun`: see Ask. May be empty.
    std::function<Status(bool is_begun)> may_run = {};
    bool has_foreign_state = false;  // in the state directory, of other models or KV types
    // The adapters of turns that name none. May be empty.
    std::function<std::vector<AdapterScale>()> default_adapters = {};
  };

  explicit Answerer(Parts parts) : parts_(std::move(parts)) {}
  virtual ~Answerer() = default;

  // For a command with a model of its own: without reports, counts and memory of replies.
  // `chat_template`: empty for the model's own.
  static StatusOr<std::unique_ptr<Answerer>> ForCommand(std::shared_ptr<const Model> model,
                                                        Engine* engine,
                                                        std::string chat_template = "",
                                                        std::shared_ptr<Pictures> pictures = {});

  const Model& model() const { return *parts_.model; }
  const ChatFormat& chat() const { return *parts_.chat; }
  Engine& engine() const { return *parts_.engine; }
  PromptMaker& prompts() const { return *parts_.prompts; }
  CacheReports& cache_reports() const { return *parts_.reports; }
  // Null if the model sees no pictures.
  Pictures* pictures() const { return parts_.pictures.get(); }
  bool sees() const { return pictures() != nullptr; }
  const Parts& parts() const { return parts_; }

  // Submits. Errors name `messages` if the chat format does; UNAVAILABLE while loading or draining;
  // otherwise the engine's own refusals. Then Answer::Start waits for the prompt.
  Task<StatusOr<std::unique_ptr<Answer>>> Begin(Ask ask, AnswerReader reader);
  // The same for doors whose protocol is about tokens: the events of a prompt's turn. `record` is
  // empty, except for a conversation's prompt.
  virtual Task<StatusOr<std::unique_ptr<Generation>>> Submit(Ask ask, PromptRecord record,
                                                             TurnListener listener);

  // The text of a conversation's prompt as the model sees it, including control tokens.
  StatusOr<std::string> PromptText(const Ask& ask) const;
  // INVALID_ARGUMENT if the prompt is not of tokens alone.
  StatusOr<std::vector<int32_t>> PromptTokens(const Ask& ask) const;
  StatusOr<int64_t> CountTokens(const Ask& ask) const;

 private:
  class CountedGeneration;

  Task<Status> CheckAdmission(const Ask& ask) const;
  // Refuses what Submit would refuse before it encodes anything.
  Task<Status> EncodePicturesOf(Ask& ask, PictureWait wait) const;
  Task<Status> SetPicturedPrompt(Ask& ask, std::stop_token left) const;
  StatusOr<TurnOptions> MeasurePrompt(const Ask& ask) const;
  StatusOr<KnownPrompt> SetPromptOf(const Ask& ask, std::vector<EmbeddedRows> rows,
                                    int64_t row_width, TurnOptions* turn) const;
  std::vector<std::string> AddOwnEnds(TurnOptions* turn) const;
  StatusOr<std::optional<constraint::ConstraintState>> BeginReply(const Ask& ask,
                                                                  const ChatPrompt& prompt) const;
  Status Restrict(const Ask& ask, const ChatPrompt& prompt, bool may_call, TurnOptions* turn,
                  AnswerPlan* plan) const;
  void SetParsers(const Ask& ask, const ChatPrompt& prompt, bool may_call, TurnOptions* turn,
                  AnswerPlan* plan) const;
  Status PrepareChat(Ask* ask, PromptRecord* record, AnswerPlan* plan) const;
  Status Prepare(Ask* ask, PromptRecord* record, AnswerPlan* plan) const;

  const Parts parts_;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ANSWERER_H_
