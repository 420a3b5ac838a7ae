// One file from an address to its place: resumed, checked, and shared by who wants it at once.
//
// The bytes gather in a file aside, which stays when something breaks and is gone on from by
// the next try, of this process or another. The file gets its name when it is whole and, where
// its checksum is known, right: what has a name is right. A lock file, locked as the hub's own
// tools lock theirs, lets one process load while others wait for the same file.
//
// Blocking; any thread, different files at once.
#ifndef WEFT_HUB_DOWNLOAD_H_
#define WEFT_HUB_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "hub/digest.h"
#include "hub/http_client.h"

namespace weft::hub {

struct Progress {
  enum class Stage {
    kWaiting,   // another process loads the same file
    kChecking,  // what an earlier try has left
    kLoading,
    kPackages,  // pip loads them; how far it is it does not tell
    kUnpacking,
  };
  Stage stage = Stage::kLoading;
  std::string name;  // of the file, as a person knows it
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
  std::string sha256;  // of the whole, where that is known
};

// What is different in tests. All may be called from the thread that loads.
struct LoadHooks {
  std::function<void(const Progress&)> progress;  // may be empty; called often
  // Bytes that a file in this folder can still take.
  std::function<StatusOr<int64_t>(const std::string& folder)> free_bytes;
  std::function<void(int ms)> sleep;
  // Whether nobody wants the file any more: what has arrived of it stays. May be empty.
  std::function<bool()> is_cancelled;
  // Tries in a row that bring nothing, before an error is told.
  int most_tries = 5;
  // Where pip may draw its own progress; -1: nowhere.
  int tool_output = -1;

  static LoadHooks Default();
};

struct WantedFile {
  std::string url;
  std::string token;      // for the address's own origin
  std::string name;       // as a person knows it
  std::string path;       // where it is to be
  std::string gathering;  // where its bytes gather: on the same file system as `path`
  std::string lock;       // the lock's file
  int64_t n_bytes = -1;   // -1: as many as the server says
  Checksum checksum;
};

// `refusal` makes the sentence of an answer that is an error; see HttpError.
using RefusalFn = std::function<Status(const HttpAnswer& answer)>;

// Does nothing where `path` is there. Where nothing is known of the file beside its address,
// `check` decides about the whole file aside before it gets its name; it may be empty.
Status LoadFile(const HttpClient& http, const LoadHooks& hooks, const WantedFile& wanted,
                const RefusalFn& refusal,
                const std::function<Status(const std::string& path)>& check);

// A lock on a file of its own, which is created where it is missing; held while it lives.
// Waits for others; `waiting` is called every 200 ms meanwhile and may be empty.
StatusOr<FileDescriptor> LockFile(const std::string& path, const LoadHooks& hooks,
                                  const std::function<void()>& waiting);

// Makes the folder and those above it.
Status MakeFolders(const std::string& folder);
// Puts a small file in the place of another, whole or not at all, by way of the file `aside`.
Status ReplaceFile(const std::string& aside, const std::string& path, std::string_view text);
// RESOURCE_EXHAUSTED where `n_bytes` more do not fit beside a small reserve.
Status CheckSpace(const LoadHooks& hooks, const std::string& folder, int64_t n_bytes,
                  const std::string& name);
// The error of a write to `path`; a full disk says what to do.
Status WriteError(int error_number, const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_HUB_DOWNLOAD_H_
