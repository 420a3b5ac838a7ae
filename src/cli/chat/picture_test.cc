#include "cli/chat/picture.h"

#include <filesystem>
#include <fstream>

#include "base/strings.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

class ChatPictureTest : public testing::Test {
 protected:
  ChatPictureTest() {
    std::string pattern = (fs::temp_directory_path() / "weft-picture-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    for (const char* name : {"a.png", "B c.JPG", "d.txt"}) std::ofstream(dir_ / name) << "x";
  }
  ~ChatPictureTest() override { fs::remove_all(dir_); }
  std::string In(const std::string& name) const { return (dir_ / name).string(); }

  fs::path dir_;
};

TEST_F(ChatPictureTest, ALineThatIsAPicturesFileIsItsPath) {
  EXPECT_EQ(PicturePathIn(In("a.png") + " "), In("a.png"));
  EXPECT_EQ(PicturePathIn(In("B c.JPG")), In("B c.JPG"));
  EXPECT_EQ(PicturePathIn(In("B\\ c.JPG")), In("B c.JPG"));
  EXPECT_EQ(PicturePathIn("'" + In("B c.JPG") + "'"), In("B c.JPG"));
  EXPECT_EQ(PicturePathIn("\"" + In("a.png") + "\""), In("a.png"));
  EXPECT_EQ(PicturePathIn("file://" + In("B%20c.JPG")), In("B c.JPG"));
  for (const std::string& other :
       {In("d.txt"), In("none.png"), In(""), std::string(), "see " + In("a.png"),
        In("a.png") + " what?", std::string("'"), "file://" + In("a%2"), std::string("/help")}) {
    EXPECT_EQ(PicturePathIn(other), "") << other;
  }
}

TEST_F(ChatPictureTest, AQuestionFollowsTheFile) {
  const auto expect = [](const std::string& text, const std::string& path,
                         const std::string& question) {
    const ImageArguments image = SplitImageArguments(text);
    EXPECT_EQ(image.path, path) << text;
    EXPECT_EQ(image.question, question) << text;
  };
  expect(In("a.png"), In("a.png"), "");
  expect(In("B c.JPG"), In("B c.JPG"), "");
  expect(In("a.png") + "  What is it?", In("a.png"), "What is it?");
  expect("'" + In("B c.JPG") + "' What's this?", In("B c.JPG"), "What's this?");
  expect(In("B\\ c.JPG") + " What?", In("B c.JPG"), "What?");
  expect("nothing at all", "nothing", "at all");
}

TEST_F(ChatPictureTest, NamesStandForMarks) {
  const auto picture = ReadChatPicture(In("a.png"));
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_EQ(picture->file->bytes, "x");
  const std::vector<ChatPicture> pictures = {*picture};
  EXPECT_EQ(WithPictureNames(picture->mark + "What?", pictures), "[a.png] What?");
  EXPECT_EQ(WithPictureNames(picture->mark, pictures), "[a.png]");
  EXPECT_EQ(WithPictureNames("none", pictures), "none");
  EXPECT_FALSE(ReadChatPicture(In("none.png")).ok());
}

TEST_F(ChatPictureTest, MarksThatATextBeginsWith) {
  const std::vector<ChatPicture> pictures = {{.mark = "<a>"}, {.mark = "<b>"}};
  EXPECT_EQ(LeadingMarks("<b><a>What is <b>?", pictures), "<b><a>");
  EXPECT_EQ(LeadingMarks("What is <a>?", pictures), "");
  EXPECT_EQ(LeadingMarks("<a>", pictures), "<a>");
  EXPECT_EQ(LeadingMarks("<a>", {}), "");
}

}  // namespace
}  // namespace weft::cli
