// A mutex, its scoped lock and a condition variable. Clang's thread safety analysis knows all three
// (tests/thread_safety): a member that a mutex guards says ABSL_GUARDED_BY(mutex), and a function
// that needs the mutex says ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex). The standard's types carry no
// such annotations. Abseil's types carry them, but a wait with a limit on Abseil's types follows
// the wall clock, which may jump; the waits here follow the monotonic clock.
//
// A predicate of a wait runs under the mutex. The analysis sees a predicate as a function of its
// own, so a predicate that reads guarded members is annotated too:
//
//   changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over_; });
//
// Thread rule: any thread. A Mutex is not recursive, and the thread that locked it unlocks it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace weir {

class ABSL_LOCKABLE Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;  // guards no member: the owner of the Mutex annotates what the Mutex guards
};

// A MutexLock holds a mutex for as long as the MutexLock lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A CondVar lets threads wait until a predicate holds. All waits on one CondVar use the same mutex,
// and predicates do not throw. The bodies are not analysed, because the analysis cannot know that
// the mutex of a predicate is the mutex of the wait.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Returns once `holds()` is true. The mutex is released while the thread sleeps.
  template <typename Predicate>
  void Wait(Mutex* mutex, Predicate holds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait(lock, holds);
    lock.release();
  }

  // Waits at most `limit_ms` and returns whether `holds()` is true.
  template <typename Predicate>
  bool WaitFor(Mutex* mutex, int64_t limit_ms, Predicate holds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool held = changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), holds);
    lock.release();
    return held;
  }

  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace weir
