#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/strings.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    from_ = FileDescriptor(fds[0]);
    to_ = FileDescriptor(fds[1]);
  }

  // Reads to the end; returns the lines without their timestamps. REQUIRES: to_ is closed, or will
  // be.
  std::vector<std::string> ReadLines() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(from_.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    std::vector<std::string> lines;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      EXPECT_NE(end, std::string::npos) << "a line is cut: " << text;
      if (end == std::string::npos) break;
      const std::string line = text.substr(0, end);
      EXPECT_EQ(line.find('Z'), std::string("2026-11-22T10:00:00.000").size()) << line;
      lines.push_back(line.substr(line.find(' ') + 1));
      text.erase(0, end + 1);
    }
    return lines;
  }

  FileDescriptor from_, to_;
};

TEST_F(LogTest, LinesOfManyThreadsAreWhole) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  std::vector<std::string> lines;
  std::thread reader([&] { lines = ReadLines(); });
  {
    LogWriter log(to_.get());
    std::vector<std::thread> writers;
    writers.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      writers.emplace_back([&log, t] {
        for (int i = 0; i < kLines; ++i) log.Write(StrCat(t, " ", i));
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_TRUE(log.Flush(kLong));
  }
  to_ = FileDescriptor();
  reader.join();
  ASSERT_EQ(lines.size(), size_t{kThreads * kLines});
  std::vector<int> next(kThreads);
  for (const std::string& line : lines) {
    const int t = line[0] - '0';
    EXPECT_EQ(line, StrCat(t, " ", next[static_cast<size_t>(t)]++)) << "in order";
  }
}

TEST_F(LogTest, WhoLogsDoesNotWaitForWhoReads) {
  constexpr int64_t kLines = 5000;
  constexpr char kDropped[] = " log lines were dropped";
  const std::string filling(1000, 'x');
  std::vector<std::string> lines;
  {
    LogWriter log(to_.get());
    for (int64_t i = 0; i < kLines; ++i) log.Write(StrCat(i, " ", filling));
    EXPECT_FALSE(log.Flush(milliseconds(1))) << "nobody has read anything";
    std::thread reader([&] { lines = ReadLines(); });
    EXPECT_TRUE(log.Flush(kLong));
    log.Write("and on");
    EXPECT_TRUE(log.Flush(kLong));
    to_ = FileDescriptor();
    reader.join();
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), "and on");
  lines.pop_back();
  int64_t next = 0, n_dropped = 0;
  for (const std::string& line : lines) {
    const size_t number = line.find(kDropped);
    if (number == line.npos) {
      EXPECT_EQ(line, StrCat(next++, " ", filling));
      continue;
    }
    int64_t n = 0;
    EXPECT_TRUE(ParseInt64(line.substr(0, number), &n)) << line;
    next += n;
    n_dropped += n;
  }
  EXPECT_EQ(next, kLines);
  EXPECT_GT(n_dropped, 0);
}

TEST_F(LogTest, AReaderThatGoesAwayHarmsNobody) {
  LogWriter log(to_.get());
  from_ = FileDescriptor();
  for (int i = 0; i < 100; ++i) log.Write("nobody is there");
  EXPECT_TRUE(log.Flush(kLong));
}

TEST_F(LogTest, TheStatusLineStaysBelow) {
  {
    LogWriter log(to_.get());
    log.ShowStatus("idle");
    ASSERT_TRUE(log.Flush(kLong));
    log.Write("one");
    ASSERT_TRUE(log.Flush(kLong));
    log.ShowStatus("busy");
    ASSERT_TRUE(log.Flush(kLong));
    log.ShowStatus("busy");  // drawn once
    ASSERT_TRUE(log.Flush(kLong));
    log.ShowStatus("");
    log.Write("two");
  }
  to_ = FileDescriptor();
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(from_.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  const std::string clear = "\r\033[K";
  for (size_t at; (at = text.find("20")) != text.npos;) text.erase(at, text.find(' ', at) - at + 1);
  EXPECT_EQ(text, StrCat("idle", clear, "one\nidle", clear, "busy", clear, "two\n"));
}

}  // namespace
}  // namespace weft
