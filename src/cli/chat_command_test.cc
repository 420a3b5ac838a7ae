#include "cli/chat_command.h"

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
