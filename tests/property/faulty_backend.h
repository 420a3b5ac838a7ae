// The cpu backend with a planted bug, to show that the property tests would find such a bug in a
// real one.
#ifndef WEFT_TESTS_PROPERTY_FAULTY_BACKEND_H_
#define WEFT_TESTS_PROPERTY_FAULTY_BACKEND_H_

#include <memory>

#include "compute/backend.h"

namespace weft::testing {

enum class Fault {
  kNone,
  kCopiesNothing,     // a private copy of a shared page keeps its old contents
  kSharedUncopied,    // a page stays shared while its owners write to it
  kStalePage,         // some pages that are restored are not written
  kPositionOffByOne,  // next to others, a single token is stored one position early
  kShiftedTable,      // a sequence sees its second page instead of its first
  kSwappedLogits,     // two sequences of a step get each other's logits
  kForeignPage,       // in a step of three, the last one sees the first one's first page
  kSlotNotCopied,     // a copy of a slot keeps its old contents
  kSlotShared,        // a slot stays shared while its owners advance it
  kStaleSlot,         // some slots that are restored are not written
  kLateCheckpoint,    // the source of a copy is one token too far
  kSwappedSlots,      // two sequences of a step advance each other's slots
  kGuessesStay,       // a restored slot has seen rejected drafts
  kLateGuess,         // the logits after a draft are those of the row before it
  kForeignRow,        // a sequence sees another's input embedding
};

// `real` (null: the cpu backend) loads weights and runs steps, and must outlive the backend; the
// fault changes its executors' inputs and results. For one engine at a time.
std::unique_ptr<Backend> NewFaultyBackend(Fault fault, const Backend* real = nullptr);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_FAULTY_BACKEND_H_
