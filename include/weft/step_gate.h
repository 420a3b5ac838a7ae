// Several engines in one process compute in turns, a step at a time, instead of competing for the
// same cores:
//
//   options.gate = weft::NewStepGate();   // the same one for each engine
//
// Whoever has computed for the shortest time goes next. A long prompt pauses between two parts of
// its model when another engine has work, and its steps are cut so that no part takes longer than
// EngineOptions::step_ms divided by the number of the others. So between two tokens of an answer
// each other engine computes about as long as this one, and at most a part or a decode step more.
// An engine without work takes no part. Results do not depend on turns.
#ifndef WEFT_STEP_GATE_H_
#define WEFT_STEP_GATE_H_

#include <cstdint>
#include <memory>

namespace weft {

// Any thread. An own implementation may decide differently who goes next.
class StepGate {
 public:
  // An engine at the gate. Its engine thread alone calls it. Destroying it gives the turn up.
  class Place {
   public:
    virtual ~Place() = default;

    // Waits for this engine's turn, unless it has it. Returns how long, in microseconds.
    virtual int64_t Enter() = 0;
    // During its turn: whether another engine should come before the rest of the step.
    virtual bool IsWanted() const = 0;
    // A step, or a part of one, has ended and more follows: ends the turn if IsWanted.
    virtual void PassOn() = 0;
    // There is nothing to compute: ends the turn.
    virtual void Leave() = 0;
    // Other engines that have something to compute.
    virtual int others() const = 0;
  };

  virtual ~StepGate() = default;
  // The gate outlives its places.
  virtual std::unique_ptr<Place> NewPlace() = 0;
};

std::shared_ptr<StepGate> NewStepGate();

}  // namespace weft

#endif  // WEFT_STEP_GATE_H_
