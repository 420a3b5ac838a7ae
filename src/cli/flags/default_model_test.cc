#include "cli/flags/default_model.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A home of its own, without models.
class DefaultModelTest : public testing::Test {
 protected:
  DefaultModelTest() {
    char pattern[] = "/tmp/weft_default_XXXXXX";
    home_ = mkdtemp(pattern);
    for (const char* name :
         {"HOME", "XDG_STATE_HOME", "WEFT_MODEL", "WEFT_CACHE", "WEFT_MODELS_DIR", "HF_HOME",
          "HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"}) {
      const char* const value = std::getenv(name);
      saved_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      unsetenv(name);
    }
    setenv("HOME", home_.c_str(), 1);
  }
  ~DefaultModelTest() override {
    std::filesystem::remove_all(home_);
    for (const auto& [name, value] : saved_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }

  std::string AddModel(const std::string& name) {
    std::string path = StrCat(home_, "/models/", name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << "GGUF";
    return path;
  }
  // Finds the models in the home's folder "models".
  ModelFinder Finder() const { return ModelFinder(StrCat(home_, "/models")); }
  Status Take(std::vector<std::string>* words, ModelFlags* flags) const {
    flags->models_folder = StrCat(home_, "/models");
    return TakeModelName(words, flags);
  }

  std::string home_;
  std::map<std::string, std::optional<std::string>> saved_;
};

TEST_F(DefaultModelTest, NoneIsAnErrorThatNamesSome) {
  const auto model = DefaultModel(Finder());
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("-m smollm2"));
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("-m box"));
}

TEST_F(DefaultModelTest, TheLastOneIsRememberedWhileItIsThere) {
  const std::string path = AddModel("loom.gguf");
  ModelFlags flags;
  flags.path = path;
  RememberModel(flags);
  EXPECT_EQ(DefaultModel(Finder()).value_or("none"), path);
  // The built-in model was named for once.
  flags.path = kBuiltInName;
  RememberModel(flags);
  EXPECT_EQ(DefaultModel(Finder()).value_or("none"), path);
  std::filesystem::remove(path);
  EXPECT_EQ(DefaultModel(Finder()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DefaultModelTest, TheVariableDecides) {
  const std::string path = AddModel("loom.gguf");
  ModelFlags flags;
  flags.path = path;
  RememberModel(flags);
  setenv("WEFT_MODEL", "owner/repo", 1);
  EXPECT_EQ(DefaultModel(Finder()).value_or("none"), "owner/repo");
}

TEST_F(DefaultModelTest, WordsThatNameModels) {
  AddModel("Loom-2-135M.Q4_0.gguf");
  const ModelFinder finder = Finder();
  for (const char* const word :
       {"smollm2", "box", "loom-2", "x.gguf", "ollama:qwen3:0.6b", "hf:owner/repo",
        "https://example.com/m", "owner/loom-3-GGUF", "owner/loom-3-gguf:Q4_0"}) {
    EXPECT_TRUE(NamesModel(finder, word)) << word;
  }
  for (const char* const word :
       {"", "Why", "Why?", "Why is it", "loom", "135", "and/or", "qwen-7b", "smollm2?", "2+2"}) {
    EXPECT_FALSE(NamesModel(finder, word)) << word;
  }
}

TEST_F(DefaultModelTest, TheFirstWordMayBeTheModel) {
  std::vector<std::string> words = {"smollm2", "Why", "not"};
  ModelFlags flags;
  EXPECT_TRUE(Take(&words, &flags).ok());
  EXPECT_EQ(flags.path, "smollm2");
  EXPECT_THAT(words, ElementsAre("Why", "not"));
  // Only where no other is named.
  EXPECT_TRUE(Take(&words, &flags).ok());
  words = {"box"};
  EXPECT_TRUE(Take(&words, &flags).ok());
  EXPECT_THAT(words, ElementsAre("box"));
  flags.path.clear();
  EXPECT_TRUE(Take(&words, &flags).ok());
  EXPECT_THAT(words, IsEmpty());
}

TEST_F(DefaultModelTest, ALoneWordThatIsNearlyAModelIsAnError) {
  std::vector<std::string> words = {"smolm2"};
  ModelFlags flags;
  const Status status = Take(&words, &flags);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean -m smollm2?"));
  words = {"smolm2", "Why"};
  EXPECT_TRUE(Take(&words, &flags).ok());
  words = {"Hello"};
  EXPECT_TRUE(Take(&words, &flags).ok());
  EXPECT_EQ(flags.path, "");
}

}  // namespace
}  // namespace weft::cli
