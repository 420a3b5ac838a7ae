#include "cli/serve/shared_store.h"

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "doors/stores/s3_options.h"
#include "doors/stores/s3_store.h"
#include "doors/stores/store_probe.h"
#include "model/hub/net/http_client.h"

namespace weft::cli {
namespace {

StatusOr<std::string> WorkerUrl(std::string_view said) {
  if (said.empty()) {
    return InvalidArgument(
        "--store needs --worker-url: the address by which clients reach this server, such as "
        "http://10.0.0.5:8080");
  }
  std::string_view url = said;
  if (url.ends_with('/')) url.remove_suffix(1);
  if (hub::IsBareOrigin(url)) return std::string(url);
  return InvalidArgument("--worker-url ", Printable(said, 200),
                         " is not an address such as http://10.0.0.5:8080");
}

}  // namespace

StatusOr<SharedStore> OpenSharedStore(const serve::ServerOptions& flags) {
  SharedStore shared;
  if (flags.store.empty()) return shared;
  if (flags.state_dir.empty()) {
    return InvalidArgument("--store needs --state-dir: a directory for what is computed here");
  }
  shared.options.lease = flags.store_lease;
  WEFT_ASSIGN_OR_RETURN(shared.options.worker_url, WorkerUrl(flags.worker_url));
  auto options = stores::ReadS3Options(flags.store, flags.store_endpoint);
  WEFT_RETURN_IF_ERROR(Annotate(options.status(), "--store: "));
  const auto store = std::make_shared<stores::S3Store>(*std::move(options));
  WEFT_RETURN_IF_ERROR(
      Annotate(stores::ProbeStore(*store), "--store ", Printable(store->Place(), 300), ": "));
  const auto lease = std::chrono::duration_cast<std::chrono::seconds>(shared.options.lease);
  shared.line = StrCat("shared store ", Printable(store->Place(), 300), ", for clients ",
                       shared.options.worker_url, ", lease ", lease.count(), " s");
  shared.options.objects = store;
  return shared;
}

}  // namespace weft::cli
