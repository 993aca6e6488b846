// A Coordinator is the centre of the control plane. The coordinator lives in the starter, knows the
// workers of a job, sends them commands and collects the answers, keeps the values that they
// publish for each other, and notices which workers are gone. The coordinator knows nothing of
// plans or training: commands, answers and events are bytes.
//
//   Start -> (workers connect and say hello) -> WaitForWorkers -> { CallAll ... } -> Shutdown |
//   Abort
//
// When workers are lost, the job may go on in a new epoch: BeginEpoch -> WaitForWorkers. The
// connections of the other workers stay. What a worker says belongs to the epoch in which the
// worker's work began; the coordinator drops and counts messages of other epochs, and refuses and
// counts hellos of other epochs.
//
// There is one gRPC stream per worker over mTLS, bound to the loopback address unless told
// otherwise. Every wait has a deadline and every message a size limit. A limit counts only while
// this process runs: a starter that is stopped and goes on has lost nothing. Thread rule: any
// thread; hooks are called from the coordinator's threads, one at a time, and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_progress.h"

namespace weir::control {

struct WorkerHealth {
  bool connected = false;
  int64_t since_heartbeat_ms = 0;
  // The time since `acts` last changed. Time during which the coordinator itself was kept from
  // running does not count.
  int64_t since_progress_ms = 0;
  WorkerProgress progress;
  int64_t pid = 0;
  // The worker's monotonic clock less the coordinator's, by that ping of the last 64 whose round
  // trip was shortest. The error is at most half of that round trip.
  int64_t clock_offset_ns = 0;
  int64_t round_trip_ns = 0;
  // The worker said these words as it left the aborted job (WorkerLinkOptions::last_words). The
  // words are here once Serve has returned at the worker. Empty: the worker has not left, left
  // without a word, or was lost.
  std::string last_words;
};

// A LostWorker says why a worker is no longer connected.
struct LostWorker {
  enum class How : uint8_t {
    kSilent,  // no heartbeat for dead_after_ms; time in which the coordinator was kept from running
              // does not count
    kBroken,  // its connection closed, or it sent an invalid message
  };
  How how = How::kBroken;
  std::string found;    // in a few words: "its connection closed"
  absl::Status status;  // kDeadlineExceeded (W0602) if silent, otherwise kUnavailable (W0603)
  uint32_t epoch = 1;   // of the job when it was lost
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
  // Called when a connected worker is lost: once per worker and epoch, not after Abort.
  std::function<void(WorkerId worker, const LostWorker& lost)> on_lost;
  // Called before a worker is lost for want of a heartbeat. Returns the number of milliseconds by
  // which the deadline moves, from now; 0: the worker is lost, unless the worker was excused at the
  // last call and has its time anew (Liveness::Judge). The function is for a caller that can see
  // why the worker is silent. Null: no extension. This function is not a hook: it must return at
  // once and call nothing of the coordinator.
  std::function<int64_t(WorkerId worker)> excuse_ms;
  // Returns whether a worker may publish under a key; W0810 refuses the key. Null: any key is
  // allowed. The function must return at once, runs on a thread of the coordinator, and must not
  // call the coordinator.
  std::function<bool(WorkerId worker, const std::string& key)> may_publish;
  // Called when a worker has sent an event (WorkerLink::Send).
  std::function<void(WorkerId worker, std::string event)> on_event;
};

class Coordinator {
 public:
  virtual ~Coordinator() = default;
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(CoordinatorOptions options);

  virtual std::string address() const = 0;  // "127.0.0.1:43117"

  // Waits until all workers have said hello. kDeadlineExceeded names the workers that have not;
  // kFailedPrecondition if a worker has another build, with both ids; kUnavailable if a worker that
  // came is lost.
  virtual absl::Status WaitForWorkers(int64_t limit_ms) = 0;

  // Sends `command` to every worker (CallEach: commands[w] to worker w) and waits for all answers.
  // Ends with the first error that a worker returned (its code and message, the worker
  // named), without waiting for the other workers, which may still run the command. kUnavailable
  // naming the worker if one is lost meanwhile; kAborted after Abort; kDeadlineExceeded naming the
  // workers that have not answered. limit_ms 0: no limit.
  virtual absl::StatusOr<IdVector<WorkerId, std::string>> CallAll(const std::string& command,
                                                                  int64_t limit_ms) = 0;
  virtual absl::StatusOr<IdVector<WorkerId, std::string>> CallEach(
      const IdVector<WorkerId, std::string>& commands, int64_t limit_ms) = 0;

  virtual IdVector<WorkerId, WorkerHealth> Health() const = 0;

  // Begins an epoch, whose number is above the last. All calls under way end with kUnavailable and
  // the words of `reason`, and published values are forgotten. The connections of the workers
  // `anew` are cut; new workers with their numbers are awaited. The other workers learn of the
  // epoch (WorkerLinkOptions::on_epoch). A worker of another build that came before ends no waiting
  // any more. Does nothing after Abort or Shutdown.
  virtual void BeginEpoch(uint32_t epoch, const std::vector<WorkerId>& anew,
                          const absl::Status& reason) = 0;
  // Lets the job go on without these workers, between two calls: those that are connected leave in
  // order, and calls, which have an empty answer for each, and WaitForWorkers need none of them.
  virtual void Dismiss(const std::vector<WorkerId>& workers) = 0;
  // Returns the number of messages and hellos of other epochs that were refused.
  virtual int64_t num_fenced() const = 0;

  // Ends the job for a reason: workers' abort hooks are called and all waits end. Idempotent. A
  // hook may call Abort.
  virtual void Abort(const absl::Status& reason) = 0;
  // Ends the job in order: workers' Serve returns OK. Waits until the workers have left, at most
  // limit_ms.
  virtual void Shutdown(int64_t limit_ms) = 0;
};

}  // namespace weir::control
