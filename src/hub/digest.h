// Checksums of files, as hubs name them.
#ifndef WEFT_HUB_DIGEST_H_
#define WEFT_HUB_DIGEST_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weft::hub {

enum class DigestKind {
  kNone,     // nothing is known about the bytes
  kSha256,   // large files of a hub, layers of Ollama, the catalogue
  kGitBlob,  // SHA-1 as git names a blob of a known size: small files of a hub
};

// What the bytes of a file must amount to.
struct Checksum {
  DigestKind kind = DigestKind::kNone;
  std::string hex;  // lower case
};

// Fed piece by piece; one thread at a time.
class Digest {
 public:
  // `n_bytes` is how many there will be; git's kind begins with it.
  Digest(DigestKind kind, int64_t n_bytes);
  ~Digest();
  void Update(std::span<const std::byte> bytes);
  // Lower-case hexadecimal digits; empty for kNone. Nothing may follow.
  std::string Finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;  // null for kNone
};

// The text consists of `n` lower-case hexadecimal digits.
bool IsHex(std::string_view text, size_t n);

std::string Sha256Hex(std::string_view text);

}  // namespace weft::hub

#endif  // WEFT_HUB_DIGEST_H_
