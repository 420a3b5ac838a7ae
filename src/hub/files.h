// Walking folders that other programs have filled. Errors of the walk leave out what could not
// be read: a list of what is there has no use for them. Any thread.
#ifndef WEFT_HUB_FILES_H_
#define WEFT_HUB_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace weft::hub {

// Paths of the files below `folder`, relative to it and sorted, symbolic links to files among
// them; links to folders are not followed. At most `max_depth` folders deep, and 20,000.
std::vector<std::string> FilesBelow(const std::string& folder, int max_depth);
// The names of the folders in a folder, sorted.
std::vector<std::string> FoldersIn(const std::string& folder);
// Follows links; -1 where there is no file.
int64_t FileBytes(const std::string& path);
bool IsFolder(const std::string& path);
// The path without links; `path` itself where that cannot be told.
std::string RealPath(const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_HUB_FILES_H_
