#include "engine/sessions/session_names.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "engine/sampling/random.h"

namespace weft {
namespace {

using Known = std::map<std::pair<std::string, std::string>, uint64_t>;

std::vector<uint64_t> IdsOf(const SessionNames& names, std::string_view domain) {
  std::vector<uint64_t> ids;
  names.ForEachOf(domain, [&](SessionId id) { ids.push_back(id.value); });
  return ids;
}

void ExpectSame(const SessionNames& names, const Known& known) {
  for (const std::string domain : {"", "a", "b", "c"}) {
    std::vector<uint64_t> ids;
    for (const auto& [key, id] : known) {
      if (key.first == domain) ids.push_back(id);
    }
    ASSERT_EQ(IdsOf(names, domain), ids) << "in \"" << domain << "\"";
  }
  for (const auto& [key, id] : known) {
    const auto found = names.Find(key.first, key.second);
    ASSERT_TRUE(found.has_value()) << key.first << " " << key.second;
    ASSERT_EQ(found->value, id);
  }
}

// Compares with a plain map; earlier copies must not change.
TEST(SessionNamesTest, KnowsWhatWasSetAndCopiesStay) {
  SessionNames names;
  Known known;
  std::vector<std::pair<SessionNames, Known>> copies;
  for (uint64_t step = 0; step < 4000; ++step) {
    const uint64_t bits = RandomBits(1, step);
    const std::string domain = std::vector<std::string>{"", "a", "b"}[bits % 3];
    const std::string name = StrCat("n", (bits >> 8) % 200);
    if ((bits >> 4) % 3 == 0) {
      names.Remove(domain, name);
      known.erase({domain, name});
    } else {
      names.Set(domain, name, {step + 1});
      known[{domain, name}] = step + 1;
    }
    ASSERT_EQ(names.Find(domain, name).has_value(), known.contains({domain, name}));
    if (step % 400 == 0) copies.emplace_back(names, known);
  }
  ExpectSame(names, known);
  for (const auto& [copy, then] : copies) ExpectSame(copy, then);
  EXPECT_FALSE(names.Find("c", "n1").has_value());
  EXPECT_FALSE(names.Find("a", "").has_value());
}

TEST(SessionNamesTest, NamesInOrderAreNoDeepTree) {
  SessionNames names;
  constexpr uint64_t kMany = 100'000;  // a list this long would overflow the stack
  for (uint64_t i = 0; i < kMany; ++i) names.Set("", StrCat(kMany + i), {i + 1});
  EXPECT_EQ(IdsOf(names, "").size(), kMany);
  for (uint64_t i = 0; i < kMany; i += 2) names.Remove("", StrCat(kMany + i));
  EXPECT_EQ(IdsOf(names, "").size(), kMany / 2);
  EXPECT_EQ(names.Find("", StrCat(kMany + 1))->value, 2u);
}

}  // namespace
}  // namespace weft
