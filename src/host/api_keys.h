// Who may ask: the keys of a file, one per line, each with an optional name for the logs.
//
//   # comment
//   sk-5f0c...   kitchen
//
// A value whose copies are one set of keys: what one of them reads anew, all have. Any thread.
#ifndef WEFT_HOST_API_KEYS_H_
#define WEFT_HOST_API_KEYS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
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
  // Reads the file anew that Load read. Where that cannot be, the keys stay as they are.
  Status Reload();

  // Whether there are any: who has none of them may not ask.
  bool required() const { return shared_ != nullptr; }
  size_t size() const;
  // Takes as long for every key there is or is not.
  std::optional<Owner> Find(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Key {
    Digest digest;
    Owner owner;
  };
  using Table = std::vector<Key>;
  struct Shared {
    std::string path;
    Mutex mutex;
    std::shared_ptr<const Table> table WEFT_GUARDED_BY(mutex);
  };

  static Digest DigestOf(std::string_view prefix, std::string_view text);
  static StatusOr<Table> ParseTable(std::string_view text);
  static StatusOr<Table> LoadTable(const std::string& path);
  static ApiKeys Of(std::string path, Table table);
  std::shared_ptr<const Table> table() const;

  std::shared_ptr<Shared> shared_;  // null: no keys
};

// A sentence about a file of keys that others than its owner could read or change; empty when
// they cannot.
std::string KeyFileWarning(const std::string& path);

}  // namespace weft::serve

#endif  // WEFT_HOST_API_KEYS_H_
