// Checksums of files as used by hubs.
#ifndef WEFT_MODEL_HUB_NAMES_DIGEST_H_
#define WEFT_MODEL_HUB_NAMES_DIGEST_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weft::hub {

enum class DigestKind {
  kNone,     // unknown
  kSha256,   // large files of a hub, layers of Ollama, the catalogue
  kGitBlob,  // SHA-1 of a git blob of known size: small files of a hub
};

// The expected checksum of a file.
struct Checksum {
  DigestKind kind = DigestKind::kNone;
  std::string hex;  // lower case
};

// Computes a checksum piece by piece; one thread at a time.
class Digest {
 public:
  // `n_bytes` is the total size, which git's kind hashes first.
  Digest(DigestKind kind, int64_t n_bytes);
  ~Digest();
  void Update(std::span<const std::byte> bytes);
  // Lower-case hexadecimal digits; empty for kNone. Must be the last call.
  std::string Finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;  // null for kNone
};

// Whether the text is exactly `n` lower-case hexadecimal digits.
bool IsHex(std::string_view text, size_t n);

std::string Sha256Hex(std::string_view text);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NAMES_DIGEST_H_
