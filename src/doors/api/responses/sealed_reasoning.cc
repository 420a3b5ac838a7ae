#include "doors/api/responses/sealed_reasoning.h"

#include <cstdint>

#include "answer/chat/own_reply.h"
#include "answer/row_file.h"
#include "base/strings.h"
#include "base/unicode.h"

namespace weft::serve {
namespace {

// With the version of what follows: base64 of a checksum and the text.
constexpr std::string_view kPrefix = "weft1.";
constexpr size_t kChecksumBytes = 8;

std::string Checksum(std::string_view text) {
  const uint64_t hash = HashOfPrompt(text);
  std::string bytes;
  for (size_t i = 0; i < kChecksumBytes; ++i) bytes += static_cast<char>(hash >> (8 * i) & 0xFF);
  return bytes;
}

}  // namespace

std::string SealReasoning(std::string_view reasoning) {
  return StrCat(kPrefix, EncodeBase64(StrCat(Checksum(reasoning), reasoning)));
}

std::optional<std::string> UnsealReasoning(std::string_view sealed) {
  if (!sealed.starts_with(kPrefix)) return std::nullopt;
  const std::optional<std::string> bytes = DecodeBase64(sealed.substr(kPrefix.size()));
  if (!bytes || bytes->size() < kChecksumBytes) return std::nullopt;
  const std::string_view text = std::string_view(*bytes).substr(kChecksumBytes);
  if (!bytes->starts_with(Checksum(text))) return std::nullopt;
  std::string storage;
  return std::string(RepairUtf8(text, &storage));
}

}  // namespace weft::serve
