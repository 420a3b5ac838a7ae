// What turns cost, for the request log of every door, and how many there are. Pure functions; any
// thread.
#ifndef WEFT_DOORS_HOST_TURN_WORK_H_
#define WEFT_DOORS_HOST_TURN_WORK_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "doors/http/http.h"
#include "weft/engine.h"
#include "weft/events.h"

namespace weft::serve {

struct TurnCounts {
  int64_t running = 0, waiting = 0;
};
// Counts the domain's turns. Its key may know no more of the load.
TurnCounts CountTurns(std::span<const TurnInfo> turns, std::string_view domain);

HttpWork WorkOf(const TurnUsage& usage);
// " in=200 cached=150 out=20", or for a person " read 200 tokens, found 150 of them, wrote 20";
// empty if there was no turn.
std::string WorkText(HttpWork work);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_TURN_WORK_H_
