#include "doors/host/fleet_metrics.h"

#include <map>
#include <string_view>

#include "base/strings.h"

namespace weft::serve {
namespace {

constexpr std::string_view kHelp = "# HELP ", kType = "# TYPE ";

// What the server counts, rather than its models.
bool IsOfServer(std::string_view name) {
  return name.starts_with("weft_http_") || name.starts_with("weft_model_");
}

std::string LabelText(std::string_view value) {
  std::string text = "model=\"";
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

// "name{a="b"} 1" or "name 1" with a further label.
std::string WithLabel(std::string_view sample, const std::string& label) {
  const size_t brace = sample.find('{'), space = sample.find(' ');
  if (brace == sample.npos || brace > space) {
    return StrCat(sample.substr(0, space), "{", label, "}", sample.substr(space));
  }
  return StrCat(sample.substr(0, brace + 1), label, ",", sample.substr(brace + 1));
}

// Metrics in order of appearance, each with its description and its samples.
class Families {
 public:
  void Add(std::string_view text, const std::string& label) {
    Family* family = nullptr;
    for (const std::string_view line : StrSplit(text, '\n')) {
      if (line.starts_with(kHelp) || line.starts_with(kType)) {
        family = Find(line.substr(kHelp.size()), label);
        if (family != nullptr) Describe(line, family);
      } else if (family != nullptr && !line.empty()) {
        StrAppend(&family->samples, label.empty() ? std::string(line) : WithLabel(line, label),
                  "\n");
      }
    }
  }
  std::string Text() const {
    std::string text;
    for (const Family& family : families_) {
      StrAppend(&text, family.help, family.type, family.samples);
    }
    return text;
  }

 private:
  struct Family {
    std::string help, type, samples;
  };

  // Null for a metric that is left out.
  Family* Find(std::string_view description, const std::string& label) {
    const std::string name(description.substr(0, description.find(' ')));
    if (IsOfServer(name) != label.empty()) return nullptr;
    const auto [it, is_new] = place_of_.try_emplace(name, families_.size());
    if (is_new) families_.emplace_back();
    return &families_[it->second];
  }
  static void Describe(std::string_view line, Family* family) {
    std::string& text = line.starts_with(kHelp) ? family->help : family->type;
    text = StrCat(line, "\n");
  }

  std::vector<Family> families_;
  std::map<std::string, size_t> place_of_;
};

}  // namespace

std::string MergeMetrics(const std::string& own, const std::vector<ModelMetrics>& models) {
  Families families;
  families.Add(own, "");
  for (const ModelMetrics& model : models) families.Add(model.text, LabelText(model.model));
  return families.Text();
}

std::string FleetMetrics(const std::vector<ModelFleet::Info>& models) {
  std::string loaded =
      "# HELP weft_model_loaded Whether the model is loaded.\n# TYPE weft_model_loaded gauge\n";
  std::string bytes =
      "# HELP weft_model_bytes Memory that the model counts for.\n"
      "# TYPE weft_model_bytes gauge\n";
  for (const ModelFleet::Info& info : models) {
    const std::string label = LabelText(info.model->name);
    const bool is_loaded = info.state == ModelFleet::State::kLoaded;
    StrAppend(&loaded, "weft_model_loaded{", label, "} ", is_loaded ? 1 : 0, "\n");
    StrAppend(&bytes, "weft_model_bytes{", label, "} ", info.memory_bytes, "\n");
  }
  return loaded + bytes;
}

}  // namespace weft::serve
