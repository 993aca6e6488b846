// PublishedValues holds the values that workers have published for each other, and the waiters for
// values. The store is bounded, so that a broken worker can fill neither the coordinator's memory
// nor the part of it that other workers need. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace weir::control {

inline constexpr size_t kPublishedKeysMax = 1 << 18;
inline constexpr int64_t kPublishedBytesMax = 256 << 20;
// The limit of one worker, for any number of ranks: a card of a rank is some 100 bytes, and some 60
// for each of its edges.
inline constexpr int64_t kPublishedBytesOfWorkerMax = 32 << 20;
inline constexpr size_t kKeyBytesMax = 1 << 10;
inline constexpr size_t kWaitingMax = 1 << 18;

class PublishedValues {
 public:
  struct Waiter {
    WorkerId worker;
    int64_t request = 0;
  };

  // Returns the waiters that the value answers. The caller checks before whether `worker` may use
  // `key`. kAlreadyExists, kInvalidArgument (a key too long), kResourceExhausted (the bounds
  // above).
  absl::StatusOr<std::vector<Waiter>> Publish(WorkerId worker, const std::string& key,
                                              std::string value);

  // Returns the value, or null; if null, the Publish of `key` returns `waiter`. kResourceExhausted
  // if too many wait.
  absl::StatusOr<const std::string*> Fetch(const std::string& key, Waiter waiter);

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Waiter>> waiting_;
  int64_t bytes_ = 0;                     // of keys and values
  std::map<WorkerId, int64_t> bytes_of_;  // of keys and values, by the worker that published them
  size_t num_waiting_ = 0;
};

}  // namespace weir::control
