// Access keys from a file, one per line, each with an optional name for the logs.
//
//   # comment
//   sk-5f0c...   kitchen
//
// Copies share one set of keys: reloading one reloads all. Any thread.
#ifndef WEFT_DOORS_HOST_API_KEYS_H_
#define WEFT_DOORS_HOST_API_KEYS_H_

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
    std::string domain;  // for sessions and prefixes; reveals nothing about the key
    std::string name;    // may be empty
  };

  // No keys: everybody has access, in one domain.
  ApiKeys() = default;
  // Errors name the line but never quote it.
  static StatusOr<ApiKeys> Parse(std::string_view text);
  static StatusOr<ApiKeys> Load(const std::string& path);
  // Reads the file given to Load again. On failure the keys stay as they are.
  Status Reload();

  // Whether there are any keys: if so, requests need one.
  bool required() const { return shared_ != nullptr; }
  size_t size() const;
  // Takes the same time whether or not the key exists.
  std::optional<Owner> Find(std::string_view key) const;
  // The first one with that name.
  std::optional<Owner> FindByName(std::string_view name) const;

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

// A warning if users other than the owner can read or change the key file; empty if not.
std::string KeyFileWarning(const std::string& path);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_API_KEYS_H_
