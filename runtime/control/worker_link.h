// A worker's end of the control plane: says hello, proves who it is, beats, publishes and
// fetches what ranks need to reach each other, and runs the coordinator's commands.
//
//   Connect -> Serve(handler): { command -> handler -> answer }* -> OK | the reason of the end
//
// Thread rule: any thread. The handler runs on the thread that called Serve, one command at
// a time; heartbeats and the abort hook come from a thread of the link.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_progress.h"
#include "runtime/transport/exchange.h"

namespace weir {

struct WorkerLinkOptions {
  std::string coordinator_address;
  std::string job_id;
  uint32_t epoch = 1;
  int worker = 0;
  Credentials credentials;
  std::string build_id;
  int64_t heartbeat_ms = 1000;
  // Without a word from the coordinator for so long it counts as gone.
  int64_t coordinator_dead_after_ms = 8000;
  int64_t connect_limit_ms = 10'000;
  int64_t fetch_limit_ms = 30'000;
  int64_t message_bytes_max = 64 << 20;
  // Asked before the coordinator counts as gone for want of a word, or a wait for it ends: so many
  // more milliseconds it has, from now; 0: none. For who can see why it is silent. Null: none.
  // Answers at once and calls nothing of the link. Any thread, one at a time.
  std::function<int64_t()> excuse_ms;
  // Read at every heartbeat; must not block.
  std::function<WorkerProgress()> progress;
  // The job was aborted or the coordinator is gone. Once; must not block.
  std::function<void(const absl::Status& reason)> on_abort;
};

class WorkerLink : public Exchange {
 public:
  // Blocks until welcome, at most connect_limit_ms. kUnavailable: no coordinator there.
  // kPermissionDenied: it refused the credentials or the worker's number is taken, or its own
  // credentials are not this job's. kFailedPrecondition: another build or epoch, with both.
  // kAborted, kCancelled: the job has ended. To destroy a link before Serve has returned is to be
  // lost: the coordinator says so.
  static absl::StatusOr<std::unique_ptr<WorkerLink>> Connect(WorkerLinkOptions options);

  using Handler = std::function<absl::StatusOr<std::string>(const std::string& command)>;
  // Until the coordinator ends the job: OK if orderly, and then all that was sent has arrived; else
  // why, once the handler has returned. A handler's error is sent as the answer and does not end
  // serving.
  virtual absl::Status Serve(const Handler& handler) = 0;

  // An event for the coordinator, such as a metric. Does not block; events arrive in order. With
  // more than 65,536 of them unsent the link ends, with kResourceExhausted.
  virtual void Send(std::string event) = 0;
};

}  // namespace weir
