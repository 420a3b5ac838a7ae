#include "model/hub/names/model_name.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::hub {
namespace {

using ::testing::HasSubstr;
using Kind = ModelName::Kind;

constexpr char kEndpoint[] = "http://127.0.0.1:99";

ModelName Parse(std::string_view text) {
  const auto name = ParseModelName(text, kEndpoint);
  EXPECT_TRUE(name.ok()) << text << ": " << name.status();
  return name.ok() ? *name : ModelName();
}

TEST(ModelNameTest, FilesAreWhatLooksLikeOne) {
  for (const char* text :
       {"/m.gguf", "./m", "../m/x", "m.gguf", "models/m.gguf", "a/b/c.gguf", "a/b/c", "~/m"}) {
    EXPECT_EQ(Parse(text).kind, Kind::kFile) << text;
  }
}

TEST(ModelNameTest, RepositoriesHaveARevisionAndAQuantization) {
  const ModelName plain = Parse("owner/Some-Repo.v1");
  EXPECT_EQ(plain.kind, Kind::kHub);
  EXPECT_EQ(plain.hub.repo, "owner/Some-Repo.v1");
  EXPECT_EQ(plain.hub.revision, "main");
  EXPECT_EQ(plain.hub.wanted, "");
  const ModelName full = Parse("hf.co/owner/repo@v1.0:Q8_0");
  EXPECT_EQ(full.hub.repo, "owner/repo");
  EXPECT_EQ(full.hub.revision, "v1.0");
  EXPECT_EQ(full.hub.wanted, "Q8_0");
  EXPECT_EQ(Parse("owner/repo:sub/m-Q8_0.gguf").hub.wanted, "sub/m-Q8_0.gguf");
  EXPECT_EQ(Parse("hf:owner/repo").kind, Kind::kHub);
}

TEST(ModelNameTest, AddressesOfTheHubAreItsRepositories) {
  for (const std::string base : {kEndpoint, "https://huggingface.co", "https://hf.co"}) {
    const ModelName name = Parse(base + "/o/r/resolve/main/a%20b/m.gguf?download=true");
    EXPECT_EQ(name.kind, Kind::kHub);
    EXPECT_EQ(name.hub.repo, "o/r");
    EXPECT_EQ(name.hub.wanted, "a b/m.gguf");
    EXPECT_EQ(Parse(base + "/o/r/blob/v2/m.gguf").hub.revision, "v2");
    EXPECT_EQ(Parse(base + "/o/r").hub.repo, "o/r");
  }
  EXPECT_EQ(Parse("https://huggingface.co/o/r/resolve/main/..%2f..%2fm.gguf").kind, Kind::kAddress);
  EXPECT_EQ(Parse("https://example.com/o/r/resolve/main/m.gguf").kind, Kind::kAddress);
}

TEST(ModelNameTest, AddressesMayTellTheirChecksum) {
  const std::string digits(64, 'A');
  const ModelName name = Parse("https://example.com/m.gguf#sha256=" + digits);
  EXPECT_EQ(name.text, "https://example.com/m.gguf");
  EXPECT_EQ(name.sha256, std::string(64, 'a'));
  for (const char* text : {"https://example.com/m#sha256=12", "https://example.com/m#part",
                           "https://me:secret@example.com/m"}) {
    EXPECT_EQ(ParseModelName(text, "").status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ModelNameTest, OllamasNamesHaveDefaults) {
  const OllamaName name = Parse("ollama:qwen3").ollama;
  EXPECT_EQ(name.host, kOllamaHost);
  EXPECT_EQ(name.space, "library");
  EXPECT_EQ(name.tag, "latest");
  EXPECT_EQ(name.Short(), "qwen3:latest");
  EXPECT_EQ(Parse("ollama:me/mine:1b").ollama.Short(), "me/mine:1b");
  const OllamaName far = Parse("ollama:localhost:5000/a/b:c").ollama;
  EXPECT_EQ(far.host, "localhost:5000");
  EXPECT_EQ(far.Short(), "localhost:5000/a/b:c");
  EXPECT_EQ(Parse("ollama:hf.co/o/r:Q4_0").ollama.Short(), "hf.co/o/r:Q4_0");
  for (const char* text :
       {"ollama:", "ollama:a/b/c/d", "ollama:../x", "ollama:a:b/c", "ollama:a:"}) {
    EXPECT_FALSE(ParseModelName(text, "").ok()) << text;
  }
}

TEST(ModelNameTest, OthersArePlain) {
  EXPECT_EQ(Parse("smollm2").kind, Kind::kPlain);
  EXPECT_EQ(Parse("qwen3:0.6b").kind, Kind::kPlain);
  EXPECT_FALSE(ParseModelName("", "").ok());
}

TEST(ModelNameTest, WhereARepositoryMustBeMeantTheErrorSaysSo) {
  for (const char* text : {"hf:repo", "hf:a/b/c", "hf:../b", "hf:a/b@../c", "hf:a/b:../c"}) {
    const auto name = ParseModelName(text, "");
    EXPECT_THAT(std::string(name.status().message()), HasSubstr("owner/repo")) << text;
  }
}

TEST(SafePathTest, LeadsNowhereElse) {
  EXPECT_TRUE(IsSafePath("a/b c/ü.gguf"));
  for (const char* path : {"", "/a", "a/../b", "..", "./a", "a//b", "a/", "a\nb", "a\\b"}) {
    EXPECT_FALSE(IsSafePath(path)) << path;
  }
}

}  // namespace
}  // namespace weft::hub
