// A FanOut is a command that starts an agent on each host of a job by itself, such as srun, which
// reaches the nodes over a tree. The agents find the invitation to the starter's meeting on their
// standard input. Thread rule: any thread; one thread of its own starts and reads the command.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "tools/launch/wake_event.h"
#include "tools/launch/worker_output.h"
#include "tools/launch/worker_process.h"

namespace weir::hosts {

class FanOut {
 public:
  // arguments[0] is a path. Lines of the command's output go to `console`, which must outlive this
  // object, with `label` in front. kUnavailable (W0093) if the command cannot be started.
  static absl::StatusOr<std::unique_ptr<FanOut>> Start(const std::vector<std::string>& arguments,
                                                       const std::string& input,
                                                       const std::string& label,
                                                       std::ostream* console);
  // Waits until the command has ended, which it does when its agents have, and kills it after 2 s.
  ~FanOut();

  // kUnavailable with the last lines if the command has ended.
  absl::Status Check() const;

 private:
  FanOut(launch::OwnedDescriptor wake, const std::string& label, std::ostream* console)
      : wake_(std::move(wake)), output_(launch::OwnedDescriptor(), label, console) {}
  absl::Status StartCommand(const std::vector<std::string>& arguments, const std::string& input);
  void Run();
  void ReadOutput();

  launch::WakeEvent wake_;
  std::thread thread_;
  launch::WorkerProcess command_;  // the thread's own
  mutable Mutex mutex_;
  launch::WorkerOutput output_ ABSL_GUARDED_BY(mutex_);
  std::string how_ended_ ABSL_GUARDED_BY(mutex_);  // empty: it runs
};

}  // namespace weir::hosts
