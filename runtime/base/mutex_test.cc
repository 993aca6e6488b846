#include "runtime/base/mutex.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/first_error.h"

namespace weir {
namespace {

// A Tally is a number that several threads raise.
class Tally {
 public:
  void Raise() {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  void AwaitAtLeast(int64_t count) {
    MutexLock lock(&mutex_);
    changed_.Wait(&mutex_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= count; });
  }
  bool ReachesWithin(int64_t count, int64_t limit_ms) {
    MutexLock lock(&mutex_);
    return changed_.WaitFor(
        &mutex_, limit_ms, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= count; });
  }
  int64_t count() {
    MutexLock lock(&mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, LetsOneThreadInAtATime) {
  constexpr int kThreads = 4, kTimes = 10'000;
  Tally tally;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&tally] {
      for (int n = 0; n < kTimes; ++n) tally.Raise();
    });
  }
  tally.AwaitAtLeast(kThreads * kTimes);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tally.count(), kThreads * kTimes);
}

TEST(CondVar, AWaitWithALimitSaysWhetherThePredicateHolds) {
  Tally tally;
  EXPECT_FALSE(tally.ReachesWithin(1, 1));
  EXPECT_FALSE(tally.ReachesWithin(1, 0));
  tally.Raise();
  EXPECT_TRUE(tally.ReachesWithin(1, 0));
  tally.Raise();  // the mutex is free after each wait
  EXPECT_EQ(tally.count(), 2);
}

TEST(FirstError, KeepsTheFirst) {
  FirstError error;
  EXPECT_TRUE(error.status().ok());
  error.Update(absl::OkStatus());
  error.Update(absl::AbortedError("first"));
  error.Update(absl::InternalError("second"));
  error.Update(absl::OkStatus());
  EXPECT_EQ(error.status(), absl::AbortedError("first"));
}

}  // namespace
}  // namespace weir
