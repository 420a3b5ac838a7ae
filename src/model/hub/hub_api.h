// Queries the hub about a repository: its files with sizes and checksums.
//
//   GET ENDPOINT/api/models/REPO/revision/REVISION            the commit
//   GET ENDPOINT/api/models/REPO/tree/COMMIT?recursive=true   the files, page by page
//   GET ENDPOINT/REPO/resolve/COMMIT/PATH                     a file, by way of redirects
//
// Works with any endpoint that has this API. Blocks; any thread.
#ifndef WEFT_MODEL_HUB_HUB_API_H_
#define WEFT_MODEL_HUB_HUB_API_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/hub/names/digest.h"
#include "model/hub/names/model_name.h"
#include "model/hub/net/http_client.h"
#include "model/hub/places.h"

namespace weft::hub {

struct HubFile {
  std::string path;  // in the repository; passes IsSafePath
  int64_t n_bytes = 0;
  Checksum checksum;
};

struct HubListing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

StatusOr<HubListing> ListHubFiles(const HttpClient& http, const Places& places,
                                  const HubName& name);
std::string HubFileUrl(const Places& places, const std::string& repo, const std::string& commit,
                       const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_HUB_API_H_
