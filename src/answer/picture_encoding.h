// Encodes the pictures of asks while their tasks wait, and measures them without.
#ifndef WEFT_ANSWER_PICTURE_ENCODING_H_
#define WEFT_ANSWER_PICTURE_ENCODING_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "answer/answer.h"
#include "answer/ask.h"
#include "answer/pictures.h"
#include "answer/prompt_rows.h"
#include "async/task.h"
#include "base/status.h"

namespace weft::serve {

// How a task waits for pictures.
struct PictureWait {
  const SignsOfLife& signs;
  std::function<AnswerUsage()> usage;  // what signs tell; asked once, with the first
  std::stop_token left;                // the client has left, and wants nothing more
};

// Replaces the ask's pictures by rows. One after the other, so that those of several asks take
// turns. CANCELLED if the client leaves. REQUIRES: both live until the task ends.
Task<Status> EncodePictures(Pictures& pictures, int64_t context_tokens, PictureWait wait, Ask& ask);

// For lengths: the ask's pictures and rows, with one value in place of each embedding.
StatusOr<std::vector<EmbeddedRows>> MeasureRows(const Pictures* pictures, const Model& model,
                                                const Ask& ask);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PICTURE_ENCODING_H_
