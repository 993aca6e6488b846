// The tasks that a scheduler (mpirun, mpiexec, srun with and without PMIx) has started from one
// command line, one of which is this process, and the scheduler's own way to tell all of them
// something. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/hosts/backend.h"

namespace weir::hosts {

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

  virtual int task() const = 0;  // of this process, from 0
  virtual int num_tasks() const = 0;
  virtual bool is_on_one_host() const = 0;

  // Tells `text` of task 0 to all tasks; that of others is not used. Every task calls Share once,
  // and then leaves the group: the starter waits for nothing more. At most kSharedBytesMax bytes
  // without a newline. kUnavailable if the starter does not serve.
  virtual absl::StatusOr<std::string> Share(const std::string& text) = 0;
};

inline constexpr size_t kSharedBytesMax = 900;  // what the least of the starters takes as one value

}  // namespace weir::hosts
