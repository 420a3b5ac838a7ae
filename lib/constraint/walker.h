// The automata that all states of a constraint share, and the lock that guards them.
#ifndef WEFT_CONSTRAINT_WALKER_H_
#define WEFT_CONSTRAINT_WALKER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "constraint/grammar/grammar.h"
#include "constraint/machine.h"
#include "constraint/masker.h"

namespace weft::constraint {

class ConstraintWalker {
 public:
  ConstraintWalker(std::unique_ptr<const Grammar> grammar, const TokenTable* tokens,
                   int64_t max_bytes)
      : grammar_(std::move(grammar)), tokens_(*tokens), max_bytes_(max_bytes) {
    Renew();
  }

  Mutex& mutex() { return mutex_; }
  // State ids are valid within one generation only.
  uint64_t generation() const { return generation_; }
  Machine& machine() { return *machine_; }
  Masker& masker() { return *masker_; }
  // Starts a new generation if this one has used up its memory or was discarded.
  void RenewWhereFull() {
    if (machine_ == nullptr || machine_->exhausted() ||
        machine_->bytes() + masker_->bytes() - base_bytes_ >
            std::min(max_bytes_, share_.load(std::memory_order_relaxed))) {
      Renew();
    }
  }
  // Publishes the memory of the automata, so that it can be read without the lock.
  void Publish() { bytes_.store(machine_->bytes() + masker_->bytes(), std::memory_order_relaxed); }
  // Discards the automata. The next user builds new ones.
  void GiveBack() {
    if (machine_ == nullptr) return;
    past_work_ = work();
    masker_.reset();
    machine_.reset();
    bytes_.store(0, std::memory_order_relaxed);
  }
  // Excludes memory that walking an answer's text again took. A new generation would need it again,
  // so it must not bring that generation nearer.
  void KeepAside(int64_t bytes) { base_bytes_ += bytes; }
  // An answer whose own text takes more than this cannot continue: it would leave too little room
  // for others.
  int64_t max_text_bytes() const { return MaxBytes() / 2; }
  // Steps of work in all generations so far.
  int64_t work() const {
    return past_work_ + (machine_ == nullptr ? 0 : machine_->pool().budget().work());
  }

  // The functions below need no lock.

  // The size of the grammar, without and with the automata as last published.
  int64_t min_bytes() const { return grammar_->bytes(); }
  int64_t bytes() const { return min_bytes() + bytes_.load(std::memory_order_relaxed); }
  // Limits a generation to this, not counting the memory that KeepAside excludes.
  void SetShare(int64_t bytes) { share_.store(bytes, std::memory_order_relaxed); }

 private:
  // A generation ends when its memory is used up, but a single mask must fit. Until that mask is
  // complete, the automata may grow to this many times the limit, and to kMinForMask in any case.
  static constexpr int64_t kHardLimit = 4;
  static constexpr int64_t kMinForMask = 32 << 20;

  int64_t MaxBytes() const { return std::max(kHardLimit * max_bytes_, kMinForMask); }
  void Renew() {
    GiveBack();
    machine_ = std::make_unique<Machine>(grammar_.get(), MaxBytes() + grammar_->bytes());
    masker_ = std::make_unique<Masker>(machine_.get(), &tokens_);
    base_bytes_ = machine_->bytes();
    ++generation_;
    Publish();
  }

  Mutex mutex_;
  const std::unique_ptr<const Grammar> grammar_;
  const TokenTable& tokens_;
  const int64_t max_bytes_;
  std::atomic<int64_t> bytes_ = 0, share_ = INT64_MAX;
  int64_t base_bytes_ = 0;  // excluded from the limit
  int64_t past_work_ = 0;   // in earlier generations
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Masker> masker_;
  uint64_t generation_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_WALKER_H_
