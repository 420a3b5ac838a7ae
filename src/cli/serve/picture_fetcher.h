// Fetches the pictures of requests from addresses of the open internet (--image-urls).
#ifndef WEFT_CLI_SERVE_PICTURE_FETCHER_H_
#define WEFT_CLI_SERVE_PICTURE_FETCHER_H_

#include <string>

#include "base/status.h"
#include "doors/host/picture_fetcher.h"

namespace weft::cli {

// The bytes behind an http or https URL: at most 32 MB, within 15 seconds, and only from public
// addresses, wherever a name or a redirect leads. Blocks; any thread.
StatusOr<std::string> FetchPicture(const serve::PictureWish& wish);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_PICTURE_FETCHER_H_
