// The result of a turn, and the bitwise comparison of two results.
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
  std::string protocol_error;  // a violation of the contract's order of events
};

// Reads a turn to its end.
TurnRecord ReadTurn(Turn* turn, int n_choices);

// The same in steps: takes available events without waiting. True if those were the last.
bool ReadSome(Turn* turn, TurnRecord* record);
// The checks that ReadTurn makes at the end.
void CheckRecord(TurnRecord* record);

// Empty if `got` equals `alone`: every token, its text, its log-probability and alternatives, and
// the finish reason. A cut-off turn must be a prefix.
std::string CompareChoices(const ChoiceRecord& got, const ChoiceRecord& alone);

std::string TokensToString(const std::vector<int32_t>& tokens);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_TURN_RECORD_H_
