// What came out of a turn, and how two of them are compared: bit for bit.
#ifndef WEFT_TESTS_PROPERTY_TURN_RECORD_H_
#define WEFT_TESTS_PROPERTY_TURN_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/engine.h"

namespace weft::testing {

struct ChoiceRecord {
  std::vector<TokenEvent> events;
  std::optional<DoneEvent> done;

  std::vector<int32_t> Tokens() const;
  bool complete() const {
    return done && done->reason != FinishReason::kCancelled && done->reason != FinishReason::kError;
  }
};

struct TurnRecord {
  std::optional<StartedEvent> started;
  std::vector<ChoiceRecord> choices;
  std::string protocol_error;  // events in an order that the contract does not allow
};

// Reads a turn to its end.
TurnRecord ReadTurn(Turn* turn, int n_choices);

// The same in steps: takes what is there, without waiting. True when that was all.
bool ReadSome(Turn* turn, TurnRecord* record);
// What ReadTurn checks at the end.
void CheckRecord(TurnRecord* record);

// Empty when `got` says what `alone` says: every token, its text, its log-probability and
// its alternatives, and the reason of its end. What was cut says the first part of it.
std::string CompareChoices(const ChoiceRecord& got, const ChoiceRecord& alone);

std::string TokensToString(const std::vector<int32_t>& tokens);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_TURN_RECORD_H_
