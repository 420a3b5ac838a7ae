#include "model/hub/names/model_name.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "model/hub/names/digest.h"

namespace weft::hub {
namespace {

constexpr size_t kMaxNameBytes = 1024;

bool IsAlphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// A word that may be a folder's name: letters, digits, '-', '_' and '.', starting with a letter or
// digit.
bool IsWord(std::string_view text) {
  return !text.empty() && text.size() <= 128 && IsAlphanumeric(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

// Removes and returns what follows the first `mark` in `text`.
std::string_view CutAt(char mark, std::string_view* text) {
  const size_t at = text->find(mark);
  if (at == text->npos) return "";
  const std::string_view rest = text->substr(at + 1);
  *text = text->substr(0, at);
  return rest;
}

bool CutPrefix(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

int HexOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexOf(text[i + 1]) >= 0 &&
        HexOf(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(HexOf(text[i + 1]) * 16 + HexOf(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// "owner/repo/resolve/main/file.gguf" and "owner/repo", as in the URLs of the hub's pages.
std::optional<HubName> ReadHubPath(std::string_view path) {
  (void)CutAt('?', &path);
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::vector<std::string_view> parts = StrSplit(path, '/');
  if (parts.size() < 2 || !IsWord(parts[0]) || !IsWord(parts[1])) return std::nullopt;
  HubName name;
  name.repo = StrCat(parts[0], "/", parts[1]);
  if (parts.size() == 2) return name;
  if (parts.size() < 4) return std::nullopt;
  if (parts[2] == "tree" && parts.size() == 4) {
    name.revision = Decoded(parts[3]);
  } else if (parts[2] == "resolve" || parts[2] == "blob" || parts[2] == "raw") {
    if (parts.size() < 5) return std::nullopt;
    name.revision = Decoded(parts[3]);
    name.wanted = Decoded(StrJoin(std::vector(parts.begin() + 4, parts.end()), "/"));
  } else {
    return std::nullopt;
  }
  if (!IsSafePath(name.revision) || (!name.wanted.empty() && !IsSafePath(name.wanted))) {
    return std::nullopt;
  }
  return name;
}

StatusOr<ModelName> ReadAddress(std::string_view text, std::string_view hub_endpoint) {
  ModelName name{.kind = ModelName::Kind::kAddress};
  std::string_view address = text;
  std::string_view fragment = CutAt('#', &address);
  name.text = address;
  std::string_view host = address.substr(address.find("://") + 3);
  host = host.substr(0, host.find('/'));
  if (host.find('@') != host.npos) {
    return InvalidArgument(
        "a URL with a user name and password would appear in lists and files: download it with "
        "another program and give its path");
  }
  if (!fragment.empty()) {
    std::string hex;
    if (CutPrefix("sha256=", &fragment)) hex = fragment;
    std::transform(hex.begin(), hex.end(), hex.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    if (!IsHex(hex, 64)) {
      return InvalidArgument("a URL may end with #sha256= and 64 hexadecimal digits, not with #",
                             Printable(fragment));
    }
    name.sha256 = hex;
  }
  std::string_view path = address;
  if ((!hub_endpoint.empty() && CutPrefix(hub_endpoint, &path)) ||
      CutPrefix("https://huggingface.co", &path) || CutPrefix("https://hf.co", &path)) {
    if (const auto hub = path.starts_with('/') ? ReadHubPath(path.substr(1)) : std::nullopt) {
      name.kind = ModelName::Kind::kHub;
      name.hub = *hub;
    }
  }
  return name;
}

}  // namespace

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxNameBytes || path.starts_with('/')) return false;
  for (const std::string_view part : StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return std::all_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != 127 && c != '\\';
  });
}

std::string OllamaName::Short() const {
  std::string name;
  if (host != kOllamaHost) StrAppend(&name, host, "/");
  if (host != kOllamaHost || space != "library") StrAppend(&name, space, "/");
  return StrCat(name, model, ":", tag);
}

StatusOr<HubName> ParseHubName(std::string_view text) {
  const std::string shown = Printable(text, 200);
  const auto wrong = [&] {
    return InvalidArgument(
        "a model on the Hugging Face Hub is named owner/repo or owner/repo:QUANT, such as "
        "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M, not ",
        shown);
  };
  for (const char* prefix : {"hf.co/", "huggingface.co/", "hf://", "hf:"}) {
    if (CutPrefix(prefix, &text)) break;
  }
  if (text.size() > kMaxNameBytes) return wrong();
  HubName name;
  name.wanted = CutAt(':', &text);
  if (const std::string_view revision = CutAt('@', &text); !revision.empty()) {
    name.revision = revision;
  }
  const std::vector<std::string_view> parts = StrSplit(text, '/');
  if (parts.size() != 2 || !IsWord(parts[0]) || !IsWord(parts[1])) return wrong();
  if (!IsSafePath(name.revision) || (!name.wanted.empty() && !IsSafePath(name.wanted))) {
    return wrong();
  }
  name.repo = text;
  return name;
}

StatusOr<OllamaName> ParseOllamaName(std::string_view text) {
  const std::string shown = Printable(text, 200);
  OllamaName name{.host = kOllamaHost};
  std::string_view path = text;
  // A colon before a '/' belongs to the host.
  const size_t slash = path.rfind('/');
  if (const size_t colon = path.find(':', slash == path.npos ? 0 : slash); colon != path.npos) {
    name.tag = path.substr(colon + 1);
    path = path.substr(0, colon);
  }
  const std::vector<std::string_view> parts = StrSplit(path, '/');
  name.model = parts.back();
  if (parts.size() >= 2) name.space = parts[parts.size() - 2];
  if (parts.size() == 3) name.host = parts[0];
  std::string host = name.host;
  std::replace(host.begin(), host.end(), ':', '-');
  if (parts.size() > 3 || !IsWord(host) || !IsWord(name.space) || !IsWord(name.model) ||
      !IsWord(name.tag)) {
    return InvalidArgument(
        "a model of Ollama has its name there, such as ollama:qwen3:0.6b, not ollama:", shown);
  }
  return name;
}

StatusOr<ModelName> ParseModelName(std::string_view text, std::string_view hub_endpoint) {
  if (text.empty()) return InvalidArgument("the model's name is empty");
  if (text.starts_with("https://") || text.starts_with("http://")) {
    return ReadAddress(text, hub_endpoint);
  }
  ModelName name{.text = std::string(text)};
  std::string_view rest = text;
  if (CutPrefix("ollama:", &rest)) {
    name.kind = ModelName::Kind::kOllama;
    WEFT_ASSIGN_OR_RETURN(name.ollama, ParseOllamaName(rest));
    return name;
  }
  name.kind = ModelName::Kind::kFile;
  if (text[0] == '/' || text[0] == '.' || text[0] == '~') return name;
  const bool names_hub =
      text.starts_with("hf.co/") || text.starts_with("huggingface.co/") || text.starts_with("hf:");
  const bool is_file = text.ends_with(".gguf") && text.find(':') == text.npos;
  if (const auto hub = ParseHubName(text); hub.ok() ? names_hub || !is_file : names_hub) {
    WEFT_RETURN_IF_ERROR(hub.status());
    name.kind = ModelName::Kind::kHub;
    name.hub = *hub;
  } else if (!is_file && text.find('/') == text.npos && text.size() <= kMaxNameBytes) {
    name.kind = ModelName::Kind::kPlain;
  }
  return name;
}

}  // namespace weft::hub
