#include "engine/vision/span.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace weft::vision {
namespace {

// `text` with a number in place of `name`, if it is there.
std::string Numbered(std::string text, std::string_view name, int64_t number) {
  const size_t at = text.find(name);
  return at == text.npos ? text : text.replace(at, name.size(), StrCat(number));
}

std::vector<float> RowsOf(const Grid& view, std::span<const float> row_end) {
  if (row_end.empty()) return view.values;
  std::vector<float> rows;
  for (int64_t y = 0; y < view.rows; ++y) {
    if (y > 0) rows.insert(rows.end(), row_end.begin(), row_end.end());
    rows.insert(rows.end(), view.row(y * view.columns), view.row((y + 1) * view.columns));
  }
  return rows;
}

RowForm FormOf(const PictureFrame& frame, const Grid& view) {
  RowForm form{.mutual = frame.mutual};
  if (frame.on_grid) form.grid_rows = view.rows, form.grid_columns = view.columns;
  return form;
}

}  // namespace

int64_t EncodedPicture::bytes() const {
  int64_t bytes = 0;
  for (const Grid& view : views) bytes += std::ssize(view.values) * int64_t{sizeof(float)};
  return bytes;
}

std::vector<SpanPart> ArrangeSpan(const PictureFrame& frame, std::span<const float> row_end,
                                  const EncodedPicture& picture) {
  const int64_t n_tiles = picture.tile_rows * picture.tile_columns;
  WEFT_CHECK(std::ssize(picture.views) == n_tiles + 1, "a picture has its tiles and the whole");
  std::vector<SpanPart> parts;
  std::string text;
  for (int64_t i = 0; i < n_tiles; ++i) {
    const int64_t row = i / picture.tile_columns, column = i % picture.tile_columns;
    text += Numbered(Numbered(frame.tile, "{row}", row + 1), "{column}", column + 1);
    parts.push_back({std::exchange(text, ""), RowsOf(picture.views[i], row_end),
                     FormOf(frame, picture.views[i])});
    if (column + 1 == picture.tile_columns) text += frame.line_end;
  }
  if (n_tiles > 0) text += frame.tiles_end;
  parts.push_back({text + frame.before, RowsOf(picture.views.back(), row_end),
                   FormOf(frame, picture.views.back())});
  if (!frame.after.empty()) parts.push_back({frame.after, {}});
  return parts;
}

}  // namespace weft::vision
