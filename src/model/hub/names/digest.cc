#include "model/hub/names/digest.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"
#include "base/strings.h"

namespace weft::hub {
namespace {

EVP_MD_CTX* ContextOf(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

void Digest::Free::operator()(void* context) const { EVP_MD_CTX_free(ContextOf(context)); }

Digest::Digest(DigestKind kind, int64_t n_bytes) {
  if (kind == DigestKind::kNone) return;
  context_.reset(EVP_MD_CTX_new());
  WEFT_CHECK(context_ != nullptr, "out of memory for a checksum");
  const EVP_MD* const algorithm = kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1();
  WEFT_CHECK(EVP_DigestInit_ex(ContextOf(context_.get()), algorithm, nullptr) == 1,
             "the checksum is not available");
  if (kind != DigestKind::kGitBlob) return;
  const std::string head = StrCat("blob ", n_bytes, '\0');
  Update(std::as_bytes(std::span(head)));
}

Digest::~Digest() = default;

void Digest::Update(std::span<const std::byte> bytes) {
  if (context_ == nullptr) return;
  WEFT_CHECK(EVP_DigestUpdate(ContextOf(context_.get()), bytes.data(), bytes.size()) == 1,
             "a checksum cannot go on");
}

std::string Digest::Finish() {
  if (context_ == nullptr) return "";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  WEFT_CHECK(EVP_DigestFinal_ex(ContextOf(context_.get()), digest, &size) == 1,
             "a checksum cannot end");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex.push_back(kDigits[digest[i] >> 4]);
    hex.push_back(kDigits[digest[i] & 15]);
  }
  return hex;
}

bool IsHex(std::string_view text, size_t n) {
  return text.size() == n && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string Sha256Hex(std::string_view text) {
  Digest digest(DigestKind::kSha256, static_cast<int64_t>(text.size()));
  digest.Update(std::as_bytes(std::span(text)));
  return digest.Finish();
}

}  // namespace weft::hub
