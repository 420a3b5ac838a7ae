// The automata of a constraint, shared by its states: what is behind the lock.
#ifndef WEFT_CONSTRAINT_WALKER_H_
#define WEFT_CONSTRAINT_WALKER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "constraint/grammar.h"
#include "constraint/machine.h"
#include "constraint/masker.h"

namespace weft::constraint {

class ConstraintWalker {
 public:
  ConstraintWalker(std::unique_ptr<const Grammar> grammar, const TokenTable* tokens,
                   int64_t most_bytes)
      : grammar_(std::move(grammar)), tokens_(*tokens), most_bytes_(most_bytes) {
    Renew();
  }

  Mutex& mutex() { return mutex_; }
  // States are those of one generation.
  uint64_t generation() const { return generation_; }
  Machine& machine() { return *machine_; }
  Masker& masker() { return *masker_; }
  // Begins a new generation where the memory of this one is used up.
  void RenewWhereFull() {
    if (machine_->exhausted() || machine_->bytes() + masker_->bytes() - base_bytes_ > most_bytes_)
      Renew();
  }
  // What was needed to walk an answer's text again would be needed again in the next generation:
  // it does not bring that nearer.
  void KeepAside(int64_t bytes) { base_bytes_ += bytes; }
  // An answer whose own text takes more cannot go on: there would be little room for others.
  int64_t most_text_bytes() const { return MostBytes() / 2; }
  // Steps of work in all generations.
  int64_t work() const { return past_work_ + machine_->pool().work(); }

 private:
  // A generation ends where its memory is used up, but a single mask must fit into it: this is
  // how much more the automata may take until it is made.
  static constexpr int64_t kHardLimit = 4;
  static constexpr int64_t kLeastForMask = 32 << 20;

  int64_t MostBytes() const { return std::max(kHardLimit * most_bytes_, kLeastForMask); }
  void Renew() {
    if (machine_ != nullptr) past_work_ = work();
    machine_ = std::make_unique<Machine>(grammar_.get(), MostBytes() + grammar_->bytes());
    masker_ = std::make_unique<Masker>(machine_.get(), &tokens_);
    base_bytes_ = machine_->bytes();
    ++generation_;
  }

  Mutex mutex_;
  std::unique_ptr<const Grammar> grammar_;
  const TokenTable& tokens_;
  int64_t most_bytes_;
  int64_t base_bytes_ = 0;  // without what is used up
  int64_t past_work_ = 0;   // of earlier generations
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Masker> masker_;
  uint64_t generation_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_WALKER_H_
