// The model worker: named and anonymous sessions behind a protocol of JSON lines, one request at a
// time, as driven by ExecuTorch's control planes.
//
//   JsonlWorker worker(answerer, options, write_line);
//   worker.Start();
//   while (...) worker.Handle(line);
//
// The warm-resume figures in a "done" line refer to the request's own session, as the protocol
// defines them: "reused_prompt_tokens" is above zero only for the reason "exact_prefix". The actual
// number of prompt tokens that were not computed, including those found in the prefix index, is
// reported beside them as "cached_tokens".
//
// One thread, except for Stop. Lines are written on that thread, or on another while it waits.
#ifndef WEFT_DOORS_WORKER_WORKER_H_
#define WEFT_DOORS_WORKER_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answerer.h"
#include "answer/thinking.h"
#include "async/task.h"
#include "async/task_pool.h"
#include "base/mutex.h"
#include "doors/worker/worker_request.h"
#include "model/sampling/sampling_parameters.h"
#include "nlohmann/json.hpp"
#include "weft/engine.h"

namespace weft::serve {

struct WorkerOptions {
  // One of them is reserved for requests without a session.
  int max_sessions = 16;
  // False: every request computes its whole prompt (use an engine without prefix cache), to measure
  // the benefit of reuse.
  bool warm_resume = true;
  std::vector<int32_t> prompt_prefix;  // before every prompt; counted in prompt_tokens
  std::vector<int32_t> stop_tokens;    // besides the model's own end tokens
  // For parameters that a request omits; overrides the protocol's defaults (temperature 0, no
  // cuts).
  SamplingAdvice advice;
  std::optional<uint64_t> seed;
  AnswerEnds ends;
  bool end_loops = true;
  ThoughtLimit thought;
  // The first line says that images are not supported, for launchers that ask.
  bool tells_no_images = false;
};

// How a prompt relates to the tokens in its session.
struct WorkerResume {
  int64_t reused_tokens = 0;
  const char* reason = "new";  // new, exact_prefix, mismatch, dirty, equal
};
WorkerResume PlanResume(std::span<const int32_t> resident, std::span<const int32_t> prompt,
                        bool dirty);

class JsonlWorker {
 public:
  // Receives whole lines without their line end. After an error the worker is useless.
  using WriteLine = std::function<Status(std::string_view line)>;

  // `answerer` must outlive this, and its engine have no other users.
  JsonlWorker(Answerer* answerer, WorkerOptions options, WriteLine write_line);

  // Writes the line that says the worker is ready.
  Status Start();
  // Answers one line; blank ones are ignored. Errors in a request are answers, so an error here
  // means that answers cannot be written any more.
  Status Handle(std::string_view line);
  // Ends the running request, and every later one, with an error. Any thread.
  void Stop();

 private:
  // `resident` are the tokens that the next prompt may continue: prompt and reply of the last turn
  // without its end token.
  struct Session {
    SessionId id;
    std::string name;  // the engine's
    std::vector<int32_t> resident;
    bool dirty = false;
  };
  // An error answer, with the protocol's code if it has one.
  struct Failure {
    std::string error, code, session_id, detail;
  };
  // The result of a turn.
  struct Outcome {
    Status begun;                 // not OK: the turn was refused
    Status started;               // not OK: its prompt was not computed
    Status ended;                 // not OK: it failed after that
    Status written;               // not OK: the answers cannot be written
    std::vector<int32_t> tokens;  // without the end token
    AnswerEnd end;
    AnswerUsage usage;
  };

  Status Write(const nlohmann::ordered_json& answer);
  Status WriteFailure(const Failure& failure);
  Status Confirm(const WorkerRequest& request, const char* done_key);
  Status Generate(const WorkerRequest& request);

  int max_named() const { return options_.max_sessions - 1; }
  // The named session, created on first use; null with `failure` set.
  Session* OpenNamed(const std::string& name, Failure* failure);
  Status Reset(Session* session);

  bool EncodePrompt(const WorkerRequest& request, std::vector<int32_t>* tokens,
                    Failure* failure) const;
  bool LimitTokens(const WorkerRequest& request, int64_t prompt_tokens, TurnOptions* turn,
                   Failure* failure) const;
  // Sets the sampling options and the ends of answers.
  void SetSampling(const WorkerRequest& request, TurnOptions* turn) const;
  bool EndsInThought(const WorkerRequest& request) const;
  // Writes the text as it arrives. Runs in the pool, while Generate waits.
  Task<Outcome> RunTurn(Ask ask);
  Task<void> Relay(Answer& answer, Outcome& outcome);
  // Makes the turn the one that Stop cancels; null for none.
  void SetRunning(std::shared_ptr<Generation> running);
  // None if the turn ended as it should.
  std::optional<Failure> FailureOf(const Outcome& outcome);
  nlohmann::ordered_json DoneLine(const Outcome& outcome, const WorkerResume& resume,
                                  int64_t total_us) const;
  void ComputeLastToken(const Session& session);

  Answerer& answerer_;
  Engine& engine_;
  const WorkerOptions options_;
  const WriteLine write_line_;
  std::map<std::string, Session, std::less<>> named_;
  int64_t n_named_ = 0;  // so far
  TaskPool pool_{{.max_threads = 1}};

  Mutex mutex_;
  std::shared_ptr<Generation> running_ WEFT_GUARDED_BY(mutex_);
  bool stopped_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_WORKER_WORKER_H_
