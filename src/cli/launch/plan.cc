#include "cli/launch/plan.h"

#include <algorithm>

#include "base/strings.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using Facts = std::vector<std::pair<std::string, std::string>>;

// The folder in a text for a shell, which makes one.
constexpr char kFolderInShell = '\1';

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string ModelFor(const Agent& agent, const std::string& model) {
  const bool avoided =
      agent.avoids != nullptr && AsciiLower(model).find(agent.avoids) != std::string::npos;
  return avoided ? "weft" : model;
}

Facts FactsOf(const Agent& agent, const ServerFacts& server, std::string_view folder) {
  const int64_t output = MaxOutputTokens(server.context_tokens);
  const std::string model = ModelFor(agent, server.model);
  // Agents take no empty key.
  const std::string key = server.key.empty() ? "none" : server.key;
  return {{"url", server.url},
          {"openai_url", StrCat(server.url, "/v1")},
          {"key", key},
          {"bearer", StrCat("Bearer ", key)},
          {"model", model},
          {"weft_model", StrCat("weft/", model)},
          {"litellm_model", StrCat("openai/", model)},
          {"context", StrCat(server.context_tokens)},
          {"output", StrCat(output)},
          {"output_chars", StrCat(3 * output)},
          {"compact", StrCat(server.context_tokens - output)},
          {"patience_ms", "3600000"},
          {"patience_s", "3600"},
          {"dir", std::string(folder)}};
}

// Replaces @name@ and @"name"@ for known names; any other @ is text.
std::string Fill(std::string_view text, const Facts& facts) {
  std::string out;
  while (true) {
    const size_t at = text.find('@');
    out += text.substr(0, at);
    if (at == text.npos) return out;
    text.remove_prefix(at + 1);
    const size_t end = text.find('@');
    std::string_view name = text.substr(0, end);
    const bool quoted = name.size() > 2 && name.front() == '"' && name.back() == '"';
    if (quoted) name = name.substr(1, name.size() - 2);
    const auto fact = std::find_if(facts.begin(), facts.end(),
                                   [name](const auto& known) { return known.first == name; });
    if (end == text.npos || fact == facts.end()) {
      out += '@';
      continue;
    }
    out += quoted ? Dump(fact->second) : fact->second;
    text.remove_prefix(end + 1);
  }
}

std::string ShellQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == kFolderInShell) {
      out += "'\"$dir\"'";
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace

int64_t MaxOutputTokens(int64_t context_tokens) {
  constexpr int64_t kMax = 32000;
  return std::clamp<int64_t>(
      std::max(context_tokens / 8, std::min<int64_t>(4096, context_tokens / 4)), 1, kMax);
}

LaunchPlan MakePlan(const Agent& agent, const ServerFacts& server, std::string_view folder,
                    const std::vector<std::string>& user_arguments) {
  const Facts facts = FactsOf(agent, server, folder);
  LaunchPlan plan{.program = agent.program};
  for (const char* argument : agent.arguments) plan.arguments.push_back(Fill(argument, facts));
  plan.arguments.insert(plan.arguments.end(), user_arguments.begin(), user_arguments.end());
  for (const AgentVariable& variable : agent.variables) {
    if (variable.below_context > 0 && server.context_tokens >= variable.below_context) continue;
    plan.variables.emplace_back(variable.name, std::nullopt);
    if (variable.value != nullptr) plan.variables.back().second = Fill(variable.value, facts);
  }
  for (const AgentFile& file : agent.files) {
    plan.files.emplace_back(file.name, Fill(file.content, facts));
  }
  return plan;
}

std::vector<SettingsFile> MakeSettings(const Agent& agent, const ServerFacts& server,
                                       const char* (*variable)(const char* name)) {
  Facts facts = FactsOf(agent, server, "");
  json variables = json::object();
  for (const auto& [name, value] : MakePlan(agent, server, "", {}).variables) {
    if (value) variables[name] = *value;
  }
  facts.emplace_back("env", Dump(variables));
  std::vector<SettingsFile> all;
  for (const AgentSettings& settings : agent.settings) {
    const char* folder =
        settings.folder_variable == nullptr ? nullptr : variable(settings.folder_variable);
    const char* path = settings.path;
    if (folder == nullptr || *folder == '\0') {
      folder = variable("HOME");
      path = settings.home_path;
    }
    all.push_back({.path = StrCat(folder == nullptr ? "" : folder, "/", path),
                   .content = Fill(settings.content, facts),
                   .merges = settings.merges});
  }
  return all;
}

std::string WithFacts(std::string_view text, const Agent& agent, const ServerFacts& server) {
  return Fill(text, FactsOf(agent, server, ""));
}

std::string ShellText(const Agent& agent, const ServerFacts& server,
                      const std::vector<std::string>& user_arguments) {
  const LaunchPlan plan = MakePlan(agent, server, std::string(1, kFolderInShell), user_arguments);
  std::string out = StrCat("# ", agent.title, " with ", Printable(server.model, 200), " at ",
                           server.url, ": context of ", server.context_tokens, " tokens\n");
  if (!plan.files.empty()) out += "dir=$(mktemp -d)\n";
  for (const auto& [name, content] : plan.files) {
    StrAppend(&out, "cat > \"$dir\"/", name, " <<'END_OF_FILE'\n", content,
              content.ends_with('\n') ? "" : "\n", "END_OF_FILE\n");
  }
  for (const auto& [name, value] : plan.variables) {
    if (value) {
      StrAppend(&out, "export ", name, "=", ShellQuoted(*value), "\n");
    } else {
      StrAppend(&out, "unset ", name, "\n");
    }
  }
  out += plan.program;
  for (const std::string& argument : plan.arguments) StrAppend(&out, " ", ShellQuoted(argument));
  return out + "\n";
}

nlohmann::json PlanJson(const Agent& agent, const ServerFacts& server, const LaunchPlan& plan) {
  json variables = json::object();
  for (const auto& [name, value] : plan.variables) {
    variables[name] = value ? json(*value) : json(nullptr);
  }
  json files = json::array();
  for (const auto& [name, content] : plan.files) {
    files.push_back({{"name", name}, {"content", content}});
  }
  return {{"agent", agent.name},
          {"program", plan.program},
          {"server", server.url},
          {"model", server.model},
          {"context_tokens", server.context_tokens},
          {"max_output_tokens", MaxOutputTokens(server.context_tokens)},
          {"env", variables},
          {"args", plan.arguments},
          {"files", files}};
}

}  // namespace weft::cli
