#include "model/hub/files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 20000;

}  // namespace

std::vector<std::string> FilesBelow(const std::string& folder, int max_depth) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator() && files.size() < kMaxFiles;
       it.increment(error)) {
    std::error_code ignored;
    if (it.depth() >= max_depth) it.disable_recursion_pending();
    if (!it->is_regular_file(ignored)) continue;
    files.push_back(it->path().lexically_relative(folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> FoldersIn(const std::string& folder, bool with_links) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::directory_iterator() && names.size() < kMaxFiles;
       it.increment(error)) {
    std::error_code ignored;
    if (!with_links && it->is_symlink(ignored)) continue;
    if (it->is_directory(ignored)) names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

int64_t FileBytes(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string RealPath(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real.string();
}

}  // namespace weft::hub
