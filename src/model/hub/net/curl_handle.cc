#include "model/hub/net/curl_handle.h"

#include <cstdlib>

#include "base/check.h"

namespace weft::hub {

void InitializeCurl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  WEFT_CHECK(code == CURLE_OK, "libcurl could not be initialised");
}

void SetCertificates(CURL* curl) {
  for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}) {
    const char* const path = std::getenv(name);
    if (path == nullptr || *path == '\0') continue;
    curl_easy_setopt(curl, CURLOPT_CAINFO, path);
    return;
  }
}

void AddHeader(const std::string& line, CurlList* headers) {
  curl_slist* const longer = curl_slist_append(headers->get(), line.c_str());
  WEFT_CHECK(longer != nullptr, "out of memory for a header");
  (void)headers->release();
  headers->reset(longer);
}

}  // namespace weft::hub
