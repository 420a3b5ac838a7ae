// A directory of saved sessions, owned by one process at a time.
//
//   DIR/lock                      held while the directory is open
//   DIR/@DOMAIN/NAME.session      one file per session; DOMAIN and NAME are encoded so that
//                                 different names give different files, even on file systems
//                                 that fold case, and none leads outside
//
// DIR and @DOMAIN may be links to directories elsewhere; see OpenOwnDirectory.
//
// Save replaces a file atomically and durably: whatever happens, either the previous version or the
// new one is there, complete. Directories have mode 0700, files 0600.
//
// Messages of all methods except Open may be shown to clients of a server: they name files as
// above, without DIR.
//
// Threads: one at a time.
#ifndef WEFT_ENGINE_STATE_STATE_DIRECTORY_H_
#define WEFT_ENGINE_STATE_STATE_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_io.h"
#include "base/status.h"
#include "engine/state/session_file.h"

namespace weft {

struct SavedSession {
  std::string domain;
  std::string name;
  int64_t file_bytes = 0;
  // Why the head cannot be used; the following fields are then zero. The state itself is verified
  // when it is read, not here.
  Status health;
  int64_t n_tokens = 0;
  int64_t state_tokens = 0;
  int64_t created_us = 0;
  int64_t updated_us = 0;
};

class StateDirectory {
 public:
  // Creates the directory if it is missing, takes its lock and removes what an interrupted Save
  // left. FAILED_PRECONDITION if another process (or object) holds the lock.
  static StatusOr<std::unique_ptr<StateDirectory>> Open(const std::string& path);

  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  // Writes the session under head.domain and head.name. OK means that it is on disk and survives a
  // crash. After an error (a full disk is RESOURCE_EXHAUSTED) the previous version, if any, is
  // unchanged. Names have 1 to 128 bytes, domains 0 to 128.
  Status Save(const SessionHead& head, const StateSource& source);

  // NOT_FOUND only if there is certainly no such session: UNAVAILABLE if the process has too many
  // open files to tell, for example. Otherwise as SessionReader::Open, and
  // FAILED_PRECONDITION for a file that holds a different session than its name says.
  StatusOr<std::unique_ptr<SessionReader>> Load(std::string_view domain,
                                                std::string_view name) const;
  // Bytes of the session's file; 0 if there is none.
  int64_t FileBytes(std::string_view domain, std::string_view name) const;

  // NOT_FOUND if there is no such session.
  Status Remove(std::string_view domain, std::string_view name);

  // The sessions of one domain, sorted; damaged ones are marked, other files are left out.
  StatusOr<std::vector<SavedSession>> List(std::string_view domain) const;
  // The sessions of all domains. Directories that look like domains but cannot be listed are left
  // out and added to `strangers`.
  StatusOr<std::vector<SavedSession>> ListAll(std::vector<std::string>* strangers = nullptr) const;

  const std::string& path() const { return path_; }
  // Unfinished files removed by Open.
  int64_t leftovers_removed() const { return leftovers_removed_; }

 private:
  struct Place {
    std::string directory;  // "@domain"
    std::string file;       // "name.session"
    std::string path;       // both, for messages
  };

  StateDirectory(std::string path, FileDescriptor dir, FileDescriptor lock)
      : path_(std::move(path)), dir_(std::move(dir)), lock_(std::move(lock)) {}
  StatusOr<Place> PlaceOf(std::string_view domain, std::string_view name) const;
  StatusOr<FileDescriptor> OpenDomain(const std::string& directory) const;
  StatusOr<std::unique_ptr<SessionReader>> LoadFrom(int domain_fd, const Place& place,
                                                    std::string_view domain,
                                                    std::string_view name) const;
  StatusOr<FileDescriptor> CreateDomain(const std::string& directory) const;
  Status RemoveLeftovers();
  SavedSession Describe(int domain_fd, const Place& place, std::string_view domain,
                        std::string_view name) const;

  const std::string path_;
  const FileDescriptor dir_;
  const FileDescriptor lock_;
  int64_t leftovers_removed_ = 0;
};

// Encodes any bytes as a unique file name of [a-z0-9_-%=], at most 206 characters for 128 bytes,
// and back (nullopt: not such a file name).
std::string SafeFileName(std::string_view name);
std::optional<std::string> NameOfSafeFile(std::string_view file_name);

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_STATE_DIRECTORY_H_
