#include "doors/host/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/files/mapped_file.h"

namespace weft::serve {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr std::string_view kSpaces = " \t\r";

// Removes and returns the first word of `line`.
std::string_view TakeWord(std::string_view* line) {
  const size_t start = std::min(line->find_first_not_of(kSpaces), line->size());
  const size_t end = std::min(line->find_first_of(kSpaces, start), line->size());
  const std::string_view word = line->substr(start, end - start);
  line->remove_prefix(end);
  return word;
}

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view prefix, std::string_view text) {
  const std::string whole = StrCat(prefix, text);
  Digest digest = {};
  unsigned int size = 0;
  const bool made =
      EVP_Digest(whole.data(), whole.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1;
  WEFT_CHECK(made && size == digest.size(), "SHA-256 is always there");
  return digest;
}

StatusOr<ApiKeys::Table> ApiKeys::ParseTable(std::string_view text) {
  Table keys;
  int number = 0;
  for (std::string_view line : StrSplit(text, '\n')) {
    ++number;
    const std::string_view key = TakeWord(&line);
    if (key.empty() || key.starts_with('#')) continue;
    const bool sane =
        std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    if (!sane) {
      return InvalidArgument(
          "line ", number,
          ": a key consists of visible ASCII characters, optionally followed by its name");
    }
    Owner owner{.name = std::string(TakeWord(&line))};
    if (!TakeWord(&line).empty()) {
      return InvalidArgument("line ", number, ": a key is followed by at most one word, its name");
    }
    static constexpr char kDigits[] = "0123456789abcdef";
    const Digest domain = DigestOf("domain of ", key);
    for (size_t i = 0; i < domain.size() / 2; ++i) {
      owner.domain.push_back(kDigits[domain[i] >> 4]);
      owner.domain.push_back(kDigits[domain[i] & 15]);
    }
    keys.push_back({.digest = DigestOf("key ", key), .owner = std::move(owner)});
  }
  if (keys.empty()) return InvalidArgument("it contains no keys; write one per line");
  return keys;
}

StatusOr<ApiKeys::Table> ApiKeys::LoadTable(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  auto table = ParseTable(text);
  return table.ok() ? std::move(table) : Annotate(table.status(), Printable(path, 200), ": ");
}

ApiKeys ApiKeys::Of(std::string path, Table table) {
  ApiKeys keys;
  keys.shared_ = std::make_shared<Shared>();
  keys.shared_->path = std::move(path);
  MutexLock lock(&keys.shared_->mutex);
  keys.shared_->table = std::make_shared<const Table>(std::move(table));
  return keys;
}

StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(Table table, ParseTable(text));
  return Of("", std::move(table));
}

StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(Table table, LoadTable(path));
  return Of(path, std::move(table));
}

Status ApiKeys::Reload() {
  if (shared_ == nullptr || shared_->path.empty()) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(Table read, LoadTable(shared_->path));
  auto table = std::make_shared<const Table>(std::move(read));
  MutexLock lock(&shared_->mutex);
  shared_->table.swap(table);
  return OkStatus();
}

std::shared_ptr<const ApiKeys::Table> ApiKeys::table() const {
  static const auto& none = *new std::shared_ptr<const Table>(std::make_shared<Table>());
  if (shared_ == nullptr) return none;
  MutexLock lock(&shared_->mutex);
  return shared_->table;
}

size_t ApiKeys::size() const { return table()->size(); }

std::optional<ApiKeys::Owner> ApiKeys::Find(std::string_view key) const {
  const Digest digest = DigestOf("key ", key);
  const auto keys = table();
  const Key* found = nullptr;
  for (const Key& candidate : *keys) {
    if (CRYPTO_memcmp(candidate.digest.data(), digest.data(), digest.size()) == 0) {
      found = &candidate;
    }
  }
  return found == nullptr ? std::nullopt : std::optional(found->owner);
}

std::optional<ApiKeys::Owner> ApiKeys::FindByName(std::string_view name) const {
  for (const Key& key : *table()) {
    if (!name.empty() && key.owner.name == name) return key.owner;
  }
  return std::nullopt;
}

std::string KeyFileWarning(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return "";
  const bool is_read = (info.st_mode & (S_IROTH | S_IXOTH)) != 0;
  const bool is_written = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (!is_read && !is_written) return "";
  return StrCat("other users can ", is_written ? "change" : "read", " the keys in ",
                Printable(path, 200), "; run chmod 600 on that file");
}

}  // namespace weft::serve
