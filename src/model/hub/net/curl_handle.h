// What everything that speaks HTTP by libcurl shares: owners, the library's start, certificates.
#ifndef WEFT_MODEL_HUB_NET_CURL_HANDLE_H_
#define WEFT_MODEL_HUB_NET_CURL_HANDLE_H_

#include <curl/curl.h>

#include <memory>
#include <string>

namespace weft::hub {

struct FreeCurl {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
using Curl = std::unique_ptr<CURL, FreeCurl>;

struct FreeCurlList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlList = std::unique_ptr<curl_slist, FreeCurlList>;

// Before the first handle; any thread, any number of times.
void InitializeCurl();
// Trusts the authorities of SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE, else the system's.
void SetCertificates(CURL* curl);
void AddHeader(const std::string& line, CurlList* headers);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NET_CURL_HANDLE_H_
