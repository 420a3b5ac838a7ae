#include "base/system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/files/file_descriptor.h"

namespace weft {
namespace {

const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

bool IsReadable(int fd) {
  pollfd fds = {.fd = fd, .events = POLLIN};
  return poll(&fds, 1, 0) == 1;
}

TEST(SystemTest, MemoryIsCountedInBytes) {
  const int64_t machine = HostMemoryBytes();
  EXPECT_EQ(machine % static_cast<int64_t>(kPage), 0);
  EXPECT_GT(FreeHostMemoryBytes(), int64_t{1} << 20);
  EXPECT_LE(FreeHostMemoryBytes(), machine);
  constexpr size_t kBytes = size_t{64} << 20;
  const int64_t before = ResidentMemoryBytes();
  std::vector<char> touched(kBytes, 'x');
  const int64_t after = ResidentMemoryBytes();
  EXPECT_EQ(touched.back(), 'x');
  EXPECT_GE(after - before, static_cast<int64_t>(kBytes) / 2);
  EXPECT_LE(after, machine);
  EXPECT_GE(PeakMemoryBytes(), static_cast<int64_t>(kBytes));
  EXPECT_LE(PeakMemoryBytes(), machine);
}

TEST(SystemTest, DiscardedPagesReadAsZeros) {
  const size_t size = 4 * kPage;
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const bytes = static_cast<char*>(memory);
  std::memset(bytes, 'x', size);
  ASSERT_TRUE(DiscardPages(bytes + kPage, 2 * kPage));
  EXPECT_EQ(bytes[0], 'x');
  EXPECT_EQ(bytes[kPage], 0);
  EXPECT_EQ(bytes[3 * kPage - 1], 0);
  EXPECT_EQ(bytes[3 * kPage], 'x');
  bytes[kPage] = 'y';  // still writable
  EXPECT_EQ(bytes[kPage], 'y');
  ASSERT_TRUE(MapZeros(reinterpret_cast<uintptr_t>(bytes), kPage));
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[3 * kPage], 'x');
  munmap(memory, size);
}

TEST(SystemTest, ThreadsAreCounted) {
  const int before = CountThreads();
  ASSERT_GE(before, 1);
  std::promise<void> end;
  std::promise<int> seen;
  std::thread thread([&] {
    YieldToOthers();
    seen.set_value(CountThreads());
    end.get_future().wait();
  });
  EXPECT_EQ(seen.get_future().get(), before + 1);
  end.set_value();
  thread.join();
}

TEST(SystemTest, PipesAreNotInherited) {
  int ends[2];
  ASSERT_EQ(MakePipe(ends), 0);
  const FileDescriptor read_end(ends[0]), write_end(ends[1]);
  for (const int end : ends) EXPECT_EQ(fcntl(end, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_FALSE(IsReadable(read_end.get()));
  ASSERT_EQ(write(write_end.get(), "x", 1), 1);
  EXPECT_TRUE(IsReadable(read_end.get()));
}

TEST(SystemTest, AFileIsSyncedAndHasATime) {
  std::string path = ::testing::TempDir() + "weft_system_XXXXXX";
  const FileDescriptor fd(mkstemp(path.data()));
  ASSERT_TRUE(fd.ok());
  unlink(path.c_str());
  ASSERT_EQ(write(fd.get(), "x", 1), 1);
  EXPECT_EQ(SyncFile(fd.get()), 0);
  struct stat info;
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  EXPECT_EQ(ModifiedAt(info).tv_sec, info.st_mtime);
  EXPECT_NE(SyncFile(-1), 0);
}

TEST(SystemTest, BlockedSignalsAreReadOneAfterTheOther) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
  const FileDescriptor fd(OpenSignals(set));
  ASSERT_TRUE(fd.ok());
  EXPECT_FALSE(IsReadable(fd.get()));
  kill(getpid(), SIGUSR1);
  kill(getpid(), SIGUSR2);
  EXPECT_TRUE(IsReadable(fd.get()));
  EXPECT_TRUE(IsReadable(fd.get()));  // looking takes nothing
  const int first = TakeSignal(fd.get()), second = TakeSignal(fd.get());
  EXPECT_EQ(first + second, SIGUSR1 + SIGUSR2);
  EXPECT_NE(first, second);
  EXPECT_FALSE(IsReadable(fd.get()));
}

TEST(SystemTest, APeerIsWatchedAndWhatItHasNotTakenIsCounted) {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener.get(), any, size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), any, &size), 0);
  const FileDescriptor client(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(connect(client.get(), any, size), 0);
  const FileDescriptor server(accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(server.ok());

  WatchPeer(server.get(), 30, 10, 3);
  int is_watched = 0;
  socklen_t option_size = sizeof(is_watched);
  ASSERT_EQ(getsockopt(server.get(), SOL_SOCKET, SO_KEEPALIVE, &is_watched, &option_size), 0);
  EXPECT_NE(is_watched, 0);

  EXPECT_EQ(UnacknowledgedBytes(server.get()), 0);
  ASSERT_EQ(fcntl(server.get(), F_SETFL, O_NONBLOCK), 0);
  const std::vector<char> much(1 << 20, 'x');
  while (write(server.get(), much.data(), much.size()) > 0) continue;  // nobody reads
  EXPECT_GT(UnacknowledgedBytes(server.get()), 0);
  EXPECT_EQ(UnacknowledgedBytes(-1), 0);
}

}  // namespace
}  // namespace weft
