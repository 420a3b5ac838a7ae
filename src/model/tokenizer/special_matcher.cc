#include "model/tokenizer/special_matcher.h"

#include <algorithm>
#include <map>

namespace weft {
namespace {

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary, bool control)
    : vocabulary_(vocabulary) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const uint8_t attrs = vocabulary.attrs(id);
    const bool is_control = (attrs & (kAttrControl | kAttrUnknown)) != 0;
    if (is_control ? control : (attrs & kAttrUserDefined) != 0) {
      trie_.Insert(vocabulary.text(id), id);
    }
  }
}

// Places wait in one list per length of their longest token; the lists are processed from the
// longest. If a place's token overlaps one already taken, the place waits again with the longest
// token that still fits. Tokens taken earlier are at least as long as the current one, so checking
// both of its ends finds any overlap.
std::vector<SpecialMatcher::Found> SpecialMatcher::FindAll(std::string_view text) const {
  struct Place {
    size_t begin;
    TokenId token;
  };
  std::map<size_t, std::vector<Place>, std::greater<>> waiting;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (!trie_.MayStart(text[pos])) continue;
    const ByteTrie::Match match = trie_.LongestPrefix(text.substr(pos));
    if (match.bytes > 0) waiting[match.bytes].push_back({pos, match.value});
  }
  std::vector<Found> found;
  if (waiting.empty()) return found;
  std::vector<bool> taken(text.size());
  while (!waiting.empty()) {
    const size_t length = waiting.begin()->first;
    std::vector<Place> places = std::move(waiting.begin()->second);
    waiting.erase(waiting.begin());
    std::sort(places.begin(), places.end(),
              [](const Place& a, const Place& b) { return a.begin < b.begin; });
    for (const Place& place : places) {
      if (taken[place.begin]) continue;
      size_t free = 1;
      while (free < length && !taken[place.begin + free]) ++free;
      if (free < length) {
        const ByteTrie::Match shorter = trie_.LongestPrefix(text.substr(place.begin, free));
        if (shorter.bytes > 0) waiting[shorter.bytes].push_back({place.begin, shorter.value});
        continue;
      }
      size_t begin = place.begin;
      size_t end = place.begin + length;
      const uint8_t attrs = vocabulary_.attrs(place.token);
      if ((attrs & kAttrStripLeft) != 0) {
        while (begin > 0 && !taken[begin - 1] && IsAsciiSpace(text[begin - 1])) --begin;
      }
      if ((attrs & kAttrStripRight) != 0) {
        while (end < text.size() && !taken[end] && IsAsciiSpace(text[end])) ++end;
      }
      std::fill(taken.begin() + begin, taken.begin() + end, true);
      found.push_back({begin, end, place.token});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.begin < b.begin; });
  return found;
}

std::vector<SpecialMatcher::Fragment> SpecialMatcher::Cut(std::string_view text) const {
  std::vector<Fragment> fragments;
  size_t pos = 0;
  if (!trie_.empty()) {
    for (const Found& found : FindAll(text)) {
      if (found.begin > pos) fragments.push_back({text.substr(pos, found.begin - pos)});
      fragments.push_back({text.substr(found.begin, found.end - found.begin), found.token});
      pos = found.end;
    }
  }
  if (pos < text.size()) fragments.push_back({text.substr(pos)});
  return fragments;
}

}  // namespace weft
