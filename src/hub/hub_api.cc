#include "hub/hub_api.h"

#include <utility>

#include "hub/refusals.h"
#include "nlohmann/json.hpp"

namespace weft::hub {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPageBytes = size_t{32} << 20;
constexpr int kMostPages = 100;

std::string Text(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t Size(const Json& object) {
  const auto it = object.find("size");
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : -1;
}

Status NotUnderstood(const Places& places) {
  return FailedPrecondition("the answer of ", Printable(HostOf(places.hub_endpoint), 200),
                            " is not that of a hub: check HF_ENDPOINT");
}

struct Page {
  Json json;
  std::string next;  // URL of the next page; empty: none
};

// The URL in `Link: <https://...>; rel="next"`.
std::string NextOf(const HttpHead& head) {
  const std::string_view link = head.Header("link");
  const size_t begin = link.find('<');
  const size_t end = link.find('>', begin);
  if (end == link.npos || link.find("rel=\"next\"", end) == link.npos) return "";
  return std::string(link.substr(begin + 1, end - begin - 1));
}

StatusOr<Page> FetchPage(const HttpClient& http, const Places& places, const HubName& name,
                         const std::string& url) {
  WEFT_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      http.FetchText({.url = url, .accept = "application/json", .token = places.hub_token},
                     kMostPageBytes));
  if (answer.head.status != 200) return RefusalOf(answer, HubWish(places, name));
  Page page{.json = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false)};
  page.next = NextOf(answer.head);
  return page;
}

// Skips entries that are not files or have an invalid path or checksum.
void AddFiles(const Json& list, std::vector<HubFile>* files) {
  for (const Json& entry : list) {
    if (!entry.is_object() || Text(entry, "type") != "file") continue;
    HubFile file{.path = Text(entry, "path"), .n_bytes = Size(entry)};
    file.checksum = {DigestKind::kGitBlob, Text(entry, "oid")};
    if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
      file.checksum = {DigestKind::kSha256, Text(*lfs, "oid")};
      file.n_bytes = Size(*lfs);
    }
    const size_t digits = file.checksum.kind == DigestKind::kSha256 ? 64 : 40;
    if (!IsSafePath(file.path) || file.n_bytes < 0 || !IsHex(file.checksum.hex, digits)) continue;
    files->push_back(std::move(file));
  }
}

}  // namespace

StatusOr<HubListing> ListHubFiles(const HttpClient& http, const Places& places,
                                  const HubName& name) {
  const std::string api = StrCat(places.hub_endpoint, "/api/models/", name.repo);
  HubListing listing;
  std::string revision = name.revision;
  // Slashes are part of a branch's name.
  std::string encoded = EncodePath(revision);
  for (size_t at = 0; (at = encoded.find('/', at)) != encoded.npos;) encoded.replace(at, 1, "%2F");
  WEFT_ASSIGN_OR_RETURN(const Page about,
                        FetchPage(http, places, name, StrCat(api, "/revision/", encoded)));
  if (!about.json.is_object()) return NotUnderstood(places);
  listing.commit = Text(about.json, "sha");
  if (!IsHex(listing.commit, 40)) return NotUnderstood(places);
  std::string url = StrCat(api, "/tree/", listing.commit, "?recursive=true");
  for (int i = 0; i < kMostPages && !url.empty(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const Page page, FetchPage(http, places, name, url));
    if (!page.json.is_array()) return NotUnderstood(places);
    AddFiles(page.json, &listing.files);
    // The token is sent only to the endpoint, not to wherever a page points.
    if (!page.next.empty() && OriginOf(page.next) != OriginOf(places.hub_endpoint)) {
      return NotUnderstood(places);
    }
    url = page.next;
  }
  return listing;
}

std::string HubFileUrl(const Places& places, const std::string& repo, const std::string& commit,
                       const std::string& path) {
  return StrCat(places.hub_endpoint, "/", repo, "/resolve/", commit, "/", EncodePath(path));
}

}  // namespace weft::hub
