#include "tests/property/turn_record.h"

#include <bit>

#include "base/strings.h"

namespace weft::testing {
namespace {

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool SameBits(const TokenEvent& a, const TokenEvent& b) {
  if (a.token != b.token || !SameBits(a.logprob, b.logprob)) return false;
  if (a.alternatives.size() != b.alternatives.size()) return false;
  for (size_t i = 0; i < a.alternatives.size(); ++i) {
    if (a.alternatives[i].token != b.alternatives[i].token) return false;
    if (!SameBits(a.alternatives[i].logprob, b.alternatives[i].logprob)) return false;
  }
  return true;
}

std::string Describe(const TokenEvent& event) {
  std::string text = StrCat(event.token, " (", event.logprob);
  for (const TokenLogprob& other : event.alternatives) {
    text += StrCat("; ", other.token, " ", other.logprob);
  }
  return text + ")";
}

void Take(TurnEvent event, TurnRecord* record) {
  if (auto* started = std::get_if<StartedEvent>(&event)) {
    if (record->started) record->protocol_error = "a turn started twice";
    record->started = std::move(*started);
    return;
  }
  auto* token = std::get_if<TokenEvent>(&event);
  auto* done = std::get_if<DoneEvent>(&event);
  const size_t choice = static_cast<size_t>(token != nullptr ? token->choice : done->choice);
  if (choice >= record->choices.size()) {
    record->protocol_error = StrCat("an event of choice ", choice);
    return;
  }
  ChoiceRecord& place = record->choices[choice];
  if (place.done) record->protocol_error = "an event after the end";
  if (token != nullptr) {
    if (!record->started) record->protocol_error = "a token before the start";
    place.events.push_back(std::move(*token));
  } else {
    place.done = std::move(*done);
  }
}

}  // namespace

std::vector<int32_t> ChoiceRecord::Tokens() const {
  std::vector<int32_t> tokens;
  for (const TokenEvent& event : events) tokens.push_back(event.token);
  return tokens;
}

void CheckRecord(TurnRecord* record) {
  if (!record->choices[0].done) record->protocol_error = "a turn without an end";
  for (const ChoiceRecord& choice : record->choices) {
    if (record->started && !choice.done && record->protocol_error.empty() &&
        record->choices[0].complete()) {
      record->protocol_error = "a choice without an end";
    }
  }
}

TurnRecord ReadTurn(Turn* turn, int n_choices) {
  TurnRecord record;
  record.choices.resize(static_cast<size_t>(n_choices));
  while (auto event = turn->Next()) Take(*std::move(event), &record);
  CheckRecord(&record);
  return record;
}

bool ReadSome(Turn* turn, TurnRecord* record) {
  bool finished = false;
  while (auto event = turn->TryNext(&finished)) Take(*std::move(event), record);
  return finished;
}

std::string CompareChoices(const ChoiceRecord& got, const ChoiceRecord& alone) {
  if (got.events.size() > alone.events.size()) {
    return StrCat("it said ", got.events.size(), " tokens, alone it says ", alone.events.size());
  }
  for (size_t i = 0; i < got.events.size(); ++i) {
    if (!SameBits(got.events[i], alone.events[i])) {
      return StrCat("token ", i, " is ", Describe(got.events[i]), ", alone it is ",
                    Describe(alone.events[i]));
    }
    if (got.events[i].text != alone.events[i].text) return StrCat("other text of token ", i);
  }
  if (!got.complete()) return "";
  if (got.events.size() != alone.events.size() || got.done->reason != alone.done->reason ||
      got.done->stop_token != alone.done->stop_token) {
    return StrCat("it ended after ", got.events.size(), " tokens for reason ",
                  static_cast<int>(got.done->reason), ", alone after ", alone.events.size(),
                  " for reason ", static_cast<int>(alone.done->reason));
  }
  return "";
}

std::string TokensToString(const std::vector<int32_t>& tokens) {
  std::string text = StrCat("[", tokens.size(), ":");
  for (const int32_t token : tokens) text += StrCat(" ", token);
  return text + "]";
}

}  // namespace weft::testing
