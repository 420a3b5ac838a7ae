// Real templates over many conversations, compared with Jinja's output.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "jinja/template.h"
#include "nlohmann/json.hpp"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The text from a little before its first difference to the other.
std::string Around(const std::string& text, const std::string& other) {
  size_t at = 0;
  while (at < text.size() && at < other.size() && text[at] == other[at]) ++at;
  const size_t from = at < 60 ? 0 : at - 60;
  return StrCat("@", at, " \"", Printable(text.substr(from, 200), 400), "\"");
}

// Empty if `actual` matches `expected`.
std::string Difference(const StatusOr<std::string>& actual, const Json& expected) {
  if (expected.contains("rendered")) {
    const auto& text = expected["rendered"].get_ref<const std::string&>();
    if (!actual.ok()) return StrCat("fails: ", Message(actual.status()));
    if (*actual == text) return "";
    return StrCat("\n  renders ", Around(*actual, text), "\n  expected ", Around(text, *actual));
  }
  // Jinja's own sandbox forbids templates to append to lists; we allow it, like llama-server.
  if (expected["error"]["kind"] == "SecurityError") return "";
  if (actual.ok()) return StrCat("renders where it should fail with ", expected["error"].dump());
  if (expected["error"]["kind"] != "raise_exception") return "";
  const std::string text = expected["error"]["message"];
  if (Message(actual.status()) == text) return "";
  return StrCat("raises ", Message(actual.status()), " instead of ", text);
}

struct Tally {
  int cases = 0;
  int exact = 0;
};

void RunTemplate(const std::filesystem::path& path, Tally* tally) {
  const Json golden = Json::parse(ReadFile(std::filesystem::path(path).replace_extension("json")));
  const auto parsed = ChatTemplate::Parse(ReadFile(path));
  ASSERT_TRUE(parsed.ok()) << path.stem() << ": " << Message(parsed.status());
  RenderOptions options;
  options.wall_clock_s = 1768480245;  // 2026-01-15 12:30:45
  for (const Json& c : golden["cases"]) {
    Json context = golden["conversations"][c["conversation"].get<std::string>()];
    if (context.is_array()) context = Json{{"messages", context}};
    context["bos_token"] = golden["bos_token"];
    context["eos_token"] = golden["eos_token"];
    context["documents"] = nullptr;
    context.update(c["kwargs"]);
    if (c.contains("tools_omitted")) context.erase("tools");
    const std::string difference = Difference((*parsed)->Render(context, options), c);
    ++tally->cases;
    tally->exact += difference.empty();
    EXPECT_TRUE(difference.empty())
        << path.stem() << " / " << c["conversation"] << " " << c["kwargs"]
        << (c.contains("tools_omitted") ? " without tools" : "") << ": " << difference;
  }
}

TEST(ChatGoldens, EveryTemplateAndConversation) {
  WEFT_REQUIRE_GOLDENS();
  const std::filesystem::path dir = std::filesystem::path(testing::GoldensDir()) / "chat";
  std::vector<std::filesystem::path> templates;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() == ".jinja") templates.push_back(entry.path());
  }
  std::ranges::sort(templates);
  ASSERT_FALSE(templates.empty());
  Tally tally;
  for (const auto& path : templates) RunTemplate(path, &tally);
  std::cout << templates.size() << " templates, " << tally.exact << " of " << tally.cases
            << " cases exact\n";
}

}  // namespace
}  // namespace weft
