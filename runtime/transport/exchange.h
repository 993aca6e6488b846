// An Exchange is a place where ranks of different processes leave the values that others need to
// reach them: addresses and the sides of their edges. Values are small, have unique keys, and are
// published once each. The control plane is an Exchange (runtime/control); LocalExchange serves
// tests and threads.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"

namespace weir::transport {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // kAlreadyExists if the key has been published.
  virtual absl::Status Publish(const std::string& key, const std::string& value) = 0;
  // Waits until `key` is published. kDeadlineExceeded after the exchange's own limit,
  // kUnavailable once the job has ended.
  virtual absl::StatusOr<std::string> Fetch(const std::string& key) = 0;
  // Returns OK while the job runs; kUnavailable with the reason once the job has ended. A rank that
  // waits for another rank calls JobStatus now and then, because a peer in shared memory dies
  // without a sign. An exchange that knows of no job returns OK.
  virtual absl::Status JobStatus() { return absl::OkStatus(); }
};

class LocalExchange final : public Exchange {
 public:
  explicit LocalExchange(int64_t limit_ms) : limit_ms_(limit_ms) {}
  absl::Status Publish(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Fetch(const std::string& key) override;

 private:
  const int64_t limit_ms_;
  Mutex mutex_;
  CondVar published_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::transport
