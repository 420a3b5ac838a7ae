// The parser: a pushdown automaton that is made deterministic lazily, as far as texts reach.
//
// A state is a set of threads. A thread is a terminal that is being read, the grammar position
// after it, and a continuation: a set of return stacks, stored as a graph that shares equal parts.
// All three are interned, so equal states have equal ids, and a step that was taken before is a
// table lookup. Threads and stacks are ordered independently of when they were created, so that
// costs do not depend on history. Every id except kDeadState stands for a text that can be
// completed. Stacks with the same top are merged, so ambiguity costs no more than the number of
// grammar positions.
//
// One thread at a time.
#ifndef WEFT_CONSTRAINT_MACHINE_H_
#define WEFT_CONSTRAINT_MACHINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "constraint/grammar/grammar.h"
#include "constraint/regex/byte_rows.h"
#include "constraint/regex/chunked.h"
#include "constraint/regex/hash_index.h"
#include "constraint/regex/walk.h"

namespace weft::constraint {

using StateId = int32_t;
using ContinuationId = int32_t;
inline constexpr StateId kDeadState = 0;

// A position in the grammar, and the progress of the repetition or container there.
struct Spot {
  int32_t place = 0;
  uint32_t progress = 0;
  auto operator<=>(const Spot&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct ParserThread {
  RegexId regex = kNothing;  // the rest of the terminal
  Spot behind;
  ContinuationId then = 0;
  auto operator<=>(const ParserThread&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Limits in steps of work. A path that exceeds one counts as impossible.
struct MachineLimits {
  int64_t derivative = 50'000;    // one expression by one byte
  int64_t step = 100'000;         // all threads by one byte
  int64_t search = 100'000;       // for a path to the end, while an answer is being read
  int64_t step_search = 500'000;  // all searches for one step of all threads
};

class Machine {
 public:
  // `grammar` must be finished and must outlive the machine.
  Machine(const Grammar* grammar, int64_t max_bytes, const MachineLimits& limits = {});

  StateId start() const { return start_; }
  StateId Step(StateId state, uint8_t byte) {
    const State& s = states_[static_cast<size_t>(state)];
    StateId known = -1;
    if (s.row.exists()) {
      known = rows_.Get(s.row, byte);
    } else if (byte >= s.only_first && byte <= s.only_last) {
      known = s.only;
    }
    if (known < 0) return StepMissing(state, byte);
    if (s.dear >= 0) meter_.Pass(s.dear, byte);
    return known;
  }
  bool Accepts(StateId state) const { return states_[static_cast<size_t>(state)].accepts; }
  std::span<const ParserThread> Threads(StateId state) const {
    return ThreadsOf(states_[static_cast<size_t>(state)]);
  }
  // The state that has only these threads.
  StateId WithThreads(std::vector<ParserThread> threads, bool accepts);
  // The state after the thread's terminal has been read.
  StateId After(const ParserThread& thread);
  ByteSet FirstBytes(StateId state);

  // Starts counting. After `most` steps, lookups still work, but nothing new is computed.
  void BeginCount(int64_t most) {
    max_spent_ = most;
    pool_.walk().SetMostSpent(most);
    ResetCount(0);
  }
  // Steps since BeginCount: those of both meters and those added by Count. Each costly step counts
  // once between two calls of ResetCount.
  int64_t spent() const { return meter_.spent() + pool_.budget().meter().spent(); }
  // The limit may have cut a computation short: its result must be discarded.
  bool IsOver() const { return spent() > max_spent_; }
  void Count(int64_t steps) { meter_.Spend(steps); }
  void ResetCount(int64_t spent) {
    meter_.Reset(spent);
    pool_.budget().meter().Reset(0);
  }

  // Marks the state. Returns true if its mark was a different one.
  bool Mark(StateId state, uint32_t mark) {
    uint32_t& known = states_[static_cast<size_t>(state)].mark;
    if (known == mark) return false;
    known = mark;
    return true;
  }

  RegexPool& pool() { return pool_; }
  int64_t bytes() const { return bytes_ + pool_.budget().bytes(); }
  // A limit was reached: later states may be kDeadState by mistake.
  bool exhausted() const { return exhausted_ || pool_.budget().exhausted(); }

 private:
  // A text that needs deeper nested calls between two bytes is refused.
  static constexpr int kMaxCallDepth = 1000;

  struct State {
    int64_t first = 0;
    int32_t count = 0;
    ByteRows::Row row;
    bool accepts = false;
    int32_t dear = -1;  // costly steps, in meter_
    // The one byte range taken so far, if there is only one: see regex::Node.
    uint8_t only_first = 1, only_last = 0;
    StateId only = kDeadState;
    uint32_t mark = 0;
  };
  struct Frame {
    Spot to;
    ContinuationId then = 0;
    auto operator<=>(const Frame&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Continuation {
    int64_t first = 0;
    int32_t count = 0;
    bool bottom = false;  // one of the stacks is empty: the text may end
  };
  // Merged continuations; the originals are in joined_.
  struct Union {
    int64_t first = 0;
    int32_t count = 0;
    ContinuationId all = 0;
    int64_t steps = -1;    // cost of the merge from scratch; negative if not needed yet
    uint32_t counted = 0;  // the last counting that included this one
  };
  // Progress within an object, or within an array of distinct values.
  struct ObjectProgress {
    std::vector<uint64_t> seen;
    int32_t count = 0;
    int32_t last = -1;  // last named property; kManySeen after a property of a key class
    auto operator<=>(const ObjectProgress&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // Collects the threads of one new state.
  struct Building {
    std::vector<ParserThread> threads;
    std::vector<std::pair<Spot, ContinuationId>> visited;
    HashIndex visited_index;
    int depth = 0;
    bool accepts = false;
    // False if this pair was visited before.
    bool Visit(Spot spot, ContinuationId then);
  };

  std::span<const ParserThread> ThreadsOf(const State& state) const {
    return threads_.Run(static_cast<size_t>(state.first), static_cast<size_t>(state.count));
  }
  StateId StepMissing(StateId state, uint8_t byte);
  void AddRow(State* state);
  bool IsTooMuch(const StepMeter::Cost& cost) const {
    return cost.step > limits_.step || cost.search > limits_.step_search;
  }
  StateId Intern(Building* building);
  StateId InternCounted(Building* building);
  void Enter(Spot spot, ContinuationId then, Building* out);
  // Continues after the calls at the tops of these stacks.
  void Return(ContinuationId then, Building* out);
  void EnterRepeat(Spot spot, const RepeatSpec& repeat, ContinuationId then, Building* out);
  void EnterRule(RuleId rule, Spot back, ContinuationId then, Building* out);
  void EnterObject(Spot spot, const ObjectSpec& object, ContinuationId then, Building* out);
  void EnterProperty(Spot spot, const Symbol& symbol, ContinuationId then, Building* out);
  void EnterArray(Spot spot, const ArraySpec& array, ContinuationId then, Building* out);
  void EnterDistinct(Spot spot, const DistinctSpec& distinct, ContinuationId then, Building* out);
  void EnterTaken(Spot spot, const DistinctSpec& distinct, ContinuationId then, Building* out);
  void EnterElement(Spot spot, const ArraySpec& array, ContinuationId then, Building* out);
  void AddThread(RegexId regex, Spot behind, ContinuationId then, Building* out);
  uint32_t InternProgress(const ObjectProgress& progress);
  ContinuationId Push(Spot to, ContinuationId then);
  ContinuationId InternContinuation(std::vector<Frame> frames, bool bottom);
  ContinuationId Join(std::vector<ContinuationId> parts);
  int32_t JoinAnew(std::span<const ContinuationId> parts, int depth);
  int32_t FindUnion(uint64_t hash, std::span<const ContinuationId> parts) const;
  std::vector<Frame> JoinFrames(std::span<const ContinuationId> parts, int depth);
  uint64_t PrintOf(const Spot& spot) const;
  void SortThreads(std::vector<ParserThread>* threads) const;
  void Spend(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes_ + pool_.budget().bytes() > max_bytes_) exhausted_ = true;
  }

  const Grammar& grammar_;
  RegexPool pool_;
  const MachineLimits limits_;
  int64_t max_bytes_;
  int64_t bytes_ = 0;
  bool exhausted_ = false;
  StepMeter meter_;
  int64_t max_spent_ = INT64_MAX;
  int64_t join_steps_ = 0;  // for the state that is being built
  uint32_t countings_ = 0;
  Chunked<State> states_;
  Chunked<ParserThread> threads_;
  ByteRows rows_;
  std::vector<Continuation> continuations_;
  std::vector<Frame> frames_;
  std::vector<ObjectProgress> progresses_;
  std::vector<uint64_t> progress_prints_;
  HashIndex state_index_, continuation_index_, progress_index_, union_index_;
  std::vector<Union> unions_;
  std::vector<ContinuationId> joined_;
  StateId start_ = kDeadState;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_MACHINE_H_
