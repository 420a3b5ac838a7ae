#include "doors/api/page/conversation_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ConversationStore, KeepsWhatIsPutOverARestart) {
  const Folder folder;
  int64_t version = 0;
  std::string store_name;
  {
    ConversationStore store(folder.path());
    version = *store.Put("", "one", 0, R"({"title":"Loom"})");
    EXPECT_GT(version, 0);
    store_name = store.List("")->store;
  }
  ConversationStore store(folder.path());
  const auto listing = store.List("");
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->store, store_name);
  EXPECT_EQ(listing->items.at("one").version, version);
  EXPECT_EQ(listing->items.at("one").n_bytes, 16);
  EXPECT_EQ(store.Get("", "one")->text, R"({"title":"Loom"})");
  const int64_t next = *store.Put("", "one", version, "{}");
  EXPECT_GT(next, version);
  EXPECT_EQ(store.Get("", "one")->version, next);
}

TEST(ConversationStore, GivesNoVersionTwice) {
  const Folder folder;
  int64_t largest = 0;
  // Restarts within a millisecond of each other where files are in memory.
  for (int i = 0; i < 40; ++i) {
    ConversationStore store(folder.path());
    int64_t version = 0;
    for (int j = 0; j < 3; ++j) {
      version = *store.Put("", "one", version, "{}");
      EXPECT_GT(version, largest);
      largest = version;
    }
    ASSERT_TRUE(store.Delete("", "one").ok());
  }
}

TEST(ConversationStore, RefusesAChangeOfAnotherVersion) {
  const Folder folder;
  ConversationStore store(folder.path());
  const int64_t first = *store.Put("", "one", 0, "{}");
  EXPECT_EQ(store.Put("", "one", 0, "{}").status().code(), StatusCode::kAborted);
  const int64_t second = *store.Put("", "one", first, "[]");
  EXPECT_EQ(store.Put("", "one", first, "{}").status().code(), StatusCode::kAborted);
  EXPECT_EQ(store.Get("", "one")->text, "[]");
  // Deleted elsewhere: only who says so makes it again, and its version is a new one.
  ASSERT_TRUE(store.Delete("", "one").ok());
  EXPECT_EQ(store.Put("", "one", second, "{}").status().code(), StatusCode::kNotFound);
  EXPECT_GT(*store.Put("", "one", 0, "{}"), second);
}

TEST(ConversationStore, HidesTheConversationsOfOtherKeys) {
  const Folder folder;
  ConversationStore store(folder.path());
  ASSERT_TRUE(store.Put("a1", "one", 0, "{}").ok());
  EXPECT_THAT(store.List("b2")->items, IsEmpty());
  EXPECT_THAT(store.List("")->items, IsEmpty());
  EXPECT_EQ(store.Get("b2", "one").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store.Delete("b2", "one").ok());
  EXPECT_THAT(store.List("a1")->items, SizeIs(1));
  EXPECT_NE(store.List("a1")->store, store.List("b2")->store);
  EXPECT_NE(store.List("")->tag, store.List("b2")->tag);
}

TEST(ConversationStore, TellsItsLimits) {
  const Folder folder;
  ConversationStore store(
      folder.path(),
      {.conversation_bytes = 100, .bytes_of_one_key = 150, .conversations_of_one_key = 2});
  const std::string text(90, ' ');
  EXPECT_EQ(store.Put("", "big", 0, text + text).status().code(), StatusCode::kOutOfRange);
  const int64_t version = *store.Put("", "one", 0, text);
  EXPECT_EQ(store.Put("", "two", 0, text).status().code(), StatusCode::kOutOfRange);
  ASSERT_TRUE(store.Put("", "two", 0, "{}").ok());
  EXPECT_THAT(std::string(Message(store.Put("", "three", 0, "{}").status())),
              HasSubstr("export some and delete them"));
  // An existing conversation may still change.
  EXPECT_TRUE(store.Put("", "one", version, text).ok());
  EXPECT_TRUE(store.Delete("", "two").ok());
  EXPECT_TRUE(store.Put("", "three", 0, "{}").ok());
}

TEST(ConversationStore, LeadsNowhereElse) {
  const Folder folder;
  ConversationStore store(folder.path());
  for (const char* const id : {"", "../one", "a/b", ".store", "A", "a b", "a\n"}) {
    EXPECT_EQ(store.Put("", id, 0, "{}").status().code(), StatusCode::kInvalidArgument) << id;
    EXPECT_FALSE(store.Get("", id).ok()) << id;
    EXPECT_FALSE(store.Delete("", id).ok()) << id;
  }
  EXPECT_FALSE(store.List("../..").ok());
}

TEST(ConversationStore, OutlivesFilesThatItCannotRead) {
  const Folder folder;
  const std::string path = folder.path() + "/conversations/@";
  {
    ConversationStore store(folder.path());
    ASSERT_TRUE(store.Put("", "one", 0, "{}").ok());
  }
  std::ofstream(path + "/cut.json") << "weft-conv";
  std::ofstream(path + "/later.json") << "weft-conversation 2 7\n{}";
  std::ofstream(path + "/empty.json");
  std::ofstream(path + "/.tmp-left") << "half";
  ConversationStore store(folder.path());
  const auto items = store.List("")->items;
  EXPECT_THAT(items, SizeIs(4));
  EXPECT_GT(items.at("one").version, 0);
  EXPECT_FALSE(std::filesystem::exists(path + "/.tmp-left"));
  for (const char* const id : {"cut", "later", "empty"}) {
    EXPECT_EQ(items.at(id).version, ConversationStore::kDamaged) << id;
    EXPECT_EQ(store.Get("", id).status().code(), StatusCode::kDataLoss) << id;
  }
  EXPECT_GT(*store.Put("", "cut", 7, "{}"), items.at("one").version);
  EXPECT_EQ(store.Get("", "cut")->text, "{}");
  EXPECT_TRUE(store.Delete("", "empty").ok());
}

// Random changes by several browsers, and restarts, against a map.
TEST(ConversationStore, IsAMapWithVersions) {
  const Folder folder;
  std::mt19937 random(7);
  std::map<std::string, ConversationStore::Conversation> expected;
  auto store = std::make_unique<ConversationStore>(folder.path());
  int64_t largest = 0;
  const auto tag_of = [&] {
    const auto listing = store->List("");
    EXPECT_TRUE(listing.ok()) << listing.status();
    return listing.ok() ? listing->tag : "";
  };
  for (int i = 0; i < 250; ++i) {
    SCOPED_TRACE(i);
    const std::string id = StrCat("c", random() % 5);
    const bool is_there = expected.contains(id);
    const bool is_stale = random() % 4 == 0;
    const int64_t version = (is_there ? expected[id].version : 0) + (is_stale ? 1 : 0);
    if (random() % 20 == 0) {
      store = std::make_unique<ConversationStore>(folder.path());
    } else if (random() % 6 == 0) {
      const std::string tag = tag_of();
      const Status deleted = store->Delete("", id);
      ASSERT_TRUE(deleted.ok()) << deleted;
      EXPECT_EQ(tag_of() == tag, !is_there);
      expected.erase(id);
    } else {
      const std::string text = StrCat("{\"i\":", i, "}");
      const auto put = store->Put("", id, version, text);
      ASSERT_EQ(put.ok(), !is_stale) << put.status();
      if (!put.ok()) continue;
      EXPECT_GT(*put, largest);
      largest = *put;
      expected[id] = {.version = *put, .text = text};
    }
    const auto listing = store->List("");
    ASSERT_TRUE(listing.ok()) << listing.status();
    ASSERT_EQ(listing->items.size(), expected.size());
    for (const auto& [name, conversation] : expected) {
      const auto item = listing->items.find(name);
      ASSERT_NE(item, listing->items.end()) << name;
      EXPECT_EQ(item->second.version, conversation.version);
      const auto kept = store->Get("", name);
      ASSERT_TRUE(kept.ok()) << name << ": " << kept.status();
      EXPECT_EQ(kept->text, conversation.text);
    }
  }
}

// Each thread raises the same number; every success counts once.
TEST(ConversationStore, LosesNoChangeOfConcurrentWriters) {
  const Folder folder;
  ConversationStore store(folder.path());
  ASSERT_TRUE(store.Put("", "n", 0, "0").ok());
  constexpr int kEach = 20;
  const auto raise = [&] {
    for (int done = 0; done < kEach;) {
      const auto now = store.Get("", "n");
      const int next = std::stoi(now->text) + 1;
      const auto put = store.Put("", "n", now->version, StrCat(next));
      if (put.ok()) ++done;
    }
  };
  std::vector<std::thread> writers;
  for (int i = 0; i < 3; ++i) writers.emplace_back(raise);
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(store.Get("", "n")->text, StrCat(3 * kEach));
}

}  // namespace
}  // namespace weft::serve
