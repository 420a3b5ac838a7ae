// Compares with reference data for real vocabularies.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/tokenizer/tokenizer.h"
#include "support/goldens.h"

namespace weft {
namespace {

using nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

std::string Base64Decode(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    int value;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      break;
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((n_bits += 6) >= 8) {
      n_bits -= 8;
      out += static_cast<char>(bits >> n_bits & 255);
    }
  }
  return out;
}

std::string Folder() { return testing::GoldensDir() + "/tokenizers"; }

std::shared_ptr<const Tokenizer> LoadTokenizer(const std::string& name) {
  auto file = ModelFile::Open(Folder() + "/ggml-vocab-" + name + ".gguf");
  EXPECT_TRUE(file.ok()) << Message(file.status());
  if (!file.ok()) return nullptr;
  auto tokenizer = Tokenizer::Load(**file);
  EXPECT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  return tokenizer.ok() ? *tokenizer : nullptr;
}

// The vocabularies in the data.
std::vector<std::string> Names() {
  std::vector<std::string> names;
  constexpr std::string_view kPrefix = "ggml-vocab-";
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const std::string file = entry.path().filename();
    if (file.starts_with(kPrefix) && file.ends_with(".gguf")) {
      names.push_back(file.substr(kPrefix.size(), file.size() - kPrefix.size() - 5));
    }
  }
  EXPECT_FALSE(names.empty()) << Folder();
  std::sort(names.begin(), names.end());
  return names;
}

void CheckCase(const Tokenizer& tokenizer, const json& item) {
  const std::string text = Base64Decode(item["text_b64"].get<std::string>());
  if (item.contains("llama_cpp_throws")) {
    // No reference to compare with; the result must just be valid tokens.
    for (const TokenId id : tokenizer.Encode(text, {})) EXPECT_LT(id, tokenizer.vocab_size());
    return;
  }
  const auto ids = item["ids"].get<std::vector<TokenId>>();
  EXPECT_EQ(tokenizer.Encode(text, {}), ids);
  const auto special = item.value("ids_parse_special", ids);
  EXPECT_EQ(tokenizer.Encode(text, {.parse_special = true}), special);
  const auto with_bos = item["ids_add_special_parse_special"].get<std::vector<TokenId>>();
  EXPECT_EQ(tokenizer.Encode(text, {.add_special = true, .parse_special = true}), with_bos);
  const auto pieces = item["pieces_b64"].get<std::vector<std::string>>();
  ASSERT_EQ(pieces.size(), special.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(tokenizer.Piece(special[i], true), Base64Decode(pieces[i])) << special[i];
  }
  EXPECT_EQ(tokenizer.Decode(ids, false), Base64Decode(item["detok_b64"].get<std::string>()));
  EXPECT_EQ(tokenizer.Decode(with_bos, true),
            Base64Decode(item["detok_special_b64"].get<std::string>()));
}

void CheckFile(const std::string& suffix) {
  WEFT_REQUIRE_GOLDENS();
  for (const std::string& name : Names()) {
    const std::string path = Folder() + "/" + name + suffix;
    if (!std::filesystem::exists(path)) continue;
    const auto tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const json data = json::parse(ReadFile(path));
    EXPECT_EQ(tokenizer->vocab_size(), data["n_vocab"].get<int>());
    EXPECT_EQ(tokenizer->bos(), data["bos"].get<TokenId>()) << name;
    EXPECT_EQ(tokenizer->eos(), data["eos"].get<TokenId>()) << name;
    EXPECT_EQ(tokenizer->eot(), data["eot"].get<TokenId>()) << name;
    EXPECT_EQ(tokenizer->adds_bos(), data["add_bos"].get<bool>()) << name;
    EXPECT_EQ(tokenizer->adds_eos(), data["add_eos"].get<bool>()) << name;
    EXPECT_FALSE(data["cases"].empty());
    for (const json& item : data["cases"]) {
      SCOPED_TRACE(name + " " + item["text_b64"].get<std::string>());
      CheckCase(*tokenizer, item);
    }
  }
}

TEST(TokenizerGolden, ValidText) { CheckFile(".extra.json"); }
TEST(TokenizerGolden, InvalidText) { CheckFile(".badutf8.json"); }

TEST(TokenizerGolden, PublishedCases) {
  WEFT_REQUIRE_GOLDENS();
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  for (const std::string& name : Names()) {
    const std::string base = Folder() + "/ggml-vocab-" + name + ".gguf";
    if (!std::filesystem::exists(base + ".inp")) continue;
    const auto tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const std::string input = ReadFile(base + ".inp");
    std::istringstream output(ReadFile(base + ".out"));
    size_t begin = 0;
    int n_cases = 0;
    for (std::string line; std::getline(output, line); ++n_cases) {
      ASSERT_LE(begin, input.size());
      const size_t end = std::min(input.find(kSeparator, begin), input.size());
      std::istringstream numbers(line);
      std::vector<TokenId> expected;
      for (TokenId id; numbers >> id;) expected.push_back(id);
      const std::string text = input.substr(begin, end - begin);
      EXPECT_EQ(tokenizer->Encode(text, {}), expected) << name << " '" << text << "'";
      begin = end + kSeparator.size();
    }
    EXPECT_GT(n_cases, 40) << name;
  }
}

}  // namespace
}  // namespace weft
