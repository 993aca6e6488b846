// A WorkerLink is a worker's end of the control plane. The link says hello, proves its identity,
// sends heartbeats, publishes and fetches the values that ranks need to reach each other, and runs
// the coordinator's commands.
//
//   Connect -> Serve(handler): { command -> handler -> answer }* -> OK | the reason of the end
//
// When the coordinator begins a new epoch (Coordinator::BeginEpoch), publishes and fetches under
// way fail, commands that wait are forgotten, and the next commands are of the new epoch. The
// answer to a command carries the epoch of the command.
//
// Thread rule: any thread. The handler runs on the thread that called Serve, one command at a time;
// heartbeats and the abort hook come from a thread of the link.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_progress.h"
#include "runtime/transport/exchange.h"

namespace weir::control {

struct WorkerLinkOptions {
  std::string coordinator_address;
  std::string job_id;
  uint32_t epoch = 1;
  WorkerId worker = WorkerId(0);
  Credentials credentials;
  std::string build_id;
  int64_t heartbeat_ms = 1000;
  // The coordinator counts as gone if the link has heard nothing from it for this time.
  int64_t coordinator_dead_after_ms = 8000;
  int64_t connect_limit_ms = 10'000;
  int64_t fetch_limit_ms = 30'000;
  int64_t message_bytes_max = 64 << 20;
  // Called before the coordinator counts as gone for its silence, or before a wait for the
  // coordinator ends. Returns the number of milliseconds by which the deadline moves, from now; 0:
  // no extension, but a coordinator that was excused at the last call has its time anew
  // (Liveness::Judge). The function is for a caller that can see why the coordinator is silent.
  // Null: no extension. The function must return at once and call nothing of the link. Any thread,
  // one at a time.
  std::function<int64_t()> excuse_ms;
  // Called at every heartbeat; must not block.
  std::function<WorkerProgress()> progress;
  // Called once when the job was aborted or the coordinator is gone; must not block.
  std::function<void(const absl::Status& reason)> on_abort;
  // Called when the coordinator has begun a new epoch; must not block. The command that runs is of
  // an old epoch, and its answer is dropped. Null: nothing is to be done.
  std::function<void(uint32_t epoch, const absl::Status& reason)> on_epoch;
  // Called once by Serve after the coordinator has aborted the job, when no command runs any more.
  // Returns the last words of this worker, which the coordinator keeps (WorkerHealth::last_words).
  // Words of more than kLastWordsBytesMax bytes are not sent. Null: no words.
  std::function<std::string(const absl::Status& reason)> last_words;
};

class WorkerLink : public transport::Exchange {
 public:
  // Blocks until the coordinator's welcome, at most connect_limit_ms. kUnavailable: no coordinator
  // at the address. kPermissionDenied: the coordinator refused the credentials, or the worker's
  // number is taken, or the coordinator's own credentials are not this job's. kFailedPrecondition:
  // another build or epoch, with both. kAborted, kCancelled: the job has ended. If a link is
  // destroyed before Serve has returned, the coordinator reports the worker as lost.
  static absl::StatusOr<std::unique_ptr<WorkerLink>> Connect(WorkerLinkOptions options);

  using Handler = std::function<absl::StatusOr<std::string>(const std::string& command)>;
  // Serves until the coordinator ends the job. Returns OK if the end is orderly; everything that
  // was sent has then arrived. Otherwise returns the reason, once the handler has returned and, if
  // the coordinator listens, has the last words. A handler's error is sent as the answer and does
  // not end serving.
  virtual absl::Status Serve(const Handler& handler) = 0;

  // Returns an exchange for ranks that work in `epoch`. Its calls fail with kUnavailable once the
  // job is in another epoch or has ended. The link must outlive the exchange. The link itself, as
  // an exchange, is of the present epoch.
  virtual std::unique_ptr<transport::Exchange> ExchangeOf(uint32_t epoch) = 0;

  // Sends an event to the coordinator, such as a metric. Does not block; events arrive in order.
  // With more than 65,536 unsent events the link ends, with kResourceExhausted.
  virtual void Send(std::string event) = 0;
};

}  // namespace weir::control
