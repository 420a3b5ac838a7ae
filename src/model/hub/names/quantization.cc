#include "model/hub/names/quantization.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

namespace weft::hub {
namespace {

char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

std::string InCapitals(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), Upper);
  return upper;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWord(char c) { return IsDigit(c) || (c >= 'A' && c <= 'Z'); }

// The part after the last '/'.
std::string_view LastPart(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Whether a run of upper-case letters, digits and '_' is the name of a quantization.
bool IsQuantization(std::string_view run) {
  constexpr std::array kWhole = {"F32", "F16", "BF16", "FP32", "FP16", "MXFP4", "MXFP4_MOE"};
  if (std::find(kWhole.begin(), kWhole.end(), run) != kWhole.end()) return true;
  size_t at = 0;
  if (run.starts_with("IQ") || run.starts_with("TQ")) {
    at = 2;
  } else if (run.starts_with("Q")) {
    at = 1;
  } else {
    return false;
  }
  if (run.size() < at + 3 || run.size() > 12 || !IsDigit(run[at]) || run[at + 1] != '_') {
    return false;
  }
  return true;
}

// "-00002-of-00005" at the end of a name without ".gguf".
struct SplitMark {
  std::string_view stem;
  int64_t no = 0;
  int64_t count = 0;
};
std::optional<SplitMark> ReadSplitMark(std::string_view stem) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kMark = 1 + kDigits + kOf.size() + kDigits;
  if (stem.size() <= kMark) return std::nullopt;
  const std::string_view mark = stem.substr(stem.size() - kMark);
  SplitMark split{.stem = stem.substr(0, stem.size() - kMark)};
  if (mark[0] != '-' || mark.substr(1 + kDigits, kOf.size()) != kOf ||
      !ParseInt64(mark.substr(1, kDigits), &split.no) ||
      !ParseInt64(mark.substr(1 + kDigits + kOf.size()), &split.count)) {
    return std::nullopt;
  }
  if (split.no < 1 || split.no > split.count) return std::nullopt;
  return split;
}

constexpr std::string_view kSuffix = ".gguf";

bool EndsAsModel(std::string_view file) {
  return file.size() > kSuffix.size() &&
         EqualsIgnoringCase(file.substr(file.size() - kSuffix.size()), kSuffix);
}

std::string_view StemOf(std::string_view file) {
  return EndsAsModel(file) ? file.substr(0, file.size() - kSuffix.size()) : file;
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Upper(x) == Upper(y); });
}

std::string QuantizationOf(std::string_view file) {
  std::string_view stem = StemOf(LastPart(file));
  if (const auto split = ReadSplitMark(stem)) stem = split->stem;
  const std::string upper = InCapitals(stem);
  const std::string_view text = upper;
  // The last one in the name.
  for (size_t i = text.size(); i-- > 0;) {
    if (!IsWord(text[i]) || (i > 0 && IsWord(text[i - 1]))) continue;
    size_t end = i;
    while (end < text.size() && (IsWord(text[end]) || text[end] == '_')) ++end;
    if (!IsQuantization(text.substr(i, end - i))) continue;
    // Some authors' mixed quantizations have a prefix.
    const size_t begin = text.substr(0, i).ends_with("UD-") ? i - 3 : i;
    return upper.substr(begin, end - begin);
  }
  return "";
}

bool IsModelFile(std::string_view file) {
  if (!EndsAsModel(file)) return false;
  const std::string name = InCapitals(LastPart(file));
  return name.find("MMPROJ") == name.npos && name.find("IMATRIX") == name.npos;
}

bool IsProjectorFile(std::string_view file) {
  return EndsAsModel(file) && InCapitals(LastPart(file)).find("MMPROJ") != std::string::npos;
}

int ChooseProjector(std::span<const std::string> files, std::string_view model) {
  constexpr std::array kUsual = {"F16", "BF16", "F32", "Q8_0"};
  const auto folder_of = [](std::string_view file) {
    const size_t slash = file.rfind('/');
    return slash == file.npos ? std::string_view() : file.substr(0, slash);
  };
  for (const std::string_view folder : {folder_of(model), std::string_view()}) {
    int chosen = -1;
    std::ptrdiff_t rank = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      if (!IsProjectorFile(files[i]) || folder_of(files[i]) != folder) continue;
      const auto own = std::ranges::find(kUsual, QuantizationOf(files[i])) - kUsual.begin();
      if (chosen >= 0 && own >= rank) continue;
      chosen = static_cast<int>(i);
      rank = own;
    }
    if (chosen >= 0) return chosen;
  }
  return -1;
}

std::vector<std::string> SplitParts(std::string_view file) {
  constexpr int64_t kMaxParts = 1000;
  const auto split = ReadSplitMark(StemOf(file));
  if (!EndsAsModel(file) || !split || split->no != 1 || split->count > kMaxParts) return {};
  std::vector<std::string> parts;
  for (int64_t no = 1; no <= split->count; ++no) {
    std::string digits = StrCat(no);
    digits.insert(0, 5 - digits.size(), '0');
    std::string part(file);
    part.replace(split->stem.size() + 1, 5, digits);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<FileGroup> GroupFiles(std::span<const std::string> files) {
  std::map<std::string_view, size_t> positions;
  for (size_t i = 0; i < files.size(); ++i) positions[files[i]] = i;
  std::vector<FileGroup> groups;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& file = files[i];
    if (!IsModelFile(file)) continue;
    const auto split = ReadSplitMark(StemOf(file));
    if (split && split->no != 1) continue;
    FileGroup group{.name = file, .quantization = QuantizationOf(file), .parts = {i}};
    if (split) {
      const std::vector<std::string> parts = SplitParts(file);
      for (size_t part = 1; part < parts.size(); ++part) {
        const auto it = positions.find(parts[part]);
        if (it != positions.end()) group.parts.push_back(it->second);
      }
      if (group.parts.size() != parts.size()) continue;
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

int ChooseGroup(std::span<const FileGroup> groups, std::string_view wanted) {
  const auto find = [&](const auto& matches) {
    const auto it = std::find_if(groups.begin(), groups.end(), matches);
    return it == groups.end() ? -1 : static_cast<int>(it - groups.begin());
  };
  const auto find_quantization = [&](std::string_view name) {
    return find([&](const FileGroup& g) { return EqualsIgnoringCase(g.quantization, name); });
  };
  if (wanted.empty()) {
    for (const char* usual : {"Q4_K_M", "Q4_0"}) {
      if (const int index = find_quantization(usual); index >= 0) return index;
    }
    return groups.empty() ? -1 : 0;
  }
  int index = find([&](const FileGroup& g) {
    return EqualsIgnoringCase(g.name, wanted) || EqualsIgnoringCase(LastPart(g.name), wanted);
  });
  if (index >= 0) return index;
  if ((index = find_quantization(wanted)) >= 0) return index;
  // A name's suffix, such as "mix" of "model-mix.gguf".
  const std::string end = InCapitals(wanted);
  return find([&](const FileGroup& g) {
    std::string_view name = StemOf(g.name);
    if (const auto split = ReadSplitMark(name)) name = split->stem;
    const std::string stem = InCapitals(name);
    return stem.ends_with(end) && stem.size() > end.size() &&
           !IsWord(stem[stem.size() - end.size() - 1]);
  });
}

}  // namespace weft::hub
