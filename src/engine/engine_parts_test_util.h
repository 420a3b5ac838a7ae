// The engine's parts, wired as EngineCore wires them, but each accessible and without a thread:
// posted callbacks run when the test says so.
#ifndef WEFT_ENGINE_ENGINE_PARTS_TEST_UTIL_H_
#define WEFT_ENGINE_ENGINE_PARTS_TEST_UTIL_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_test_util.h"
#include "engine/mailbox.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/publisher.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/speculation/speculator.h"
#include "engine/storage/live_sessions.h"
#include "engine/storage/session_files.h"
#include "engine/turns/prompt_waits.h"
#include "engine/turns/step_room.h"
#include "engine/turns/step_runner.h"
#include "engine/turns/turn_disk.h"
#include "engine/turns/turn_scheduler.h"
#include "engine/turns/turn_writer.h"
#include "weft/model.h"

namespace weft {

// Sessions, their memory, their files and the published view.
class SessionParts {
 public:
  explicit SessionParts(const EngineOptions& options = SmallEngine())
      : options(options), model(TinyModel("llama")) {
    store = *model->backend().NewState(*model->weights(), {.page_tokens = options.page_tokens});
    ExecutorOptions wanted;
    wanted.n_threads = 1;
    wanted.max_step_tokens = options.max_step_tokens;
    executor = *model->backend().NewExecutor(model->weights(), store.get(), wanted);
    memory =
        *StateMemory::Create(model->spec(), store.get(), {.budget_bytes = options.memory_bytes});
    table = std::make_unique<SessionTable>(uint16_t{1}, options.max_sessions);
    idle = std::make_unique<IdleSessions>(table.get(), memory.get());
    publisher = std::make_unique<Publisher>(table.get(), memory.get(), idle.get());
    SessionFiles::Options of_files;
    of_files.path = options.state_dir;
    of_files.model = "tiny";
    of_files.backend = "cpu";
    of_files.kv_type = "f16";
    of_files.n_vocab = model->n_vocab();
    files = std::make_unique<SessionFiles>(parts(), of_files, PostBack());
    EXPECT_OK(files->Open());
    sessions = std::make_unique<LiveSessions>(parts(), files.get());
  }

  SessionFiles::Parts parts() const {
    return {.sessions = table.get(),
            .memory = memory.get(),
            .idle = idle.get(),
            .publisher = publisher.get(),
            .adapters = &adapters};
  }
  SessionFiles::PostBack PostBack() {
    return [box = mailbox](std::function<void()> work) { box->Post(std::move(work)); };
  }

  Session* Named(const std::string& name) {
    StatusOr<SessionId> id = Unavailable("no answer");
    sessions->Create({.name = name}, [&](const StatusOr<SessionId>& made) { id = made; });
    EXPECT_TRUE(id.ok()) << id.status();
    return sessions->Find(*id);
  }
  // Gives the session tokens, with state that takes memory as computed state does.
  void Fill(Session* session, int64_t n_tokens) {
    session->tokens = testing::RandomTokens(n_tokens, session->id.value);
    EXPECT_OK(memory->Prepare(session, n_tokens));
    memory->Commit(session);
    ++session->changes;
    session->last_used_us = ++last_used_us;
    publisher->Touch(session);
  }

  void RunMessages() {
    for (const auto& message : mailbox->Take()) message();
  }
  // Runs posted callbacks until the condition holds; false after 20 s.
  bool RunUntil(const std::function<bool()>& condition) {
    return Eventually([&] {
      RunMessages();
      return condition();
    });
  }
  // Makes a call that answers with a status, and waits for that.
  template <typename Call>
  Status Ask(Call call) {
    std::optional<Status> answer;
    call([&answer](const Status& status) { answer = status; });
    EXPECT_TRUE(RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(Internal("no answer"));
  }

  const EngineOptions options;
  const std::shared_ptr<const Model> model;
  const AdapterMixes adapters{{}};
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::unique_ptr<StateStore> store;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<StateMemory> memory;
  std::unique_ptr<SessionTable> table;
  std::unique_ptr<IdleSessions> idle;
  std::unique_ptr<Publisher> publisher;
  std::unique_ptr<SessionFiles> files;
  std::unique_ptr<LiveSessions> sessions;
  int64_t last_used_us = 0;
};

// And turns with their steps.
class TurnParts : public SessionParts {
 public:
  explicit TurnParts(const EngineOptions& options = SmallEngine()) : SessionParts(options) {
    disk = std::make_unique<TurnDisk>(memory.get(), files.get());
    turns = std::make_unique<TurnScheduler>(TurnScheduler::Parts{.model = model.get(),
                                                                 .options = &this->options,
                                                                 .memory = memory.get(),
                                                                 .publisher = publisher.get(),
                                                                 .files = files.get(),
                                                                 .sessions = sessions.get(),
                                                                 .disk = disk.get(),
                                                                 .adapters = &adapters},
                                            [] {});
    room = std::make_unique<StepRoom>(memory.get(), idle.get(), files.get(), &turns->running());
    writer = std::make_unique<TurnWriter>(model.get(), memory.get(), sessions.get());
    StepPlanner::Options planner;
    planner.max_step_tokens = options.max_step_tokens;
    planner.max_beside_tokens = executor->max_beside_tokens();
    planner.pause_points = executor->pause_points();
    steps = std::make_unique<StepRunner>(StepRunner::Parts{.model = model.get(),
                                                           .executor = executor.get(),
                                                           .memory = memory.get(),
                                                           .running = &turns->running(),
                                                           .room = room.get(),
                                                           .writer = writer.get(),
                                                           .disk = disk.get(),
                                                           .speculator = &speculator},
                                         planner);
    waits = std::make_unique<PromptWaits>(memory.get(), turns.get(), steps.get());
  }
  ~TurnParts() {
    turns->EndAll(Unavailable("the test is over"));
    Sweep();
  }

  SubmittedTurn Submit(const TurnOptions& options) {
    auto turn = turns->SubmitOnce("", options);
    EXPECT_TRUE(turn.ok()) << turn.status();
    return *turn;
  }
  ActiveTurn* Find(const SubmittedTurn& turn) {
    Session* const session = table->Find(turn.session);
    return session != nullptr ? turns->FindOn(session->id) : nullptr;
  }
  void Sweep() {
    turns->EndUnwanted();
    steps->AbandonIfUnwanted();
    turns->RetireEnded();
    publisher->Publish({}, {}, {}, true);
  }
  void Begin() {
    Sweep();
    turns->Admit();
    turns->RefreshWaits();
  }
  // One round. False if nothing was computed.
  bool Step() {
    Begin();
    steps->Plan();
    const bool ran = steps->Run([] { return false; });
    Sweep();
    return ran;
  }
  void RunAll() {
    while (Step()) {
    }
  }

  std::unique_ptr<TurnDisk> disk;
  std::unique_ptr<TurnScheduler> turns;
  std::unique_ptr<StepRoom> room;
  std::unique_ptr<TurnWriter> writer;
  Speculator speculator{{.most = 16}};
  std::unique_ptr<StepRunner> steps;
  std::unique_ptr<PromptWaits> waits;
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_PARTS_TEST_UTIL_H_
