// Another program's reader sees the same in tests/e2e/tokenizer_bundle_test.py.
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "zip/zip_reader.h"
#include "zip/zip_writer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Contents = std::vector<std::pair<std::string, std::string>>;

// Everything that the archive says it holds.
StatusOr<Contents> ReadAll(std::string_view archive) {
  WEFT_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(std::as_bytes(std::span(archive))));
  Contents contents;
  for (const ZipMember& member : zip.members()) {
    std::string text;
    WEFT_RETURN_IF_ERROR(zip.Read(member, [&](std::span<const std::byte> piece) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return OkStatus();
    }));
    EXPECT_EQ(text.size(), member.n_bytes);
    contents.emplace_back(member.name, std::move(text));
  }
  return contents;
}

std::string Archive(const Contents& contents) {
  ZipWriter writer;
  for (const auto& [name, text] : contents) EXPECT_TRUE(writer.Add(name, text).ok());
  return writer.Finish();
}

// An archive of one member that is not compressed, as torch.save and `zip -0` write it.
std::string Stored(const std::string& name, const std::string& text) {
  std::string archive = Archive({{name, text}});
  const auto put = [&](size_t at, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) archive[at + i] = static_cast<char>(value >> (8 * i));
  };
  const size_t local_bytes = 30 + name.size();
  const size_t directory = archive.rfind("PK\x01\x02");
  archive.replace(local_bytes, directory - local_bytes, text);
  const size_t moved = local_bytes + text.size();
  for (const size_t entry : {size_t{0}, moved + 2}) {
    put(entry + 8, 0, 2);             // method
    put(entry + 18, text.size(), 4);  // packed
  }
  put(archive.size() - 6, moved, 4);  // where the directory is
  return archive;
}

TEST(ZipTest, HoldsWhatWasAdded) {
  const std::string large(300'000, 'x');
  const std::string archive = Archive({{"a.txt", "weft"}, {"empty", ""}, {"large", large}});
  EXPECT_LT(archive.size(), 2000u);
  EXPECT_THAT(*ReadAll(archive),
              ElementsAre(Pair("a.txt", "weft"), Pair("empty", ""), Pair("large", large)));
  EXPECT_EQ(Archive({{"a.txt", "weft"}}), Archive({{"a.txt", "weft"}}));
}

TEST(ZipTest, AViewIsOfAStoredMember) {
  const std::string archive = Stored("folder/data", "twelve bytes");
  EXPECT_THAT(*ReadAll(archive), ElementsAre(Pair("folder/data", "twelve bytes")));
  const auto zip = ZipReader::Open(std::as_bytes(std::span(archive)));
  const auto view = zip->View(zip->members()[0]);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(view->data()), view->size()),
            "twelve bytes");
  const std::string deflated = Archive({{"a", "weft"}});
  const auto other = ZipReader::Open(std::as_bytes(std::span(deflated)));
  EXPECT_EQ(other->View(other->members()[0]).status().code(), StatusCode::kUnimplemented);
}

TEST(ZipTest, DamageIsAnError) {
  for (const std::string& archive :
       {Archive({{"p/b.part", "etwo"}, {"p/a.part", "part and part and part"}}),
        Stored("name", "some text")}) {
    for (size_t n = 0; n < archive.size(); ++n) {
      EXPECT_FALSE(ReadAll(archive.substr(0, n)).ok()) << n;
      for (const int mask : {0xFF, 0x01, 0x80}) {
        std::string flipped = archive;
        flipped[n] = static_cast<char>(flipped[n] ^ mask);
        const auto zip = ZipReader::Open(std::as_bytes(std::span(flipped)));
        if (!zip.ok()) continue;
        // Whatever it claims, nothing beyond the archive is read.
        for (const ZipMember& member : zip->members()) {
          (void)zip->View(member);
          (void)zip->Read(member, [](std::span<const std::byte>) { return OkStatus(); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
