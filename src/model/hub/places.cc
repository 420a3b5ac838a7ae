#include "model/hub/places.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace weft::hub {
namespace {

constexpr size_t kMaxSettingsBytes = 1 << 20;
constexpr char kSystemOllama[] = "/usr/share/ollama/.ollama/models";

std::string Trimmed(std::string text) {
  constexpr char kSpace[] = " \t\r\n";
  text.erase(text.find_last_not_of(kSpace) + 1);
  text.erase(0, text.find_first_not_of(kSpace));
  return text;
}

class Reader {
 public:
  explicit Reader(const EnvironmentFn& environment) : environment_(environment) {
    home_ = Get("HOME");
    if (home_.empty()) {
      const passwd* const user = getpwuid(geteuid());
      if (user != nullptr && user->pw_dir != nullptr) home_ = user->pw_dir;
    }
    const std::string cache = Get("XDG_CACHE_HOME");
    cache_ = cache.empty() ? home_ + "/.cache" : cache;
  }

  Places Read();

 private:
  std::string Get(const char* name) const {
    const char* const value = environment_(name);
    return value == nullptr ? "" : value;
  }
  std::string GetOr(const char* name, const std::string& absent) const {
    const std::string value = Get(name);
    return value.empty() ? absent : value;
  }
  bool IsSet(const char* name) const {
    std::string value = Get(name);
    std::transform(value.begin(), value.end(), value.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return value == "1" || value == "TRUE" || value == "YES" || value == "ON";
  }
  void ReadHub(Places* places) const;
  void ReadOllama(Places* places) const;
  void ReadLmStudio(Places* places) const;

  const EnvironmentFn& environment_;
  std::string home_;
  std::string cache_;
};

void Reader::ReadHub(Places* places) const {
  const std::string hub_home = GetOr("HF_HOME", cache_ + "/huggingface");
  places->hub_cache = GetOr("HF_HUB_CACHE", GetOr("HUGGINGFACE_HUB_CACHE", hub_home + "/hub"));
  places->hub_endpoint = GetOr("HF_ENDPOINT", "https://huggingface.co");
  while (places->hub_endpoint.ends_with('/')) places->hub_endpoint.pop_back();
  places->hub_token = Trimmed(GetOr("HF_TOKEN", Get("HUGGING_FACE_HUB_TOKEN")));
  if (places->hub_token.empty()) {
    const auto text = ReadFile(GetOr("HF_TOKEN_PATH", hub_home + "/token"), 4096);
    if (text.ok()) places->hub_token = Trimmed(*text);
  }
  // It will be part of a request's header.
  const bool is_plain = std::all_of(places->hub_token.begin(), places->hub_token.end(),
                                    [](char c) { return c > ' ' && c < 127; });
  if (!is_plain) places->hub_token.clear();
  places->offline = IsSet("HF_HUB_OFFLINE");
}

void Reader::ReadOllama(Places* places) const {
  places->ollama_registry = GetOr("WEFT_OLLAMA_REGISTRY", "https://registry.ollama.ai");
  while (places->ollama_registry.ends_with('/')) places->ollama_registry.pop_back();
  const std::string named = Get("OLLAMA_MODELS");
  if (!named.empty()) places->ollama_folders.push_back(named);
  places->ollama_folders.push_back(home_ + "/.ollama/models");
  places->ollama_folders.push_back(kSystemOllama);
}

void Reader::ReadLmStudio(Places* places) const {
  std::string studio = home_ + "/.lmstudio";
  if (const auto pointer = ReadFile(home_ + "/.lmstudio-home-pointer", 4096); pointer.ok()) {
    const std::string named = Trimmed(*pointer);
    if (named.starts_with('/')) studio = named;
  }
  std::vector<std::string>* const folders = &places->lm_studio_folders;
  const auto settings = ReadFile(studio + "/settings.json", kMaxSettingsBytes);
  if (settings.ok()) {
    const auto json = nlohmann::json::parse(*settings, nullptr, /*allow_exceptions=*/false);
    const auto it = json.is_object() ? json.find("downloadsFolder") : json.end();
    if (json.is_object() && it != json.end() && it->is_string()) {
      folders->push_back(it->get<std::string>());
    }
  }
  for (const std::string& folder : {studio + "/models", home_ + "/.cache/lm-studio/models"}) {
    if (std::find(folders->begin(), folders->end(), folder) == folders->end()) {
      folders->push_back(folder);
    }
  }
}

Places Reader::Read() {
  Places places;
  ReadHub(&places);
  ReadOllama(&places);
  ReadLmStudio(&places);
  places.llama_cpp_cache = GetOr("LLAMA_CACHE", cache_ + "/llama.cpp");
  places.own = GetOr("WEFT_CACHE", cache_ + "/weft");
  places.packed_copies = places.own + "/packed";
  places.models_folder = Get("WEFT_MODELS_DIR");
  return places;
}

}  // namespace

Places PlacesOf(const EnvironmentFn& environment) { return Reader(environment).Read(); }

Places ProcessPlaces() {
  return PlacesOf([](const char* name) { return std::getenv(name); });
}

}  // namespace weft::hub
