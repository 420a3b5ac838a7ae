// What turns cost, for the request log of every door. Pure functions; any thread.
#ifndef WEFT_DOORS_HOST_TURN_WORK_H_
#define WEFT_DOORS_HOST_TURN_WORK_H_

#include <string>

#include "doors/http/http.h"
#include "weft/events.h"

namespace weft::serve {

HttpWork WorkOf(const TurnUsage& usage);
// " in=200 cached=150 out=20", or for a person " read 200 tokens, found 150 of them, wrote 20";
// empty if there was no turn.
std::string WorkText(HttpWork work);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_TURN_WORK_H_
