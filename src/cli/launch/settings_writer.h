// Writes the settings of an agent where it reads them by itself (weft launch --write).
//
// Files get the permissions that the process's mask leaves, since they may contain a key. Blocks;
// any thread.
#ifndef WEFT_CLI_LAUNCH_SETTINGS_WRITER_H_
#define WEFT_CLI_LAUNCH_SETTINGS_WRITER_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/launch/plan.h"

namespace weft::cli {

// Writes all files or, if one of them cannot be, none: a file that exists is merged with if it is
// JSON, and is otherwise an error. What a file was before is kept beside it once, in
// PATH.before-weft. Returns a line per file that says what was done.
StatusOr<std::vector<std::string>> WriteSettings(const std::vector<SettingsFile>& files);

}  // namespace weft::cli

#endif  // WEFT_CLI_LAUNCH_SETTINGS_WRITER_H_
