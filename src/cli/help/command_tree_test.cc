#include "cli/help/command_tree.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A program with every character that a shell or troff would misinterpret.
class CommandTreeTest : public testing::Test {
 protected:
  CommandTreeTest() : app_("Looms.\n", "loom") {
    app_.footer("\nA paragraph\nof two lines.\n\nExamples:\n  loom 'a' \\n\n\n.hidden");
    CLI::App* const weave = app_.add_subcommand("weave", "Weave [it's: a cloth]");
    weave->add_option("-y,--yarn", yarn_, "What [of]; don't say 'a\\b'")->required();
    weave->add_option("--kind", kind_, "Kind")
        ->check(CLI::IsMember(std::vector<std::string>{"plain", "twill"}))
        ->capture_default_str();
    weave->add_option("--width", width_, "Ends")->check(CLI::Range(1, 8))->capture_default_str();
    weave->add_flag("--quiet", quiet_, "Say nothing");
    weave->add_option("PATTERNS", patterns_, "Drafts");
    weave->add_option("-r,--reed,REED", reed_, "The reed");
    CLI::App* const cloth = app_.add_subcommand("cloth", "Cloths");
    cloth->add_subcommand("list", "All of them");
    app_.add_subcommand("secret", "For nobody")->group("");
    root_ = DescribeCommand(app_);
  }

  CLI::App app_;
  std::string yarn_, reed_, kind_ = "twill";
  int width_ = 4;
  bool quiet_ = false;
  std::vector<std::string> patterns_;
  CommandInfo root_;
};

TEST_F(CommandTreeTest, EverythingIsRead) {
  std::vector<std::string> paths;
  for (const CommandInfo* command : AllCommands(root_)) paths.push_back(command->path);
  EXPECT_THAT(paths, ElementsAre("loom", "loom weave", "loom cloth", "loom cloth list"));
  EXPECT_THAT(root_.footer, HasSubstr("A paragraph"));
  EXPECT_EQ(root_.commands[0].footer, "");

  const std::vector<OptionInfo>& options = root_.commands[0].options;
  ASSERT_EQ(options.size(), 8u);
  EXPECT_THAT(options[0].names, ElementsAre("-h", "--help"));
  EXPECT_EQ(options[0].value, "");
  EXPECT_THAT(options[1].names, ElementsAre("-y", "--yarn"));
  EXPECT_EQ(options[1].value, "TEXT");
  EXPECT_TRUE(options[1].is_required && options[1].is_text);
  EXPECT_THAT(options[2].choices, ElementsAre("plain", "twill"));
  EXPECT_EQ(options[2].default_value, "twill");
  EXPECT_FALSE(options[2].is_text);
  EXPECT_EQ(options[3].value, "INT");
  EXPECT_EQ(options[3].default_value, "4");
  EXPECT_EQ(options[4].value, "");
  EXPECT_TRUE(options[5].names.empty());
  EXPECT_EQ(options[5].value, "PATTERNS");
  EXPECT_TRUE(options[5].may_repeat && options[5].is_text);
  EXPECT_THAT(options[6].names, ElementsAre("-r", "--reed"));
  EXPECT_TRUE(options[7].names.empty());
  EXPECT_EQ(options[7].value, "REED");
}

TEST_F(CommandTreeTest, BashGetsWords) {
  const std::string script = BashCompletion(root_);
  EXPECT_THAT(script, HasSubstr("'loom weave --kind') words='plain twill' ;;"));
  EXPECT_THAT(script, HasSubstr("'loom weave -y' | 'loom weave --yarn' | 'loom weave -r' | "
                                "'loom weave --reed') files=1 ;;"));
  EXPECT_THAT(script, HasSubstr("'loom weave --width') return ;;"));
  EXPECT_THAT(script, HasSubstr("'loom') words='weave cloth -h --help' ;;"));
  EXPECT_THAT(script, HasSubstr("'loom cloth') words='list -h --help' ;;"));
}

TEST_F(CommandTreeTest, ZshGetsSpecsWithItsSpecialCharactersEscaped) {
  const std::string script = ZshCompletion(root_);
  EXPECT_THAT(script, HasSubstr("'(-y --yarn)'{-y,--yarn=}"
                                "'[What \\[of\\]; don'\\''t say '\\''a\\\\b'\\'']:TEXT:_files'"));
  EXPECT_THAT(script, HasSubstr("'--kind=[Kind]:TEXT:(plain twill)'"));
  EXPECT_THAT(script, HasSubstr("'--quiet[Say nothing]'"));
  EXPECT_THAT(script, HasSubstr("'*:PATTERNS:_files'"));
  EXPECT_THAT(script, HasSubstr("'weave:Weave [it'\\''s\\: a cloth]'"));
  EXPECT_THAT(script, HasSubstr("list) _loom_cloth_list ;;"));
}

TEST_F(CommandTreeTest, FishGetsConditions) {
  const std::string script = FishCompletion(root_);
  EXPECT_THAT(script, HasSubstr("complete -c loom -n 'not __fish_seen_subcommand_from weave cloth'"
                                " -a weave -d 'Weave [it\\'s: a cloth]'"));
  EXPECT_THAT(script, HasSubstr("'__fish_seen_subcommand_from weave' -s y -l yarn -r -F -d "
                                "'What [of]; don\\'t say \\'a\\\\b\\''"));
  EXPECT_THAT(script, HasSubstr(" -l kind -x -a 'plain twill' -d 'Kind'"));
  EXPECT_THAT(script, HasSubstr("'__fish_seen_subcommand_from cloth; and "
                                "__fish_seen_subcommand_from list' -f\n"));
  EXPECT_THAT(script, Not(HasSubstr("'__fish_seen_subcommand_from weave' -f\n")));
}

TEST_F(CommandTreeTest, TheManualKeepsWhatTroffWouldObey) {
  const std::string page = ManualPage(root_, "1.2.3");
  EXPECT_THAT(page, HasSubstr(".TH LOOM 1 \"\" \"loom 1.2.3\" \"User Commands\"\n"));
  EXPECT_THAT(page, HasSubstr("\\fBloom weave\\fR [\\fIOPTIONS\\fR] \\fB\\-\\-yarn\\fR "
                              "\\fITEXT\\fR [\\fIPATTERNS\\fR ...] [\\fIREED\\fR]\n"));
  EXPECT_THAT(page, HasSubstr(".SS loom cloth list\n"));
  EXPECT_THAT(page, HasSubstr("What [of]; don\\(aqt say \\(aqa\\eb\\(aq.\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-kind\\fR \\fIplain|twill\\fR\nKind. Default: twill.\n"));
  EXPECT_THAT(page, HasSubstr(".PP\nA paragraph\nof two lines.\n.PP\nExamples:\n.PP\n.EX\n"
                              "  loom \\(aqa\\(aq \\en\n.EE\n.PP\n\\&.hidden\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace weft::cli
