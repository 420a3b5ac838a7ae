#include "cli/serve/models_at_hand.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/strings.h"
#include "base/system.h"
#include "cli/flags/default_model.h"
#include "cli/flags/model_finder.h"
#include "doors/http/server.h"
#include "engine/loading/box_model.h"
#include "model/formats/model_facts.h"
#include "model/hub/local_models.h"
#include "model/hub/names/known_models.h"

namespace weft::cli {
namespace {

constexpr int64_t kToldTokens = 2048;
// Tokens of a conversation, by which `weft models` tells how many fit.
constexpr int64_t kKnownTokens = 8192;

// Quotes the text as one shell word.
std::string ShellWord(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/:@+=,").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

void Describe(const StatusOr<std::shared_ptr<const ModelFile>>& file, serve::LocalModelCard* card) {
  if (!file.ok()) {
    card->problem = Message(file.status());
    return;
  }
  ModelFacts facts = FactsOf(**file);
  card->title = std::move(facts.title);
  card->architecture = std::move(facts.architecture);
  card->quantization = std::move(facts.quantization);
  card->n_parameters = facts.n_parameters;
  const auto spec = BuildModelSpec(**file, {});
  if (!spec.ok()) {
    card->problem = Message(spec.status());
    return;
  }
  card->context_tokens = spec->context_tokens;
  card->session_tokens = std::min(kToldTokens, spec->context_tokens);
  card->session_bytes = SessionBytes(*spec, card->session_tokens);
}

}  // namespace

int64_t SessionBytes(const ModelSpec& spec, int64_t n_tokens) {
  constexpr int64_t kKvBytes = 2;
  int64_t bytes = 0;
  for (const KvGroup& group : spec.kv_groups) {
    const int64_t kept = group.window > 0 ? std::min(group.window, n_tokens) : n_tokens;
    for (const int index : group.kv_layers) {
      const KvLayer& layer = spec.kv_layers[static_cast<size_t>(index)];
      bytes += layer.n_values(kept) * kKvBytes;
    }
  }
  for (const SlotState& slot : spec.slots) {
    bytes += slot.n_floats * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

std::string AddressFlags(const std::string& host, int port) {
  std::string text;
  if (host != serve::HttpServerOptions().host) StrAppend(&text, " --host ", ShellWord(host));
  if (port != serve::HttpServerOptions().port && port != 0) StrAppend(&text, " --port ", port);
  return text;
}

std::vector<serve::LocalModelCard> ModelsAtHand(const std::string& models_folder,
                                                const std::string& served_path,
                                                const std::string& flags) {
  std::vector<serve::LocalModelCard> cards;
  const ModelFinder finder(models_folder);
  const bool serves_box = served_path == kBoxModelName;
  bool listed = serves_box;
  for (const hub::LocalModel& model : hub::ListLocalModels(finder.source().places())) {
    serve::LocalModelCard& card = cards.emplace_back();
    card.name = model.name;
    card.where = hub::NameOf(model.owner);
    card.n_bytes = model.n_bytes;
    card.command = StrCat("weft serve -m ", ShellWord(model.name), flags);
    std::error_code ignored;
    card.is_served = std::filesystem::equivalent(model.path, served_path, ignored);
    listed = listed || card.is_served;
    Describe(ModelFile::Open(model.path), &card);
  }
  // The served file is in none of the folders.
  if (!listed) {
    const auto file = ModelFile::Open(served_path);
    serve::LocalModelCard card;
    const std::filesystem::path path(served_path);
    card.name = path.filename().string();
    card.where = "file";
    card.command = StrCat("weft serve -m ", ShellWord(card.name), flags);
    card.is_served = true;
    if (file.ok()) card.n_bytes = static_cast<int64_t>((*file)->file_bytes());
    Describe(file, &card);
    cards.insert(cards.begin(), std::move(card));
  }
  serve::LocalModelCard box;
  box.name = "weft-box";
  box.where = "program";
  box.n_bytes = static_cast<int64_t>(BoxModelBytes().size());
  box.is_served = serves_box;
  box.command = StrCat("weft serve -m ", kBuiltInName, flags);
  Describe(OpenBoxModel(), &box);
  cards.push_back(std::move(box));
  return cards;
}

std::vector<serve::KnownModelCard> KnownModelsAtHand() {
  const int64_t free_bytes = FreeHostMemoryBytes();
  std::vector<serve::KnownModelCard> cards;
  for (const hub::KnownModel& model : hub::KnownModels()) {
    const int64_t n_tokens = std::min(kKnownTokens, model.context);
    cards.push_back(
        {.name = model.name,
         .use = hub::NameOf(model.use),
         .about = model.about,
         .license = model.license,
         .n_bytes = model.file_bytes(),
         .context_tokens = model.context,
         .session_tokens = n_tokens,
         .session_bytes = n_tokens * model.kv_bytes_per_token,
         .sessions_that_fit = hub::ConversationsThatFit(model, kKnownTokens, free_bytes),
         .command = StrCat("weft pull ", ShellWord(model.name))});
  }
  return cards;
}

}  // namespace weft::cli
