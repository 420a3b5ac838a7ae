// Builds a zip archive of a few files in memory: deflated, with fixed times, so that equal contents
// give equal bytes. One thread.
#ifndef WEFT_ZIP_ZIP_WRITER_H_
#define WEFT_ZIP_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft {

class ZipWriter {
 public:
  // RESOURCE_EXHAUSTED if the archive would exceed 4 GiB, the limit of plain zip. REQUIRES: `name`
  // is a relative ASCII path that has not been added yet.
  Status Add(std::string_view name, std::string_view content);
  // Returns the archive. REQUIRES: called once, last.
  std::string Finish();

 private:
  std::string archive_;
  std::string directory_;
  uint16_t n_files_ = 0;
};

}  // namespace weft

#endif  // WEFT_ZIP_ZIP_WRITER_H_
