// A picture's place in a prompt: its embeddings, and the texts between and around them.
#ifndef WEFT_ENGINE_VISION_SPAN_H_
#define WEFT_ENGINE_VISION_SPAN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/vision/prepare.h"
#include "model/pictures/picture_spec.h"
#include "weft/options.h"

namespace weft::vision {

// A picture's embeddings, by view, as PreparedPicture orders the views.
struct EncodedPicture {
  std::vector<Grid> views;
  int64_t tile_rows = 0, tile_columns = 0;
  int64_t bytes() const;
};

// A text, followed by embeddings of PictureSpec::width values each. The last part may have none.
struct SpanPart {
  std::string text;
  std::vector<float> rows;
  RowForm form = {};
  bool operator==(const SpanPart&) const = default;
};

// `row_end`: the values of PictureSpec::row_end; empty if it has none, or if rows stand on a grid.
// REQUIRES: `picture` has the views that its numbers of tiles say.
std::vector<SpanPart> ArrangeSpan(const PictureFrame& frame, std::span<const float> row_end,
                                  const EncodedPicture& picture);

}  // namespace weft::vision

#endif  // WEFT_ENGINE_VISION_SPAN_H_
