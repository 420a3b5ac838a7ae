#include "tests/property/contexts.h"

#include <numeric>
#include <utility>

#include "base/check.h"

namespace weft::testing {

Context AsShown(const Context& context) {
  Context shown = context;
  std::ranges::replace_if(shown, IsRowNumber, kRowToken);
  return shown;
}

std::optional<Context> Recognized(const Context& shown, const Context& candidate) {
  const int64_t n = std::min(std::ssize(shown), std::ssize(candidate));
  Context context = First(candidate, n);
  context.insert(context.end(), shown.begin() + n, shown.end());
  const bool known = std::find(context.begin() + n, context.end(), kRowToken) == context.end();
  if (!known || AsShown(context) != shown) return std::nullopt;
  return context;
}

std::vector<float> RowBook::RowOf(int32_t number) {
  if (table_.empty()) {
    std::vector<int32_t> all(static_cast<size_t>(n_vocab()));
    std::iota(all.begin(), all.end(), 0);
    auto table = model_.RowsOf(all);
    WEFT_CHECK(table.ok(), "the embedding's table can be read");
    table_ = *std::move(table);
  }
  const int64_t width = model_.row_width();
  const int32_t token = (kRowToken - 1 - number) % n_vocab();
  const auto begin = table_.begin() + token * width;
  std::vector<float> row(begin, begin + width);
  if (number == NumberOf(token)) return row;
  const auto next = table_.begin() + (token + 1) % n_vocab() * width;
  for (int64_t i = 0; i < width; ++i) {
    float& value = row[static_cast<size_t>(i)];
    value = 0.5f * value + 0.5f * next[i];
  }
  return row;
}

Context RowBook::AsTokens(const Context& context) const {
  Context tokens = context;
  for (int32_t& number : tokens) {
    const int32_t token = kRowToken - 1 - number;
    if (IsRowNumber(number) && token < n_vocab()) number = token;
  }
  return tokens;
}

void RowBook::Put(const Context& prompt, TurnOptions* turn) {
  const auto first = std::ranges::find_if(prompt, IsRowNumber);
  turn->tokens.assign(prompt.begin(), first);
  if (first == prompt.end()) return;
  std::vector<PromptPart> parts;
  bool ends_with_rows = true;  // a part's rows follow its tokens
  for (auto it = first; it != prompt.end(); ++it) {
    const bool is_row = IsRowNumber(*it);
    if (parts.empty() || (!is_row && ends_with_rows)) parts.emplace_back();
    ends_with_rows = is_row;
    if (!is_row) {
      parts.back().tokens.push_back(*it);
      continue;
    }
    const std::vector<float> row = RowOf(*it);
    parts.back().rows.insert(parts.back().rows.end(), row.begin(), row.end());
  }
  turn->parts = std::make_shared<const std::vector<PromptPart>>(std::move(parts));
}

}  // namespace weft::testing
