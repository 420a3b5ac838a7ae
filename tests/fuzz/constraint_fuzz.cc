// Fuzzing of schemas, patterns and grammars, and of the tokens that follow them.
//
// The first byte gives the kind of the text, which ends at a zero byte; the bytes after it choose
// among the tokens that the masks allow. A compiled constraint must always allow some token, accept
// every token that its masks allow, and be able to take it back.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "constraint/constraint.h"

namespace weft::constraint {
namespace {

std::shared_ptr<const TokenTable> Table() {
  std::vector<std::string> bytes{""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  for (const char* text :
       {"{\"", "\": ", "\", \"", "\"}", "ab", "true", "12", ".5", "\xC3\xA9", "}, {"}) {
    bytes.push_back(text);
  }
  return std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{0});
}

std::vector<TokenId> Allowed(const ConstraintState& state, const TokenTable& table) {
  std::vector<uint32_t> mask(table.mask_words());
  state.FillMask(mask);
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < table.size(); ++id) {
    if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
  }
  return allowed;
}

// The same, without masks.
std::vector<TokenId> Tried(const ConstraintState& state, const TokenTable& table) {
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < table.size(); ++id) {
    ConstraintState copy = state;
    if (copy.Advance(id)) allowed.push_back(id);
  }
  return allowed;
}

void Walk(const Constraint& constraint, std::string_view choices) {
  ConstraintState state = constraint.Begin();
  const TokenTable& table = constraint.tokens();
  for (const char choice : choices.substr(0, 64)) {
    const std::vector<TokenId> allowed = Allowed(state, table);
    // A mask may have less where the memory of the automata did not suffice, but never more.
    WEFT_CHECK(std::ranges::includes(Tried(state, table), allowed), "a mask allows too much");
    if (allowed.empty()) {
      WEFT_CHECK(state.IsComplete(), "a text that may neither go on nor end");
      return;
    }
    const TokenId token = allowed[static_cast<uint8_t>(choice) % allowed.size()];
    WEFT_CHECK(state.Advance(token), "a token that the mask allows is refused");
    if (choice % 8 == 0) {
      state.Rollback(1);
      WEFT_CHECK(Allowed(state, table) == allowed, "a step that was taken back left something");
    }
  }
}

}  // namespace
}  // namespace weft::constraint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::constraint::Constraint;
  static const auto table = weft::constraint::Table();
  if (size == 0 || size > 4096) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t zero = std::min(all.find('\0'), all.size());
  const std::string_view source = all.substr(0, zero);
  const weft::constraint::ConstraintOptions options{
      .max_work = 50'000, .max_bytes = 8 << 20, .max_walk_bytes = 4 << 20};
  const auto made = data[0] % 3 == 0   ? Constraint::JsonSchema(source, options, table)
                    : data[0] % 3 == 1 ? Constraint::Regex(source, options, table)
                                       : Constraint::FromGrammar(source, options, table);
  if (made.ok()) weft::constraint::Walk(**made, all.substr(std::min(zero + 1, all.size())));
  return 0;
}
