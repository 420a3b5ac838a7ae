// How long a model may think. A value.
#ifndef WEFT_ANSWER_THOUGHT_LIMIT_H_
#define WEFT_ANSWER_THOUGHT_LIMIT_H_

#include <cstdint>
#include <string>

namespace weft::serve {

struct ThoughtLimit {
  int64_t tokens = -1;  // a longer thought is ended; -1: no limit; 0: no thought
  // The thought's last words where it is ended, so that the model does not go on thinking in its
  // answer. May be empty.
  std::string message = {};
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_THOUGHT_LIMIT_H_
