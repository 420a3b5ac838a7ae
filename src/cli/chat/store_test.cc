#include "cli/chat/store.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

class ChatStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "weft-chat-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    store_ = *ChatStore::Open(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void Write(const std::string& file, const std::string& text) {
    std::ofstream(fs::path(dir_) / "chat" / file) << text;
  }

  static StoredChat Example(const std::string& name) {
    StoredChat chat;
    chat.name = name;
    chat.system = "Be brief.";
    chat.messages = {{.parts = {"hi \"there\"\n\x1b"}},
                     {.role = Role::kAssistant, .parts = {"na\xC3\xAFve"}}};
    chat.model_fingerprint = "abc";
    chat.context = ChatContext({5, 6});
    chat.context.Append(7, "\xFF");
    return chat;
  }

  std::string dir_;
  std::unique_ptr<ChatStore> store_;
};

TEST_F(ChatStoreTest, GivesBackPictures) {
  StoredChat chat = Example("zoo");
  const std::string bytes("\x89PNG\0\xff", 6);
  chat.pictures = {{"<picture-1>", "cat.png", std::make_shared<serve::PictureFile>(bytes)}};
  ASSERT_TRUE(store_->Save(chat).ok());
  const auto loaded = store_->Load("zoo");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->pictures.size(), 1u);
  EXPECT_EQ(loaded->pictures[0].mark, "<picture-1>");
  EXPECT_EQ(loaded->pictures[0].name, "cat.png");
  EXPECT_EQ(loaded->pictures[0].file->bytes, bytes);
}

TEST_F(ChatStoreTest, GivesBackWhatWasSaved) {
  for (const std::string name : {"kitchen", "../../etc/passwd", "A b", "."}) {
    ASSERT_TRUE(store_->Save(Example(name)).ok());
    const auto chat = store_->Load(name);
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->name, name);
    EXPECT_EQ(chat->system, "Be brief.");
    ASSERT_EQ(chat->messages.size(), 2u);
    EXPECT_EQ(TextOf(chat->messages[0]), "hi \"there\"\n\x1b");
    EXPECT_EQ(chat->messages[0].role, Role::kUser);
    EXPECT_EQ(TextOf(chat->messages[1]), "na\xC3\xAFve");
    EXPECT_EQ(chat->messages[1].role, Role::kAssistant);
    EXPECT_EQ(chat->model_fingerprint, "abc");
    EXPECT_EQ(chat->context.tokens(), (std::vector<TokenId>{5, 6, 7}));
    EXPECT_EQ(chat->context.marks().back().text_hash,
              Example(name).context.marks().back().text_hash);
  }
  EXPECT_EQ(*store_->List(), (std::vector<std::string>{".", "../../etc/passwd", "A b", "kitchen"}));
  // All in one folder, readable only by the user.
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_EQ(entry.path().parent_path(), fs::path(dir_) / "chat");
    struct stat info;
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  EXPECT_EQ(files, 4);
}

TEST_F(ChatStoreTest, RemovesAndSaysWhatIsMissing) {
  EXPECT_EQ(store_->Load("kitchen").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store_->Remove("kitchen").ok());
  ASSERT_TRUE(store_->Save(Example("kitchen")).ok());
  EXPECT_TRUE(store_->Remove("kitchen").ok());
  EXPECT_EQ(store_->Load("kitchen").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store_->List()->empty());
}

TEST_F(ChatStoreTest, RefusesWhatIsNoConversation) {
  ASSERT_TRUE(store_->Save(Example("a")).ok());
  std::string good;
  std::getline(std::ifstream(dir_ + "/chat/a.json"), good);
  const auto refused = [&](const std::string& text) {
    Write("a.json", text);
    const auto chat = store_->Load("a");
    return !chat.ok() && chat.status().code() != StatusCode::kNotFound &&
           Message(chat.status()).find("a.json") != std::string_view::npos;
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    const size_t at = good.find(from);
    EXPECT_NE(at, good.npos) << from;
    return std::string(good).replace(at, from.size(), to);
  };
  EXPECT_FALSE(refused(good));
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string("nul"),
        good.substr(0, good.size() / 2), with("\"version\":1", "\"version\":2"),
        with("\"version\":1", "\"version\":\"1\""), with("\"name\":\"a\"", "\"name\":\"b\""),
        with("\"user\"", "\"assistant\""), with("\"user\"", "\"wizard\""), with("[5,6,7]", "[5,6]"),
        with("[5,6,7]", "[5,-6,7]"), with("[5,6,7]", "[5,6,99999999999]"),
        with("[5,6,7]", "[5,6.5,7]"), with("[5,6,7]", "7"), with("[0,2,0]", "[0,2]"),
        with("[0,2,0]", "0"), with("[0,2,0]", "[0,2,-1]"), with("\"content\":", "\"c\":")}) {
    EXPECT_TRUE(refused(text)) << text;
  }
}

TEST_F(ChatStoreTest, CleansUpAfterAnInterruptedSave) {
  Write(".tmp-1234", "half");
  Write("README", "not a conversation");
  store_ = *ChatStore::Open(dir_);
  EXPECT_FALSE(fs::exists(fs::path(dir_) / "chat" / ".tmp-1234"));
  EXPECT_TRUE(fs::exists(fs::path(dir_) / "chat" / "README"));
  EXPECT_TRUE(store_->List()->empty());
}

}  // namespace
}  // namespace weft::cli
