// Whether a store keeps its word: on its conditional writes rests that no conversation is lost.
#ifndef WEFT_DOORS_STORES_STORE_PROBE_H_
#define WEFT_DOORS_STORES_STORE_PROBE_H_

#include "base/status.h"
#include "weft/shared_store.h"

namespace weft::stores {

// Writes, reads and removes an object "probe/RANDOM", in several rounds: `n_concurrent` threads
// create it at once, and then replace it at once, and exactly one of them may win.
// INVALID_ARGUMENT: the store breaks a promise, and which. Other errors are the store's own.
Status ProbeStore(ObjectStore& store, int n_concurrent = 8);

}  // namespace weft::stores

#endif  // WEFT_DOORS_STORES_STORE_PROBE_H_
