#include "cli/chat/picture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/files/mapped_file.h"
#include "base/new_id.h"
#include "base/strings.h"
#include "cli/chat/command.h"

namespace weft::cli {
namespace {

constexpr std::array<std::string_view, 6> kEndings = {".png",  ".jpg", ".jpeg",
                                                      ".webp", ".gif", ".bmp"};

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool EndsAsPicture(std::string path) {
  std::ranges::transform(path, path.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return path.ends_with(end); });
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int lower = std::tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The path of a file: URL.
std::string PathOfUrl(std::string_view url) {
  std::string path;
  for (size_t i = 0; i < url.size(); ++i) {
    const int high = i + 2 < url.size() && url[i] == '%' ? HexDigit(url[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(url[i + 2]) : -1;
    if (low < 0) {
      path += url[i];
      continue;
    }
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return path;
}

// A path as a shell's word: without its quotes, or without the backslashes of escaped characters.
std::string PathOfWord(std::string_view word) {
  constexpr std::string_view kUrl = "file://";
  if (word.starts_with(kUrl)) return PathOfUrl(word.substr(kUrl.size()));
  const bool is_quoted = word.size() > 1 && (word[0] == '\'' || word[0] == '"') &&
                         word.find(word[0], 1) == word.size() - 1;
  if (is_quoted) return std::string(word.substr(1, word.size() - 2));
  std::string path;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\\' && i + 1 < word.size()) ++i;
    path += word[i];
  }
  return path;
}

// Where the first word of a shell's line ends.
size_t EndOfWord(std::string_view text) {
  if (text.starts_with('\'') || text.starts_with('"')) {
    const size_t end = text.find(text[0], 1);
    return end == text.npos ? text.size() : end + 1;
  }
  size_t i = 0;
  for (; i < text.size() && kBlank.find(text[i]) == kBlank.npos; ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
  }
  return i;
}

}  // namespace

std::string PicturePathIn(std::string_view line) {
  const std::string_view all = Trim(line);
  if (all.empty() || all.find('\n') != all.npos) return "";
  for (std::string path : {std::string(all), PathOfWord(all)}) {
    if (EndsAsPicture(path) && IsFile(path)) return path;
  }
  return "";
}

ImageArguments SplitImageArguments(std::string_view text) {
  text = Trim(text);
  for (std::string path : {std::string(text), PathOfWord(text)}) {
    if (IsFile(path)) return {.path = std::move(path)};
  }
  const size_t end = EndOfWord(text);
  return {.path = PathOfWord(text.substr(0, end)), .question = std::string(Trim(text.substr(end)))};
}

StatusOr<ChatPicture> ReadChatPicture(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  WEFT_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxBytes));
  return ChatPicture{.mark = StrCat(NewId("<picture-"), ">"),
                     .name = std::filesystem::path(path).filename().string(),
                     .file = std::make_shared<const serve::PictureFile>(std::move(bytes))};
}

std::string WithPictureNames(std::string text, std::span<const ChatPicture> pictures) {
  for (const ChatPicture& picture : pictures) {
    const size_t at = text.find(picture.mark);
    if (at == text.npos) continue;
    const size_t end = at + picture.mark.size();
    const bool joins = end < text.size() && kBlank.find(text[end]) == kBlank.npos;
    text.replace(at, picture.mark.size(),
                 StrCat("[", Printable(picture.name, 80), joins ? "] " : "]"));
  }
  return text;
}

std::string LeadingMarks(std::string_view text, std::span<const ChatPicture> pictures) {
  std::string marks;
  const auto begins = [&](const ChatPicture& picture) { return text.starts_with(picture.mark); };
  while (true) {
    const auto first = std::ranges::find_if(pictures, begins);
    if (first == pictures.end()) return marks;
    marks += first->mark;
    text.remove_prefix(first->mark.size());
  }
}

}  // namespace weft::cli
