#include "cli/help/usage.h"

#include <algorithm>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class UsageTest : public testing::Test {
 protected:
  UsageTest() : app_("Looms.\n", "loom") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.require_subcommand(0, 1);
    CLI::App* const weave = app_.add_subcommand("weave", "Weave");
    weave->add_option("-w,--width", width_, "Ends")->check(CLI::Range(1, 8))->capture_default_str();
    weave
        ->add_option("--kind", kind_,
                     "What is woven, said in so many words that they do not stand in one line of "
                     "a terminal")
        ->check(CLI::IsMember(std::vector<std::string>{"plain", "twill"}));
    weave->add_option("--fringe", fringe_, "Length, without limits");
    CLI::App* const cloth = app_.add_subcommand("cloth", "Cloths");
    cloth->add_subcommand("list", "All of them");
  }

  std::string Sentence(const std::string& line) {
    try {
      app_.parse(line, /*program_name_included=*/true);
    } catch (const CLI::ParseError& error) {
      return UsageSentence(app_, error);
    }
    return "no error";
  }

  CLI::App app_;
  int width_ = 4;
  double fringe_ = 0;
  std::string kind_;
};

TEST_F(UsageTest, NamesWhatIsUnknownAndWhatIsNear) {
  EXPECT_EQ(Sentence("loom weave --widht 3"),
            "loom weave: there is no option --widht; did you mean --width? 'loom weave --help' "
            "lists its options");
  EXPECT_THAT(Sentence("loom weave --width=3 --kid=plain"), HasSubstr("did you mean --kind?"));
  EXPECT_EQ(Sentence("loom weav"),
            "loom: there is no command weav; did you mean weave? 'loom --help' lists the commands");
  EXPECT_EQ(Sentence("loom cloth lost"),
            "loom cloth: there is no command lost; did you mean list? 'loom cloth --help' lists "
            "the commands");
}

TEST_F(UsageTest, TellsWordsFromNumbers) {
  EXPECT_THAT(Sentence("loom weave --width wide"),
              HasSubstr("weave: --width: wide is not a number;"));
  EXPECT_THAT(Sentence("loom weave -w 2.5"), HasSubstr("--width: 2.5 is not a whole number;"));
  EXPECT_THAT(Sentence("loom weave -w 9"), HasSubstr("9 is not between 1 and 8"));
  EXPECT_THAT(Sentence("loom weave --fringe wide"), HasSubstr("--fringe: wide is not a number;"));
}

TEST_F(UsageTest, GuessesNothingFarAway) {
  EXPECT_EQ(Sentence("loom weave --colour red"),
            "loom weave: there is no option --colour; 'loom weave --help' lists its options");
  EXPECT_EQ(Sentence("loom weave silk"),
            "loom weave: one argument too many: silk; 'loom weave --help' lists its options");
}

TEST_F(UsageTest, SaysWhatAValueMayBe) {
  EXPECT_EQ(Sentence("loom weave --width 9"),
            "loom weave: --width: 9 is not between 1 and 8; 'loom weave --help' lists its options");
  EXPECT_THAT(Sentence("loom weave --kind satin"),
              HasSubstr("--kind: satin is none of plain, twill;"));
  EXPECT_THAT(Sentence("loom weave --width"), HasSubstr("--width"));
}

TEST_F(UsageTest, HelpHasValuesDefaultsAndShortLines) {
  const std::string help = app_.get_subcommand("weave")->help();
  EXPECT_THAT(help, HasSubstr("  -w,--width INT (4)          Ends\n"));
  EXPECT_THAT(help, HasSubstr("  --kind plain|twill          What is woven"));
  EXPECT_THAT(help, HasSubstr("\n                              "));
  EXPECT_THAT(help, Not(HasSubstr("INT in")));
  for (size_t at = 0; at < help.size();) {
    const size_t end = std::min(help.find('\n', at), help.size());
    EXPECT_LE(end - at, 96u) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace weft::cli
