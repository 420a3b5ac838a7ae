// Claims on prefixes of a PrefixIndex, and their effect on the order of eviction.
#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/state/prefix_index_node.h"

namespace weft {
namespace {

Fingerprint FingerprintOfTokens(std::span<const TokenId> tokens) {
  return FingerprintOf(std::as_bytes(tokens));
}

}  // namespace

PrefixIndex::Family* PrefixIndex::FindFamily(std::string_view domain) const {
  const auto found = families_.find(domain);
  return found != families_.end() ? found->second.get() : nullptr;
}

// --- adding and dropping ----------------------------------------------------------------

void PrefixIndex::AddClaim(std::string_view domain, Claim claim) {
  const auto [found, added] = families_.try_emplace(std::string(domain));
  if (added) found->second = std::make_unique<Family>(&found->first);
  Family* const family = found->second.get();
  claim.family = family;
  const bool is_mark = claim.turn == 0;
  std::list<Claim>& claims = is_mark ? family->marks : family->turns;
  const auto place = claims.insert(is_mark ? claims.end() : claims.begin(), std::move(claim));
  claims_at_.emplace(place->end, &*place);
  if (is_mark) {
    if (claims.size() > kMaxClaims) DropClaim(&claims.front());
    return;
  }
  // Claims that expect nothing only record when their conversations began.
  const auto alike = [&](const Claim& other) { return other.expects == place->expects; };
  if (static_cast<size_t>(std::ranges::count_if(claims, alike)) <= kMaxClaims) return;
  DropClaim(&*std::find_if(claims.rbegin(), claims.rend(), alike));
}

void PrefixIndex::DropClaim(Claim* claim) {
  const auto [begin, end] = claims_at_.equal_range(claim->end);
  claims_at_.erase(
      std::find_if(begin, end, [claim](const auto& entry) { return entry.second == claim; }));
  Family* const family = claim->family;
  std::list<Claim>& claims = claim->turn == 0 ? family->marks : family->turns;
  claims.remove_if([claim](const Claim& other) { return &other == claim; });
  if (!family->marks.empty() || !family->turns.empty()) return;
  std::erase(used_families_, family);
  families_.erase(families_.find(*family->domain));
}

void PrefixIndex::MoveClaims(const Node* from, Node* to) {
  const auto [begin, end] = claims_at_.equal_range(from);
  std::vector<Claim*> claims;
  for (auto it = begin; it != end; ++it) claims.push_back(it->second);
  for (Claim* const claim : claims) {
    if (to->is_root()) {
      DropClaim(claim);
    } else {
      claim->end = to;
      claims_at_.emplace(to, claim);
    }
  }
  if (!to->is_root()) claims_at_.erase(from);
}

// --- turns ------------------------------------------------------------------------------

uint64_t PrefixIndex::BeginTurn(std::string_view domain, std::span<const TokenId> tokens) {
  const uint64_t now = Tick();
  Family* const family = FindFamily(domain);
  if (family == nullptr) return now;
  uint64_t begun = now;
  std::vector<Claim*> over;
  for (Claim& claim : family->turns) {
    if (claim.n_prompt > std::ssize(tokens)) continue;
    const auto prompt = tokens.first(static_cast<size_t>(claim.n_prompt));
    if (FingerprintOfTokens(prompt) != claim.prompt) continue;
    begun = std::min(begun, claim.begun);
    over.push_back(&claim);
  }
  for (Claim& claim : family->turns) {
    const bool is_child = claim.expects && claim.since < begun;
    if (is_child && ++claim.child_turns > kMaxChildTurns) over.push_back(&claim);
  }
  for (Claim* const claim : over) DropClaim(claim);
  return begun;
}

void PrefixIndex::EndTurn(std::string_view domain, std::span<const TokenId> tokens,
                          int64_t n_prompt, uint64_t begun, uint64_t turn, uint64_t owner) {
  WEFT_CHECK(turn != 0 && n_prompt <= std::ssize(tokens), "a turn's tokens begin with its prompt");
  Node* const end = LastKnown(domain, tokens);
  if (end == nullptr || n_prompt == 0) return;
  AddClaim(domain, {.end = end,
                    .turn = turn,
                    .owner = owner,
                    .begun = begun,
                    .since = Tick(),
                    .n_prompt = n_prompt,
                    .prompt = FingerprintOfTokens(tokens.first(static_cast<size_t>(n_prompt)))});
}

void PrefixIndex::ExpectMore(std::string_view domain, uint64_t turn) {
  Family* const family = FindFamily(domain);
  if (family == nullptr) return;
  std::list<Claim>& claims = family->turns;
  size_t n = 0;
  Claim* oldest = nullptr;
  for (Claim& claim : claims) {
    claim.expects = claim.expects || claim.turn == turn;
    if (!claim.expects) continue;
    ++n;
    oldest = &claim;
  }
  if (n > kMaxClaims) DropClaim(oldest);
}

void PrefixIndex::NoteUse(std::string_view domain, uint64_t begun) {
  Family* const family = FindFamily(domain);
  if (family == nullptr) return;
  for (Claim& claim : family->marks) claim.used = clock_;
  for (Claim& claim : family->turns) {
    if (claim.expects && claim.since < begun) claim.used = clock_;
  }
  if (!std::exchange(family->is_used, true)) used_families_.push_back(family);
}

void PrefixIndex::ForEachParent(std::string_view domain, uint64_t begun,
                                FunctionRef<void(uint64_t owner, Tokens tokens)> visit) const {
  Family* const family = FindFamily(domain);
  if (family == nullptr) return;
  for (const Claim& claim : family->turns) {
    if (!claim.expects || claim.since >= begun) continue;
    visit(claim.owner, [&claim] {
      std::vector<TokenId> tokens;
      for (const Node* node : PathTo(claim.end)) {
        tokens.insert(tokens.end(), node->tokens.begin(), node->tokens.end());
      }
      return tokens;
    });
  }
}

// --- marks ------------------------------------------------------------------------------

void PrefixIndex::Mark(std::string_view domain, std::span<const TokenId> tokens, int64_t now_us,
                       int64_t until_us) {
  Node* const end = LastKnown(domain, tokens);
  if (end == nullptr || until_us <= now_us) return;
  const auto leads_here = [end](const Node* node) {
    const Node* above = end;
    while (above != nullptr && above->depth > node->depth) above = above->parent;
    return above == node;
  };
  if (Family* const family = FindFamily(domain); family != nullptr) {
    std::vector<Claim*> over;
    for (Claim& claim : family->marks) {
      const bool is_covered = claim.until_us <= until_us && leads_here(claim.end);
      if (is_covered || claim.until_us <= now_us) over.push_back(&claim);
    }
    for (Claim* const claim : over) DropClaim(claim);
  }
  AddClaim(domain, {.end = end, .until_us = until_us});
}

// --- order ------------------------------------------------------------------------------

void PrefixIndex::UseClaimed() {
  for (Family* const family : std::exchange(used_families_, {})) {
    family->is_used = false;
    uint64_t rank = 0;
    for (std::list<Claim>* const claims : {&family->marks, &family->turns}) {
      for (Claim& claim : *claims) {
        ++rank;
        if (claim.used == std::exchange(claim.carried, claim.used)) continue;
        UseAt(claim.end, claim.used + rank);
      }
    }
  }
}

void PrefixIndex::UseAt(Node* end, uint64_t used) {
  // A node's parents count as used no earlier than the node.
  for (Node* node = end; !node->is_root() && node->used[kLeaves] < used; node = node->parent) {
    SetUsed(node, kLeaves, used);
  }
  if (max_window_ > 0) {
    const GroupShape widest{options_.page_tokens, max_window_};
    const int64_t first = widest.VisibleFrom(end->end(options_.page_tokens)) / options_.page_tokens;
    for (Node* node = end; node->depth > first; node = node->parent) {
      if (node->used[kWindows] < used) SetUsed(node, kWindows, used);
    }
  }
  Node* last = end;
  while (!last->is_root() && last->slot == kNoSlot) last = last->parent;
  if (!last->is_root() && last->used[kCheckpoints] < used) SetUsed(last, kCheckpoints, used);
}

Status PrefixIndex::CheckClaims() const {
  size_t n_claims = 0;
  for (const auto& [domain, family] : families_) {
    const auto n_expecting =
        static_cast<size_t>(std::ranges::count(family->turns, true, &Claim::expects));
    if (family->marks.size() > kMaxClaims || n_expecting > kMaxClaims ||
        family->turns.size() - n_expecting > kMaxClaims) {
      return Internal("a domain of the prefix index has too many claims");
    }
    if (std::ranges::count(used_families_, family.get()) != (family->is_used ? 1 : 0)) {
      return Internal("the prefix index lost which domains were used");
    }
    for (const std::list<Claim>* const claims : {&family->marks, &family->turns}) {
      for (const Claim& claim : *claims) {
        ++n_claims;
        const auto node = nodes_.find(claim.end->serial);
        const auto [begin, end] = claims_at_.equal_range(claim.end);
        const auto is_it = [&claim](const auto& entry) { return entry.second == &claim; };
        if (node == nodes_.end() || node->second.get() != claim.end ||
            std::count_if(begin, end, is_it) != 1) {
          return Internal("a claim of the prefix index is on a prefix that it does not hold");
        }
      }
    }
  }
  if (n_claims != claims_at_.size()) return Internal("the prefix index lost a claim");
  return OkStatus();
}

}  // namespace weft
