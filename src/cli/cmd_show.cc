// weft show: a model in short: what it is, what it can, what it takes on this machine.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "chat/chat_format.h"
#include "cli/box_model.h"
#include "cli/command.h"
#include "cli/model_finder.h"
#include "cli/output.h"
#include "engine/memory_budget.h"
#include "hub/catalogue.h"
#include "hub/files.h"
#include "hub/local_models.h"
#include "model/model_spec.h"
#include "nlohmann/json.hpp"
#include "tokenizer/tokenizer.h"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShowFlags {
  std::string what;
  std::string models_folder;
  bool json = false;
};

// What a session keeps of its last `n_tokens` tokens, keys and values as f16.
int64_t SessionBytes(const ModelSpec& spec, int64_t n_tokens) {
  constexpr int64_t kKvBytes = 2;
  int64_t bytes = 0;
  for (const KvGroup& group : spec.kv_groups) {
    const int64_t kept = group.window > 0 ? std::min(group.window, n_tokens) : n_tokens;
    for (const int index : group.kv_layers) {
      const KvLayer& layer = spec.kv_layers[static_cast<size_t>(index)];
      bytes += kept * layer.n_heads * (layer.k_dim + layer.v_dim) * kKvBytes;
    }
  }
  for (const SlotState& slot : spec.slots) {
    bytes += slot.n_floats * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

struct Chat {
  bool has_template = false;
  std::string reply_format;
  bool tools = false;  // in the model's own form
  bool reasoning = false;
  std::string problem;  // empty: none
};

Chat ReadChat(const ModelFile& file) {
  Chat chat;
  const auto source = file.GetStringOr("tokenizer.chat_template", "");
  chat.has_template = source.ok() && !source->empty();
  const auto tokenizer = Tokenizer::Load(file);
  if (!tokenizer.ok()) {
    chat.problem = Message(tokenizer.status());
    return chat;
  }
  const auto format = ChatFormat::Create(chat.has_template ? std::string(*source) : "", *tokenizer);
  if (!format.ok()) {
    chat.problem = Message(format.status());
    return chat;
  }
  chat.reply_format = (*format)->reply_format();
  chat.tools = (*format)->template_has_tools();
  chat.reasoning = (*format)->has_reasoning();
  return chat;
}

// What somebody recommends for sampling, and who: Ollama's parameters, or the catalogue.
struct Recommended {
  std::string by;
  Json values = Json::object();
};

std::optional<Recommended> RecommendedFor(const hub::LocalModel& model) {
  if (!model.parameters.empty()) {
    Json values = Json::parse(model.parameters, nullptr, /*allow_exceptions=*/false);
    if (values.is_object()) return Recommended{"ollama", std::move(values)};
  }
  const hub::CatalogueEntry* entry = hub::FindInCatalogue(hub::Catalogue(), model.name);
  if (model.owner != hub::Owner::kWeft || entry == nullptr) return std::nullopt;
  Recommended result{.by = "catalogue"};
  const hub::RecommendedSampling& sampling = entry->sampling;
  if (sampling.temperature >= 0) result.values["temperature"] = sampling.temperature;
  if (sampling.top_p >= 0) result.values["top_p"] = sampling.top_p;
  if (sampling.top_k >= 0) result.values["top_k"] = sampling.top_k;
  if (sampling.min_p >= 0) result.values["min_p"] = sampling.min_p;
  if (sampling.repeat_penalty >= 0) result.values["repeat_penalty"] = sampling.repeat_penalty;
  return result;
}

void PrintField(std::string_view name, std::string_view value) {
  std::string line(name);
  line.resize(14, ' ');
  PrintLine(StrCat(line, value));
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

std::string ParametersText(int64_t n) {
  return n >= 1'000'000'000 ? StrCat(n / 100'000'000 / 10, ".", n / 100'000'000 % 10, " billion")
                            : StrCat((n + 500'000) / 1'000'000, " million");
}

struct Shown {
  std::string name;
  std::string where;
  std::shared_ptr<const ModelFile> file;
  hub::ModelFacts facts;
  ModelSpec spec;
  Chat chat;
  std::optional<Recommended> recommended;
  int64_t budget_bytes = 0;

  int64_t SessionsOf(int64_t n_tokens) const {
    return budget_bytes / std::max<int64_t>(1, SessionBytes(spec, n_tokens));
  }
};

// Lengths of conversations that the memory is told for: a short one, and the longest.
std::vector<int64_t> Lengths(const Shown& shown) {
  constexpr int64_t kShort = 2048;
  const int64_t most = shown.spec.context_tokens;
  if (most <= kShort) return {most};
  return {kShort, most};
}

void PrintText(const Shown& shown) {
  PrintField("name", Printable(shown.name, 200));
  if (!shown.facts.title.empty()) PrintField("title", Printable(shown.facts.title, 200));
  PrintField("file", StrCat(Printable(shown.file->path(), 400), " (",
                            Bytes(static_cast<int64_t>(shown.file->file_bytes())), ")"));
  if (!shown.where.empty()) PrintField("where", shown.where);
  PrintField("architecture", StrCat(Printable(shown.facts.architecture), ", ",
                                    ParametersText(shown.facts.n_parameters), " parameters, ",
                                    shown.facts.quantization));
  PrintField("context", StrCat(shown.spec.context_tokens, " tokens"));
  const Chat& chat = shown.chat;
  if (!chat.problem.empty()) {
    PrintField("template", StrCat("cannot be used: ", Printable(chat.problem, 300)));
  } else {
    PrintField("template", StrCat(chat.has_template ? "its own" : "none, ChatML is used",
                                  ", replies as ", chat.reply_format));
    PrintField("tools", chat.tools ? "in its own form" : "in the generic form");
    PrintField("reasoning", chat.reasoning ? "yes" : "no");
  }
  if (shown.recommended) {
    PrintField("sampling", StrCat(Printable(shown.recommended->values.dump(), 300),
                                  ", recommended by ", shown.recommended->by));
  }
  for (const int64_t n : Lengths(shown)) {
    PrintField("memory", StrCat("a session of ", n, " tokens ", Bytes(SessionBytes(shown.spec, n)),
                                ", ", shown.SessionsOf(n), " of them on this machine now"));
  }
}

Json ToJson(const Shown& shown) {
  Json json = {{"name", shown.name},
               {"title", shown.facts.title},
               {"path", shown.file->path()},
               {"bytes", shown.file->file_bytes()},
               {"where", shown.where},
               {"architecture", shown.facts.architecture},
               {"quantization", shown.facts.quantization},
               {"parameters", shown.facts.n_parameters},
               {"context_tokens", shown.spec.context_tokens}};
  Json chat = {{"own_template", shown.chat.has_template},
               {"reply_format", shown.chat.reply_format},
               {"tools", shown.chat.tools},
               {"reasoning", shown.chat.reasoning}};
  if (!shown.chat.problem.empty()) chat["error"] = shown.chat.problem;
  json["chat"] = std::move(chat);
  if (shown.recommended) {
    json["sampling"] = {{"by", shown.recommended->by}, {"values", shown.recommended->values}};
  }
  auto memory = Json::array();
  for (const int64_t n : Lengths(shown)) {
    memory.push_back({{"tokens", n},
                      {"bytes", SessionBytes(shown.spec, n)},
                      {"sessions_now", shown.SessionsOf(n)}});
  }
  json["memory"] = std::move(memory);
  return json;
}

StatusOr<Shown> Look(const ShowFlags& flags) {
  Shown shown;
  hub::LocalModel model;
  if (flags.what.empty()) {
    shown.name = kBoxModelName;
    WEFT_ASSIGN_OR_RETURN(shown.file, OpenBoxModel());
  } else {
    const ModelFinder finder(flags.models_folder);
    model.name = model.path = flags.what;
    if (hub::FileBytes(flags.what) < 0) {
      auto found = finder.source().FindLocal(flags.what);
      if (found.status().code() == StatusCode::kNotFound) {
        return NotFound(Message(found.status()), ": 'weft list' shows what is, 'weft pull ",
                        Printable(flags.what, 200), "' tries to get it");
      }
      WEFT_RETURN_IF_ERROR(found.status());
      model = *std::move(found);
      shown.where = hub::NameOf(model.owner);
    }
    shown.name = model.name;
    WEFT_ASSIGN_OR_RETURN(shown.file, ModelFile::Open(model.path));
  }
  shown.facts = hub::FactsOf(*shown.file);
  WEFT_ASSIGN_OR_RETURN(shown.spec, BuildModelSpec(*shown.file, {}));
  shown.chat = ReadChat(*shown.file);
  shown.recommended = RecommendedFor(model);
  shown.budget_bytes = DefaultMemoryBudget();
  return shown;
}

Status Show(const ShowFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Shown shown, Look(flags));
  if (flags.json) {
    PrintJsonLine(ToJson(shown));
  } else {
    PrintText(shown);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeShowCommand(CLI::App* app) {
  auto flags = std::make_shared<ShowFlags>();
  app->add_option("NAME", flags->what,
                  "A model's name, as 'weft list' has it, or its file; without it, the built-in "
                  "model");
  AddModelsFolderFlag(app, &flags->models_folder);
  app->add_flag("--json", flags->json, "One JSON object");
  app->footer(
      "\nSessions share the weights; what one takes for itself is told for keys and values kept "
      "as\n"
      "f16, and how many fit into half of the memory that is free now. 'weft inspect' shows\n"
      "everything that the file holds.");
  return [flags] { return Show(*flags); };
}

}  // namespace weft::cli
