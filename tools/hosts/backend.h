// Decides how a job reaches its hosts: the backend. The user names one (`--backend`), or the
// environment shows which scheduler has started this process. Starts nothing and reaches no host.
//
//   backend  how the environment shows it                     the agents
//   local    nothing below                                    none: processes of this machine
//   ssh      hosts are listed                                 started by ssh
//   index    hosts are listed, and JOB_COMPLETION_INDEX       the tasks, which dial the first host
//   pmix     PMIX_NAMESPACE and PMIX_RANK (mpirun, srun)      the tasks, which the first invites
//   pmi      PMI_FD and PMI_RANK (mpiexec of MPICH)           likewise
//   slurm    SLURM_JOB_ID with more than one node or task     the tasks of the step, or in a batch
//                                                             script those that srun starts
//
// The rows are in the order of precedence, from the second one down; `local` is the rest.
// Thread rule: pure functions, but for what `get` reads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hosts/host_list.h"

namespace weir::hosts {

enum class Backend : uint8_t { kLocal, kSsh, kIndex, kPmix, kPmi, kSlurm };
inline constexpr const char* kBackendNames[] = {"local", "ssh", "index", "pmix", "pmi", "slurm"};

// Returns whether a scheduler starts the processes of such a job, and sends its signals to all.
inline bool IsScheduler(Backend backend) {
  return backend != Backend::kLocal && backend != Backend::kSsh;
}

// Returns the value of a variable of the environment; empty if it is not set.
using GetVariable = std::function<std::string(const std::string& name)>;
std::string OwnVariable(const std::string& name);  // of this process

struct Detected {
  Backend backend = Backend::kLocal;
  std::string why;  // "PMIX_RANK is set", "--backend"
};

// `wanted` is "auto" or one of kBackendNames; `lists_hosts`: the user lists hosts.
Detected DetectBackend(const std::string& wanted, bool lists_hosts, const GetVariable& get);

// Returns whether this process is a task of a step of Slurm, which srun has started. Otherwise it
// has the whole allocation for itself: in a batch script, or in the shell of salloc.
bool IsSlurmStep(const GetVariable& get);

// Returns whether this process is another than the first of the tasks of one command whose output
// the scheduler shows together. Indexed tasks have outputs of their own.
bool IsLaterTask(const GetVariable& get);

// Returns whether such a task is also another than the first on its host. What is wrong with a host
// is told by the first task there.
bool IsLaterTaskOnHost(const GetVariable& get);

// Returns what has started the tasks of kPmix, kPmi, or a step of kSlurm.
ListedBy StarterOfTasks(Backend backend, const GetVariable& get);

// Returns whether a scheduler has started other tasks from the command line of this one.
bool HasOtherTasks(const GetVariable& get);

// Returns the nodes of an allocation of Slurm, with the tasks of each as slots. Rejected (W0870) if
// the variables do not have Slurm's form.
absl::StatusOr<HostList> ReadSlurmNodes(const GetVariable& get);

// Reads "2(x3),1", Slurm's number of tasks by node, for `num_nodes` nodes. Empty if the text has
// another form.
std::vector<int> ParseTasksPerNode(const std::string& text, size_t num_nodes);

}  // namespace weir::hosts
