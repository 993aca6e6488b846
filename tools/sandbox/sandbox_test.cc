// Tests what a confined process may not do. Each attempt runs in a separate process, because
// nothing can leave a sandbox.
#include "tools/sandbox/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/sandbox/process_limits.h"
#include "tools/sandbox/run_confined.h"

namespace weir::sandbox {
namespace {

// Returns the errno with which `attempt` (as a system call: -1 and errno) fails in the sandbox.
// Returns 0 if the attempt succeeds, and 1000 + the signal if the process is killed.
int FailureOf(const SandboxRules& rules, const std::function<long()>& attempt) {
  const pid_t child = ::fork();
  if (child == 0) {
    EnterSandbox(rules);
    errno = 0;
    ::_exit(attempt() < 0 ? errno : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Returns the protections of this kernel, which a process that enters the sandbox finds out.
SandboxFacts FactsHere() {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const SandboxFacts facts = EnterSandbox({});
    const int told[2] = {facts.landlock_abi, facts.system_calls ? 1 : 0};
    ::_exit(::write(ends[1], told, sizeof(told)) == sizeof(told) ? 0 : 1);
  }
  int told[2] = {};
  EXPECT_EQ(::read(ends[0], told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return {told[0], told[1] != 0, ""};
}

class SandboxTest : public ::testing::Test {
 protected:
  const SandboxFacts facts_ = FactsHere();

  bool NeedsSystemCalls() const {
    if (!facts_.system_calls)
      std::cout << "SKIPPED LOUDLY: no filter of system calls here: the sandbox is not proved\n";
    return facts_.system_calls;
  }
  bool NeedsLandlock() const {
    if (facts_.landlock_abi == 0)
      std::cout << "SKIPPED LOUDLY: no Landlock in this kernel: files are not confined, nor is it "
                   "proved\n";
    return facts_.landlock_abi > 0;
  }
};

TEST_F(SandboxTest, NoSocketOfAnyKindIsOpened) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  for (int family : {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK}) {
    EXPECT_EQ(FailureOf({}, [&] { return ::socket(family, SOCK_DGRAM, 0); }), EPERM) << family;
  }
  int pair[2];
  EXPECT_EQ(FailureOf({}, [&] { return ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair); }), EPERM);
}

TEST_F(SandboxTest, NoProgramAndNoProcessIsStarted) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  char* const arguments[] = {const_cast<char*>("/bin/true"), nullptr};
  EXPECT_EQ(FailureOf({}, [&] { return ::execv("/bin/true", arguments); }), EPERM);
  EXPECT_EQ(FailureOf({}, [] { return ::fork(); }), EPERM);
  EXPECT_EQ(FailureOf({}, [] { return ::syscall(SYS_vfork); }), EPERM);
}

TEST_F(SandboxTest, OtherProcessesAreOutOfReach) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  const pid_t parent = ::getpid();
  EXPECT_EQ(FailureOf({}, [&] { return ::kill(parent, 0); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::ptrace(PTRACE_ATTACH, parent, nullptr, nullptr); }),
            EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::syscall(SYS_pidfd_open, parent, 0); }), EPERM);
}

TEST_F(SandboxTest, NoFileOrNewMemoryIsMappedAsCode) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  EXPECT_EQ(FailureOf({},
                      [] {
                        return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
                                   ? -1
                                   : 0;
                      }),
            EPERM);
}

TEST_F(SandboxTest, NoFileIsMadeChangedOrRemoved) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  const std::string present = WriteTemporary("present", "x"), absent = TemporaryPath("absent");
  EXPECT_EQ(FailureOf({}, [&] { return ::open(absent.c_str(), O_CREAT | O_WRONLY, 0600); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::open(present.c_str(), O_RDWR); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::open(present.c_str(), O_RDONLY | O_TRUNC); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::unlink(present.c_str()); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::rename(present.c_str(), absent.c_str()); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::truncate(present.c_str(), 0); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::chmod(present.c_str(), 0777); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::mkdir(absent.c_str(), 0700); }), EPERM);
  EXPECT_EQ(FailureOf({}, [&] { return ::symlink("/etc/passwd", absent.c_str()); }), EPERM);
}

TEST_F(SandboxTest, OnlyTheFilesThatAreNamedAreRead) {
  if (!NeedsLandlock()) GTEST_SKIP();
  const std::string named = WriteTemporary("named", "x"), other = WriteTemporary("other", "x");
  EXPECT_EQ(FailureOf({{named}, {}}, [&] { return ::open(named.c_str(), O_RDONLY); }), 0);
  EXPECT_EQ(FailureOf({{named}, {}}, [&] { return ::open(other.c_str(), O_RDONLY); }), EACCES);
  EXPECT_EQ(FailureOf({{TemporaryPath("")}, {}}, [&] { return ::open(other.c_str(), O_RDONLY); }),
            0);
  EXPECT_EQ(FailureOf({}, [] { return ::open("/etc/passwd", O_RDONLY); }), EACCES);
  EXPECT_EQ(FailureOf({}, [] { return ::open("/proc/meminfo", O_RDONLY); }), 0);
}

TEST_F(SandboxTest, FilesAreWrittenInTheFoldersThatAreNamedAlone) {
  if (!NeedsLandlock()) GTEST_SKIP();
  const std::string folder = TemporaryPath("folder"), elsewhere = TemporaryPath("elsewhere"),
                    file = folder + "/file";
  ::mkdir(folder.c_str(), 0700);
  ::mkdir(elsewhere.c_str(), 0700);
  const std::string beside = WriteTemporary("beside", "x");
  const SandboxRules rules = {{}, {folder}};
  EXPECT_EQ(
      FailureOf(rules, [&] { return ::open(file.c_str(), O_CREAT | O_TRUNC | O_RDWR, 0600); }), 0);
  EXPECT_EQ(FailureOf(rules, [&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR, 0600); }), 0);
  EXPECT_EQ(FailureOf(rules, [&] { return ::rename(file.c_str(), (folder + "/renamed").c_str()); }),
            0);
  EXPECT_EQ(
      FailureOf(rules,
                [&] { return ::open((elsewhere + "/file").c_str(), O_CREAT | O_WRONLY, 0600); }),
      EACCES);
  EXPECT_EQ(FailureOf(rules, [&] { return ::open(beside.c_str(), O_WRONLY); }), EACCES);
}

TEST_F(SandboxTest, ComputingGoesOnOnThreadsToo) {
  EXPECT_EQ(
      FailureOf({},
                [] {
                  std::vector<char> memory(64 << 20, 1);
                  int seen = 0;
                  std::thread thread([&] {
                    seen = static_cast<int>(std::vector<char>(64 << 20, 1).size() / memory.size());
                  });
                  thread.join();
                  return seen == 1 ? 0L : -1L;
                }),
      0);
}

TEST_F(SandboxTest, AThreadOfTheSandboxIsConfinedWithItsStarter) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  EXPECT_EQ(FailureOf({},
                      [] {
                        long result = 0;
                        int error = 0;
                        std::thread thread([&] {
                          result = ::socket(AF_INET, SOCK_STREAM, 0);
                          error = errno;
                        });
                        thread.join();
                        errno = error;
                        return result;
                      }),
            EPERM);
}

TEST_F(SandboxTest, WhoMayStartNoProgramKeepsFilesAndTheNetwork) {
  if (!NeedsSystemCalls()) GTEST_SKIP();
  const pid_t child = ::fork();
  if (child == 0) {
    // A thread that already runs is forbidden to do so, too.
    int seen = 0;
    std::atomic<bool> forbidden{false};
    std::thread before([&] {
      while (!forbidden.load()) std::this_thread::yield();
      char* const arguments[] = {const_cast<char*>("/bin/true"), nullptr};
      ::execv("/bin/true", arguments);
      seen = errno;
    });
    const bool done = ForbidPrograms();
    forbidden.store(true);
    before.join();
    const bool free =
        ::socket(AF_INET, SOCK_STREAM, 0) >= 0 && ::open("/etc/passwd", O_RDONLY) >= 0;
    ::_exit(done && seen == EPERM && free ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(SandboxTest, ConfinedWorkLeavesTheProcessFree) {
  int inside = 0;
  const absl::Status status = RunConfined([&] {
    inside = ::socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0;
    return absl::NotFoundError("its own status");
  });
  EXPECT_EQ(status, absl::NotFoundError("its own status"));
  EXPECT_EQ(inside, facts_.system_calls ? EPERM : 0);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_GE(socket, 0);
  ::close(socket);
  EXPECT_THROW(RunConfined([]() -> absl::Status { throw std::bad_alloc(); }).IgnoreError(),
               std::bad_alloc);
}

TEST_F(SandboxTest, TheFactsSayWhatIsInPlace) {
  EXPECT_EQ((SandboxFacts{7, true, ""}).Text(), "sandbox: system calls and files (Landlock ABI 7)");
  EXPECT_EQ((SandboxFacts{0, true, "this kernel has no Landlock"}).Text(),
            "sandbox: system calls; this kernel has no Landlock");
  EXPECT_EQ((SandboxFacts{1, false, "why"}).Text(), "sandbox: files (Landlock ABI 1); why");
  EXPECT_EQ((SandboxFacts{0, false, "why"}).Text(), "sandbox: none; why");
}

TEST(ProcessLimitsTest, AProcessThatComputesForTooLongSaysSo) {
  const pid_t child = ::fork();
  if (child == 0) {
    LimitProcess(CpuTime::kLimited);
    ::raise(SIGXCPU);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 65);
}

}  // namespace
}  // namespace weir::sandbox
