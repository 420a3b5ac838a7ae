#include "cli/serve/serve_flags.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/strings.h"
#include "chat/builtin_templates.h"
#include "cli/flags/bytes_flag.h"
#include "cli/flags/duration_flag.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

// Minimum time for saving named sessions, however little the turns had.
constexpr milliseconds kLeastSaveGrace{10'000};
// "auto" is 0; otherwise bytes, with K, M, G or T for powers of 1024.
StatusOr<int64_t> ParseByteFlag(std::string_view flag, const std::string& text) {
  if (text == "auto") return 0;
  int64_t bytes = 0;
  if (!ParseBytes(text, &bytes)) {
    return InvalidArgument(flag, " ", Printable(text),
                           " is not a number of bytes; write 800M, 16G or auto");
  }
  return bytes;
}

std::vector<std::string> FurtherNames(const ServeFlags& flags) {
  if (flags.aliases.empty()) return {};
  return {flags.aliases.begin() + 1, flags.aliases.end()};
}

void AddAddressFlags(CLI::App* app, ServeFlags* flags) {
  app->add_option("--host", flags->host, "Address to listen on; 0.0.0.0 means all addresses")
      ->capture_default_str();
  app->add_option("--port", flags->port, "Port to listen on (0: any free port)")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  auto* const grpc_port = app->add_option("--grpc-port", flags->grpc_port,
                                          "Port of the gRPC service for gateways, opened when the "
                                          "model is ready (0: any free port; default: none)")
                              ->check(CLI::Range(0, 65535));
  app->add_option("--grpc-host", flags->grpc_host,
                  "Address to listen on for gRPC (default: as --host)")
      ->needs(grpc_port);
  app->add_flag("--grpc-open", flags->grpc_open,
                "Require no key over gRPC, for local gateways that send none; only allowed if gRPC "
                "listens on 127.0.0.1 or another address that only this machine can reach")
      ->needs(grpc_port);
}

void AddNameFlags(CLI::App* app, ServeFlags* flags) {
  app->add_option("--alias", flags->aliases,
                  "Name of the model for clients (default: its name for -m, or the one in the "
                  "file); may list further names, separated by commas")
      ->delimiter(',');
  app->add_option(
         "-n,--n-predict,--predict", flags->n_predict,
         "Tokens to generate if neither the request nor its API says (-1: until the model ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
}

void AddStateFlags(CLI::App* app, ServeFlags* flags) {
  app->add_option("--state-dir", flags->state_dir,
                  "Save named sessions in this directory, and restore them after a restart");
  app->add_flag("--durable", flags->durable,
                "End an answer of a named session only once the session's tokens are in "
                "--state-dir, so that a crash right after it loses nothing. Without it they follow "
                "within moments. Costs one synchronized write per answer");
  app->add_option("--slot-save-path", flags->slot_save_path,
                  "Let clients of llama-server save, restore and erase slots, with files in this "
                  "directory; a request with an id_slot then belongs to that slot's session")
      ->check(CLI::ExistingDirectory);
  app->add_option("--memory", flags->memory,
                  "Memory for the state of all sessions, such as 800M or 16G (auto: half of the "
                  "free memory, or most of a device's own)")
      ->capture_default_str();
  app->add_option(
         "--state-disk", flags->state_disk,
         "Disk space for computed state in --state-dir, such as 2G, which saves recurring sessions "
         "and prompts from being recomputed after a restart; the least useful state is removed "
         "first (auto: the smaller of 10 GB and a tenth of the free space; 0: none)")
      ->capture_default_str();
}

void AddLimitFlags(CLI::App* app, ServeFlags* flags) {
  app->add_option("--max-running", flags->max_running, "Maximum number of turns that run together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--max-queue", flags->max_queue,
                  "Maximum number of waiting turns; further ones get 429")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app->add_option("--max-sessions", flags->max_sessions, "Maximum number of named sessions")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  AddDurationFlag(app, "--session-ttl", &flags->session_ttl_s,
                  "Delete sessions, including their files, that have not been used for this long, "
                  "such as 12h or 7d (default: never)");
}

void AddReplyRules(CLI::App* app, ServeFlags* flags) {
  app->add_flag("--strict-model-name", flags->strict_model_name,
                "Refuse requests that name another model with 404; otherwise any name is accepted");
  app->add_option(
         "--tool-calls", flags->tool_calls,
         "Which replies count as tool calls: lenient also accepts JSON that names an offered tool, "
         "in a fence, in tags or bare; strict accepts only the model's own format")
      ->check(CLI::IsMember({"lenient", "strict"}))
      ->capture_default_str();
  app->add_flag("--enable-prompt-embeds", flags->prompt_embeds,
                "Take vectors in place of tokens from clients (prompt_embeds of completions and "
                "chats)");
  app->add_flag("--free-tool-calls", flags->free_tool_calls,
                "Do not constrain calls; by default, a call begun in the model's own format is "
                "forced to be a call of an offered tool, with arguments that fit its schema");
  app->add_option("--restore-reasoning", flags->restore_reasoning,
                  "Put back what the model wrote where clients drop its reasoning or rewrite its "
                  "calls, so that nothing is computed twice: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app->add_option("--on-repeated-call", flags->on_repeated_call,
                  "From the third time in a row that a call has the same result: note also tells "
                  "the model, behind the result; the client is always told")
      ->check(CLI::IsMember({"note", "off"}))
      ->capture_default_str();
  AddReplyFlags(app, &flags->reply);
  AddTemplateVariableFlags(app, &flags->reply);
  auto* const file = app->add_option("--template,--chat-template-file", flags->template_file,
                                     "A chat template (Jinja) to use instead of the model's own");
  app->add_option("--builtin,--chat-template", flags->builtin_template,
                  "A built-in chat template, such as chatml")
      ->excludes(file);
}

void AddPaceFlags(CLI::App* app, ServeFlags* flags) {
  app->add_option("--drain-seconds", flags->drain_seconds,
                  "Seconds for running turns to finish after SIGTERM; saving sessions may take as "
                  "long again, at least 10 s")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  app->add_option("--sse-ping-interval", flags->sse_ping_seconds,
                  "Seconds after which a silent stream sends a keep-alive, so that clients do not "
                  "give up during a long prompt (0: only at its beginning)")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  app->add_flag("--share-prefixes", flags->share_prefixes,
                "Share cached prefixes between API keys; response times may then reveal to one key "
                "what another has asked");
  app->add_option(
         "--step-ms", flags->step_ms,
         "How long work on a prompt may keep others waiting before it pauses, in milliseconds; "
         "decoding sessions wait no longer than this plus twice their own step")
      ->check(CLI::Range(1, 10000))
      ->type_name("MS")
      ->capture_default_str();
  app->add_option("--checkpoint-tokens", flags->checkpoint_tokens,
                  "Tokens between two checkpoints of models with recurrent state, which can only "
                  "resume at checkpoints (0: 256 to 1024, depending on their size)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 26))
      ->capture_default_str();
  app->add_option("--checkpoint-percent", flags->checkpoint_percent,
                  "Share of the sessions' memory for checkpoints (0: no checkpoints)")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
}

}  // namespace

void AddServeFlags(CLI::App* app, ServeFlags* flags) {
  AddModelFlag(app, &flags->model);
  AddBuiltInFlags(app, &flags->model);
  AddAddressFlags(app, flags);
  AddOllamaFlags(app, &flags->ollama);
  AddNameFlags(app, flags);
  AddStateFlags(app, flags);
  AddLimitFlags(app, flags);
  AddContextFlag(app, &flags->model);
  AddPoolingFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  // Defaults for requests that omit them.
  AddSamplingFlags(app, &flags->sampling);
  AddReplyRules(app, flags);
  AddPaceFlags(app, flags);
  AddDoorFlags(app, &flags->door);
}

// Saving may take as long as the turns before it, and at least some seconds.
std::chrono::milliseconds SaveGrace(const ServeFlags& flags) {
  return std::max<milliseconds>(std::chrono::seconds(flags.drain_seconds), kLeastSaveGrace);
}

StatusOr<EngineOptions> ServeEngineOptions(const ServeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  WEFT_ASSIGN_OR_RETURN(options.memory_bytes, ParseByteFlag("--memory", flags.memory));
  if (flags.state_disk == "0") {
    options.state_disk_bytes = -1;
  } else {
    WEFT_ASSIGN_OR_RETURN(options.state_disk_bytes,
                          ParseByteFlag("--state-disk", flags.state_disk));
  }
  options.save_grace = SaveGrace(flags);
  options.on_notice = [](const std::string& text) { LogLine(text); };
  options.max_running = flags.max_running;
  options.max_queued = flags.max_queue;
  options.max_sessions = flags.max_sessions;
  options.state_dir = flags.state_dir;
  options.durable = flags.durable;
  options.share_prefixes_across_domains = flags.share_prefixes;
  options.step_ms = flags.step_ms;
  options.checkpoint_tokens = flags.checkpoint_tokens;
  options.checkpoint_share = flags.checkpoint_percent / 100.0;
  return options;
}

serve::HttpServerOptions ServeHttpOptions(const ServeFlags& flags) {
  serve::HttpServerOptions options;
  options.host = flags.host;
  options.port = flags.port;
  options.second = OllamaListener(flags.ollama, flags.host, flags.port);
  SetLimits(flags.door, &options);
  return options;
}

serve::RequestDefaults ServeDefaults(const ServeFlags& flags, const SamplingAdvice& of_model) {
  serve::RequestDefaults defaults{.sampling = SamplingWith(flags.sampling, of_model),
                                  .advice = AdviceWith(flags.sampling, of_model),
                                  .end_loops = flags.sampling.end_loops,
                                  .strict_model_name = flags.strict_model_name,
                                  .lenient_tool_calls = flags.tool_calls == "lenient",
                                  .hold_calls = !flags.free_tool_calls,
                                  .restore_reasoning = flags.restore_reasoning == "on",
                                  .note_repeated_calls = flags.on_repeated_call == "note",
                                  .slots_are_sessions = !flags.slot_save_path.empty(),
                                  .ping_interval = std::chrono::seconds(flags.sse_ping_seconds),
                                  .max_tokens = flags.n_predict,
                                  .takes_prompt_embeds = flags.prompt_embeds,
                                  .further_names = FurtherNames(flags)};
  SetReplyDefaults(flags.reply, &defaults);
  return defaults;
}

StatusOr<std::string> ServeTemplate(const ServeFlags& flags) {
  if (!flags.builtin_template.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::string_view source,
                          FindBuiltinTemplate(flags.builtin_template));
    return std::string(source);
  }
  if (flags.template_file.empty()) return std::string();
  WEFT_ASSIGN_OR_RETURN(std::string text, ReadFile(flags.template_file, kMaxTextBytes));
  if (text.empty()) return InvalidArgument(Printable(flags.template_file, 200), " is empty");
  return text;
}

}  // namespace weft::cli
