#include "cli/flags/default_model.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "model/hub/local_models.h"
#include "model/hub/names/catalogue.h"
#include "model/hub/net/download.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = size_t{4} << 10;

std::string NameFile() {
  const std::string folder = StateFolder();
  return folder.empty() ? folder : StrCat(folder, "/model");
}

bool IsHere(const ModelFinder& finder, const std::string& name) {
  return name == kBuiltInName || access(name.c_str(), R_OK) == 0 ||
         finder.source().FindLocal(name).ok();
}

std::string VariableModel() {
  const char* const chosen = std::getenv("WEFT_MODEL");
  return chosen == nullptr ? "" : chosen;
}

std::string LastModel() {
  const std::string path = NameFile();
  if (path.empty()) return path;
  auto name = ReadFile(path, kMaxNameBytes);
  if (!name.ok()) return "";
  return name->substr(0, name->find('\n'));
}

// Yes is the default, as the user typed a command that needs a model.
bool Agrees(const hub::CatalogueEntry& entry) {
  const std::string question =
      StrCat("No model is named, and none is here. Download ", entry.name, " (", entry.about, ", ",
             HumanBytes(static_cast<uint64_t>(entry.n_bytes)), ")? [Y/n]");
  const auto window = WindowOf(STDERR_FILENO);
  // With room for the answer.
  std::fprintf(stderr, "%s ", (window ? Fill(question, window->columns - 2) : question).c_str());
  std::fflush(stderr);
  std::string answer;
  for (int c = std::getchar(); c != '\n'; c = std::getchar()) {
    if (c == EOF) return false;
    answer += static_cast<char>(std::tolower(c));
  }
  return answer.empty() || answer == "y" || answer == "yes";
}

Status NoModel(const hub::CatalogueEntry& entry) {
  return InvalidArgument("no model is named: use -m with a file or a name, for example -m ",
                         entry.name, " (downloads ",
                         HumanBytes(static_cast<uint64_t>(entry.n_bytes)), "), or -m ",
                         kBuiltInName, " for the built-in toy");
}

// Whether one letter was added, left out or replaced.
bool DiffersByOne(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1) return false;
  const auto first = std::mismatch(a.begin(), a.end(), b.begin());
  const auto rest_a = a.substr(static_cast<size_t>(first.first - a.begin()));
  const auto rest_b = b.substr(static_cast<size_t>(first.second - b.begin()));
  if (rest_b.empty()) return false;
  return a.size() == b.size() ? rest_a.substr(1) == rest_b.substr(1) : rest_a == rest_b.substr(1);
}

std::string NearlyMeant(const ModelFinder& finder, std::string_view word) {
  for (const hub::CatalogueEntry& entry : hub::Catalogue()) {
    if (DiffersByOne(word, entry.name)) return entry.name;
  }
  for (const hub::LocalModel& model : hub::ListLocalModels(finder.source().places())) {
    if (DiffersByOne(word, model.name)) return model.name;
  }
  return "";
}

}  // namespace

std::string StateFolder() {
  const auto folder_of = [](const char* variable, const char* below) {
    const char* const value = std::getenv(variable);
    return value == nullptr || value[0] != '/' ? std::string() : StrCat(value, below);
  };
  const std::string folder = folder_of("XDG_STATE_HOME", "/weft");
  return folder.empty() ? folder_of("HOME", "/.local/state/weft") : folder;
}

StatusOr<std::string> DefaultModel(const ModelFinder& finder) {
  if (std::string chosen = VariableModel(); !chosen.empty()) return chosen;
  const std::string last = LastModel();
  if (!last.empty() && IsHere(finder, last)) return last;
  const hub::CatalogueEntry& entry = hub::Catalogue().front();
  if (IsHere(finder, entry.name)) return entry.name;
  const bool can_ask = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  if (!can_ask || !Agrees(entry)) return NoModel(entry);
  return entry.name;
}

void RememberModel(const ModelFlags& flags) {
  const std::string path = NameFile();
  if (path.empty() || flags.path.empty() || flags.path == kBuiltInName) return;
  if (!VariableModel().empty()) return;  // which decides anyway
  std::error_code error;
  const bool is_file = access(flags.path.c_str(), F_OK) == 0;
  const std::string name = is_file ? fs::absolute(flags.path, error).string() : flags.path;
  if (error || name.find('\n') != name.npos) return;
  fs::create_directories(fs::path(path).parent_path(), error);
  (void)hub::ReplaceFile(path + ".new", path, StrCat(name, "\n"));
}

bool NamesModel(const ModelFinder& finder, std::string_view word) {
  if (word.empty() || word.find_first_of(" \t\n?!") != word.npos) return false;
  if (word == kBuiltInName) return true;
  for (const std::string_view prefix : {"ollama:", "hf:", "https://", "http://"}) {
    if (word.starts_with(prefix)) return true;
  }
  if (word.ends_with(".gguf")) return true;
  // A repository of the Hub, as people name those that hold such files.
  const std::string lower = AsciiLower(word);
  if (lower.find('/') != lower.npos &&
      (lower.ends_with("-gguf") || lower.find("-gguf:") != lower.npos)) {
    return true;
  }
  if (hub::FindInCatalogue(hub::Catalogue(), word) != nullptr) return true;
  // Parts of a local model's name would match many an English word, or a sum.
  constexpr size_t kMinPart = 4;
  if (word.size() < kMinPart || word.find_first_of("/:-0123456789") == word.npos) return false;
  return finder.source().FindLocal(word).ok();
}

Status TakeModelName(std::vector<std::string>* words, ModelFlags* flags) {
  if (!flags->path.empty() || words->empty()) return OkStatus();
  const ModelFinder finder(flags->models_folder);
  const std::string& first = words->front();
  if (NamesModel(finder, first)) {
    flags->path = first;
    words->erase(words->begin());
    return OkStatus();
  }
  const std::string near = words->size() == 1 ? NearlyMeant(finder, first) : "";
  if (near.empty()) return OkStatus();
  return InvalidArgument("there is no model ", Printable(first, 100), "; did you mean -m ",
                         Printable(near, 200), "? If it is your question, write -p ",
                         Printable(first, 100));
}

}  // namespace weft::cli
