// The public engine: one thread, its mailbox, and an EngineCore that only that thread touches.
#include "weft/engine.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/engine_core.h"
#include "engine/mailbox.h"
#include "engine/side_work.h"
#include "engine/storage/prefix_watches.h"
#include "weft/step_gate.h"

namespace weft {
namespace {

// The consumer's end of a turn.
class TurnHandle : public Turn {
 public:
  // `expect_more` runs on the engine thread.
  TurnHandle(SubmittedTurn submitted, std::shared_ptr<Mailbox> mailbox,
             std::function<void()> expect_more)
      : submitted_(std::move(submitted)),
        mailbox_(std::move(mailbox)),
        expect_more_(std::move(expect_more)) {}
  ~TurnHandle() override {
    submitted_.queue->SetReadyCallback(nullptr);
    Cancel();
  }

  std::optional<TurnEvent> Next() override { return submitted_.queue->Next(); }
  std::optional<TurnEvent> TryNext(bool* finished) override {
    return submitted_.queue->TryNext(finished);
  }
  void SetReadyCallback(std::function<void()> ready) override {
    submitted_.queue->SetReadyCallback(std::move(ready));
  }
  void Cancel() override {
    if (!submitted_.cancelled->exchange(true)) mailbox_->Post([] {});
  }
  void ExpectMore() override { mailbox_->Post(expect_more_); }
  SessionId session() const override { return submitted_.session; }

 private:
  const SubmittedTurn submitted_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::function<void()> expect_more_;
};

class EngineThread : public Engine {
 public:
  EngineThread(std::shared_ptr<const Model> model, const EngineOptions& options)
      : model_(std::move(model)),
        options_(options),
        mailbox_(std::make_shared<Mailbox>()),
        beside_(options.step_ms, options.share_weights) {}

  ~EngineThread() override { (void)Shutdown(std::chrono::milliseconds(0)); }

  Status Launch() {
    std::promise<Status> built;
    std::future<Status> result = built.get_future();
    MutexLock lock(&join_mutex_);
    thread_ = std::thread([this, &built] { Main(&built); });
    engine_thread_ = thread_.get_id();
    Status status = result.get();
    if (!status.ok()) thread_.join();
    return status;
  }

  const Model& model() const override { return *model_; }
  const EngineOptions& options() const override { return options_; }
  int64_t TurnsWaiting() const override { return turns_waiting_; }

  StatusOr<SessionId> CreateSession(const SessionOptions& options) override {
    return Await<StatusOr<SessionId>>(
        [&](const auto& reply) { core_->sessions().Create(options, reply); });
  }
  StatusOr<SessionId> FindSession(std::string_view domain, std::string_view name) override {
    return view_->Latest()->Find(domain, name);
  }
  StatusOr<SessionId> Fork(SessionId session, int64_t position,
                           const SessionOptions& options) override {
    return Await<StatusOr<SessionId>>(
        [&](const auto& reply) { core_->sessions().Fork(session, position, options, reply); });
  }
  Status Truncate(SessionId session, int64_t position) override {
    return Await<Status>(
        [&](const auto& reply) { core_->sessions().Truncate(session, position, reply); });
  }
  Status Reset(SessionId session) override {
    return Await<Status>([&](const auto& reply) { core_->sessions().Reset(session, reply); });
  }
  Status Rename(SessionId session, const std::string& name) override {
    return Await<Status>(
        [&](const auto& reply) { core_->sessions().Rename(session, name, reply); });
  }
  Status Park(SessionId session) override {
    return Await<Status>([&](const auto& reply) { core_->files().Park(session, reply); });
  }
  Status Restore(SessionId session) override {
    return Await<Status>([&](const auto& reply) { core_->files().Restore(session, reply); });
  }
  Status Save(SessionId session) override {
    return Await<Status>([&](const auto& reply) { core_->files().Save(session, reply); });
  }
  Status Close(SessionId session, bool forget) override {
    return Await<Status>([&](const auto& reply) { core_->Close(session, forget, reply); });
  }
  StatusOr<int64_t> CloseIdle(const std::optional<std::string>& domain,
                              std::chrono::microseconds idle) override {
    return Call(
        [&] { return StatusOr<int64_t>(core_->sessions().CloseIdle(domain, idle.count())); });
  }
  StatusOr<SessionInfo> Inspect(SessionId session) override {
    return view_->Latest()->Inspect(session);
  }
  StatusOr<std::vector<int32_t>> Tokens(SessionId session) override {
    return Await<StatusOr<std::vector<int32_t>>>(
        [&](const auto& reply) { core_->sessions().Tokens(session, reply); });
  }
  StatusOr<std::vector<SessionInfo>> ListSessions(std::string_view domain) override {
    return view_->Latest()->List(domain);
  }
  StatusOr<std::shared_ptr<Turn>> Submit(SessionId session, const TurnOptions& options) override {
    return Wrap(Call([&] { return core_->Submit(session, options); }));
  }
  StatusOr<std::shared_ptr<Turn>> SubmitOnce(std::string_view domain,
                                             const TurnOptions& options) override {
    return Wrap(Call([&] { return core_->turns().SubmitOnce(domain, options); }));
  }
  StatusOr<NamedTurn> SubmitNamed(const SessionOptions& session, const TurnOptions& options,
                                  const NamedTurnPolicy& policy) override {
    return WrapNamed(Await<StatusOr<SubmittedTurn>>([&](const auto& reply) {
      core_->named().Submit({session, options, policy}, reply);
    }));
  }

  void CreateSession(const SessionOptions& options, Done<StatusOr<SessionId>> done) override {
    Ask([this, options](const auto& reply) { core_->sessions().Create(options, reply); },
        std::move(done));
  }
  void FindShared(const SessionOptions& session, Done<StatusOr<SessionId>> done) override {
    Ask([this, session](const auto& reply) { core_->sessions().FindShared(session, reply); },
        std::move(done));
  }
  void InspectShared(const SessionOptions& session, Done<StatusOr<SessionInfo>> done) override {
    const auto tell = [view = view_, done = std::move(done)](StatusOr<SessionInfo> info) {
      const bool is_here = info.ok() && info->id.value != 0;
      done(is_here ? view->Latest()->Inspect(info->id) : std::move(info));
    };
    Ask([this, session](const auto& reply) { core_->sessions().Look(session, reply); },
        Done<StatusOr<SessionInfo>>(tell));
  }
  void Release(SessionId session, Done<Status> done) override {
    Ask([=, this](const auto& reply) { core_->sessions().Release(session, reply); },
        std::move(done));
  }
  void Fork(SessionId session, int64_t position, const SessionOptions& options,
            Done<StatusOr<SessionId>> done) override {
    Ask([=, this](const auto& reply) { core_->sessions().Fork(session, position, options, reply); },
        std::move(done));
  }
  void Reset(SessionId session, Done<Status> done) override {
    Ask([=, this](const auto& reply) { core_->sessions().Reset(session, reply); }, std::move(done));
  }
  void Park(SessionId session, Done<Status> done) override {
    Ask([=, this](const auto& reply) { core_->files().Park(session, reply); }, std::move(done));
  }
  void Restore(SessionId session, Done<Status> done) override {
    Ask([=, this](const auto& reply) { core_->files().Restore(session, reply); }, std::move(done));
  }
  void Close(SessionId session, bool forget, Done<Status> done) override {
    Ask([=, this](const auto& reply) { core_->Close(session, forget, reply); }, std::move(done));
  }
  void CloseIdle(const std::optional<std::string>& domain, std::chrono::microseconds idle,
                 Done<StatusOr<int64_t>> done) override {
    Ask([=, this](const auto& reply) { reply(core_->sessions().CloseIdle(domain, idle.count())); },
        std::move(done));
  }
  void ParkIdle(Done<StatusOr<int64_t>> done) override {
    Ask(
        [this](const auto& reply) {
          core_->files().is_shared() ? core_->sessions().ReleaseIdle(reply)
                                     : core_->files().ParkIdle(reply);
        },
        std::move(done));
  }
  void Tokens(SessionId session, Done<StatusOr<std::vector<int32_t>>> done) override {
    Ask([=, this](const auto& reply) { core_->sessions().Tokens(session, reply); },
        std::move(done));
  }
  void SubmitNamed(NamedTurnRequest request, Done<StatusOr<NamedTurn>> done) override {
    // Shared, because messages are copied.
    auto shared = std::make_shared<NamedTurnRequest>(std::move(request));
    Ask([=, this](const auto& reply) { core_->named().Submit(std::move(*shared), reply); },
        Done<StatusOr<SubmittedTurn>>(
            [this, done = std::move(done)](StatusOr<SubmittedTurn> submitted) {
              done(WrapNamed(std::move(submitted)));
            }));
  }

  void CheckQueue(std::string_view tenant, Done<Status> done) override {
    Ask([this, tenant = std::string(tenant)](
            const auto& reply) { reply(core_->turns().CheckQueue(tenant)); },
        std::move(done));
  }

  void RunBeside(std::shared_ptr<SideWork> work) override {
    mailbox_->Post([this, work = std::move(work)] { beside_.Add(work); });
  }

  std::shared_ptr<PrefixFeed> WatchPrefixes(std::string_view domain,
                                            std::vector<AdapterScale> adapters,
                                            std::function<void()> changed) override {
    auto queue = std::make_shared<PrefixQueue>(std::move(changed),
                                               [mailbox = mailbox_] { mailbox->Post([] {}); });
    const bool posted =
        mailbox_->Post([this, queue, domain = std::string(domain), adapters = std::move(adapters)] {
          core_->WatchPrefixes(domain, adapters, queue);
        });
    if (!posted) queue->End(Unavailable("the engine has shut down"));
    return queue;
  }

  std::vector<TurnInfo> Turns() override { return view_->Latest()->turns(); }
  EngineStats Stats() override { return view_->Latest()->stats(); }
  Status CheckIntegrity() override {
    return Call([&] { return core_->CheckIntegrity(); });
  }
  Status DropPrefixes() override {
    return Call([&] {
      core_->DropPrefixes();
      return OkStatus();
    });
  }

  Status Shutdown(std::chrono::milliseconds grace) override {
    const auto deadline = std::chrono::steady_clock::now() + grace;
    mailbox_->Post([this, deadline] {
      core_->turns().StopAccepting();
      stop_at_ = std::min(stop_at_.value_or(deadline), deadline);
    });
    MutexLock lock(&join_mutex_);
    if (thread_.joinable()) thread_.join();
    return shutdown_status_;
  }

 private:
  // Runs `work` on the engine thread, between two steps, and waits for its result.
  template <typename Work>
  auto Call(Work work) -> decltype(work()) {
    using Result = decltype(work());
    return Await<Result>([&](const auto& reply) { reply(work()); });
  }

  // The same for work that may answer later, after file access.
  template <typename Result, typename Work>
  Result Await(Work work) {
    WEFT_CHECK(std::this_thread::get_id() != engine_thread_,
               "the engine was called from its own callback");
    // Shared: the waiter may be gone before set_value has returned.
    auto promise = std::make_shared<std::promise<Result>>();
    std::future<Result> result = promise->get_future();
    Ask([&work](const auto& reply) { work(reply); },
        Done<Result>([promise](Result value) { promise->set_value(std::move(value)); }));
    return result.get();
  }

  // Runs `work` on the engine thread, between two steps. `done` is called with its result when
  // `work`, or something it started there, has called its argument, and readers can see the
  // effects.
  template <typename Result, typename Work>
  void Ask(Work work, std::function<void(Result)> done) {
    const bool posted = mailbox_->Post([this, work = std::move(work), done] {
      const std::function<void(Result)> reply = [this, done](Result value) {
        auto shared = std::make_shared<Result>(std::move(value));
        core_->publisher().AfterPublish([done, shared] { done(std::move(*shared)); });
      };
      work(reply);
    });
    if (!posted) done(Result(Unavailable("the engine has shut down")));
  }

  StatusOr<std::shared_ptr<Turn>> Wrap(StatusOr<SubmittedTurn> submitted) {
    if (!submitted.ok()) return submitted.status();
    std::function<void()> expect_more = [this, domain = submitted->domain,
                                         serial = submitted->serial] {
      core_->turns().ExpectMore(domain, serial);
    };
    return std::shared_ptr<Turn>(
        std::make_shared<TurnHandle>(*std::move(submitted), mailbox_, std::move(expect_more)));
  }

  StatusOr<NamedTurn> WrapNamed(StatusOr<SubmittedTurn> submitted) {
    WEFT_RETURN_IF_ERROR(submitted.status());
    NamedTurn named{.is_anonymous = submitted->is_anonymous};
    WEFT_ASSIGN_OR_RETURN(named.turn, Wrap(std::move(submitted)));
    return named;
  }

  void Main(std::promise<Status>* built) {
    auto core = EngineCore::Create(
        model_, options_,
        [mailbox = mailbox_](std::function<void()> message) { mailbox->Post(std::move(message)); });
    if (!core.ok()) {
      mailbox_->Close();
      built->set_value(core.status());
      return;
    }
    core_ = *std::move(core);
    options_ = core_->options();
    view_ = core_->publisher().view();
    core_->Publish();
    built->set_value(OkStatus());
    if (options_.gate != nullptr) place_ = options_.gate->NewPlace();
    while (!ShouldStop()) {
      RunMessages();
      if (EnterGate()) RunMessages();
      const bool advanced = core_->RunOnce([this] { return MustPause() || beside_.IsDue(); });
      const bool worked = AdvanceBeside(advanced);
      LeaveGate(advanced || worked);
      turns_waiting_ = core_->turns().waiting();
      if (advanced || worked || ShouldStop()) {
        core_->PublishIfDue();
        continue;
      }
      core_->Publish();
      if (core_->publisher().HasMore() || core_->HasMorePrefixes()) continue;
      CheckWhenIdle();
      const auto wake = core_->NextWake();
      mailbox_->WaitUntil(stop_at_ ? std::min(*stop_at_, wake) : wake);
    }
    place_.reset();
    core_->turns().StopAccepting();
    core_->CutAll(Unavailable("the engine is shutting down"));
    beside_.Clear();
    core_->Publish();
    SaveSessions();
    core_->files().CloseStore();
    mailbox_->Close();
    // Messages posted before the close are still answered, by an engine that admits nothing.
    RunMessages();
    beside_.Clear();
    core_->publisher().Close();
    core_.reset();
  }

  // A piece of others' work, which takes no time from a paused step's slice. False if there was
  // none. After a part of a long step it waits until it is due, so that decoding sessions do not
  // wait for two pieces.
  bool AdvanceBeside(bool advanced) {
    if (advanced && !core_->steps().last_was_short() && !beside_.IsDue()) return false;
    const int64_t begin_us = NowMicros();
    const bool worked = beside_.Advance(core_->executor(), [this] { return MustPause(); });
    if (worked) core_->steps().NoteSideWork(NowMicros() - begin_us);
    return worked;
  }

  // --- in turn with other engines ---
  // True if it had to wait.
  bool EnterGate() {
    if (place_ == nullptr || (core_->turns().idle() && beside_.empty())) return false;
    const int64_t waited_us = place_->Enter();
    core_->steps().NoteOthers(place_->others(), waited_us);
    return waited_us > 0;
  }
  bool MustPause() const {
    return mailbox_->HasMail() || (place_ != nullptr && place_->IsWanted());
  }
  void LeaveGate(bool goes_on) {
    if (place_ == nullptr) return;
    goes_on ? place_->PassOn() : place_->Leave();
  }

  // Takes at most save_grace: half of it for writes already under way, piece by piece, the rest for
  // whole files.
  void SaveSessions() {
    const auto now = std::chrono::steady_clock::now();
    const auto end = now + options_.save_grace;
    const auto keep_end = now + options_.save_grace / 2;
    while (core_->files().StillKeeping() && std::chrono::steady_clock::now() < keep_end) {
      mailbox_->WaitUntil(std::min(core_->NextWake(), keep_end));
      RunMessages();
    }
    // The disk is too slow for blocks of state, which can be recomputed.
    if (std::chrono::steady_clock::now() >= keep_end) core_->files().StopKeeping();
    core_->files().ParkAll();
    while (core_->files().FileWorkPending()) {
      mailbox_->WaitUntil(std::min(core_->NextWake(), end));
      RunMessages();
      if (std::chrono::steady_clock::now() >= end) core_->files().AbandonSaves();
    }
    shutdown_status_ = core_->files().SaveOutcome();
  }

  void RunMessages() {
    for (const Mailbox::Message& message : mailbox_->Take()) message();
    core_->PublishIfDue();
  }

  void CheckWhenIdle() {
#ifdef WEFT_DEBUG
    const Status status = core_->CheckIntegrity();
    WEFT_CHECK(status.ok(), std::string(Message(status)).c_str());
#endif
  }

  bool ShouldStop() const {
    if (!stop_at_) return false;
    return core_->turns().idle() || std::chrono::steady_clock::now() >= *stop_at_;
  }

  const std::shared_ptr<const Model> model_;
  EngineOptions options_;  // settled by the engine thread before Launch returns
  const std::shared_ptr<Mailbox> mailbox_;
  Mutex join_mutex_;  // the first to shut down joins, the others wait for it
  std::thread thread_ WEFT_GUARDED_BY(join_mutex_);
  std::atomic<int64_t> turns_waiting_{0};
  std::thread::id engine_thread_;  // set by Launch, before anyone else can call

  // Set by the engine thread before Launch returns.
  std::shared_ptr<const EngineView> view_;

  // Engine thread only; the status is read after that thread is joined.
  SideWorkQueue beside_;
  Status shutdown_status_;
  std::unique_ptr<EngineCore> core_;
  std::unique_ptr<StepGate::Place> place_;  // null: no gate, or the turns are over
  std::optional<std::chrono::steady_clock::time_point> stop_at_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(std::shared_ptr<const Model> model,
                                                      const EngineOptions& options) {
  auto engine = std::make_unique<EngineThread>(std::move(model), options);
  WEFT_RETURN_IF_ERROR(engine->Launch());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace weft
