#include "cli/chat/command.h"

#include "base/strings.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

ChatCommand Parsed(std::string_view line) {
  auto command = ParseChatLine(line);
  EXPECT_TRUE(command.ok()) << line << ": " << command.status();
  return command.ok() ? *command : ChatCommand();
}

std::string ErrorOf(std::string_view line) {
  const auto command = ParseChatLine(line);
  EXPECT_FALSE(command.ok()) << line;
  EXPECT_EQ(command.status().code(), StatusCode::kInvalidArgument);
  return std::string(Message(command.status()));
}

TEST(ChatCommandTest, WhatIsNoCommandIsSaid) {
  for (const std::string line : {"hello", "  two  spaces ", "a /new b", "", " /new"}) {
    EXPECT_EQ(Parsed(line).verb, ChatVerb::kSay);
    EXPECT_EQ(Parsed(line).text, line);
  }
  EXPECT_EQ(Parsed("//etc/passwd").verb, ChatVerb::kSay);
  EXPECT_EQ(Parsed("//etc/passwd").text, "/etc/passwd");
}

TEST(ChatCommandTest, NewTakesANameAndASystemMessage) {
  EXPECT_EQ(Parsed("/new").verb, ChatVerb::kNew);
  EXPECT_EQ(Parsed("/new").name, "");
  const ChatCommand command = Parsed("/new  kitchen \t You are  a cook. ");
  EXPECT_EQ(command.name, "kitchen");
  EXPECT_EQ(command.text, "You are  a cook.");
}

TEST(ChatCommandTest, ForkTakesANameAndAMessage) {
  EXPECT_EQ(Parsed("/fork").name, "");
  EXPECT_EQ(Parsed("/fork").number, -1);
  EXPECT_EQ(Parsed("/fork 4").name, "");
  EXPECT_EQ(Parsed("/fork 4").number, 4);
  EXPECT_EQ(Parsed("/fork side").name, "side");
  EXPECT_EQ(Parsed("/fork side").number, -1);
  EXPECT_EQ(Parsed("/fork side 0").number, 0);
  EXPECT_EQ(Parsed("/fork -3").name, "-3");
  EXPECT_EQ(Parsed("/fork -3").number, -1);
  EXPECT_NE(ErrorOf("/fork side door").find("/fork: "), std::string::npos);
  ErrorOf("/fork side -1");
}

TEST(ChatCommandTest, UndoTakesACount) {
  EXPECT_EQ(Parsed("/undo").number, 1);
  EXPECT_EQ(Parsed("/undo 3").number, 3);
  ErrorOf("/undo 0");
  ErrorOf("/undo -1");
  ErrorOf("/undo all");
  ErrorOf("/undo 99999999999999999999");
}

TEST(ChatCommandTest, TrimTakesACountOrNone) {
  EXPECT_EQ(Parsed("/trim").verb, ChatVerb::kTrim);
  EXPECT_EQ(Parsed("/trim").number, 0);
  EXPECT_EQ(Parsed("/trim 2").number, 2);
  ErrorOf("/trim 0");
}

TEST(ChatCommandTest, SettingsAreANameAndAValue) {
  EXPECT_EQ(Parsed("/set").verb, ChatVerb::kSet);
  EXPECT_EQ(Parsed("/set").name, "");
  EXPECT_EQ(Parsed("/set top_k  5").name, "top_k");
  EXPECT_EQ(Parsed("/set top_k  5").text, "5");
  EXPECT_EQ(Parsed("/temp").name, "temperature");
  EXPECT_EQ(Parsed("/temp 0.5").verb, ChatVerb::kSet);
  EXPECT_EQ(Parsed("/temp 0.5").text, "0.5");
}

TEST(MessageLinesTest, OneLineOrSeveral) {
  const auto message = [](std::initializer_list<const char*> lines) {
    MessageLines gathered;
    for (const char* const line : lines) {
      EXPECT_FALSE(gathered.complete()) << line;
      gathered.Add(line);
    }
    return StrCat(gathered.complete() ? "" : "(more) ", gathered.Take());
  };
  EXPECT_EQ(message({"hello"}), "hello");
  EXPECT_EQ(message({"one\\", "two\\", "three"}), "one\ntwo\nthree");
  EXPECT_EQ(message({"\"\"\"", "one\\", "  two", "\"\"\""}), "one\\\n  two");
  EXPECT_EQ(message({"\"\"\"one", "", "two\"\"\" "}), "one\n\ntwo");
  EXPECT_EQ(message({"\"\"\"all of it\"\"\""}), "all of it");
  // Quoted text is never a command.
  EXPECT_EQ(Parsed(message({"\"\"\"", "/new x", "\"\"\""})).text, "/new x");
  EXPECT_EQ(message({"\"\"\"", "one"}), "(more) one");
  EXPECT_EQ(message({"one\\"}), "(more) one\n");
  EXPECT_EQ(message({"say \"\"\""}), "say \"\"\"");
}

TEST(ChatCommandTest, Completion) {
  const auto complete = [](std::string_view line) {
    const ChatCompletions found =
        CompleteChatLine(line, {"kitchen", "my garden", "my house"}, {"temperature", "top_k"});
    return StrCat(found.begin, ":", StrJoin(found.candidates, ","));
  };
  EXPECT_EQ(complete("/st"), "1:stats");
  EXPECT_EQ(complete("/s"), "1:save,set,stats,switch,system");
  EXPECT_EQ(complete("/nothing"), "1:");
  EXPECT_EQ(complete("/switch "), "8:kitchen,my garden,my house");
  EXPECT_EQ(complete("/load my g"), "6:my garden");
  EXPECT_EQ(complete("/set t"), "5:temperature,top_k");
  for (const char* const line : {"", "hello", "my", " /st"}) EXPECT_EQ(complete(line), "0:");
  EXPECT_EQ(complete("/new k"), "5:");
}

TEST(ChatCommandTest, NamesMayHoldSpaces) {
  EXPECT_EQ(Parsed("/switch my  kitchen ").name, "my  kitchen");
  EXPECT_EQ(Parsed("/park").name, "");
  EXPECT_EQ(Parsed("/park side").name, "side");
  for (const char* line : {"/switch", "/load ", "/rename", "/drop"}) ErrorOf(line);
}

TEST(ChatCommandTest, UnknownCommandsAndArgumentsSaySo) {
  EXPECT_NE(ErrorOf("/nwe").find("/nwe"), std::string::npos);
  EXPECT_NE(ErrorOf("/NEW").find("/help"), std::string::npos);
  EXPECT_EQ(ErrorOf("/x\x1b[2J").find('\x1b'), std::string::npos);
  ErrorOf("/");
  for (const char* line : {"/list all", "/stats x", "/quit now", "/help me", "/save y"}) {
    EXPECT_NE(ErrorOf(line).find("no arguments"), std::string::npos) << line;
  }
}

TEST(ChatCommandTest, HelpNamesCommandsThatExist) {
  for (const ChatHelp& help : ChatHelpLines()) {
    std::string line(help.usage);
    line = line.substr(0, line.find(" ["));
    EXPECT_TRUE(ParseChatLine(line).ok()) << help.usage;
  }
}

}  // namespace
}  // namespace weft::cli
