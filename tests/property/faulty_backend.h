// The cpu backend with a bug planted in it: to show that the property tests would find
// such a bug in a real one.
#ifndef WEFT_TESTS_PROPERTY_FAULTY_BACKEND_H_
#define WEFT_TESTS_PROPERTY_FAULTY_BACKEND_H_

#include <memory>

#include "backend/backend.h"

namespace weft::testing {

enum class Fault {
  kNone,
  kCopiesNothing,     // a private copy of a shared page holds what lay there before
  kSharedUncopied,    // a page stays shared while its owners write to it
  kStalePage,         // some pages that are restored are not written
  kPositionOffByOne,  // beside others, a single token is stored one position early
  kShiftedTable,      // a sequence sees its second page in place of its first
  kSwappedLogits,     // two sequences of a step get each other's logits
  kForeignPage,       // in a step of three, the last one sees the first one's first page
  kSlotNotCopied,     // a copy of a slot holds what lay there before
  kSlotShared,        // a slot stays shared while its owners advance it
  kStaleSlot,         // some slots that are restored are not written
  kLateCheckpoint,    // what was copied from is a token further than it should be
  kSwappedSlots,      // two sequences of a step advance each other's slots
  kGuessesStay,       // a slot that is gone back to has seen the guesses
  kLateGuess,         // the logits after a guess are those after the row before it
  kForeignRow,        // a sequence sees another's vector in place of its own
};

// Weights are loaded and steps are run by `real` (null: the cpu backend), which must
// outlive it; what its executors are told and what they answer is changed by the fault.
// One engine at a time may use it.
std::unique_ptr<Backend> NewFaultyBackend(Fault fault, const Backend* real = nullptr);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_FAULTY_BACKEND_H_
