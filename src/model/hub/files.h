// Walks folders filled by other programs. Unreadable parts are silently skipped, since callers
// only list files and have no use for errors. Any thread.
#ifndef WEFT_MODEL_HUB_FILES_H_
#define WEFT_MODEL_HUB_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace weft::hub {

// Sorted relative paths of the files below `folder`, including symbolic links to files; links to
// folders are not followed. At most `max_depth` folders deep, and 20,000 files.
std::vector<std::string> FilesBelow(const std::string& folder, int max_depth);
// The sorted names of the folders in a folder; with links to folders if `with_links`.
std::vector<std::string> FoldersIn(const std::string& folder, bool with_links);
// Follows links; -1 if there is no file.
int64_t FileBytes(const std::string& path);
bool IsFolder(const std::string& path);
// The path with links resolved; `path` itself if that fails.
std::string RealPath(const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_FILES_H_
