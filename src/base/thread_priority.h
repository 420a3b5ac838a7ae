// Threads that give way to others when there are not enough cores.
#ifndef WEFT_BASE_THREAD_PRIORITY_H_
#define WEFT_BASE_THREAD_PRIORITY_H_

namespace weft {

// The calling thread's share of a contended core becomes about a third of an ordinary thread's.
// Where the system has no priorities per thread, nothing changes.
void YieldToOthers();

}  // namespace weft

#endif  // WEFT_BASE_THREAD_PRIORITY_H_
