#include "cli/flags/ollama_flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

TEST(OllamaNameTest, MeansOllamasModelsAndTheHubs) {
  EXPECT_EQ(*FromOllamaName("qwen3:0.6b"), "ollama:qwen3:0.6b");
  EXPECT_EQ(*FromOllamaName("me/mine"), "ollama:me/mine");
  EXPECT_EQ(*FromOllamaName("hf.co/owner/repo:Q4_K_M"), "hf:owner/repo:Q4_K_M");
  EXPECT_EQ(*FromOllamaName("huggingface.co/owner/repo"), "hf:owner/repo");
}

// Clients must not be able to make this server contact others.
TEST(OllamaNameTest, OtherServersAreNotAsked) {
  for (const char* const name : {"localhost:5000/a/b", "internal.example/a/b:c"}) {
    const auto what = FromOllamaName(name);
    EXPECT_EQ(what.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(what.status().message()), HasSubstr("hf.co")) << name;
  }
  for (const char* const name : {"http://a/b.gguf", "https://a/b.gguf", "../a", "/etc/passwd",
                                 "hf.co/only", "hf.co/../x", "smol lm", ""}) {
    EXPECT_FALSE(FromOllamaName(name).ok()) << name;
  }
}

TEST(OllamaProgressTest, NamesTheFileByItsDigest) {
  const auto line = ToOllamaProgress({.stage = hub::Progress::Stage::kLoading,
                                      .name = "ollama:a:1b",
                                      .done_bytes = 3,
                                      .total_bytes = 7,
                                      .sha256 = "abcd"});
  EXPECT_EQ(line.status, "pulling ollama:a:1b");
  EXPECT_EQ(line.digest, "sha256:abcd");
  EXPECT_EQ(line.completed_bytes, 3);
  EXPECT_EQ(line.total_bytes, 7);
  EXPECT_EQ(ToOllamaProgress({.name = "x"}).digest, "");
}

TEST(OllamaListenerTest, OpensAPortOnlyOnce) {
  const auto listener_at = [](const char* host, int port) {
    return OllamaListener({.host = host, .port = port, .ollama = true});
  };
  EXPECT_FALSE(OllamaListener({}).has_value());
  const auto listener = listener_at("0.0.0.0", 8080);
  ASSERT_TRUE(listener.has_value());
  EXPECT_EQ(listener->host, "127.0.0.1");
  EXPECT_EQ(listener->port, 11434);
  EXPECT_THAT(listener->way_out, HasSubstr("--ollama"));
  for (const char* const host : {"127.0.0.1", "localhost", "0.0.0.0", "::"}) {
    EXPECT_FALSE(listener_at(host, 11434).has_value()) << host;
  }
  EXPECT_TRUE(listener_at("192.0.2.7", 11434).has_value());
}

}  // namespace
}  // namespace weft::cli
