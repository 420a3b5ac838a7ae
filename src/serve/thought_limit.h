// Ends a thought that has become too long: the tokens of the mark that ends it are the only ones
// that may come, and the answer goes on behind it.
//
// One per choice of a turn; used by the engine's thread.
#ifndef WEFT_SERVE_THOUGHT_LIMIT_H_
#define WEFT_SERVE_THOUGHT_LIMIT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::serve {

// Whether the text of a prompt ends within a thought.
bool EndsInThought(std::string_view prompt, const ThoughtMarks& marks);

class ThoughtLimit : public TokenMask {
 public:
  // `is_open`: the prompt ends within the thought, whose first `most_tokens` tokens come next.
  ThoughtLimit(std::shared_ptr<const Tokenizer> tokenizer, ThoughtMarks marks, int64_t most_tokens,
               bool is_open);

  void Apply(std::span<const int32_t> generated, std::vector<bool>* allowed) override;

 private:
  enum class Stage {
    kBefore,    // the reply may still begin with a thought
    kThinking,  //
    kEnding,    // the mark is being said
    kAfter,     // the answer
  };

  void Look(int32_t token);
  void BeginEnding();

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ThoughtMarks marks_;
  const int64_t most_tokens_;
  Stage stage_;
  std::string text_;       // the reply's first, then the thought's last
  int64_t n_thought_ = 0;  // tokens within it
  std::vector<int32_t> ending_;
  size_t n_ending_ = 0;  // of these, said
  size_t n_seen_ = 0;
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_THOUGHT_LIMIT_H_
