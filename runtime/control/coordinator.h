// The control plane's centre: it lives in the starter, knows the workers of a job, hands
// them commands and collects the answers, keeps what they publish for each other, and
// notices who is gone. It knows nothing of plans or training: commands, answers and
// events are bytes to it.
//
//   Start -> (workers connect and say hello) -> WaitForWorkers -> { CallAll ... } -> Shutdown |
//   Abort
//
// One gRPC stream per worker over mTLS, bound to the loopback address unless told otherwise;
// every wait has a deadline and every message a size limit. A limit counts only while this process
// runs: a starter that is stopped and goes on has lost nothing. Thread rule: any thread; hooks are
// called from the coordinator's threads, one at a time, and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_progress.h"

namespace weir {

struct WorkerHealth {
  bool connected = false;
  int64_t since_heartbeat_ms = 0;
  // Since `acts` last changed; time that the coordinator itself was kept from running does not
  // count.
  int64_t since_progress_ms = 0;
  WorkerProgress progress;
  int64_t pid = 0;
  // The worker's monotonic clock less the coordinator's, by that of the last 64 pings with the
  // shortest round trip; wrong by half of it at most.
  int64_t clock_offset_ns = 0;
  int64_t round_trip_ns = 0;
};

// Why a worker that was connected is connected no longer.
struct LostWorker {
  enum class How : uint8_t {
    kSilent,  // no heartbeat for dead_after_ms; time in which the coordinator was kept from running
              // does not count
    kBroken,  // its connection closed, or it sent what no worker sends
  };
  How how = How::kBroken;
  std::string found;    // in a few words: "its connection closed"
  absl::Status status;  // kDeadlineExceeded (W0602) if silent, otherwise kUnavailable (W0603)
};

struct CoordinatorOptions {
  std::string job_id;
  uint32_t epoch = 1;
  int num_workers = 1;
  Credentials credentials;
  std::string build_id;  // workers with another are refused
  std::string bind_address = "127.0.0.1";
  int64_t heartbeat_ms = 1000;
  int64_t dead_after_ms = 4000;
  int64_t message_bytes_max = 64 << 20;
  // A connected worker was lost: once per worker, not after Abort.
  std::function<void(int worker, const LostWorker& lost)> on_lost;
  // Asked before a worker is lost for want of a heartbeat: so many more milliseconds it has, from
  // now; 0: none. For who can see why it is silent. Null: none. Not a hook: it answers at once and
  // calls nothing of the coordinator.
  std::function<int64_t(int worker)> excuse_ms;
  // Whether a worker may publish under a key; W0810 refuses it. Null: under any. Answers at once,
  // from a thread of the coordinator, and calls nothing of it.
  std::function<bool(int worker, const std::string& key)> may_publish;
  // A worker sent an event (WorkerLink::Send).
  std::function<void(int worker, std::string event)> on_event;
};

class Coordinator {
 public:
  virtual ~Coordinator() = default;
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(CoordinatorOptions options);

  virtual std::string address() const = 0;  // "127.0.0.1:43117"

  // Until all workers have said hello. kDeadlineExceeded names those that have not;
  // kFailedPrecondition if one has another build, with both ids; kUnavailable if one that came is
  // lost.
  virtual absl::Status WaitForWorkers(int64_t limit_ms) = 0;

  // Sends `command` to every worker (CallEach: commands[w] to worker w) and waits for all
  // answers, by worker. Ends with the first error that a worker returned (its code and message,
  // the worker named), without waiting for the others, which may still be at it; kUnavailable
  // naming the worker if one is lost meanwhile; kAborted after Abort; kDeadlineExceeded naming
  // those that have not answered. limit_ms 0: no limit.
  virtual absl::StatusOr<std::vector<std::string>> CallAll(const std::string& command,
                                                           int64_t limit_ms) = 0;
  virtual absl::StatusOr<std::vector<std::string>> CallEach(
      const std::vector<std::string>& commands, int64_t limit_ms) = 0;

  virtual std::vector<WorkerHealth> Health() const = 0;

  // Ends the job for a reason: workers' abort hooks are called, all waits end. Idempotent. May be
  // called from a hook.
  virtual void Abort(const absl::Status& reason) = 0;
  // An orderly end: workers' Serve returns OK. Waits until they have left, at most limit_ms.
  virtual void Shutdown(int64_t limit_ms) = 0;
};

}  // namespace weir
