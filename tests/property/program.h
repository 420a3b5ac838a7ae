// A random program over an engine: create, turn, cancel, fork, undo, reset, save, park, restore,
// rename, close, drop prefixes, restart, with several turns at a time and random options. Every
// session's output is compared bit for bit with its output alone, and its tokens with a plain list
// kept here.
#ifndef WEFT_TESTS_PROPERTY_PROGRAM_H_
#define WEFT_TESTS_PROPERTY_PROGRAM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "compute/backend.h"
#include "tests/property/contexts.h"
#include "tests/property/oracle.h"
#include "tests/property/test_models.h"
#include "tests/property/turn_record.h"
#include "weft/constraint.h"
#include "weft/engine.h"

namespace weft::testing {

// What a program did, for the reports.
struct ProgramCounts {
  int64_t operations = 0, turns = 0, tokens = 0, rows = 0, cancelled = 0, out_of_memory = 0;
  int64_t adapted = 0;      // adapters in use by sessions
  int64_t invocations = 0;  // in prompts
  int64_t cached_tokens = 0, forks = 0, restores = 0, restarts = 0, preemptions = 0, dropped = 0;
  int64_t guessed_tokens = 0, accepted_guesses = 0;
  void Add(const ProgramCounts& other);
};

class Program {
 public:
  // `model`: the model that the program runs on. `oracle`: the same weights on a trusted backend.
  // Equal seeds choose equal options and operations; the order of concurrent work is up to the
  // machine.
  Program(std::shared_ptr<const Model> model, Oracle* oracle, uint64_t seed);
  ~Program();

  // Empty, or the failure.
  std::string Run();
  // Every operation so far, one per line.
  std::string Trace() const;
  const ProgramCounts& counts() const { return counts_; }

 private:
  using Tokens = Context;
  static constexpr std::chrono::seconds kHang{40};  // below the engine's own limits
  struct Flight {
    std::shared_ptr<Turn> turn;
    TurnOptions options;
    Tokens before;              // the session's tokens when it was submitted
    Tokens added;               // appended to the part of `before` that is kept
    Tokens context;             // the prompt that the model continues
    std::vector<Tokens> forks;  // taken while it ran; each must be a prefix of it
    TurnRecord record;          // events read so far
  };
  struct Sess {
    SessionId id;
    std::string domain, name;
    int stream = 0;  // the shared token stream that it usually follows
    std::vector<AdapterScale> adapters;
    Tokens tokens;
    std::optional<Flight> flight;
    // Possible contents of its file: a requested file (`saved`), or one that the engine wrote when
    // memory was short.
    std::vector<Tokens> versions;
    bool saved = false;
  };
  struct Check {
    Flight flight;
    KvType kv_type;
  };

  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int percent) { return Uniform(1, 100) <= percent; }
  template <typename... Pieces>
  void Note(const Pieces&... pieces) {
    trace_.push_back(StrCat(pieces...));
  }
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) {
    if (!failed()) failure_ = StrCat(pieces...);
  }
  bool failed() const { return !failure_.empty(); }
  // Fails the program unless the status is OK.
  void Expect(const Status& status, std::string_view what);

  void ChooseOptions();
  void ChooseMemory();
  void ChooseRows();
  void ChooseDrafts();
  void Start();
  void Step();
  Sess* Pick();
  std::string NewName();
  Tokens NewTokens(const Sess& session, int64_t at, int n);
  Flight NewTurn(const Sess& session);
  void PutRows(int64_t at, Tokens* given);
  std::vector<AdapterScale> ChooseAdapters();
  void PutInvocation(Tokens* tokens);
  int64_t RowsHeld() const;
  void AddGuesses(const Tokens& context, TurnOptions* turn);

  // Operations.
  void Create();
  void Submit(Sess* session);
  void ExpectAdmitted(const Status& status, const Tokens& context);
  void SubmitOnce();
  void CancelOne();
  void Drain(Sess* session);
  void Fork(Sess* session);
  void Truncate(Sess* session, int64_t position);
  void Reset(Sess* session);
  void SaveOrPark(Sess* session, bool park);
  void Restore(Sess* session);
  void Rename(Sess* session);
  void Close(Sess* session);
  void FindAgain(Sess closed);
  void Restart();
  void FinishAll();

  // Repeats `call` on a session that is being parked or restored at the same time.
  Status Insist(Sess* session, const std::function<Status()>& call);
  // As shown, without the identity of rows.
  std::optional<Tokens> ReadTokens(Sess* session);
  // The context shown, identified by one of the candidates. If the candidates differ in rows, the
  // session starts over, empty. Fails if none matches.
  std::optional<Tokens> Tell(Sess* session, const Tokens& shown,
                             const std::vector<Tokens>& candidates);
  void CheckTokens(Sess* session);
  // Reads a turn to its end, and the others at the same time: an unread turn may hold memory or a
  // place that this one waits for.
  void ReadToEnd(Flight* flight);
  void Settle(Flight flight, Sess* session);
  void SettleOnce();
  void CheckEnd(const Flight& flight);
  void CheckAccounts();
  void CountPressure();
  bool RowsAreGone() const;
  void CompareAll();
  int64_t BytesFor(int64_t n_tokens) const;
  bool CanSave(const Sess& session) const;

  const std::shared_ptr<const Model> model_;
  std::shared_ptr<const Model> head_;  // null where it has none
  Oracle* const oracle_;
  std::mt19937_64 random_;
  std::mt19937_64 random_drafts_;
  std::mt19937_64 random_rows_;
  std::mt19937_64 random_adapters_;
  const bool with_rows_;
  std::vector<Tokens> streams_;
  std::vector<TokenMaskFactory> masks_;
  EngineOptions options_;
  std::unique_ptr<TempDir> dir_;
  int64_t memory_bytes_ = 0;  // of options_, without a draft model's
  int64_t state_bytes_ = 0;   // for pages and slots, without rows
  int64_t max_rows_ = 0;      // that the program's sessions hold
  StateLayout layout_;        // for the options' KV type and page size
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Sess>> sessions_;
  std::vector<Flight> once_;  // turns on sessions of their own
  std::vector<Check> checks_;
  bool shut_down_ = false;
  int next_name_ = 0;
  std::string failure_;
  std::vector<std::string> trace_;
  ProgramCounts counts_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_PROGRAM_H_
