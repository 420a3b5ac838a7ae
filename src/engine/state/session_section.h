// The sections of a session file, each with a header and a checksum, written and read in order.
// session_file.h is the format's interface; this is a part of it.
//
// Threads: an object belongs to one thread at a time.
#ifndef WEFT_ENGINE_STATE_SESSION_SECTION_H_
#define WEFT_ENGINE_STATE_SESSION_SECTION_H_

#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_io.h"
#include "base/status.h"
#include "engine/state/session_file.h"

namespace weft {

enum class SectionKind : uint32_t {
  kMeta = 1,
  kTokens = 2,
  kReserved = 3,  // empty; read and ignored
  kPage = 4,
  kSlot = 5,
  kEnd = 6,
  kCheckpoint = 7,  // since version 2
  kRow = 8,         // since version 3
};

// Identifies a section, and names it in messages.
struct SectionId {
  SectionKind kind;
  int64_t group = 0;
  int64_t page = 0;  // for checkpoints and rows: their number

  std::string Name() const;
};

struct SectionHeader {
  uint32_t kind = 0;
  uint32_t encoding = 0;
  uint32_t group = 0;
  uint32_t page = 0;
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;
  uint64_t checksum = 0;  // over the fields above and the stored bytes
};

// Writes to a sink, which must outlive it. Compresses if that saves at least 5 %.
class SectionWriter {
 public:
  explicit SectionWriter(const ByteSink& sink) : sink_(sink) {}
  // Returns the sink's error.
  Status Write(const SectionId& id, std::span<const std::byte> raw);

 private:
  // Empty if it does not pay. Valid until the next call.
  std::span<const std::byte> Compress(std::span<const std::byte> raw);

  const ByteSink& sink_;
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::vector<std::byte> buffer_;
  int untried_ = 0;
};

// Reads from a source, which must outlive it. Every section is verified: DATA_LOSS for anything
// wrong.
class SectionReader {
 public:
  SectionReader(const ByteSource& source, uint64_t offset) : source_(source), offset_(offset) {}

  uint64_t offset() const { return offset_; }

  // The contents of the next section, which must be `id` and hold between `min_bytes` and
  // `max_bytes`. Valid until the next call.
  StatusOr<std::span<const std::byte>> Read(const SectionId& id, uint64_t min_bytes,
                                            uint64_t max_bytes);

 private:
  Status ReadBytes(std::span<std::byte> out);
  StatusOr<std::span<const std::byte>> Decode(const SectionId& id, const SectionHeader& header);

  const ByteSource& source_;
  uint64_t offset_;
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_{ZSTD_createDCtx(), ZSTD_freeDCtx};
  std::vector<std::byte> stored_;
  std::vector<std::byte> raw_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_SESSION_SECTION_H_
