// Saving, restoring and erasing slots, as clients of llama-server do.
#include "doors/api/llama/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class SlotsTest : public testing::ApiTest {
 protected:
  static std::filesystem::path Folder() {
    return std::filesystem::path(::testing::TempDir()) / "weft-slots";
  }
  static void SetUpTestSuite() {
    std::filesystem::remove_all(Folder());
    std::filesystem::create_directories(Folder());
    SetUpWith("llama", testing::kScriptedContext, {.server = {.slot_save_path = Folder()}},
              Folder());
  }
  static void TearDownTestSuite() {
    ApiTest::TearDownTestSuite();
    std::filesystem::remove_all(Folder());
  }

  static Json Complete(int slot, const char* say, std::string domain = "") {
    const std::string prompt = "What is the capital? <<say>>" + std::string(say) + "<</say>>";
    return Post("/completion", {{"prompt", prompt}, {"id_slot", slot}}, {}, std::move(domain))
        .json();
  }
  static Json Act(int slot, const std::string& action, const Json& body = Json::object(),
                  std::string domain = "", int status = 200) {
    const auto response =
        Post("/slots/" + std::to_string(slot) + "?action=" + action, body, {}, std::move(domain));
    EXPECT_EQ(response.status(), status) << response.body();
    return response.json();
  }
  // The number of tokens in a slot's session; -1: there is none.
  static int64_t Tokens(int slot, const char* domain = "") {
    const auto session = host().engine().FindSession(domain, "slot-" + std::to_string(slot));
    return session.ok() ? host().engine().Inspect(*session)->n_tokens : -1;
  }
};

TEST_F(SlotsTest, AConversationIsSavedRestoredAndErased) {
  const Json first = Complete(1, "Oslo.");
  EXPECT_EQ(first["id_slot"], 1);
  const int64_t n_tokens = Tokens(1);
  EXPECT_GT(n_tokens, 20);
  const Json saved = Act(1, "save", {{"filename", "one.bin"}});
  EXPECT_EQ(saved["id_slot"], 1);
  EXPECT_EQ(saved["filename"], "one.bin");
  EXPECT_EQ(saved["n_saved"], n_tokens);
  EXPECT_EQ(saved["n_written"], std::filesystem::file_size(Folder() / "one.bin"));
  EXPECT_GE(saved["timings"]["save_ms"], 0.0);

  const Json erased = Act(1, "erase");
  EXPECT_EQ(erased["n_erased"], n_tokens);
  EXPECT_EQ(Tokens(1), -1);
  EXPECT_EQ(Act(1, "erase")["n_erased"], 0);
  // Also drop what would be found without the file.
  ASSERT_TRUE(host().engine().DropPrefixes().ok());

  const Json restored = Act(0, "restore", {{"filename", "one.bin"}});
  EXPECT_EQ(restored["id_slot"], 0);
  EXPECT_EQ(restored["n_restored"], n_tokens);
  EXPECT_EQ(restored["n_read"], saved["n_written"]);
  EXPECT_EQ(Tokens(0), n_tokens);
  const Json second = Complete(0, "Oslo.");
  EXPECT_EQ(second["content"], "Oslo.");
  EXPECT_LE(second["timings"]["prompt_n"], 1) << "all of it was restored";
  // The other slot starts empty, and several prompts belong to no slot.
  EXPECT_EQ(Tokens(1), -1);
  Post("/completion", {{"prompt", Json::array({"a", "b"})}, {"n_predict", 1}, {"id_slot", 1}});
  EXPECT_EQ(Tokens(1), -1);
  const Json chat = {{"messages", Json::array({Say("Hi")})}, {"id_slot", 1}};
  EXPECT_EQ(Post("/v1/chat/completions", chat).status(), 200);
  EXPECT_GT(Tokens(1), 0);
}

TEST_F(SlotsTest, AKeySeesItsOwnFilesAlone) {
  Complete(2, "Oslo.", "ours");
  Act(2, "save", {{"filename", "ours.bin"}}, "ours");
  EXPECT_EQ(Tokens(2), -1);
  Act(2, "restore", {{"filename", "ours.bin"}}, "theirs", 400);
  Act(2, "restore", {{"filename", "ours.bin"}}, "", 400);
  EXPECT_GT(Act(3, "restore", {{"filename", "ours.bin"}}, "ours")["n_restored"], 0);
}

TEST_F(SlotsTest, WhatCannotBeIsRefused) {
  for (const char* const name : {"", "../x", "a/b", ".hidden", "a b"}) {
    const Json error = Act(0, "save", {{"filename", name}}, "", 400)["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_THAT(std::string(error["message"]), HasSubstr("filename")) << name;
  }
  Act(0, "restore", {{"filename", "nowhere.bin"}}, "", 400);
  Act(0, "dance", Json::object(), "", 400);
  Act(4096, "erase", Json::object(), "", 400);
  std::ofstream(Folder() / "damaged.bin") << "{\"tokens\": [1, 2";
  Act(0, "restore", {{"filename", "damaged.bin"}}, "", 400);
  std::ofstream(Folder() / "other.bin") << R"({"model": "another", "tokens": [1, 2]})";
  EXPECT_THAT(
      std::string(Act(0, "restore", {{"filename", "other.bin"}}, "", 400)["error"]["message"]),
      HasSubstr("another model"));
  std::ofstream(Folder() / "beyond.bin")
      << Json{{"model", host().model().fingerprint()}, {"tokens", {1, 99999999}}};
  Act(0, "restore", {{"filename", "beyond.bin"}}, "", 400);
}

class NoSlotsTest : public testing::ApiTest {};

TEST_F(NoSlotsTest, WithoutAFolderItSaysSo) {
  const auto response = Post("/slots/0?action=save", {{"filename", "x"}});
  EXPECT_EQ(response.status(), 501);
  EXPECT_THAT(response.body(), HasSubstr("--slot-save-path"));
  // A slot then has no session.
  Post("/completion", {{"prompt", "a"}, {"n_predict", 1}, {"id_slot", 0}});
  EXPECT_FALSE(host().engine().FindSession("", "slot-0").ok());
}

}  // namespace
}  // namespace weft::serve
