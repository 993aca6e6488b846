// A job for tests of the control plane: an authority, a coordinator that records the calls of its
// hooks, and workers as threads. Thread rule: the test's thread, unless a function says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_link.h"

namespace weir::control {

// A limit that is long enough for a loaded machine; only a failing test waits that long.
inline constexpr int64_t kPatienceMs = 20'000;

class TestJob {
 public:
  using Change = std::function<void(CoordinatorOptions*)>;

  explicit TestJob(
      int num_workers, const Change& change = [](CoordinatorOptions*) {}) {
    auto made = JobAuthority::Create(job_id_);
    EXPECT_TRUE(made.ok()) << made.status();
    authority_ = *made;
    CoordinatorOptions options;
    options.job_id = job_id_;
    options.num_workers = num_workers;
    options.credentials = *authority_.Issue(CoordinatorIdentity(job_id_));
    options.build_id = "build-1";
    options.heartbeat_ms = 20;
    options.dead_after_ms = 2000;
    options.on_lost = [this](WorkerId worker, const LostWorker& lost) {
      MutexLock lock(&mutex_);
      lost_.emplace_back(worker.value(), lost.status);
      changed_.NotifyAll();
    };
    options.on_event = [this](WorkerId worker, std::string event) {
      MutexLock lock(&mutex_);
      events_.emplace_back(worker.value(), std::move(event));
      changed_.NotifyAll();
    };
    change(&options);
    auto started = Coordinator::Start(std::move(options));
    EXPECT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
  }

  Coordinator* operator->() { return coordinator_.get(); }
  void DestroyCoordinator() { coordinator_.reset(); }
  const std::string& job_id() const { return job_id_; }
  const JobAuthority& authority() const { return authority_; }

  WorkerLinkOptions WorkerOptions(int worker) const {
    WorkerLinkOptions options;
    options.coordinator_address = coordinator_->address();
    options.job_id = job_id_;
    options.worker = WorkerId(worker);
    options.credentials = *authority_.Issue(WorkerIdentity(job_id_, options.worker, 1));
    options.build_id = "build-1";
    options.heartbeat_ms = 20;
    options.coordinator_dead_after_ms = 4000;
    options.connect_limit_ms = kPatienceMs;
    options.fetch_limit_ms = kPatienceMs;
    return options;
  }

  using Lost = std::vector<std::pair<int, absl::Status>>;
  using Events = std::vector<std::pair<int, std::string>>;
  Lost lost() {
    MutexLock lock(&mutex_);
    return lost_;
  }
  // Returns once `count` workers are lost, or when the limit is used up.
  Lost WaitForLost(size_t count) {
    MutexLock lock(&mutex_);
    changed_.WaitFor(&mutex_, kPatienceMs,
                     [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lost_.size() >= count; });
    return lost_;
  }
  Events WaitForEvents(size_t count) {
    MutexLock lock(&mutex_);
    changed_.WaitFor(&mutex_, kPatienceMs, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return events_.size() >= count;
    });
    return events_;
  }

 private:
  const std::string job_id_ = MakeJobId();
  JobAuthority authority_;
  Mutex mutex_;
  Lost lost_ ABSL_GUARDED_BY(mutex_);
  Events events_ ABSL_GUARDED_BY(mutex_);
  CondVar changed_;
  std::unique_ptr<Coordinator> coordinator_;
};

// TestWorkers are threads that connect and serve.
class TestWorkers {
 public:
  using Handler =
      std::function<absl::StatusOr<std::string>(int worker, const std::string& command)>;
  using Change = std::function<void(int worker, WorkerLinkOptions*)>;

  TestWorkers(
      TestJob* job, int count, Handler handler,
      const Change& change = [](int, WorkerLinkOptions*) {})
      : handler_(std::move(handler)), connected_(count), ended_(count), aborted_(count) {
    for (int w = 0; w < count; ++w) {
      WorkerLinkOptions options = job->WorkerOptions(w);
      options.on_abort = [this, w](const absl::Status& reason) {
        MutexLock lock(&mutex_);
        aborted_[w].push_back(reason);
        changed_.NotifyAll();
      };
      change(w, &options);
      threads_.emplace_back([this, w, options] { Run(w, options); });
    }
  }
  ~TestWorkers() { Join(); }

  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Both return the result of a worker, of Connect and of Serve. Precondition: Join has returned.
  absl::Status connected(int worker) const { return connected_[worker]; }
  absl::Status ended(int worker) const { return ended_[worker]; }
  // Returns the reasons with which on_abort was called. Precondition: Join has returned.
  std::vector<absl::Status> aborted(int worker) {
    MutexLock lock(&mutex_);
    return aborted_[worker];
  }

 private:
  void Run(int worker, const WorkerLinkOptions& options) {
    auto link = WorkerLink::Connect(options);
    connected_[worker] = link.status();
    if (!link.ok()) return;
    ended_[worker] =
        (*link)->Serve([&](const std::string& command) { return handler_(worker, command); });
    // The link's own thread calls the hook, maybe just now.
    MutexLock lock(&mutex_);
    if (!ended_[worker].ok()) {
      changed_.WaitFor(&mutex_, kPatienceMs, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !aborted_[worker].empty();
      });
    }
  }

  const Handler handler_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> connected_;  // each worker's thread writes its element, as in ended_
  std::vector<absl::Status> ended_;
  std::vector<std::vector<absl::Status>> aborted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace weir::control
