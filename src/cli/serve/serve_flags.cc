#include "cli/serve/serve_flags.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "answer/chat/builtin_templates.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/flags/adapter_flags.h"
#include "cli/flags/bytes_flag.h"
#include "cli/flags/door_flags.h"
#include "cli/flags/duration_flag.h"
#include "cli/flags/ollama_flags.h"
#include "cli/flags/picture_flags.h"
#include "cli/serve/grpc_door.h"
#include "cli/serve/server_flags.h"
#include "doors/api/page/page.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

// Minimum time for saving named sessions, however little the turns had.
constexpr milliseconds kMinSaveGrace{10'000};
// Converts a checked value: "auto" and "0" are 0, else bytes, with K, M, G or T for powers of 1024.
int64_t BytesOf(const std::string& text) {
  int64_t bytes = 0;
  ParseBytes(text, &bytes);
  return bytes;
}

// `word`: another value that the flag takes.
void CheckBytes(CLI::App* app, const char* flag, std::string_view word = {}) {
  app->get_option(flag)->check([word](const std::string& text) {
    int64_t bytes = 0;
    if (text == "auto" || (!word.empty() && text == word) || ParseBytes(text, &bytes)) {
      return std::string();
    }
    return StrCat(Printable(text), " is not a number of bytes; write 800M, 16G or auto");
  });
}

// A script's variable that is not set would start a server without its store, or send conversations
// to another one.
void RefuseEmpty(CLI::App* app, const char* flag) {
  app->get_option(flag)->check([flag](const std::string& text) {
    return text.empty() ? StrCat("is empty; write a value, or leave out ", flag) : std::string();
  });
}

std::vector<std::string> FurtherNames(const serve::ServerOptions& options) {
  if (options.aliases.empty()) return {};
  return {options.aliases.begin() + 1, options.aliases.end()};
}

void AddPageFlags(CLI::App* app, ServeFlags* flags) {
  const auto problem_of = [](const std::string& url) {
    const auto origin = serve::OriginOf(url);
    return origin.ok() ? std::string() : std::string(Message(origin.status()));
  };
  app->add_option("--page-mcp", flags->page_mcp,
                  "An MCP server (streamable HTTP) whose tools the page offers, such as "
                  "http://127.0.0.1:3000/mcp: switched on in its settings, and asked before each "
                  "call. It must allow the page's origin (CORS); can be repeated")
      ->type_name("URL")
      ->allow_extra_args(false)  // the model's name may follow
      ->check(problem_of);
}

void AddFleetFlags(CLI::App* app, ServeFlags* flags) {
  app->add_option("--models", flags->models_file,
                  "A file with several models to serve: for each a table such as [haiku], with "
                  "its model, aliases, pinned, idle-unload, memory for its sessions, and flags "
                  "such as ctx = 8192. With several models, --memory limits all of them "
                  "together, weights included")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  CLI::Option* const folder = app->get_option("--models-dir");
  folder->description(
      StrCat(folder->get_description(), ". Without -m, all models of the folder are served"));
  AddDurationFlag(app, "--idle-unload", &flags->idle_unload_s,
                  "With several models: unload one that nobody has used for this long, such as "
                  "30m, and load it again with the next request (default: only to make room)");
}

}  // namespace

void AddServeFlags(CLI::App* app, ServeFlags* flags) {
  AddModelFlag(app, &flags->model, "NAME", &flags->models);
  AddFleetFlags(app, flags);
  AddBuiltInFlags(app, &flags->model);
  AddServerFlags(app, &flags->server);
  CLI::Option* const alias = app->get_option("--alias");
  alias->description(
      StrCat(alias->get_description(), ". With several models NAME=MODEL, such as haiku=smollm2"));
  app->get_option("--grpc-port")
      ->allow_extra_args(false)  // the model's name may follow
      ->check([](const std::string& text) {
        const Status status = ParseGrpcPort(text).status();
        return status.ok() ? std::string() : std::string(Message(status));
      });
  CheckBytes(app, "--memory");
  CheckBytes(app, "--state-disk", "0");
  RefuseEmpty(app, "--store");
  RefuseEmpty(app, "--store-endpoint");
  AddPageFlags(app, flags);
  AddFlagsOfEachModel(app, flags);
}

void AddFlagsOfEachModel(CLI::App* app, ServeFlags* flags) {
  AddContextFlag(app, &flags->model);
  AddPoolingFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  AddPictureFlags(app, &flags->model);
  AddAdapterFlags(
      app, &flags->model,
      ". A request names it by its model, as in MODEL:NAME, or by lora; with a SCALE it "
      "also acts where a request names none");
  // Defaults for requests that omit them.
  AddSamplingFlags(app, &flags->sampling);
  AddReplyFlags(app, &flags->reply);
  AddTemplateVariableFlags(app, &flags->reply);
}

// Saving may take as long as the turns before it, and at least some seconds.
std::chrono::milliseconds SaveGrace(const ServeFlags& flags) {
  return std::max<milliseconds>(std::chrono::seconds(flags.server.drain_seconds), kMinSaveGrace);
}

StatusOr<EngineOptions> ServeEngineOptions(const ServeFlags& flags) {
  const serve::ServerOptions& server = flags.server;
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  options.memory_bytes = BytesOf(server.memory);
  options.state_disk_bytes = server.state_disk == "0" ? -1 : BytesOf(server.state_disk);
  options.save_grace = SaveGrace(flags);
  options.on_notice = [](const std::string& text) { LogLine(text); };
  options.max_running = server.max_running;
  options.max_queued = server.max_queue;
  options.max_sessions = server.max_sessions;
  options.state_dir = server.state_dir;
  options.durable = server.durable;
  options.share_prefixes_across_domains = server.share_prefixes;
  options.step_ms = server.step_ms;
  options.checkpoint_tokens = server.checkpoint_tokens;
  options.checkpoint_share = server.checkpoint_percent / 100.0;
  return options;
}

serve::HttpServerOptions ServeHttpOptions(const ServeFlags& flags) {
  serve::HttpServerOptions options;
  options.host = flags.server.host;
  options.port = flags.server.port;
  options.second = OllamaListener(flags.server);
  SetLimits(flags.server, &options);
  return options;
}

serve::RequestDefaults ServeDefaults(const ServeFlags& flags, const SamplingAdvice& of_model) {
  return {.server = flags.server,
          .sampling = SamplingWith(flags.sampling, of_model),
          .advice = AdviceWith(flags.sampling, of_model),
          .end_loops = flags.sampling.end_loops,
          .thinking = ThinkingOf(flags.reply),
          .max_tokens = flags.server.n_predict,
          .further_names = FurtherNames(flags.server),
          .adapters = OfferedAdapters(flags.model)};
}

StatusOr<std::string> ServeTemplate(const ServeFlags& flags) {
  if (!flags.server.builtin_template.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::string_view source,
                          FindBuiltinTemplate(flags.server.builtin_template));
    return std::string(source);
  }
  if (flags.server.template_file.empty()) return std::string();
  WEFT_ASSIGN_OR_RETURN(std::string text, ReadFile(flags.server.template_file, kMaxTextBytes));
  if (text.empty()) return InvalidArgument(Printable(flags.server.template_file, 200), " is empty");
  return text;
}

}  // namespace weft::cli
