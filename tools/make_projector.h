// Projectors for pictures (mmproj files) of random weights, as make_model.h makes models that write
// text.
#ifndef WEFT_TOOLS_MAKE_PROJECTOR_H_
#define WEFT_TOOLS_MAKE_PROJECTOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tools/make_model.h"

namespace weft::tools {

struct ProjectorShape {
  std::string_view name;
  std::string_view projector;  // as files name it
  int64_t layers;
  int64_t embd;
  int64_t ffn;
  int64_t heads;
  int64_t patch;       // pixels
  int64_t image_size;  // pixels
  int64_t factor;      // patches of an embedding, each way
  int64_t width;       // values of an embedding
};

std::span<const ProjectorShape> KnownProjectorShapes();
// Null if there is none of that name.
const ProjectorShape* FindProjectorShape(std::string_view name);

// Writes the file; the same arguments give the same bytes. REQUIRES: a shape of
// KnownProjectorShapes().
StatusOr<MadeModel> MakeProjector(const ProjectorShape& shape, const MakeModelOptions& options,
                                  const std::string& path);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_MAKE_PROJECTOR_H_
