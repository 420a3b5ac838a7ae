#include "doors/api/request_turns.h"

#include <optional>
#include <string>
#include <utility>

#include "base/strings.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/support.h"
#include "doors/host/turn_work.h"

namespace weft::serve {
namespace {

// What is known before the turn, whose answer begins before its session is written: that of the
// turn before, or of other sessions.
void NoteUnsaved(Host& host, const Ask& ask, HttpResponder& responder) {
  if (ask.session.name.empty()) return;
  const auto id = host.engine().FindSession(ask.domain, ask.session.name);
  const auto info = id.ok() ? host.engine().Inspect(*id) : StatusOr<SessionInfo>(id.status());
  if (info.ok() && !info->unsaved.empty()) {
    return responder.NoteHeader(kWarningHeader,
                                StrCat("the session's last turn could not be saved (",
                                       HeaderText(info->unsaved), "): a restart would lose it"));
  }
  const EngineStats stats = host.engine().Stats();
  if (stats.sessions_unsaved == 0) return;
  responder.NoteHeader(kWarningHeader,
                       StrCat("other sessions cannot be saved (", HeaderText(stats.save_problem),
                              "): a restart may lose this turn"));
}

}  // namespace

RequestTurns::RequestTurns(Host& host, HttpResponder& responder)
    : host_(host),
      responder_(responder),
      on_cancellation_(responder.cancellation(), [this] { CancelAll(); }) {}

RequestTurns::~RequestTurns() { CancelAll(); }

void RequestTurns::CancelAll() {
  std::vector<std::shared_ptr<Generation>> generations;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    generations = generations_;
  }
  for (const auto& generation : generations) generation->Cancel();
}

void RequestTurns::Add(std::shared_ptr<Generation> generation) {
  {
    MutexLock lock(&mutex_);
    is_begun_ = true;
    std::erase_if(generations_, [](const auto& other) { return other->has_ended(); });
    generations_.push_back(generation);
    if (!cancelled_) return;
  }
  generation->Cancel();
}

Task<void> RequestTurns::End() {
  CancelAll();
  std::vector<std::shared_ptr<Generation>> generations;
  {
    MutexLock lock(&mutex_);
    generations.swap(generations_);
  }
  for (const auto& generation : generations) {
    bool has_more = true;
    while (has_more) {
      const std::optional<TurnEvent> event = co_await generation->Next();
      has_more = event.has_value();
    }
  }
}

TurnListener RequestTurns::Listener() {
  return {.finished = [&responder = responder_](
                          const TurnUsage& usage) { responder.NoteWork(WorkOf(usage)); },
          .left = responder_.cancellation()};
}

Task<StatusOr<std::shared_ptr<Generation>>> RequestTurns::Submit(Ask ask,
                                                                 std::shared_ptr<Signal> ready) {
  NoteUnsaved(host_, ask, responder_);
  ask.is_begun = is_begun();
  TurnListener listener = Listener();
  listener.ready = std::move(ready);
  PromptRecord none;
  auto submitting = host_.answerer().Submit(std::move(ask), std::move(none), std::move(listener));
  StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (!generation.ok()) co_return generation.status();
  std::shared_ptr<Generation> shared = *std::move(generation);
  Add(shared);
  co_return shared;
}

Task<StatusOr<std::unique_ptr<Answer>>> RequestTurns::Begin(Ask ask, StreamSigns signs) {
  NoteUnsaved(host_, ask, responder_);
  ask.is_begun = is_begun();
  AnswerReader reader{Listener()};
  reader.on_progress = std::move(signs.progress);
  reader.signs = {.send = std::move(signs.alive),
                  .begin = host_.defaults().stream_begin,
                  .interval = host_.defaults().server.ping_interval};
  reader.room = [&responder = responder_] { return responder.Room(); };
  auto beginning = host_.answerer().Begin(std::move(ask), std::move(reader));
  StatusOr<std::unique_ptr<Answer>> answer = co_await beginning;
  if (answer.ok()) Add((*answer)->generation());
  co_return answer;
}

Task<Status> RequestTurns::Start(Answer& answer) {
  const Status started = co_await answer.Start();
  if (!started.ok()) co_return started;
  if (const auto report = answer.cache_report()) {
    responder_.NoteHeader(kCacheHeader, CacheHeader(*report));
  }
  co_return OkStatus();
}

Task<StatusOr<std::unique_ptr<Answer>>> RequestTurns::Open(Ask ask, StreamSigns signs) {
  auto beginning = Begin(std::move(ask), std::move(signs));
  StatusOr<std::unique_ptr<Answer>> answer = co_await beginning;
  if (!answer.ok()) co_return answer.status();
  const Status started = co_await Start(**answer);
  if (!started.ok()) co_return started;
  co_return answer;
}

}  // namespace weft::serve
