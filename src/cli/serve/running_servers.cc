#include "cli/serve/running_servers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "model/hub/net/download.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntryBytes = size_t{64} << 10;
constexpr char kLockEnd[] = ".lock";

std::string FolderIn(const char* variable, const char* below) {
  const char* const value = std::getenv(variable);
  return value == nullptr || value[0] != '/' ? "" : StrCat(value, below);
}

// Whether nobody holds the lock. Tested by taking it; it is released at once.
bool IsFree(const std::string& path) {
  const FileDescriptor lock(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return lock.ok() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

int64_t NumberIn(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : int64_t{0};
}

std::string TextIn(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// The objects or texts of an array; others are left out.
std::vector<nlohmann::json> ItemsIn(const nlohmann::json& object, const char* key) {
  std::vector<nlohmann::json> items;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return items;
  for (const nlohmann::json& item : *it) {
    if (item.is_object() || item.is_string()) items.push_back(item);
  }
  return items;
}

RunningModel ModelIn(const nlohmann::json& object) {
  RunningModel model{.name = TextIn(object, "name"),
                     .memory_bytes = NumberIn(object, "memory_bytes"),
                     .agents = NumberIn(object, "agents"),
                     .ready_agents = NumberIn(object, "ready_agents")};
  for (const nlohmann::json& adapter : ItemsIn(object, "adapters")) {
    if (adapter.is_string()) model.adapters.push_back(adapter.get<std::string>());
  }
  return model;
}

std::optional<RunningServer> ReadEntry(const std::string& path) {
  const auto text = ReadFile(path, kMaxEntryBytes);
  if (!text.ok()) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  RunningServer server{.pid = NumberIn(json, "pid"),
                       .address = TextIn(json, "address"),
                       .model = TextIn(json, "model"),
                       .started_s = NumberIn(json, "started_s"),
                       .sessions = NumberIn(json, "sessions"),
                       .running = NumberIn(json, "running"),
                       .memory_bytes = NumberIn(json, "memory_bytes")};
  for (const nlohmann::json& model : ItemsIn(json, "models")) {
    if (model.is_object()) server.models.push_back(ModelIn(model));
  }
  return server;
}

}  // namespace

std::string RunningServersFolder() {
  std::string folder = FolderIn("XDG_RUNTIME_DIR", "/weft");
  if (folder.empty()) folder = FolderIn("XDG_STATE_HOME", "/weft/run");
  if (folder.empty()) folder = FolderIn("HOME", "/.local/state/weft/run");
  return folder;
}

StatusOr<std::unique_ptr<ServerEntry>> ServerEntry::Make(const std::string& folder,
                                                         const RunningServer& server) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), folder);
  // It shows what this user runs.
  fs::permissions(folder, fs::perms::owner_all, error);
  // Process ids are reused, and other machines may see this folder.
  const std::string stem = StrCat(folder, "/", server.pid, "-", WallClockMicros());
  const std::string making = stem + ".new";
  FileDescriptor lock(open(making.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  // Lock it before it gets the name under which it is found.
  if (!lock.ok() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0 ||
      rename(making.c_str(), (stem + kLockEnd).c_str()) != 0) {
    return ErrnoStatus(errno, making);
  }
  std::unique_ptr<ServerEntry> entry(new ServerEntry(stem, std::move(lock)));
  WEFT_RETURN_IF_ERROR(entry->Write(server));
  return entry;
}

ServerEntry::~ServerEntry() {
  unlink((stem_ + ".json").c_str());
  unlink((stem_ + kLockEnd).c_str());
}

Status ServerEntry::Write(const RunningServer& server) {
  said_ = server;
  nlohmann::json json = {{"pid", server.pid},
                         {"address", server.address},
                         {"model", server.model},
                         {"started_s", server.started_s},
                         {"sessions", server.sessions},
                         {"running", server.running},
                         {"memory_bytes", server.memory_bytes}};
  for (const RunningModel& model : server.models) {
    json["models"].push_back({{"name", model.name},
                              {"memory_bytes", model.memory_bytes},
                              {"adapters", model.adapters},
                              {"agents", model.agents},
                              {"ready_agents", model.ready_agents}});
  }
  return hub::ReplaceFile(stem_ + ".new", stem_ + ".json",
                          json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void ServerEntry::Update(const RunningServer& server) {
  // If it cannot be written now, it is written at the next change.
  if (!(server == said_)) (void)Write(server);
}

std::vector<RunningServer> ListRunningServers(const std::string& folder) {
  std::vector<RunningServer> servers;
  std::error_code error;
  std::vector<std::string> stems;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (path.ends_with(kLockEnd)) stems.push_back(path.substr(0, path.size() - 5));
  }
  for (const std::string& stem : stems) {
    const std::string lock = stem + kLockEnd;
    if (IsFree(lock)) {
      for (const std::string& end :
           {std::string(".json"), std::string(".new"), std::string(kLockEnd)}) {
        unlink((stem + end).c_str());
      }
    } else if (auto server = ReadEntry(stem + ".json")) {
      servers.push_back(*std::move(server));
    }
  }
  std::sort(servers.begin(), servers.end(), [](const RunningServer& a, const RunningServer& b) {
    return std::pair(a.started_s, a.pid) < std::pair(b.started_s, b.pid);
  });
  return servers;
}

}  // namespace weft::cli
