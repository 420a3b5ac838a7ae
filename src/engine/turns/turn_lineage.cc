// Turns protect other conversations' state in memory: conversations that wait for an answer, and
// prefixes that clients marked.
#include "base/clock.h"
#include "engine/turns/turn_scheduler.h"

namespace weft {

// A named session that waits for an answer while the session's conversation is used counts as used
// after it; and its blocks on disk are as recent.
void TurnScheduler::TouchParents(const Session& session) {
  const int64_t used_us = NowMicros() + 1;
  parts_.memory->ForEachParent(session, [&](SessionId id, PrefixIndex::Tokens tokens) {
    parts_.files->RefreshBlocks(session.DomainOf(0), tokens);
    const auto parent = parts_.sessions->Get(id);
    if (!parent.ok()) return;
    (*parent)->child_used_us = used_us;
    parts_.publisher->Touch(*parent);
  });
}

void TurnScheduler::ClaimPrefixes(const ActiveTurn& turn) {
  if (!turn.is_prompt_computed()) return;
  const SessionId owner = turn.closes_session ? SessionId{} : turn.session->id;
  for (const auto& lane : turn.lanes) {
    if (lane->session->stage == SessionStage::kPoisoned) continue;
    parts_.memory->EndTurn(*lane->session, turn.usage.prompt_tokens, turn.serial, owner);
  }
  for (const PrefixMark& mark : turn.options.prefix_marks) {
    parts_.memory->Mark(*turn.session, turn.first_token() + mark.n_tokens, mark.keep_for);
  }
  TouchParents(*turn.session);
  if (turn.expects_more) parts_.memory->ExpectMore(turn.session->DomainOf(0), turn.serial);
}

void TurnScheduler::ExpectMore(std::string_view domain, uint64_t serial) {
  for (const auto& turn : running_) {
    if (turn->serial == serial) turn->expects_more = true;
  }
  parts_.memory->ExpectMore(domain, serial);
}

}  // namespace weft
