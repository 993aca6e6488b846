// A BackgroundTask runs a function on a thread of its own, beside the steps of a run, and keeps the
// result until somebody takes it.
//
//   idle --Begin--> busy --the function returns--> done --Take--> idle
//
// The function must end by itself; the destructor waits for it. Thread rule: one owner.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/mutex.h"

namespace weir::train {

template <typename Result>
class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask() { Join(); }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Precondition: idle.
  void Begin(std::function<Result()> work) {
    thread_ = std::thread([this, work = std::move(work)] {
      Result result = work();
      MutexLock lock(&mutex_);
      result_.emplace(std::move(result));
      ended_.NotifyAll();
    });
  }

  // Returns whether Begin was called and no Take has had the result.
  bool is_begun() const { return thread_.joinable(); }

  // Returns the result once the function has returned, and is idle then. Waits at most `limit_ms`
  // for it. Precondition: is_begun().
  std::optional<Result> Take(int64_t limit_ms) {
    {
      MutexLock lock(&mutex_);
      const auto has_ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return result_.has_value();
      };
      if (!ended_.WaitFor(&mutex_, limit_ms, has_ended)) return std::nullopt;
    }
    Join();
    MutexLock lock(&mutex_);
    return std::exchange(result_, std::nullopt);
  }

 private:
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  Mutex mutex_;
  CondVar ended_;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weir::train
