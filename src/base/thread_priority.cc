#include "base/thread_priority.h"

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft {

void YieldToOthers() {
#ifdef __linux__
  // On Linux a nice value belongs to a thread, and anybody may raise his own.
  constexpr int kNice = 5;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
#endif
}

}  // namespace weft
