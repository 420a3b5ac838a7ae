// The object that holds a named session in a shared store, as bytes: who has it, which commit it
// is, and the session's own bytes (session_file.h, without state). docs/file-formats.md describes
// the format.
#ifndef WEFT_ENGINE_STATE_SHARED_HEAD_H_
#define WEFT_ENGINE_STATE_SHARED_HEAD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/state/session_file.h"

namespace weft {

struct SharedHead {
  bool is_deleted = false;  // there was a session of this name
  uint64_t epoch = 0;       // grows whenever a server takes the session
  // Every version of every head has its own, so that its writer recognises it.
  Fingerprint commit;
  Fingerprint parent;    // the version before; zero in a first one
  std::string owner;     // the server that has it; empty: nobody
  int64_t until_us = 0;  // the owner's claim, since 1970
  // For how many of its tokens there was state, which blocks may have.
  int64_t state_tokens = 0;
  std::string session;  // empty if deleted
};

std::string BytesOf(const SharedHead& head);
// DATA_LOSS for anything but a complete head, UNIMPLEMENTED for a newer version.
StatusOr<SharedHead> ReadSharedHead(std::string_view bytes);

// The names of objects: sessions/@DOMAIN/NAME, encoded as in a state directory.
std::string HeadName(std::string_view domain, std::string_view name);

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_SHARED_HEAD_H_
