// The model files of a repository: a file's quantization by its name, which files are parts of one
// model, and the default choice. Pure functions; any thread.
#ifndef WEFT_MODEL_HUB_NAMES_QUANTIZATION_H_
#define WEFT_MODEL_HUB_NAMES_QUANTIZATION_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::hub {

// "Q4_K_M" of "Model-1B-Q4_K_M-00001-of-00002.gguf", "UD-Q4_K_XL" of "m-UD-Q4_K_XL.gguf"; in upper
// case. Empty if the name has none.
std::string QuantizationOf(std::string_view file);

// Whether the name is that of a model, and not of an image projector or other content of GGUF
// files.
bool IsModelFile(std::string_view file);

// Whether the name is that of a projector, with which a model sees pictures.
bool IsProjectorFile(std::string_view file);
// The projector among `files` for a model of the same repository: of those in its folder, otherwise
// in the topmost one, F16, else BF16, F32, Q8_0, else the first. -1 if there is none.
int ChooseProjector(std::span<const std::string> files, std::string_view model);

// A model among files: the positions of its parts, in order. A model that is not split has one
// part.
struct FileGroup {
  std::string name;          // path of the first part
  std::string quantization;  // empty: unknown
  std::vector<size_t> parts;
};

// The complete models among `files`, in the order of their first parts. Split models with missing
// parts are left out.
std::vector<FileGroup> GroupFiles(std::span<const std::string> files);

// The parts of the split model whose first part is `file`; none if it is not split, is another
// part, or claims more than 1,000.
std::vector<std::string> SplitParts(std::string_view file);

// The group matching `wanted`, a quantization or a file, ignoring case; if empty: Q4_K_M, else
// Q4_0, else the first. -1 if there is none.
int ChooseGroup(std::span<const FileGroup> groups, std::string_view wanted);

bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NAMES_QUANTIZATION_H_
