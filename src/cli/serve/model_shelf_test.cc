#include "cli/serve/model_shelf.h"

#include <gtest/gtest.h>

#include <memory>

namespace weft::cli {
namespace {

TEST(ModelShelfTest, AModelThatIsServedAndDraftsIsLoadedOnce) {
  ModelFlags flags;
  flags.path = flags.draft_path = "box";
  flags.backend = "cpu";
  const auto file = OpenFlaggedFile(flags);
  ASSERT_TRUE(file.ok()) << file.status();
  ModelShelf shelf;
  auto served = shelf.Load(flags, *file, {});
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(shelf.Load(flags, *file, {})->get(), served->get());
  EXPECT_EQ(shelf.LoadDraft(flags, **served)->get(), served->get());
  // One that was loaded otherwise is another one.
  ModelFlags shorter = flags;
  shorter.context = 64;
  const auto other = shelf.Load(shorter, *file, {});
  EXPECT_NE(other->get(), served->get());
  EXPECT_EQ((*other)->context_tokens(), 64);
  EXPECT_EQ(shelf.LoadDraft(shorter, **other)->get(), served->get());
}

TEST(ModelShelfTest, ItKeepsNoneItself) {
  ModelFlags flags;
  flags.path = "box";
  flags.backend = "cpu";
  const auto file = OpenFlaggedFile(flags);
  ModelShelf shelf;
  const std::weak_ptr<const Model> gone = *shelf.Load(flags, *file, {});
  EXPECT_TRUE(gone.expired());
  EXPECT_TRUE(shelf.Load(flags, *file, {}).ok());
}

}  // namespace
}  // namespace weft::cli
