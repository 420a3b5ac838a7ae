#include "model/hub/places.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::hub {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

Places Of(const std::map<std::string, std::string>& variables) {
  return PlacesOf([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

TEST(PlacesTest, AreWhereTheToolsPutThem) {
  const Places places = Of({{"HOME", "/nowhere"}});
  EXPECT_EQ(places.hub_cache, "/nowhere/.cache/huggingface/hub");
  EXPECT_EQ(places.hub_endpoint, "https://huggingface.co");
  EXPECT_EQ(places.llama_cpp_cache, "/nowhere/.cache/llama.cpp");
  EXPECT_EQ(places.own, "/nowhere/.cache/weft");
  EXPECT_EQ(places.packed_copies, "/nowhere/.cache/weft/packed");
  EXPECT_THAT(places.ollama_folders,
              ElementsAre("/nowhere/.ollama/models", "/usr/share/ollama/.ollama/models"));
  EXPECT_THAT(places.lm_studio_folders,
              ElementsAre("/nowhere/.lmstudio/models", "/nowhere/.cache/lm-studio/models"));
  EXPECT_FALSE(places.offline);
}

TEST(PlacesTest, FollowTheEnvironment) {
  const Places places = Of({{"HOME", "/nowhere"},
                            {"XDG_CACHE_HOME", "/c"},
                            {"HF_HOME", "/hf"},
                            {"HF_ENDPOINT", "http://mirror/"},
                            {"HF_TOKEN", " hf_x\n"},
                            {"HF_HUB_OFFLINE", "yes"},
                            {"LLAMA_CACHE", "/l"},
                            {"OLLAMA_MODELS", "/o"},
                            {"WEFT_MODELS_DIR", "/m"}});
  EXPECT_EQ(places.hub_cache, "/hf/hub");
  EXPECT_EQ(places.hub_endpoint, "http://mirror");
  EXPECT_EQ(places.hub_token, "hf_x");
  EXPECT_TRUE(places.offline);
  EXPECT_EQ(places.llama_cpp_cache, "/l");
  EXPECT_EQ(places.ollama_folders[0], "/o");
  EXPECT_EQ(places.own, "/c/weft");
  EXPECT_EQ(places.models_folder, "/m");
  EXPECT_EQ(Of({{"HF_HOME", "/hf"}, {"HF_HUB_CACHE", "/other"}}).hub_cache, "/other");
  EXPECT_EQ(Of({{"HF_TOKEN", "a\r\nHost: b"}}).hub_token, "") << "it would be a line of its own";
}

TEST(PlacesTest, ReadWhatOtherProgramsHaveWritten) {
  const std::filesystem::path home =
      std::filesystem::path(::testing::TempDir()) / "weft_places_test";
  std::filesystem::create_directories(home / "studio");
  std::filesystem::create_directories(home / ".cache/huggingface");
  std::ofstream(home / ".lmstudio-home-pointer") << (home / "studio").string();
  std::ofstream(home / "studio/settings.json") << R"({"downloadsFolder": "/big/models"})";
  std::ofstream(home / ".cache/huggingface/token") << "hf_login\n";
  const Places places = Of({{"HOME", home.string()}});
  EXPECT_EQ(places.hub_token, "hf_login");
  EXPECT_EQ(places.lm_studio_folders[0], "/big/models");
  EXPECT_THAT(places.lm_studio_folders, Contains((home / "studio/models").string()));
  std::filesystem::remove_all(home);
}

}  // namespace
}  // namespace weft::hub
