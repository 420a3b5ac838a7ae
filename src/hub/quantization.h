// The files of a model in a repository: which quantization a file's name tells, which files are
// parts of one model, and which model is taken when nobody said. Pure functions; any thread.
#ifndef WEFT_HUB_QUANTIZATION_H_
#define WEFT_HUB_QUANTIZATION_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::hub {

// "Q4_K_M" of "Model-1B-Q4_K_M-00001-of-00002.gguf", "UD-Q4_K_XL" of "m-UD-Q4_K_XL.gguf"; in
// capitals. Empty where the name tells none.
std::string QuantizationOf(std::string_view file);

// A model file by its name, and no projector of images or other thing that GGUF files hold.
bool IsModelFile(std::string_view file);

// A model among files: the positions of its parts, in order. One that is not split has one.
struct FileGroup {
  std::string name;          // the first part's path
  std::string quantization;  // empty: not told
  std::vector<size_t> parts;
};

// The whole models among `files`, in the order of their first parts. A split one of which a
// part is missing is left out.
std::vector<FileGroup> GroupFiles(std::span<const std::string> files);

// The parts of the split model of which `file` is the first; none where it is not split, or is
// another part, or claims more than 1,000.
std::vector<std::string> SplitParts(std::string_view file);

// The one that `wanted` names, a quantization or a file in any letter case; empty: Q4_K_M, else
// Q4_0, else the first. -1 where there is none.
int ChooseGroup(std::span<const FileGroup> groups, std::string_view wanted);

bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace weft::hub

#endif  // WEFT_HUB_QUANTIZATION_H_
