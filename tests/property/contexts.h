// The contents of a program's contexts: tokens and, below kRowToken, rows (input embeddings), each
// with a unique number, so that a context is a list of numbers.
#ifndef WEFT_TESTS_PROPERTY_CONTEXTS_H_
#define WEFT_TESTS_PROPERTY_CONTEXTS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/model.h"
#include "weft/options.h"

namespace weft::testing {

using Context = std::vector<int32_t>;

inline bool IsRowNumber(int32_t number) { return number < kRowToken; }
inline Context First(const Context& context, int64_t n) {
  return {context.begin(), context.begin() + n};
}
inline bool IsPrefix(const Context& part, const Context& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// As Engine::Tokens shows it, which does not tell rows apart.
Context AsShown(const Context& context);
// The context shown, if `candidate` identifies its rows: both must begin alike, and everything
// shown beyond the candidate's end must be tokens.
std::optional<Context> Recognized(const Context& shown, const Context& candidate);

// The rows of a model. One thread.
class RowBook {
 public:
  // REQUIRES: it outlives the object.
  explicit RowBook(const Model& model) : model_(model) {}

  // The row equal to the token's embedding; and a row that no token has, between the token's and
  // the next token's.
  int32_t NumberOf(int32_t token) const { return kRowToken - 1 - token; }
  int32_t NumberBetween(int32_t token) const { return kRowToken - 1 - n_vocab() - token; }
  std::vector<float> RowOf(int32_t number);

  // Replaces rows that equal a token's embedding by that token.
  Context AsTokens(const Context& context) const;
  // Sets the turn's prompt.
  void Put(const Context& prompt, TurnOptions* turn);

 private:
  int32_t n_vocab() const { return static_cast<int32_t>(model_.n_vocab()); }

  const Model& model_;
  std::vector<float> table_;  // embeddings of all tokens; read on first use
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_CONTEXTS_H_
