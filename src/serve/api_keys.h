// Who may ask: the keys of a file, one per line, each with an optional name for the logs.
//
//   # comment
//   sk-5f0c...   kitchen
//
// Immutable; any thread.
#ifndef WEFT_SERVE_API_KEYS_H_
#define WEFT_SERVE_API_KEYS_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::serve {

class ApiKeys {
 public:
  struct Owner {
    std::string domain;  // of sessions and prefixes; says nothing about the key
    std::string name;    // may be empty
  };

  // No keys: everybody may ask, in one domain.
  ApiKeys() = default;
  // The error names the line, never what stands there.
  static StatusOr<ApiKeys> Parse(std::string_view text);
  static StatusOr<ApiKeys> Load(const std::string& path);

  bool required() const { return !keys_.empty(); }
  // Takes as long for every key there is or is not.
  std::optional<Owner> Find(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Key {
    Digest digest;
    Owner owner;
  };
  static Digest DigestOf(std::string_view prefix, std::string_view text);

  std::vector<Key> keys_;
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_KEYS_H_
