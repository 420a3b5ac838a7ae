#include "model/hub/local_models.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/hub/model_source.h"
#include "model/hub/names/digest.h"
#include "model/hub/remove_model.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Folders as the programs write them, with files that nobody opens.
class LocalModelsTest : public ::testing::Test {
 protected:
  LocalModelsTest() {
    root_ = fs::path(::testing::TempDir()) / StrCat("weft_local_models_test_", getpid());
    fs::remove_all(root_);
    places_ = {.hub_cache = root_ / "hub",
               .hub_endpoint = "http://127.0.0.1:1",
               .offline = true,
               .ollama_folders = {root_ / "ollama"},
               .llama_cpp_cache = root_ / "llama.cpp",
               .lm_studio_folders = {root_ / "studio"},
               .models_folder = root_ / "mine",
               .own = root_ / "own"};
  }
  ~LocalModelsTest() override { fs::remove_all(root_); }

  fs::path Write(const fs::path& path, std::string_view text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return root_ / path;
  }
  // A file of a snapshot, and its blob.
  void AddToHub(const std::string& repo, const std::string& commit, const std::string& file,
                std::string_view text) {
    const fs::path folder = fs::path("hub") / repo;
    const std::string hex = Sha256Hex(text);
    Write(folder / "blobs" / hex, text);
    Write(folder / "refs/main", commit);
    const fs::path link = root_ / folder / "snapshots" / commit / file;
    fs::create_directories(link.parent_path());
    std::string up = "../../";
    for (const char c : file) up += c == '/' ? "../" : "";
    fs::create_symlink(up + "blobs/" + hex, link);
  }
  void AddToOllama(const std::string& root, const std::string& path, std::string_view weights,
                   std::string_view params) {
    const auto layer = [&](const char* kind, std::string_view text) {
      const std::string hex = Sha256Hex(text);
      Write(fs::path(root) / "blobs" / ("sha256-" + hex), text);
      return StrCat(R"({"mediaType":"application/vnd.ollama.image.)", kind,
                    R"(","digest":"sha256:)", hex, R"(","size":)", text.size(), "}");
    };
    Write(fs::path(root) / "manifests" / path,
          StrCat(R"({"schemaVersion":2,"layers":[)", layer("model", weights), ",",
                 layer("params", params), "]}"));
  }
  void AddEverywhere() {
    AddToHub("models--o--tiny-GGUF", std::string(40, 'a'), "tiny-Q4_K_M.gguf", "one");
    AddToHub("models--o--tiny-GGUF", std::string(40, 'a'), "sub/tiny-Q8_0.gguf", "two");
    AddToHub("models--o--tiny-GGUF", std::string(40, 'a'), "mmproj-F16.gguf", "eyes");
    AddToOllama("ollama", "registry.ollama.ai/library/qwen3/0.6b", "three", R"({"top_k":20})");
    Write("ollama/manifests/registry.ollama.ai/library/cloud/latest", R"({"layers":[]})");
    Write("llama.cpp/a_b_model-Q4_0.gguf", "four");
    Write("llama.cpp/manifest=a=b=Q4_0.json", "{}");
    Write("llama.cpp/other.gguf", "five");
    Write("studio/pub/repo/m-Q6_K-00001-of-00002.gguf", "six");
    Write("studio/pub/repo/m-Q6_K-00002-of-00002.gguf", "seven");
    Write("studio/pub/repo/half-00001-of-00002.gguf", "half");
    Write("mine/sub/own.gguf", "eight");
    Write("own/catalogue/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "nine");
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const LocalModel& model : ListLocalModels(places_)) {
      names.push_back(StrCat(NameOf(model.owner), " ", model.name, " ", model.n_bytes));
    }
    return names;
  }
  ModelSource Source() const { return ModelSource(places_, LoadHooks::Default()); }

  fs::path root_;
  Places places_;
};

TEST_F(LocalModelsTest, EveryProgramsFoldersAreRead) {
  EXPECT_THAT(Names(), ElementsAre()) << "folders that are not there";
  AddEverywhere();
  EXPECT_THAT(Names(),
              ElementsAre("weft smollm2 4", "hub o/tiny-GGUF:Q4_K_M 3", "hub o/tiny-GGUF:Q8_0 3",
                          "llama.cpp a/b:Q4_0 4", "llama.cpp other 4", "ollama ollama:qwen3:0.6b 5",
                          "lm-studio pub/repo:Q6_K 8", "folder sub/own 5"));
  const std::vector<LocalModel> all = ListLocalModels(places_);
  EXPECT_EQ(all[5].parameters, R"({"top_k":20})");
  EXPECT_EQ(all[6].parts.size(), 2u);
}

// "team/coder:q4" reads like a repository of the hub.
TEST_F(LocalModelsTest, OllamasModelsWithANamespaceAreFoundAsOllamaNamesThem) {
  AddToOllama("ollama", "registry.ollama.ai/team/coder/q4", "weights", "{}");
  for (const char* what : {"team/coder:q4", "Team/Coder:Q4", "ollama:team/coder:q4"}) {
    const auto model = Source().FindLocal(what);
    ASSERT_TRUE(model.ok()) << what << ": " << model.status();
    EXPECT_EQ(model->owner, Owner::kOllama);
    EXPECT_THAT(model->ollama_kinds, ElementsAre("model", "params"));
  }
  EXPECT_FALSE(Source().FindLocal("team/coder").ok()) << "its tag is not latest";
  AddToHub("models--team--coder", std::string(40, 'a'), "coder-Q4_0.gguf", "one");
  EXPECT_EQ(Source().FindLocal("team/coder:Q4_0")->owner, Owner::kHub);
}

TEST_F(LocalModelsTest, NewerSnapshotsGoBeforeOlderAndAreNotListedTwice) {
  AddToHub("models--o--r", std::string(40, 'a'), "m-Q4_0.gguf", "old");
  AddToHub("models--o--r", std::string(40, 'b'), "m-Q4_0.gguf", "newer");
  EXPECT_THAT(Names(), ElementsAre("hub o/r:Q4_0 5"));
  const auto old = Source().FindLocal("o/r@" + std::string(40, 'a'));
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(old->path, HasSubstr(std::string(40, 'a')));
}

TEST_F(LocalModelsTest, TheSameQuantizationTwiceIsToldApart) {
  AddToHub("models--o--r", std::string(40, 'a'), "big-Q4_0.gguf", "big");
  AddToHub("models--o--r", std::string(40, 'a'), "small-Q4_0.gguf", "s");
  EXPECT_THAT(Names(), ElementsAre("hub o/r:big-Q4_0.gguf 3", "hub o/r:small-Q4_0.gguf 1"));
  EXPECT_TRUE(Source().FindLocal("o/r:small-Q4_0.gguf").ok());
}

TEST_F(LocalModelsTest, ModelsAreFoundByAPartOfTheirName) {
  AddEverywhere();
  const ModelSource source = Source();
  for (const auto& [what, file] : std::vector<std::pair<std::string, std::string>>{
           {"qwen3", "blobs/sha256-"},
           {"ollama:qwen3:0.6b", "blobs/sha256-"},
           {"o/tiny-gguf", "tiny-Q4_K_M.gguf"},
           {"o/tiny-GGUF:q8_0", "sub/tiny-Q8_0.gguf"},
           {"hf.co/pub/repo", "m-Q6_K-00001-of-00002.gguf"},
           {"a/b", "a_b_model-Q4_0.gguf"},
           {"OWN", "mine/sub/own.gguf"},
           {"sub/own", "mine/sub/own.gguf"},
           {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"}}) {
    const auto path = source.Find(what);
    ASSERT_TRUE(path.ok()) << what << ": " << path.status();
    EXPECT_THAT(*path, HasSubstr(file)) << what;
  }
  EXPECT_THAT(std::string(source.Find("tiny").status().message()),
              AllOf(HasSubstr("o/tiny-GGUF:Q4_K_M"), HasSubstr("o/tiny-GGUF:Q8_0"),
                    HasSubstr("give more")));
  EXPECT_THAT(std::string(source.Find("nothing").status().message()),
              AllOf(HasSubstr("weft list"), HasSubstr("smollm2"), HasSubstr("owner/repo")));
  EXPECT_THAT(std::string(source.Find("o/tiny-GGUF:Q2_K").status().message()),
              HasSubstr("HF_HUB_OFFLINE"));
}

TEST_F(LocalModelsTest, AFileOfThatNameGoesFirst) {
  const fs::path file = Write("qwen3", "a file");
  AddEverywhere();
  EXPECT_EQ(*Source().Find(file.string()), file.string());
  // Opening the file will report that it is missing.
  EXPECT_EQ(*Source().Find("missing.gguf"), "missing.gguf");
}

TEST_F(LocalModelsTest, RemovingTakesTheBlobThatNothingElseHas) {
  AddEverywhere();
  AddToHub("models--o--tiny-GGUF", std::string(40, 'b'), "copy.gguf", "two");
  AddToHub("models--o--tiny-GGUF", std::string(40, 'b'), "tiny-Q4_K_M.gguf", "one");
  const auto remove = [&](const char* name) -> StatusOr<int64_t> {
    WEFT_ASSIGN_OR_RETURN(const LocalModel model, FindToRemove(Source(), name));
    return RemoveModel(places_, model);
  };
  EXPECT_EQ(*remove("o/tiny-GGUF:Q4_K_M"), 3);
  EXPECT_FALSE(fs::exists(root_ / "hub/models--o--tiny-GGUF/blobs" / Sha256Hex("one")));
  EXPECT_EQ(*remove("o/tiny-GGUF:sub/tiny-Q8_0.gguf"), 0) << "copy.gguf is the same bytes";
  EXPECT_EQ(*remove("smollm2"), 4);
  EXPECT_EQ(remove("smollm2").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Source().FindLocal("o/tiny-GGUF:copy.gguf").ok());
}

TEST_F(LocalModelsTest, WhatALinkLeadsToElsewhereIsNotRemoved) {
  const fs::path mine = Write("precious.gguf", "mine");
  AddToHub("models--o--r", std::string(40, 'a'), "m-Q4_0.gguf", "x");
  const fs::path link = root_ / "hub/models--o--r/snapshots" / std::string(40, 'a') / "l-Q8_0.gguf";
  fs::create_symlink(mine, link);
  const auto model = FindToRemove(Source(), "o/r:Q8_0");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*RemoveModel(places_, *model), 0);
  EXPECT_FALSE(fs::exists(fs::symlink_status(link)));
  EXPECT_TRUE(fs::exists(mine));
}

TEST_F(LocalModelsTest, OthersModelsAreNotRemoved) {
  AddEverywhere();
  for (const auto& [name, says] : std::vector<std::pair<std::string, std::string>>{
           {"ollama:qwen3:0.6b", "ollama rm qwen3:0.6b"},
           {"pub/repo:Q6_K", "LM Studio"},
           {"a/b:Q4_0", "llama.cpp"},
           {"sub/own", "your own file"}}) {
    EXPECT_THAT(std::string(FindToRemove(Source(), name).status().message()), HasSubstr(says));
  }
  EXPECT_EQ(Names().size(), 8u);
}

TEST_F(LocalModelsTest, OwnModelsOfOllamaShareBlobs) {
  AddToOllama("own/ollama", "registry.ollama.ai/library/a/1b", "weights", "{}");
  AddToOllama("own/ollama", "registry.ollama.ai/library/b/1b", "weights", R"({"x":1})");
  EXPECT_THAT(Names(), ElementsAre("weft ollama:a:1b 7", "weft ollama:b:1b 7"));
  EXPECT_TRUE(Source().FindLocal("1b").ok()) << "two names of one file";
  const auto model = FindToRemove(Source(), "ollama:a:1b");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*RemoveModel(places_, *model), 2) << "its parameters, not the weights";
  EXPECT_THAT(Names(), ElementsAre("weft ollama:b:1b 7"));
}

}  // namespace
}  // namespace weft::hub
