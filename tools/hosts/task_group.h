// The tasks that a scheduler (mpirun, mpiexec, srun with and without PMIx) has started from one
// command line, one of which is this process, and the scheduler's own way to tell all of them
// something. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/ids.h"
#include "tools/hosts/backend.h"

namespace weir::hosts {

inline constexpr TaskId kFirstTask = TaskId(0);  // the starter of the job

class TaskGroup {
 public:
  virtual ~TaskGroup() = default;
  // Joins the group of a PMIx server, with Debian's or another system's libpmix.so.2, which is
  // loaded here. kUnavailable if there is no such library or no server.
  static absl::StatusOr<std::unique_ptr<TaskGroup>> JoinPmix();
  // Joins the group of an MPICH-like starter, whose descriptor and place `get` tells (PMI_FD,
  // PMI_RANK, PMI_SIZE), by the wire protocol of PMI 1.1. kUnavailable if the starter speaks
  // another.
  static absl::StatusOr<std::unique_ptr<TaskGroup>> JoinPmi(const GetVariable& get);

  // Joins the tasks of a step of Slurm, which `get` tells (SLURM_PROCID, SLURM_STEP_NUM_TASKS). The
  // working folder must be one that all tasks share. kUnavailable if the variables name no task.
  static absl::StatusOr<std::unique_ptr<TaskGroup>> JoinSlurmStep(const GetVariable& get);

  virtual TaskId task() const = 0;  // of this process
  virtual int num_tasks() const = 0;
  virtual bool is_on_one_host() const = 0;

  // Tells `text` of task 0 to all tasks; that of others is not used. Every task calls Share once,
  // and then leaves the group: the starter waits for nothing more. At most kSharedBytesMax bytes
  // without a newline. kUnavailable if the starter does not serve; kDeadlineExceeded if not all
  // tasks have called it within the limit. An error of `check`, which is called at least every 100
  // ms while Share waits, ends the wait and is returned.
  virtual absl::StatusOr<std::string> Share(const std::string& text, int64_t limit_ms,
                                            const std::function<absl::Status()>& check) = 0;

  // Returns what task 0 tells now, where that may differ from what Share has returned, which then
  // was left by an earlier job. nullopt: nothing new. In other tasks than task 0, after Share.
  virtual std::optional<std::string> Again() { return std::nullopt; }
};

inline constexpr int64_t kCheckEveryMs = 100;
// The starters do not tell which tasks are missing.
inline std::string NotAllText(const char* starter, int64_t limit_ms) {
  return absl::StrCat("not all have come within ", limit_ms / 1000, " s (", starter,
                      " does not say which)");
}
inline constexpr size_t kSharedBytesMax = 900;  // what the least of the starters takes as one value

}  // namespace weir::hosts
