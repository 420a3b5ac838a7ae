// A zip archive in memory, of a few files: deflated, with fixed times, so that equal
// contents give equal bytes. One thread.
#ifndef WEFT_GRPC_ZIP_WRITER_H_
#define WEFT_GRPC_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::serve {

class ZipWriter {
 public:
  // RESOURCE_EXHAUSTED when the archive would pass 4 GiB, which plain zip cannot say.
  // REQUIRES: `name` is a relative path in ASCII that was not added yet.
  Status Add(std::string_view name, std::string_view content);
  // The archive. REQUIRES: called once, last.
  std::string Finish();

 private:
  std::string archive_;
  std::string directory_;
  uint16_t n_files_ = 0;
};

}  // namespace weft::serve

#endif  // WEFT_GRPC_ZIP_WRITER_H_
