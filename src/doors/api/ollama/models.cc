// Ollama's routes about models: listing them, their capabilities, pulling one.
#include <openssl/evp.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "async/task.h"
#include "async/task_pool.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/ndjson.h"
#include "doors/api/ollama/request.h"
#include "doors/api/ollama/routes.h"
#include "doors/host/model_host.h"
#include "json/json_text.h"
#include "model/formats/model_facts.h"
#include "model/sampling/sampling_parameters.h"
#include "model/tokenizer/fill_in.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// The Ollama version whose API this implements; clients derive the available features from it.
constexpr char kSpokenVersion[] = "0.32.15";

// At a time; each holds a thread.
constexpr int kMaxPulls = 4;
// Time between two progress lines of a download.
constexpr int64_t kPullLineUs = 100'000;

// A model that stays loaded, Ollama expresses as one that expires in the far future.
constexpr int64_t kFarSeconds = int64_t{100} * 365 * 24 * 3600;

// Ollama's names always have a tag.
std::string WithTag(std::string_view name) {
  return StrCat(name, name.find(':') == name.npos ? ":latest" : "");
}

// "135M", "1.5B".
std::string ShortCount(int64_t n) {
  const auto tenths = [n](int64_t unit, char letter) {
    const int64_t in_tenths = (n + unit / 20) / (unit / 10);
    const bool is_round = in_tenths >= 1000 || in_tenths % 10 == 0;
    return is_round ? StrCat((in_tenths + 5) / 10, letter)
                    : StrCat(in_tenths / 10, '.', in_tenths % 10, letter);
  };
  if (n >= 1'000'000'000) return tenths(1'000'000'000, 'B');
  return n >= 1'000'000 ? tenths(1'000'000, 'M') : tenths(1000, 'K');
}

Json Details(const ModelFacts& facts) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", facts.architecture},
          {"families", Json::array({facts.architecture})},
          {"parameter_size", ShortCount(facts.n_parameters)},
          {"quantization_level", facts.quantization}};
}

Json ItemsJson(const MetaArray& array) {
  return std::visit(
      [](const auto& items) {
        Json list = Json::array();
        for (const auto& item : items) {
          if constexpr (std::is_same_v<std::decay_t<decltype(item)>, MetaArray>) {
            list.push_back(ItemsJson(item));
          } else {
            list.push_back(Json(item));
          }
        }
        return list;
      },
      array.items);
}

Json MetaJson(const MetaValue& value, bool with_arrays) {
  return std::visit(
      [&](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, MetaArray>) {
          return with_arrays ? ItemsJson(held) : Json();
        } else {
          return Json(held);
        }
      },
      value);
}

// The file's metadata. Vocabularies are long, so they are included only if `verbose`.
Json ModelInformation(const Model& model, const ModelFacts& facts, bool verbose) {
  Json info = Json::object();
  for (const auto& [key, value] : model.file().metadata()) {
    if (key == "tokenizer.chat_template") continue;  // reported in a separate field
    const bool is_short = !key.starts_with("tokenizer.");
    info[std::string(key)] = MetaJson(value, verbose || is_short);
  }
  info["general.parameter_count"] = facts.n_parameters;
  return info;
}

std::string Digest(const std::string& text) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const bool made = EVP_Digest(text.data(), text.size(), bytes, &size, EVP_sha256(), nullptr) == 1;
  WEFT_CHECK(made, "SHA-256 is always there");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex.push_back(kDigits[bytes[i] >> 4]);
    hex.push_back(kDigits[bytes[i] & 15]);
  }
  return hex;
}

// Of the file's metadata and size: listing models should not read a whole large file.
std::string DigestOf(const Model& model, const ModelFacts& facts) {
  return Digest(StrCat(CompactJson(ModelInformation(model, facts, /*verbose=*/false)),
                       model.file().file_bytes()));
}

// Lists the one model under each of its names: clients look for the name they use.
Json ModelList(Host& host, const Json& rest) {
  std::vector<std::string> names = {host.model_id()};
  for (const std::string& name : host.defaults().further_names) names.push_back(name);
  Json list = Json::array();
  for (const std::string& name : names) {
    Json entry = {{"name", WithTag(name)}, {"model", WithTag(name)}};
    entry.update(rest);
    list.push_back(std::move(entry));
  }
  return {{"models", std::move(list)}};
}

Json Capabilities(Host& host) {
  const Model& model = host.model();
  if (!model.uses().text) return Json::array({"embedding"});
  Json list = Json::array({"completion"});
  if (model.uses().vectors) list.push_back("embedding");
  if (host.chat().template_has_tools()) list.push_back("tools");
  if (FindFillInTokens(model.file(), *model.tokenizer()).complete()) list.push_back("insert");
  if (host.chat().has_reasoning()) list.push_back("thinking");
  if (host.answerer().sees()) list.push_back("vision");
  return list;
}

Json Tags(Host& host) {
  const Model& model = host.model();
  const ModelFacts facts = FactsOf(model.file());
  Json details = Details(facts);
  details["context_length"] = facts.context_tokens;
  details["embedding_length"] = facts.embedding_length;
  return ModelList(host, {{"modified_at", UtcTime(host.created_s() * 1'000'000)},
                          {"size", model.file().file_bytes()},
                          {"digest", DigestOf(model, facts)},
                          {"details", std::move(details)},
                          {"capabilities", Capabilities(host)}});
}

Json Running(Host& host) {
  const Model& model = host.model();
  const ModelFacts facts = FactsOf(model.file());
  return ModelList(host, {{"size", model.weight_bytes()},
                          {"digest", DigestOf(model, facts)},
                          {"details", Details(facts)},
                          {"expires_at", UtcTime((host.created_s() + kFarSeconds) * 1'000'000)},
                          {"size_vram", 0},
                          {"context_length", model.context_tokens()}});
}

// --- several models --------------------------------------------------------------------

// Uses only facts that are also known while the model is not loaded.
std::string DigestOf(const FleetModel& model) {
  return Digest(StrCat(model.file_name, " ", model.file_bytes, " ", model.facts.n_parameters));
}

// Under each of its names.
void AddEntries(const FleetModel& model, const Json& rest, Json* list) {
  for (const std::string& name : model.AllNames()) {
    Json entry = {{"name", WithTag(name)}, {"model", WithTag(name)}};
    entry.update(rest);
    list->push_back(std::move(entry));
  }
}

Json FleetTags(ModelFleet& fleet) {
  Json list = Json::array();
  for (const ModelFleet::Info& info : fleet.List()) {
    const FleetModel& model = *info.model;
    if (!model.problem.empty()) continue;
    Json details = Details(model.facts);
    details["context_length"] = model.facts.context_tokens;
    details["embedding_length"] = model.facts.embedding_length;
    AddEntries(model,
               {{"modified_at", UtcTime(model.file_time_s * 1'000'000)},
                {"size", model.file_bytes},
                {"digest", DigestOf(model)},
                {"details", std::move(details)}},
               &list);
  }
  return {{"models", std::move(list)}};
}

Json FleetRunning(ModelFleet& fleet) {
  Json list = Json::array();
  for (const ModelFleet::Info& info : fleet.List()) {
    if (info.state != ModelFleet::State::kLoaded) continue;
    const int64_t never_s = WallClockMicros() / 1'000'000 + kFarSeconds;
    const std::string name = WithTag(info.model->name);
    list.push_back({{"name", name},
                    {"model", name},
                    {"size", info.memory_bytes},
                    {"digest", DigestOf(*info.model)},
                    {"details", Details(info.model->facts)},
                    {"expires_at", UtcTime(info.expires_s.value_or(never_s) * 1'000'000)},
                    {"size_vram", 0},
                    {"context_length", info.model->facts.context_tokens}});
  }
  return {{"models", std::move(list)}};
}

Json Version(Host&) { return {{"version", kSpokenVersion}, {"weft", WEFT_VERSION}}; }

// --- /api/show -------------------------------------------------------------------------

// The defaults, in the form of a Modelfile.
std::string Parameters(Host& host) {
  std::string text;
  const auto add = [&text](std::string_view name, const auto& value) {
    std::string line(name);
    line.resize(31, ' ');
    StrAppend(&text, line, value, "\n");
  };
  add("num_ctx", host.model().context_tokens());
  for (const SamplingParameter& parameter : SamplingParameters()) {
    add(parameter.name, NumberText(parameter.In(host.defaults().sampling)));
  }
  text.pop_back();
  return text;
}

void HandleShow(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto refuse = [&](const Status& status) { SendError(responder, status, kOllamaErrors); };
  const auto body = ParseJson(request.body, {});
  if (!body.ok()) return refuse(body.status());
  ApiFields fields(*body);
  const auto name = ReadOllamaModel(host, &fields);
  if (!name.ok()) return refuse(name.status());
  const bool verbose = fields.Bool("verbose").value_or(false);
  std::vector<std::string> ignored;
  if (const Status status = fields.Finish(&ignored); !status.ok()) return refuse(status);
  const Model& model = host.model();
  const ModelFacts facts = FactsOf(model.file());
  SendJson(responder,
           {{"modelfile", StrCat("FROM ", ModelFileName(model), "\n")},
            {"parameters", Parameters(host)},
            {"template", host.chat().chat_template().source()},
            {"details", Details(facts)},
            {"model_info", ModelInformation(model, facts, verbose)},
            {"capabilities", Capabilities(host)},
            {"modified_at", UtcTime(host.created_s() * 1'000'000)}},
           ignored);
}

// --- /api/pull -------------------------------------------------------------------------

Json ProgressJson(const OllamaPullProgress& progress) {
  Json line = {{"status", progress.status}};
  if (!progress.digest.empty()) line["digest"] = progress.digest;
  if (progress.total_bytes > 0) {
    line["total"] = progress.total_bytes;
    line["completed"] = progress.completed_bytes;
  }
  return line;
}

struct PullWish {
  std::string name;
  bool stream = true;
  std::vector<std::string> ignored;
};

StatusOr<PullWish> ReadPull(const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const auto model = fields.String("model");
  PullWish wish{.name = model.value_or(fields.String("name").value_or(""))};
  wish.stream = fields.Bool("stream").value_or(true);
  fields.Refuse("insecure", "is not supported: models come over HTTPS", false);
  fields.CannotMatter({"name", "username", "password"});
  if (wish.name.empty()) fields.Fail("model", "must name a model, such as qwen3:0.6b");
  WEFT_RETURN_IF_ERROR(fields.Finish(&wish.ignored));
  return wish;
}

Status MayPull(const HttpRequest& request, const OllamaPull& pull) {
  if (!request.is_operators) {
    return absl::PermissionDeniedError(
        "models cannot be downloaded with one of several keys; the operator of the server can use "
        "'weft pull NAME'");
  }
  if (!pull) return Unimplemented("this server does not download models; use 'weft pull NAME'");
  return OkStatus();
}

// Streams progress lines, or gives one answer at the end.
Task<void> HandlePull(Host& host, const OllamaPull& pull, TaskPool& pullers,
                      const HttpRequest& request, HttpResponder& responder) {
  const auto wish = ReadPull(request);
  if (!wish.ok()) {
    SendError(responder, wish.status(), kOllamaErrors);
    co_return;
  }
  const bool is_served = host.phase() == Phase::kReady && IsServedModel(host, wish->name);
  NdjsonStream lines(responder, NoticeHeaders(wish->ignored));
  int64_t told_us = 0;
  std::string told_of;
  const auto tell = [&](const OllamaPullProgress& progress) {
    const bool is_end = progress.completed_bytes == progress.total_bytes;
    const int64_t now_us = NowMicros();
    if (!wish->stream) return;
    if (progress.status == told_of && !is_end && now_us - told_us < kPullLineUs) return;
    told_us = now_us;
    told_of = progress.status;
    lines.Line(ProgressJson(progress));
  };
  Status status;
  if (!is_served) {
    status = MayPull(request, pull);
    if (status.ok()) {
      const auto is_wanted = [&responder] { return !responder.gone(); };
      TaskPool::EntryInTurn turn = pullers.EnterInTurn(request.Account());
      const bool entered = co_await turn;
      status = entered ? pull(wish->name, tell, is_wanted)
                       : ResourceExhausted("too many models are being downloaded; try again later");
    }
  }
  if (!status.ok() && !lines.begun()) {
    SendError(responder, status, kOllamaErrors);
  } else if (!wish->stream) {
    SendJson(responder, {{"status", "success"}}, wish->ignored);
  } else {
    lines.Line(status.ok() ? Json{{"status", "success"}}
                           : ErrorBody(ToDetailedApiError(status), kOllamaErrors));
    lines.End();
  }
}

// --- other routes ----------------------------------------------------------------------

void RefuseTheRest(Router& router) {
  struct Refused {
    const char* method;
    const char* path;
    const char* why;
  };
  static constexpr Refused kRefused[] = {
      {"POST", "/api/create",
       "models cannot be created here: 'weft-quantize' makes a file smaller, and 'weft serve -m "
       "FILE --alias NAME' serves it under a name of your choice"},
      {"POST", "/api/copy",
       "models cannot be copied here: 'weft serve --alias NAME,OTHER' gives a model several names"},
      {"DELETE", "/api/delete",
       "models cannot be removed through the server, which may be using them: use 'weft rm NAME'"},
      {"POST", "/api/push",
       "models cannot be published from here; use the tools of the Hugging Face Hub"},
      {"POST", "/api/blobs/{digest}",
       "files cannot be uploaded: put them on the server's machine, and start it with 'weft serve "
       "-m FILE'"}};
  for (const Refused& refused : kRefused) {
    router.Add({.method = refused.method,
                .pattern = refused.path,
                .shape = kOllamaErrors,
                .handler =
                    [why = refused.why](const HttpRequest&, HttpResponder& responder) {
                      SendError(responder, Unimplemented(why), kOllamaErrors);
                    },
                .needs_model = false,
                .is_quick = true});
  }
  // Clients check with HEAD before they upload.
  router.Add({.method = "GET",
              .pattern = "/api/blobs/{digest}",
              .shape = kOllamaErrors,
              .handler =
                  [](const HttpRequest&, HttpResponder& responder) {
                    SendError(responder, NotFound("no files are stored here"), kOllamaErrors);
                  },
              .needs_model = false,
              .is_quick = true});
}

}  // namespace

void RegisterOllamaFleet(Router& router, ModelFleet& fleet) {
  const auto add = [&](const char* path, Json (*what)(ModelFleet&), bool is_public) {
    router.Add({.method = "GET",
                .pattern = path,
                .shape = kOllamaErrors,
                .handler = [&fleet, what](const HttpRequest&,
                                          HttpResponder& r) { SendJson(r, what(fleet)); },
                .needs_model = false,
                .is_public = is_public,
                .is_quick = true});
  };
  add("/api/tags", FleetTags, true);
  add("/api/ps", FleetRunning, false);
}

void RegisterOllamaModels(Router& router, Host& host, OllamaPull pull) {
  struct Look {
    const char* path;
    Json (*what)(Host&);
    bool needs_model;
    bool is_public;  // like /v1/models: what clients look at first
  };
  const Look looks[] = {{"/api/tags", Tags, true, true},
                        {"/api/version", Version, false, true},
                        {"/api/ps", Running, true, false}};
  for (const Look& look : looks) {
    router.Add({.method = "GET",
                .pattern = look.path,
                .shape = kOllamaErrors,
                .handler = [&host, what = look.what](const HttpRequest&,
                                                     HttpResponder& r) { SendJson(r, what(host)); },
                .needs_model = look.needs_model,
                .is_public = look.is_public,
                .is_quick = true});
  }
  router.Add("POST", "/api/show", kOllamaErrors,
             [&host](const HttpRequest& request, HttpResponder& responder) {
               HandleShow(host, request, responder);
             });
  const auto pullers = std::make_shared<TaskPool>(
      TaskPool::Options{.max_threads = kMaxPulls + 1, .max_posted = kMaxPulls + 1});
  router.Add({.method = "POST",
              .pattern = "/api/pull",
              .shape = kOllamaErrors,
              .task =
                  [&host, pull = std::move(pull), pullers](const HttpRequest& request,
                                                           HttpResponder& responder) {
                    return HandlePull(host, pull, *pullers, request, responder);
                  },
              .needs_model = false});
  for (const char* const path : {"/api/embed", "/api/embeddings"}) {
    router.AddTask("POST", path, kOllamaErrors,
                   [&host](const HttpRequest& request, HttpResponder& responder) {
                     return HandleOllamaEmbed(host, request, responder);
                   });
  }
  RefuseTheRest(router);
  // For builds without the page.
  router.Add({.method = "GET",
              .pattern = "/",
              .shape = kOllamaErrors,
              .handler =
                  [](const HttpRequest& request, HttpResponder& responder) {
                    if (AnsweredAsOllama(request, responder)) return;
                    SendError(responder, NotFound("there is nothing at /"), kOpenAiErrors);
                  },
              .needs_model = false,
              .is_public = true,
              .is_quick = true});
}

}  // namespace weft::serve
