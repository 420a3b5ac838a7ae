#include "model/hub/hub_api.h"

#include <utility>

#include "model/hub/refusals.h"
#include "nlohmann/json.hpp"

namespace weft::hub {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxPageBytes = size_t{4} << 20;
constexpr int kMaxPages = 100;
constexpr size_t kMaxEntries = 10'000;

Status NotUnderstood(const Places& places) {
  return FailedPrecondition("the answer of ", Printable(HostOf(places.hub_endpoint), 200),
                            " is not that of a hub: check HF_ENDPOINT");
}

// The URL in `Link: <https://...>; rel="next"`.
std::string NextOf(const HttpHead& head) {
  const std::string_view link = head.Header("link");
  const size_t begin = link.find('<');
  const size_t end = link.find('>', begin);
  if (end == link.npos || link.find("rel=\"next\"", end) == link.npos) return "";
  return std::string(link.substr(begin + 1, end - begin - 1));
}

// What a value of the list belongs to.
enum class Level { kOutside, kEntry, kLfs };

// Keeps only the needed values of a page: a tree of all values would take fifty times the page's
// memory. Serves both kinds of pages: an object with "sha", an array of files.
class PageReader : public nlohmann::json_sax<Json> {
 public:
  explicit PageReader(HubListing* listing, size_t* n_entries)
      : listing_(listing), n_entries_(n_entries) {}

  bool is_list() const { return is_list_; }
  bool has_too_many() const { return *n_entries_ > kMaxEntries; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool number_integer(int64_t value) override { return TakeNumber(value); }
  bool number_unsigned(uint64_t value) override {
    return TakeNumber(value <= INT64_MAX ? static_cast<int64_t>(value) : -1);
  }
  bool string(std::string& value) override;
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ <= kLfsDepth) key_ = value;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr int kAboutDepth = 1;
  static constexpr int kEntryDepth = 2;
  static constexpr int kLfsDepth = 3;

  Level level() const {
    if (is_lfs_ && depth_ == kLfsDepth) return Level::kLfs;
    return is_entry_ && depth_ == kEntryDepth ? Level::kEntry : Level::kOutside;
  }
  bool TakeNumber(int64_t value) {
    if (level() == Level::kEntry && key_ == "size") file_.n_bytes = value;
    if (level() == Level::kLfs && key_ == "size") lfs_.n_bytes = value;
    return true;
  }
  void AddFile();

  HubListing* const listing_;
  size_t* const n_entries_;  // on all pages
  int depth_ = 0;
  bool is_list_ = false;
  bool is_entry_ = false;  // inside of an entry of the list
  bool is_lfs_ = false;    // inside of its "lfs"
  bool has_lfs_ = false;
  std::string key_;
  std::string type_;
  HubFile file_;
  HubFile lfs_;
};

bool PageReader::string(std::string& value) {
  if (level() == Level::kLfs) {
    if (key_ == "oid") lfs_.checksum.hex = value;
  } else if (level() == Level::kEntry) {
    if (key_ == "type") type_ = value;
    if (key_ == "path") file_.path = value;
    if (key_ == "oid") file_.checksum.hex = value;
  } else if (!is_list_ && depth_ == kAboutDepth && key_ == "sha") {
    listing_->commit = value;
  }
  return true;
}

bool PageReader::start_object(size_t) {
  if (++depth_ == kEntryDepth && is_list_) {
    is_entry_ = true;
    has_lfs_ = false;
    type_.clear();
    file_ = {.n_bytes = -1, .checksum = {DigestKind::kGitBlob, ""}};
    lfs_ = {.n_bytes = -1, .checksum = {DigestKind::kSha256, ""}};
  } else if (depth_ == kLfsDepth && is_entry_ && key_ == "lfs") {
    is_lfs_ = has_lfs_ = true;
  }
  return true;
}

bool PageReader::end_object() {
  if (depth_ == kLfsDepth) is_lfs_ = false;
  if (depth_-- != kEntryDepth || !is_entry_) return true;
  is_entry_ = false;
  ++*n_entries_;
  if (type_ == "file") AddFile();
  return !has_too_many();
}

bool PageReader::start_array(size_t) {
  if (++depth_ == kAboutDepth) is_list_ = true;
  return true;
}

// Skips files with an invalid path or checksum.
void PageReader::AddFile() {
  if (has_lfs_) {
    file_.checksum = lfs_.checksum;
    file_.n_bytes = lfs_.n_bytes;
  }
  const size_t digits = file_.checksum.kind == DigestKind::kSha256 ? 64 : 40;
  if (!IsSafePath(file_.path) || file_.n_bytes < 0 || !IsHex(file_.checksum.hex, digits)) return;
  listing_->files.push_back(file_);
}

// Returns the URL of the next page; empty if there is none.
StatusOr<std::string> ReadPage(const HttpClient& http, const Places& places, const HubName& name,
                               const std::string& url, bool is_list, size_t* n_entries,
                               HubListing* listing) {
  WEFT_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      http.FetchText({.url = url, .accept = "application/json", .token = places.hub_token},
                     kMaxPageBytes));
  if (answer.head.status != 200) return RefusalOf(answer, HubWish(places, name));
  PageReader reader(listing, n_entries);
  const bool is_json = Json::sax_parse(answer.body, &reader);
  if (reader.has_too_many()) {
    return FailedPrecondition(Printable(name.repo, 200), " has more than ", kMaxEntries,
                              " files and folders, more than are listed: give the file's URL, ",
                              "with #sha256= and its checksum");
  }
  if (!is_json || reader.is_list() != is_list) return NotUnderstood(places);
  return NextOf(answer.head);
}

}  // namespace

StatusOr<HubListing> ListHubFiles(const HttpClient& http, const Places& places,
                                  const HubName& name) {
  const std::string api = StrCat(places.hub_endpoint, "/api/models/", name.repo);
  HubListing listing;
  // Slashes are part of a branch's name.
  std::string encoded = EncodePath(name.revision);
  for (size_t at = 0; (at = encoded.find('/', at)) != encoded.npos;) encoded.replace(at, 1, "%2F");
  size_t n_entries = 0;
  const auto read = [&](const std::string& url, bool is_list) {
    return ReadPage(http, places, name, url, is_list, &n_entries, &listing);
  };
  WEFT_RETURN_IF_ERROR(read(StrCat(api, "/revision/", encoded), false).status());
  if (!IsHex(listing.commit, 40)) return NotUnderstood(places);
  std::string url = StrCat(api, "/tree/", listing.commit, "?recursive=true");
  for (int i = 0; !url.empty(); ++i) {
    if (i == kMaxPages) return NotUnderstood(places);
    WEFT_ASSIGN_OR_RETURN(url, read(url, true));
    // The token is sent only to the endpoint, not to wherever a page points.
    if (!url.empty() && OriginOf(url) != OriginOf(places.hub_endpoint)) {
      return NotUnderstood(places);
    }
  }
  return listing;
}

std::string HubFileUrl(const Places& places, const std::string& repo, const std::string& commit,
                       const std::string& path) {
  return StrCat(places.hub_endpoint, "/", repo, "/resolve/", commit, "/", EncodePath(path));
}

}  // namespace weft::hub
