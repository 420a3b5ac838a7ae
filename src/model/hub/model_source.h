// Resolves a model's name to a file: found on this machine, or downloaded.
//
//   ModelSource source(ProcessPlaces(), LoadHooks::Default());
//   WEFT_ASSIGN_OR_RETURN(std::string path, source.Find("owner/repo:Q4_K_M"));
//
// Blocks; one thread at a time.
#ifndef WEFT_MODEL_HUB_MODEL_SOURCE_H_
#define WEFT_MODEL_HUB_MODEL_SOURCE_H_

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/hub/hub_api.h"
#include "model/hub/local_models.h"
#include "model/hub/names/catalogue.h"
#include "model/hub/names/model_name.h"
#include "model/hub/net/download.h"
#include "model/hub/net/http_client.h"
#include "model/hub/places.h"

namespace weft::hub {

class ModelSource {
 public:
  ModelSource(Places places, LoadHooks hooks, const HttpOptions& http = {},
              std::span<const CatalogueEntry> catalogue = Catalogue());

  // The model's file (its first part if it is split): the file itself if `what` is one, otherwise a
  // local model, otherwise a new download. Ambiguous and unknown names are errors that list the
  // candidates or the valid forms.
  StatusOr<std::string> Find(std::string_view what) const;

  // Asks the source and downloads whatever is not here yet.
  StatusOr<std::string> Pull(std::string_view what) const;

  // The local model meant by `what`. NOT_FOUND if there is none.
  StatusOr<LocalModel> FindLocal(std::string_view what) const;

  const Places& places() const { return places_; }

 private:
  StatusOr<ModelName> Parse(std::string_view what) const;
  StatusOr<std::string> PullNamed(const ModelName& name) const;
  StatusOr<std::string> PullFromHub(const HubName& name) const;
  StatusOr<std::string> PullFromOllama(const OllamaName& name) const;
  StatusOr<std::string> PullAddress(const ModelName& name) const;
  StatusOr<std::string> FindOfRevision(const HubName& name) const;
  StatusOr<std::string> FindPlain(const std::string& name) const;
  Status Offline(const std::string& what) const;

  const Places places_;
  const LoadHooks hooks_;
  const HttpClient http_;
  const std::span<const CatalogueEntry> catalogue_;
};

// Where a URL's file is stored below Weft's folder of files: "https-host-443/path". URLs that may
// mean different files have different paths; a query is shortened. Empty if it names no file.
std::string PathOfAddress(const std::string& url);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_MODEL_SOURCE_H_
