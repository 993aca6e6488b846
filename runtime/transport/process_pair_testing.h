// Processes of one test, and a bell for their threads. Fork before any thread starts: the test
// process itself must stay free of threads.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>

#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/forked_exchange_testing.h"

namespace weir::transport {

// A ForkedProcess runs `body` under a limit; its result says whether the test's checks in it held.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(50);
    body();
    std::fflush(stdout);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ~ForkedProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    Wait();
  }
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { ::kill(pid_, signal); }
  // Returns the exit code, or minus the signal.
  int Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
};

// A rank's thread waits at a Bell while its endpoint is parked.
class Bell {
 public:
  void Ring() {
    MutexLock lock(&mutex_);
    rung_ = true;
    condition_.NotifyOne();
  }
  void Await() {
    MutexLock lock(&mutex_);
    condition_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return rung_; });
    rung_ = false;
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir::transport
