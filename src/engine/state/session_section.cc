#include "engine/state/session_section.h"

#include "xxhash.h"

namespace weft {
namespace {

// The fastest level: session files are written while a conversation waits.
constexpr int kZstdLevel = 1;
// After a state part that did not shrink, skip compressing this many.
constexpr int kPartsUntried = 7;

enum class Encoding : uint32_t { kRaw = 0, kZstd = 1 };

static_assert(sizeof(SectionHeader) == 40, "as the format has it");

uint64_t ChecksumOf(const SectionHeader& header, std::span<const std::byte> stored) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, &header, offsetof(SectionHeader, checksum));
  XXH3_64bits_update(state, stored.data(), stored.size());
  const uint64_t digest = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return digest;
}

bool IsState(SectionKind kind) {
  return kind == SectionKind::kPage || kind == SectionKind::kSlot ||
         kind == SectionKind::kCheckpoint || kind == SectionKind::kRow;
}

Status Cut(const SectionId& id) {
  return DataLoss("the file ends before its ", id.Name(), " does");
}

Status Wrong(const SectionId& id, std::string_view what) {
  return DataLoss("its ", id.Name(), " ", what);
}

}  // namespace

std::string SectionId::Name() const {
  switch (kind) {
    case SectionKind::kMeta:
      return "description";
    case SectionKind::kTokens:
      return "token list";
    case SectionKind::kReserved:
      return "reserved section";
    case SectionKind::kPage:
      return StrCat("page ", page, " of layer group ", group);
    case SectionKind::kSlot:
      return "recurrent state";
    case SectionKind::kEnd:
      return "end mark";
    case SectionKind::kCheckpoint:
      return StrCat("checkpoint ", page);
    case SectionKind::kRow:
      return StrCat("row ", page);
  }
  return "section";
}

Status SectionWriter::Write(const SectionId& id, std::span<const std::byte> raw) {
  SectionHeader header;
  header.kind = static_cast<uint32_t>(id.kind);
  header.group = static_cast<uint32_t>(id.group);
  header.page = static_cast<uint32_t>(id.page);
  header.raw_bytes = raw.size();
  std::span<const std::byte> stored = raw;
  if (IsState(id.kind) && untried_ > 0) {
    --untried_;
  } else if (const auto smaller = Compress(raw); !smaller.empty()) {
    stored = smaller;
    header.encoding = static_cast<uint32_t>(Encoding::kZstd);
  } else if (IsState(id.kind)) {
    untried_ = kPartsUntried;
  }
  header.stored_bytes = stored.size();
  header.checksum = ChecksumOf(header, stored);
  WEFT_RETURN_IF_ERROR(sink_(std::as_bytes(std::span(&header, 1))));
  return stored.empty() ? OkStatus() : sink_(stored);
}

std::span<const std::byte> SectionWriter::Compress(std::span<const std::byte> raw) {
  if (raw.size() < 64 || context_ == nullptr) return {};
  buffer_.resize(ZSTD_compressBound(raw.size()));
  const size_t n = ZSTD_compressCCtx(context_.get(), buffer_.data(), buffer_.size(), raw.data(),
                                     raw.size(), kZstdLevel);
  if (ZSTD_isError(n) || n > raw.size() - raw.size() / 20) return {};
  return std::span<const std::byte>(buffer_).first(n);
}

StatusOr<std::span<const std::byte>> SectionReader::Read(const SectionId& id, uint64_t min_bytes,
                                                         uint64_t max_bytes) {
  SectionHeader header;
  if (source_.size() - offset_ < sizeof(header)) return Cut(id);
  WEFT_RETURN_IF_ERROR(ReadBytes(std::as_writable_bytes(std::span(&header, 1))));
  if (header.stored_bytes > source_.size() - offset_) return Cut(id);
  // Stored data is raw, or smaller: bounded by the file and by the section's kind.
  if (header.stored_bytes > max_bytes) return Wrong(id, "has a wrong size");
  stored_.resize(static_cast<size_t>(header.stored_bytes));
  WEFT_RETURN_IF_ERROR(ReadBytes(stored_));
  if (header.checksum != ChecksumOf(header, stored_)) return Wrong(id, "fails its checksum");
  if (header.kind != static_cast<uint32_t>(id.kind) || header.group != id.group ||
      header.page != id.page) {
    return Wrong(id, "is out of place");
  }
  if (header.raw_bytes < min_bytes || header.raw_bytes > max_bytes) {
    return Wrong(id, "has a wrong size");
  }
  return Decode(id, header);
}

Status SectionReader::ReadBytes(std::span<std::byte> out) {
  const Status status = source_.Read(offset_, out);
  if (!status.ok()) return DataLoss(Message(status));
  offset_ += out.size();
  return OkStatus();
}

StatusOr<std::span<const std::byte>> SectionReader::Decode(const SectionId& id,
                                                           const SectionHeader& header) {
  if (header.encoding == static_cast<uint32_t>(Encoding::kRaw)) {
    if (header.raw_bytes != header.stored_bytes) return Wrong(id, "has a wrong size");
    return std::span<const std::byte>(stored_);
  }
  if (header.encoding != static_cast<uint32_t>(Encoding::kZstd)) {
    return Wrong(id, "has an unknown encoding");
  }
  if (ZSTD_getFrameContentSize(stored_.data(), stored_.size()) != header.raw_bytes) {
    return Wrong(id, "has a wrong size");
  }
  raw_.resize(static_cast<size_t>(header.raw_bytes));
  if (context_ == nullptr) return ResourceExhausted("no memory to decompress its ", id.Name());
  const size_t n =
      ZSTD_decompressDCtx(context_.get(), raw_.data(), raw_.size(), stored_.data(), stored_.size());
  if (ZSTD_isError(n) || n != raw_.size()) return Wrong(id, "does not decompress");
  return std::span<const std::byte>(raw_);
}

}  // namespace weft
