// The life of a session, of its file and of the work on that file.
#ifndef WEFT_ENGINE_SESSIONS_SESSION_STAGES_H_
#define WEFT_ENGINE_SESSIONS_SESSION_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/sessions/staged.h"
#include "weft/engine.h"

namespace weft {

//   ready <-> queued -> running <-> in step        ready -> running: a fork for a running turn's
//     ^ ^       |         |  |                     further choice
//     | |       |         |  +-> poisoned -> ready (reset)
//     | +-------|---------+
//     v         v
//   parked <-> awaited -> queued (restored)
enum class SessionStage : uint8_t {
  kReady,     // its tokens are in memory; it has no turn
  kQueued,    // a turn waits for a place
  kRunning,   // its turn has a place
  kInStep,    // and is part of a long step: tokens, tables and slot must not change
  kParked,    // its tokens are in its file alone; it has no turn
  kAwaited,   // the same, but a turn waits for them
  kPoisoned,  // a forward failed; its turn, if it still has one, has ended
};

constexpr uint32_t After(SessionStage stage) {
  using enum SessionStage;
  switch (stage) {
    case kReady:
      return AnyOf(kQueued, kRunning, kParked);
    case kQueued:
      return AnyOf(kRunning, kReady, kAwaited);
    case kRunning:
      return AnyOf(kInStep, kReady, kPoisoned);
    case kInStep:
      return AnyOf(kRunning);
    case kParked:
      return AnyOf(kReady, kAwaited);
    case kAwaited:
      return AnyOf(kQueued, kParked);
    case kPoisoned:
      return AnyOf(kReady);
  }
  return 0;
}

constexpr std::string_view NameOf(SessionStage stage) {
  constexpr std::string_view kNames[] = {
      "a ready session",  "a queued session",   "a running session", "a session in a step",
      "a parked session", "an awaited session", "a poisoned session"};
  return kNames[static_cast<size_t>(stage)];
}

// What callers see of it.
constexpr SessionState PublicState(SessionStage stage) {
  switch (stage) {
    case SessionStage::kReady:
      return SessionState::kReady;
    case SessionStage::kQueued:
    case SessionStage::kRunning:
    case SessionStage::kInStep:
      return SessionState::kRunning;
    case SessionStage::kParked:
    case SessionStage::kAwaited:
      return SessionState::kParked;
    case SessionStage::kPoisoned:
      return SessionState::kPoisoned;
  }
  return SessionState::kPoisoned;
}

// What the state directory has of a session.
enum class OnDisk : uint8_t {
  kNothing,
  kKept,   // tokens, written whenever they change
  kSaved,  // a file that someone relies on: saved or parked
};

constexpr uint32_t After(OnDisk stage) {
  using enum OnDisk;
  switch (stage) {
    case kNothing:
    case kKept:
      return AnyOf(kNothing, kKept, kSaved);
    case kSaved:  // written again, or removed
      return AnyOf(kSaved, kNothing);
  }
  return 0;
}

constexpr std::string_view NameOf(OnDisk stage) {
  constexpr std::string_view kNames[] = {"a session without a file", "a kept session",
                                         "a saved session"};
  return kNames[static_cast<size_t>(stage)];
}

// What the worker is doing for a session. Meanwhile no turn of it starts, and calls that need the
// file wait. One thing at a time.
enum class FileWork : uint8_t {
  kNone,
  kSaving,      // its file
  kRestoring,   // from its file; it stays parked until then
  kLoading,     // blocks of its state
  kChanging,    // its file gets another name, other tokens, or is removed
  kConfirming,  // asks the shared store whether it is still this server's
};

constexpr uint32_t After(FileWork work) {
  using enum FileWork;
  return work == kNone ? AnyOf(kSaving, kRestoring, kLoading, kChanging, kConfirming)
                       : AnyOf(kNone);
}

constexpr std::string_view NameOf(FileWork work) {
  constexpr std::string_view kNames[] = {"no file work", "saving",          "restoring",
                                         "loading",      "changing a file", "confirming"};
  return kNames[static_cast<size_t>(work)];
}

// Why a session exists.
enum class SessionRole : uint8_t {
  kConversation,  // counts towards the limits; lives until it is closed
  kOfTurn,        // is destroyed with its turn
  kHolder,        // holds state on its way to disk; nobody sees it
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_SESSION_STAGES_H_
