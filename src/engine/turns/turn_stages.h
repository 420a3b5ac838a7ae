// The life of a turn and of each of its lanes.
#ifndef WEFT_ENGINE_TURNS_TURN_STAGES_H_
#define WEFT_ENGINE_TURNS_TURN_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/sessions/staged.h"

namespace weft {

//   queued -> reading -> writing -> ended; anything may end early
enum class TurnStage : uint8_t {
  kQueued,   // waits for a place; it has no lanes
  kReading,  // its prompt is being computed
  kWriting,  // the prompt is computed and every choice has its lane
  kEnded,    // every choice has ended; to be retired
};

constexpr uint32_t After(TurnStage stage) {
  using enum TurnStage;
  switch (stage) {
    case kQueued:
      return AnyOf(kReading, kEnded);
    case kReading:
      return AnyOf(kWriting, kEnded);
    case kWriting:
      return AnyOf(kEnded);
    case kEnded:
      return AnyOf();
  }
  return 0;
}

constexpr std::string_view NameOf(TurnStage stage) {
  constexpr std::string_view kNames[] = {"a queued turn", "a reading turn", "a writing turn",
                                         "an ended turn"};
  return kNames[static_cast<size_t>(stage)];
}

// How it ended, the worst of its lanes.
enum class TurnFate : uint8_t { kFinished, kCancelled, kFailed };

//   ready <-> waits for a sibling, waits for the disk, preempted, waits for a place; anything may
//   be done
//
// Whether its rows are part of a long step is its session's stage, because even a lane that is done
// may still be.
enum class LaneStage : uint8_t {
  kReady,            // may take part in the next step
  kWaitsForSibling,  // another turn is computing the prefix that it needs too
  kWaitsForDisk,     // more of its prompt is being read from disk
  kPreempted,      // its pages were taken so that others could continue; it starts over when there
                   // is room
  kWaitsForPlace,  // gave its place to another tenant; its state stays while there is memory
  kDone,
};

constexpr uint32_t After(LaneStage stage) {
  using enum LaneStage;
  switch (stage) {
    case kReady:
      return AnyOf(kWaitsForSibling, kWaitsForDisk, kPreempted, kWaitsForPlace, kDone);
    case kWaitsForSibling:
      return AnyOf(kReady, kPreempted, kWaitsForPlace, kDone);
    case kWaitsForDisk:
      return AnyOf(kReady, kPreempted, kDone);
    case kPreempted:
      return AnyOf(kReady, kWaitsForPlace, kDone);
    case kWaitsForPlace:
      return AnyOf(kReady, kPreempted, kDone);
    case kDone:
      return AnyOf();
  }
  return 0;
}

constexpr std::string_view NameOf(LaneStage stage) {
  constexpr std::string_view kNames[] = {
      "a ready lane",     "a lane that waits for a sibling", "a lane that waits for the disk",
      "a preempted lane", "a lane that waits for a place",   "a lane that is done"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_STAGES_H_
