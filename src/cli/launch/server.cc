#include "cli/launch/server.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>

#include "base/strings.h"
#include "doors/http/client.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kAgain{500};

// Of the first model that a list of models names.
StatusOr<ServerFacts> ReadFacts(const std::string& body) {
  const json list = json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto at = [](const json& value, const char* name) -> const json* {
    const auto found = value.is_object() ? value.find(name) : value.end();
    return found == value.end() ? nullptr : &*found;
  };
  const json* const data = at(list, "data");
  const json* const model =
      data != nullptr && data->is_array() && !data->empty() ? &data->front() : nullptr;
  const json* const id = model == nullptr ? nullptr : at(*model, "id");
  const json* const context = model == nullptr ? nullptr : at(*model, "max_model_len");
  if (id == nullptr || !id->is_string() || context == nullptr || !context->is_number_integer() ||
      context->get<int64_t>() <= 0) {
    return Internal("cannot understand the server's list of models; is it a weft server?");
  }
  return ServerFacts{.model = id->get<std::string>(), .context_tokens = context->get<int64_t>()};
}

// The list of models is everybody's; that of sessions takes a key where anything does.
Status CheckKey(const std::string& address, const std::string& key) {
  WEFT_ASSIGN_OR_RETURN(
      const serve::HttpAnswer answer,
      serve::CallHttp({.server = address, .path = "/v1/sessions", .api_key = key}));
  if (answer.status != 401 && answer.status != 403) return OkStatus();
  return FailedPrecondition(
      Printable(address, 200),
      key.empty() ? " wants an API key: give it with --api-key" : " does not know this API key");
}

// A server that cannot answer for another reason would keep us waiting forever.
bool IsLoading(const std::string& body) { return body.find("Loading model") != body.npos; }

}  // namespace

std::string ReachableAddress(std::string address) {
  for (const std::string_view end : {"/", "/v1"}) {
    if (address.ends_with(end)) address.resize(address.size() - end.size());
  }
  if (address.find("://") == address.npos) address.insert(0, "http://");
  for (const auto& [all, here] :
       {std::pair<std::string_view, std::string_view>{"http://0.0.0.0:", "http://127.0.0.1:"},
        {"http://[::]:", "http://[::1]:"}}) {
    if (address.starts_with(all)) address.replace(0, all.size(), here);
  }
  return address;
}

StatusOr<std::string> OnlyServer(const std::vector<RunningServer>& servers) {
  if (servers.empty()) {
    return FailedPrecondition(
        "no server is running; name a model with -m to start one, or a server with --server URL");
  }
  if (servers.size() == 1) return servers[0].address;
  std::string all;
  for (const RunningServer& server : servers) {
    StrAppend(&all, all.empty() ? "" : ", ", Printable(server.address, 80), " (",
              Printable(server.model, 60), ")");
  }
  return FailedPrecondition(servers.size(),
                            " servers are running; choose one with --server: ", all);
}

StatusOr<ServerFacts> AskServer(const std::string& address, const std::string& key) {
  bool told = false;
  while (true) {
    WEFT_ASSIGN_OR_RETURN(
        const serve::HttpAnswer answer,
        serve::CallHttp({.server = address, .path = "/v1/models", .api_key = key}));
    if (answer.status == 503 && IsLoading(answer.body)) {
      if (!told) std::fprintf(stderr, "waiting for %s to load its model\n", address.c_str());
      told = true;
      std::this_thread::sleep_for(kAgain);
      continue;
    }
    if (answer.status != 200) {
      return FailedPrecondition(Printable(address, 200), " answered ", answer.status,
                                " to /v1/models; is it a weft server?");
    }
    WEFT_RETURN_IF_ERROR(CheckKey(address, key));
    WEFT_ASSIGN_OR_RETURN(ServerFacts facts, ReadFacts(answer.body));
    facts.url = address;
    facts.key = key;
    return facts;
  }
}

}  // namespace weft::cli
