#include "cli/flags/model_flags.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/log.h"
#include "cli/flags/bytes_flag.h"
#include "cli/flags/default_model.h"
#include "cli/flags/model_finder.h"
#include "compute/backend.h"
#include "engine/kv_type.h"
#include "engine/loading/box_model.h"
#include "model/head_spec.h"
#include "model/hub/model_advice.h"
#include "model/hub/places.h"
#include "model/model_spec.h"

namespace weft::cli {
namespace {

// Marks a repository, whatever local files exist.
constexpr char kHubPrefix[] = "hf:";

void WarnBeyondTraining(const Model& model) {
  const int64_t trained = model.spec().context_tokens;
  if (model.context_tokens() <= trained) return;
  std::fprintf(stderr,
               "weft: --ctx %lld exceeds the %lld tokens that the model was trained for: text "
               "beyond that may make no sense; without --ctx the context ends there\n",
               static_cast<long long>(model.context_tokens()), static_cast<long long>(trained));
}

// What computes, where the flags left that open.
void TellComputing(const ModelFlags& flags, const Model& model) {
  if (!model.computing_choice().empty()) {
    std::fprintf(stderr, "weft: %s\n", Printable(model.computing_choice(), 1000).c_str());
  }
  const bool divides = flags.gpu_layers != ModelOptions::kAllLayers ||
                       flags.expert_layers != ModelOptions::kLayersThatFit;
  if (!divides) return;
  std::fprintf(stderr, "weft: %zu layers computed by %s\n", model.spec().layers.size(),
               std::string(model.backend_name()).c_str());
}

}  // namespace

namespace {

constexpr char kModelHelp[] =
    "Model: a GGUF file, a folder of Hugging Face's files, or a name accepted by 'weft pull' or "
    "shown by 'weft list'; downloaded if not here yet; box is a built-in toy (default: "
    "WEFT_MODEL, the model used last, or smollm2)";
constexpr char kModelsHelp[] = "; several: each request chooses one by its \"model\"";

CLI::Option* AddNames(CLI::App* app, const std::string& names, ModelFlags* flags,
                      std::vector<std::string>* all) {
  if (all == nullptr) return app->add_option(names, flags->path, kModelHelp);
  const auto set = [flags, all](const std::vector<std::string>& paths) {
    *all = paths;
    flags->path = paths.front();
  };
  return app
      ->add_option_function<std::vector<std::string>>(names, set, StrCat(kModelHelp, kModelsHelp))
      ->allow_extra_args(false);  // each -m takes one
}

}  // namespace

void AddModelFlag(CLI::App* app, ModelFlags* flags, const std::string& positional,
                  std::vector<std::string>* all) {
  const std::string names = positional.empty() ? "-m,--model" : StrCat("-m,--model,", positional);
  CLI::Option* const model =
      AddNames(app, names, flags, all)
          // More likely an unset variable than a request for the default model.
          ->check([](const std::string& path) {
            return path.empty() ? "the model's name is empty; omit -m for the default model" : "";
          });
  app->add_option("--spec", flags->spec_path,
                  "Spec file: describes the layers of a model whose architecture is not built in "
                  "(default: NAME.weft.json next to NAME.gguf, if it is there)")
      ->check(CLI::ExistingFile);
  app->add_option_function<std::string>(
         "--hf,--hf-repo",
         [flags](const std::string& repo) { flags->path = StrCat(kHubPrefix, repo); },
         "A model from the Hugging Face Hub: owner/repo[:QUANT]; also -hf")
      ->excludes(model);
  AddModelsFolderFlag(app, &flags->models_folder);
}

void AddBuiltInFlags(CLI::App* app, ModelFlags* flags) {
  app->add_flag(
      "--or-built-in", flags->or_built_in,
      "If the model is not here and cannot be downloaded, say why and use the built-in one");
  CLI::Option* const refuses =
      app->add_flag("--no-built-in", flags->no_built_in,
                    "Refuse to start without -m, instead of using the default model");
  app->parse_complete_callback([refuses, flags] {
    if (refuses->count() == 0 || !flags->path.empty()) return;
    throw CLI::ValidationError("-m",
                               "name a model, as in -m owner/repo or -m /srv/weft/model.gguf; "
                               "a service takes it from WEFT_OPTIONS in /etc/default/weft");
  });
}

void AddBackendFlag(CLI::App* app, std::string* backend, const std::string& meaning,
                    bool may_choose) {
  std::vector<std::string_view> names = BackendNames();
  if (may_choose) names.insert(names.begin(), ModelOptions::kAnyBackend);
  const auto refusal = [may_choose](const std::string& name) {
    if (may_choose && name == ModelOptions::kAnyBackend) return std::string();
    const auto found = FindBackend(name);
    return found.ok() ? std::string() : std::string(Message(found.status()));
  };
  app->add_option("--backend", *backend, meaning)
      ->check(refusal, StrCat("{", StrJoin(names, ","), "}"))
      ->capture_default_str();
}

namespace {

// "all", "auto" or a number.
void AddGpuLayersFlag(CLI::App* app, int* layers) {
  const auto set = [layers](const std::string& text) {
    int64_t n = 0;
    if (text == "all") {
      *layers = ModelOptions::kAllLayers;
    } else if (text == "auto") {
      *layers = ModelOptions::kLayersThatFit;
    } else if (ParseInt64(text, &n) && n >= 0 && n <= 1000000) {
      *layers = static_cast<int>(n);
    } else {
      throw CLI::ValidationError(
          "--gpu-layers",
          StrCat(Printable(text), " is neither all, auto nor a number, such as 20"));
    }
  };
  app->add_option_function<std::string>(
         "--gpu-layers,--n-gpu-layers", set,
         "How many of the model's last layers the device computes (all, auto, or a number); the "
         "processor computes the others. For a model larger than the device's memory: auto takes "
         "as many as fit, with room for a session, and of a mixture-of-experts model leaves "
         "experts to the processor before whole layers; also -ngl")
      ->type_name("all|auto|N");
}

void AddExpertFlags(CLI::App* app, int* layers) {
  CLI::Option* const all = app->add_flag_callback(
      "--cpu-moe", [layers] { *layers = ModelOptions::kAllLayers; },
      "Keep all experts of a mixture-of-experts model in the processor's memory, which "
      "computes them; the device computes all else; also -cmoe");
  app->add_option("--n-cpu-moe", *layers,
                  "As --cpu-moe, but the experts of the first N layers alone, for a device with "
                  "room for the others; also -ncmoe")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N")
      ->excludes(all);
}

}  // namespace

void AddComputeFlags(CLI::App* app, ModelFlags* flags) {
  AddBackendFlag(app, &flags->backend,
                 "Where to compute; auto takes an NVIDIA card that has room for the model and for "
                 "sessions, otherwise the processor",
                 /*may_choose=*/true);
  app->add_option("--device", flags->device,
                  "Which of the backend's devices, as 'weft devices' numbers them")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  AddGpuLayersFlag(app, &flags->gpu_layers);
  AddExpertFlags(app, &flags->expert_layers);
  app->add_flag("--strict-bits", flags->strict_bits,
                "Bitwise identical answers, whoever runs next to you, also on a backend that does "
                "not promise that by itself: mlx then computes every token alone, which is slower");
  app->add_option("--kv", flags->kv,
                  "Data type of the KV cache; also two of q8_0, q5_0 and q4_0, for keys and for "
                  "values, such as q8_0,q5_0. Keys below q8_0 ruin some models: measure yours with "
                  "'weft show --accuracy' first")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const auto types = ParseKvTypes(text);
            return types.ok() ? std::string() : std::string(Message(types.status()));
          },
          StrCat("{", StrJoin(KvTypeNames(), ","), "}")))
      ->capture_default_str();
  app->add_option("-t,--threads", flags->threads, "Compute threads (0: one per core)")
      ->check(CLI::Range(0, 1024));
  app->add_option("--packed-cache", flags->packed_cache,
                  "Where to keep a copy of the weights in the order that the kernels use, about as "
                  "large as the model's file (--backend cpu). Later starts map it, which is "
                  "faster, and programs that map it share its memory (default: packed in "
                  "WEFT_CACHE or ~/.cache/weft, for models of at least 256 MB)")
      ->type_name("DIR|none");
  AddBytesFlag(app, "--packed-cache-limit", &flags->packed_cache_bytes,
               "Max disk space of all copies in --packed-cache; those not used for longest are "
               "removed, and half of the disk's free space stays free (default: 32G)");
}

void AddContextFlag(CLI::App* app, ModelFlags* flags) {
  app->add_option("--ctx", flags->context,
                  "Longest context in tokens (0: the model's training context)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
}

void AddSpeculationFlags(CLI::App* app, ModelFlags* flags) {
  app->add_option("--speculate", flags->speculate,
                  "Speculative decoding, which changes the speed of answers and not their text: "
                  "off; lookup takes draft tokens by n-gram lookup; draft from the draft model; "
                  "mtp from the MTP head in the model's file; auto from whatever there is "
                  "(default: auto with --draft-model, otherwise lookup)")
      ->check(CLI::IsMember({"off", "lookup", "draft", "mtp", "auto"}));
  app->add_option("--draft-model,--model-draft", flags->draft_path,
                  "A smaller model with the same vocabulary that proposes draft tokens, named as "
                  "for -m; also -md. Its KV cache takes a part of the memory for sessions. Or the "
                  "assistant of a Gemma 4 model, which reads the model's KV cache")
      ->check([](const std::string& path) {
        return path.empty() ? "the draft model's name is empty" : "";
      });
  app->add_option("--speculate-max", flags->speculate_max, "Max draft tokens per step and answer")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

void AddPoolingFlag(CLI::App* app, ModelFlags* flags) {
  app->add_option("--pooling", flags->pooling,
                  "How the vectors of a text's tokens become one (default: as the model's file "
                  "says; a model whose file says nothing gives no vectors)")
      ->check(CLI::IsMember({"mean", "cls", "last", "none"}));
}

namespace {

StatusOr<FlaggedModel> OpenNamedModel(const ModelFlags& flags) {
  FlaggedModel model;
  hub::LocalModel local;
  ModelFinder finder(flags.models_folder);
  std::string name = flags.path;
  if (name.empty()) {
    WEFT_ASSIGN_OR_RETURN(name, DefaultModel(finder));
  }
  if (access(name.c_str(), F_OK) == 0) {
    // Usually it is a file, and there is no need to look elsewhere.
    WEFT_ASSIGN_OR_RETURN(model.file,
                          ModelFile::Open(name, {.progress = {}, .spec_path = flags.spec_path}));
  } else if (name == kBuiltInName) {
    WEFT_ASSIGN_OR_RETURN(model.file, OpenBoxModel());
  } else {
    WEFT_ASSIGN_OR_RETURN(const std::string path, finder.Find(name));
    WEFT_ASSIGN_OR_RETURN(model.file,
                          ModelFile::Open(path, {.progress = {}, .spec_path = flags.spec_path}));
    if (name.find("://") == name.npos) model.name = name;
    // Found now that it has been downloaded.
    if (auto found = finder.source().FindLocal(name); found.ok()) local = *std::move(found);
  }
  hub::ModelAdvice advice = hub::AdviceOf(local, *model.file);
  model.advice = std::move(advice.advice);
  model.advice_by = StrJoin(advice.by, ", ");
  return model;
}

}  // namespace

StatusOr<FlaggedModel> OpenFlaggedModel(const ModelFlags& flags) {
  auto model = OpenNamedModel(flags);
  if (model.ok() || !flags.or_built_in) return model;
  std::fprintf(stderr, "weft: using the built-in model, because %s is unavailable: %s\n",
               flags.path.empty() ? "a model" : Printable(flags.path, 200).c_str(),
               Printable(Message(model.status()), 1000).c_str());
  ModelFlags built_in;
  built_in.path = kBuiltInName;
  return OpenNamedModel(built_in);
}

StatusOr<std::shared_ptr<const ModelFile>> OpenFlaggedFile(const ModelFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(FlaggedModel model, OpenFlaggedModel(flags));
  return std::move(model.file);
}

StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(const ModelFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(auto file, OpenFlaggedFile(flags));
  return LoadFlaggedModel(flags, std::move(file));
}

namespace {

void ApplyPackedCache(const ModelFlags& flags, ModelOptions* options) {
  options->packed_cache_bytes = flags.packed_cache_bytes;
  if (flags.packed_cache == kNoPackedCopies) return;
  options->packed_cache_is_default = flags.packed_cache.empty();
  options->packed_cache =
      flags.packed_cache.empty() ? hub::ProcessPlaces().packed_copies : flags.packed_cache;
}

// The backend that was asked for, or its form that keeps the promise.
StatusOr<std::string> BackendNameOf(const ModelFlags& flags) {
  if (flags.backend == ModelOptions::kAnyBackend) {
    const auto cards = FindBackend("cuda");
    if (!cards.ok()) return flags.backend;
    const BackendCapabilities& has = (*cards)->capabilities();
    const bool lacks_heads = flags.speculate == "mtp" && !has.prediction_heads;
    WEFT_ASSIGN_OR_RETURN(const KvPair kv, ParseKvTypes(flags.kv));
    const KvTypes types(KvInfo(kv.keys).dtype, KvInfo(kv.values).dtype);
    const bool lacks_types = std::ranges::count(has.kv_types, types) == 0;
    return lacks_heads || lacks_types ? "cpu" : flags.backend;
  }
  WEFT_ASSIGN_OR_RETURN(const Backend* const backend, FindBackend(flags.backend));
  if (!flags.strict_bits || backend->capabilities().same_bits) return flags.backend;
  const auto strict = FindBackend(StrCat(flags.backend, "-strict"));
  if (strict.ok()) return std::string((*strict)->name());
  return InvalidArgument("--strict-bits: the ", flags.backend,
                         " backend cannot promise the same bits");
}

}  // namespace

StatusOr<std::shared_ptr<const Model>> LoadFlaggedModel(
    const ModelFlags& flags, std::shared_ptr<const ModelFile> file,
    const std::function<void(double fraction)>& told) {
  ModelOptions options;
  WEFT_ASSIGN_OR_RETURN(options.backend, BackendNameOf(flags));
  options.device = flags.device;
  options.device_layers = flags.gpu_layers;
  options.expert_layers = flags.expert_layers;
  options.n_threads = flags.threads;
  options.context_tokens = flags.context;
  options.pooling = flags.pooling;
  ApplyPackedCache(flags, &options);
  for (const AdapterFlag& adapter : flags.adapters) {
    options.adapters.push_back({adapter.name, adapter.path});
  }
  if (const std::string note = file->TranslationNote(); !note.empty()) {
    std::fprintf(stderr, "weft: %s\n", Printable(note, 1000).c_str());
  }
  const bool terminal = isatty(STDERR_FILENO) == 1;
  options.progress = [&told, terminal](double fraction) {
    if (terminal) ShowStatusLine(StrCat("loading ", std::lround(fraction * 100), " %"));
    if (told) told(fraction);
  };
  auto model = Model::FromFile(std::move(file), options);
  if (terminal) {
    ShowStatusLine("");
    (void)FlushLog(std::chrono::seconds(1));
  }
  if (model.ok()) TellComputing(flags, **model);
  if (model.ok()) WarnBeyondTraining(**model);
  return model;
}

namespace {

// The model's MTP head. Null if the model has none or the backend computes none, unless
// --speculate=mtp demands it.
StatusOr<std::shared_ptr<const Model>> LoadFlaggedHead(const ModelFlags& flags,
                                                       const Model& model) {
  const bool must = flags.speculate == "mtp";
  if (!must && flags.speculate != "auto") return std::shared_ptr<const Model>();
  ModelOptions options;
  options.n_threads = flags.threads;
  auto head = Model::LoadHead(model, options);
  const bool is_none = head.status().code() == StatusCode::kNotFound ||
                       head.status().code() == StatusCode::kUnimplemented;
  if (!must && is_none) return std::shared_ptr<const Model>();
  WEFT_RETURN_IF_ERROR(Annotate(head.status(), "--speculate ", flags.speculate, ": "));
  return head;
}

}  // namespace

StatusOr<std::shared_ptr<const Model>> LoadFlaggedDraft(const ModelFlags& flags,
                                                        const Model& model) {
  if (flags.draft_path.empty()) return LoadFlaggedHead(flags, model);
  ModelFlags draft_flags;
  draft_flags.path = flags.draft_path;
  draft_flags.models_folder = flags.models_folder;
  ModelOptions options;
  options.backend = flags.backend;
  // A device without room for the model has none for its draft model.
  const bool chooses = flags.backend == ModelOptions::kAnyBackend;
  const bool with_processor = chooses && model.backend_name() == "cpu";
  if (with_processor) options.backend = "cpu";
  options.device = with_processor ? 0 : flags.device;
  // If the model takes as many layers as fit, the draft model takes the remaining memory.
  if (flags.gpu_layers == ModelOptions::kLayersThatFit) options.device_layers = flags.gpu_layers;
  options.n_threads = flags.threads;
  ApplyPackedCache(flags, &options);
  auto file = OpenFlaggedFile(draft_flags);
  WEFT_RETURN_IF_ERROR(Annotate(file.status(), "the draft model: "));
  auto draft = IsHeadFile(**file) ? Model::LoadHead(model, *std::move(file), options)
                                  : Model::FromFile(*std::move(file), options);
  WEFT_RETURN_IF_ERROR(Annotate(draft.status(), "the draft model: "));
  if (!(*draft)->computing_choice().empty()) {
    std::fprintf(stderr, "weft: the draft model %s\n",
                 Printable((*draft)->computing_choice(), 1000).c_str());
  }
  return draft;
}

namespace {

StatusOr<Speculation> SpeculationOf(const ModelFlags& flags) {
  const bool has_draft = !flags.draft_path.empty();
  if (flags.speculate == "off") return Speculation::kOff;
  if (flags.speculate == "lookup") return Speculation::kLookup;
  if (flags.speculate == "draft" && !has_draft) {
    return InvalidArgument("--speculate draft needs --draft-model");
  }
  if (flags.speculate == "mtp" && has_draft) {
    return InvalidArgument("--speculate mtp drafts with the model's own head, not --draft-model");
  }
  if (flags.speculate == "draft" || flags.speculate == "mtp") return Speculation::kDraft;
  if (flags.speculate == "auto") return Speculation::kAuto;
  return has_draft ? Speculation::kAuto : Speculation::kLookup;
}

}  // namespace

StatusOr<EngineOptions> FlaggedEngineOptions(const ModelFlags& flags) {
  EngineOptions options;
  options.n_threads = flags.threads;
  const auto kv_types = ParseKvTypes(flags.kv);
  WEFT_RETURN_IF_ERROR(Annotate(kv_types.status(), "--kv: "));
  options.kv_type = kv_types->keys;
  options.kv_values = kv_types->values;
  WEFT_ASSIGN_OR_RETURN(options.speculation, SpeculationOf(flags));
  options.max_guesses = flags.speculate_max;
  return options;
}

StatusOr<std::string> TextOrStdin(const std::string& argument) {
  if (argument != "-") return argument;
  return ReadDescriptor(STDIN_FILENO, "stdin", kMaxTextBytes);
}

}  // namespace weft::cli
