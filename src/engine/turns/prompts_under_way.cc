#include "engine/turns/prompts_under_way.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/sessions/session.h"

namespace weft {

void PromptsUnderWay::Add(ActiveTurn* turn, const Session& session) {
  const int64_t most = std::min(std::ssize(session.tokens), session.invoked_at);
  Add(turn, session.DomainOf(0), session.tokens, static_cast<size_t>(most));
}

void PromptsUnderWay::Add(ActiveTurn* turn, std::string_view domain,
                          const std::vector<TokenId>& tokens, size_t n_tokens) {
  const auto prompt = std::span(tokens).first(n_tokens);
  Ordered& prompts = domains_[std::string(PrefixTreeOf(domain, share_across_domains_))];
  const auto comes_before = [&](const Prompt& other) {
    return std::ranges::lexicographical_compare(other.tokens(), prompt);
  };
  const auto place =
      prompts.insert(std::ranges::partition_point(prompts, comes_before),
                     {.turn = turn, .text = &tokens, .n_tokens = n_tokens, .number = ++n_added_});
  const auto measure = [&](auto prompt) {
    const bool is_last = std::next(prompt) == prompts.end();
    prompt->in_common = is_last ? 0 : CommonLength(prompt->tokens(), std::next(prompt)->tokens());
  };
  measure(place);
  if (place != prompts.begin()) measure(std::prev(place));
}

void PromptsUnderWay::Remove(const ActiveTurn* turn) {
  for (auto domain = domains_.begin(); domain != domains_.end(); ++domain) {
    Ordered& prompts = domain->second;
    const auto found = std::ranges::find(prompts, turn, &Prompt::turn);
    if (found == prompts.end()) continue;
    if (found != prompts.begin()) {
      int64_t& before = std::prev(found)->in_common;
      before = std::min(before, found->in_common);
    }
    prompts.erase(found);
    if (prompts.empty()) domains_.erase(domain);
    return;
  }
}

bool PromptsUnderWay::AnyEarlier(
    const ActiveTurn* turn, FunctionRef<bool(ActiveTurn* earlier, int64_t common)> visit) const {
  struct Earlier {
    int64_t common = 0;
    const Prompt* prompt = nullptr;
  };
  std::vector<Earlier> found;
  for (const auto& [domain, prompts] : domains_) {
    const auto own = std::ranges::find(prompts, turn, &Prompt::turn);
    if (own == prompts.end()) continue;
    const auto note = [&](const Prompt& other, int64_t common) {
      if (other.number < own->number) found.push_back({common, &other});
    };
    int64_t common = own->in_common;
    for (auto other = std::next(own); common > 0; ++other) {
      note(*other, common);
      common = std::min(common, other->in_common);
    }
    common = INT64_MAX;
    for (auto other = own; other != prompts.begin();) {
      common = std::min(common, (--other)->in_common);
      if (common == 0) break;
      note(*other, common);
    }
  }
  std::ranges::sort(found, {}, [](const Earlier& earlier) {
    return std::make_pair(-earlier.common, earlier.prompt->number);
  });
  return std::ranges::any_of(
      found, [&](const Earlier& earlier) { return visit(earlier.prompt->turn, earlier.common); });
}

}  // namespace weft
