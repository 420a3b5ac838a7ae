#include "cli/launch/settings_writer.h"

#include <filesystem>
#include <system_error>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "model/hub/net/download.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // the user's order stays

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr char kKept[] = ".before-weft";
constexpr char kAside[] = ".weft-new";

struct Change {
  std::string path;
  std::string before;
  std::string after;
  bool exists = false;
};

StatusOr<Change> PlanChange(const SettingsFile& file) {
  Change change{.path = file.path, .after = file.content};
  std::error_code error;
  change.exists = fs::exists(file.path, error);
  if (!change.exists && !file.merges) return change;
  Json settings = Json::object();
  if (change.exists) {
    if (!file.merges) {
      return FailedPrecondition(
          Printable(file.path, 300),
          " exists already, and its format cannot be merged: add what --print "
          "shows yourself, or move it away");
    }
    WEFT_ASSIGN_OR_RETURN(change.before, ReadFile(file.path, kMaxBytes));
    settings = Json::parse(change.before, nullptr, /*allow_exceptions=*/false);
    if (!settings.is_object()) {
      return FailedPrecondition(Printable(file.path, 300),
                                " is not plain JSON: add what --print shows yourself");
    }
  }
  settings.merge_patch(Json::parse(file.content));
  change.after = StrCat(settings.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
  return change;
}

Status Apply(const Change& change) {
  WEFT_RETURN_IF_ERROR(hub::MakeFolders(fs::path(change.path).parent_path().string()));
  if (!change.exists) return hub::ReplaceFile(change.path + kAside, change.path, change.after);
  std::error_code error;
  const fs::perms permissions = fs::status(change.path, error).permissions();
  const std::string target = fs::canonical(change.path, error).string();  // a link stays one
  if (error) return ErrnoStatus(error.value(), Printable(change.path, 300));
  const std::string kept = change.path + kKept;
  if (!fs::exists(kept, error)) {
    WEFT_RETURN_IF_ERROR(hub::ReplaceFile(kept + kAside, kept, change.before));
  }
  WEFT_RETURN_IF_ERROR(hub::ReplaceFile(target + kAside, target, change.after));
  fs::permissions(target, permissions, error);
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<std::string>> WriteSettings(const std::vector<SettingsFile>& files) {
  std::vector<Change> changes;
  for (const SettingsFile& file : files) {
    WEFT_ASSIGN_OR_RETURN(Change change, PlanChange(file));
    changes.push_back(std::move(change));
  }
  std::vector<std::string> done;
  for (const Change& change : changes) {
    const std::string shown = Printable(change.path, 300);
    if (change.exists && change.before == change.after) {
      done.push_back(StrCat(shown, " says so already"));
      continue;
    }
    WEFT_RETURN_IF_ERROR(Apply(change));
    done.push_back(change.exists ? StrCat("changed ", shown, "; what it was is in ", shown, kKept)
                                 : StrCat("wrote ", shown));
  }
  return done;
}

}  // namespace weft::cli
