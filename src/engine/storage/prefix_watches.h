// Readers outside the engine that follow cached prefixes: one log per tree that somebody watches,
// told by the prefix cache and the disk tier. Without readers nothing is kept. Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_PREFIX_WATCHES_H_
#define WEFT_ENGINE_STORAGE_PREFIX_WATCHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/state_memory.h"
#include "engine/state/prefix_log.h"
#include "engine/storage/session_files.h"

namespace weft {

class PrefixWatches {
 public:
  // Both outlive the object.
  PrefixWatches(StateMemory* memory, const SessionFiles* files)
      : memory_(*memory), files_(*files) {}

  // The prefixes of the domain's sessions with these adapters, up to an invocation.
  void Add(const std::string& domain, const AdapterMixRef& adapters, bool shares_trees,
           const std::shared_ptr<PrefixQueue>& queue);
  // Tells and serves as much as takes no noticeable time. True if there is more to do now.
  bool Advance();
  int64_t memory_bytes() const;

 private:
  void Watch(const std::string& tree, PrefixLog* log);

  StateMemory& memory_;
  const SessionFiles& files_;
  std::map<std::string, std::unique_ptr<PrefixLog>, std::less<>> logs_;  // by tree
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_PREFIX_WATCHES_H_
