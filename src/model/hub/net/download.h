// Downloads one file: resumable, verified, and coordinated between processes that want it at once.
//
// The bytes are collected in a partial file, which stays after a failure so that the next attempt,
// in this process or another, can resume. The file gets its final name when it is complete and, if
// its checksum is known, verified: a file with a final name is always good. A lock file, locked in
// the same way as by the hub's own tools, lets one process download while others wait for it.
//
// No file of these is followed if it is a symbolic link: in a cache that several people write,
// it could be aimed at any other file of the one who downloads.
//
// Blocks; any thread, different files concurrently.
#ifndef WEFT_MODEL_HUB_NET_DOWNLOAD_H_
#define WEFT_MODEL_HUB_NET_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/files/file_descriptor.h"
#include "base/status.h"
#include "model/hub/names/digest.h"
#include "model/hub/net/http_client.h"

namespace weft::hub {

struct Progress {
  enum class Stage {
    kWaiting,   // another process is loading the same file
    kChecking,  // verifying an earlier attempt's partial file
    kLoading,
    kPackages,  // pip is downloading; it does not report its progress
    kUnpacking,
  };
  Stage stage = Stage::kLoading;
  std::string name;  // the file's name, for display
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
  std::string sha256;  // the whole file's, if known
};

// Hooks, replaced in tests. All may be called from the downloading thread.
struct LoadHooks {
  std::function<void(const Progress&)> progress;  // may be empty; called often
  // Free bytes for files in this folder.
  std::function<StatusOr<int64_t>(const std::string& folder)> free_bytes;
  std::function<void(int ms)> sleep;
  // Whether the download should stop; the partial file is kept. May be empty.
  std::function<bool()> is_cancelled;
  // What may be downloaded; may be null.
  std::shared_ptr<ByteBudget> budget;
  // Consecutive attempts without progress before an error is reported.
  int max_tries = 5;
  // Where pip may draw its own progress; -1: nowhere.
  int tool_output = -1;

  static LoadHooks Default();
};

struct WantedFile {
  std::string url;
  std::string token;      // sent only to the URL's own origin
  std::string name;       // for display
  std::string path;       // destination
  std::string gathering;  // partial file, on the same file system as `path`
  std::string lock;       // lock file
  int64_t n_bytes = -1;   // -1: as many as the server says
  Checksum checksum;
  // The path says nothing about the checksum, so that a file which is there has to be verified.
  bool verify_kept = false;
};

// Makes the error for an unsuccessful answer; see RefusalOf.
using RefusalFn = std::function<Status(const HttpAnswer& answer)>;

// Does nothing if `path` exists; with `verify_kept` it fails if that is another file than wanted.
// If nothing but the URL is known about the file, `check` validates
// the complete partial file before it gets its name; it may be empty.
Status LoadFile(const HttpClient& http, const LoadHooks& hooks, const WantedFile& wanted,
                const RefusalFn& refusal,
                const std::function<Status(const std::string& path)>& check);

// Whether the file at `path`, which is there, has the wanted SHA-256; always with `verify_kept`
// false or without one. Reads a file once; see kept_digest.h.
Status VerifyKept(const LoadHooks& hooks, const WantedFile& wanted);

// Locks the file `path`, creating it if necessary, while the descriptor lives. Waits for others;
// calls `waiting`, which may be empty, every 200 ms meanwhile.
StatusOr<FileDescriptor> LockFile(const std::string& path, const LoadHooks& hooks,
                                  const std::function<void()>& waiting);

// Creates the folder and its parents.
Status MakeFolders(const std::string& folder);
// Creates the folders of `inner` below `folder`, which exists, and follows no link among them.
Status MakeFoldersWithin(const std::string& folder, const std::string& inner);
bool IsLink(const std::string& path);
// The error for a symbolic link where a file or folder should be.
Status NotFollowed(const std::string& path);
// Replaces a small file atomically, by way of the temporary file `aside`.
Status ReplaceFile(const std::string& aside, const std::string& path, std::string_view text);
// RESOURCE_EXHAUSTED if `n_bytes` more do not fit besides a small reserve.
Status CheckSpace(const LoadHooks& hooks, const std::string& folder, int64_t n_bytes,
                  const std::string& name);
// The error for a failed write to `path`; for a full disk, with the remedy.
Status WriteError(int error_number, const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NET_DOWNLOAD_H_
