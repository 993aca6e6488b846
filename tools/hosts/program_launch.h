// Runs a program of the user's on the hosts of a job, one process for each rank. The environment of
// a process names its rank, in the variables that PyTorch's programs read:
//
//   RANK, WORLD_SIZE               among all processes of the job
//   LOCAL_RANK, LOCAL_WORLD_SIZE   among those of the same host
//   GROUP_RANK, GROUP_WORLD_SIZE   of the host, among those that have processes
//   MASTER_ADDR, MASTER_PORT       an address of the host of rank 0 that all hosts reach, and a
//   port
//                                  that was free there when the host was asked
//
// The program is all that a process shares with this one: standard input is empty, and output goes
// to log files and to the caller's stream. The first process that fails ends the others.
// Thread rule: one thread, which lives as long as the processes.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/console/console.h"
#include "tools/hosts/find_hosts.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/signal_watch.h"
#include "tools/launch/supervisor.h"

namespace weir::hosts {

struct ProgramLaunch {
  // [0]: a path on the hosts, or a name for their PATH. Paths count from this process's folder,
  // where a host has it.
  std::vector<std::string> command;
  int processes = 0;                   // 0: one for each slot
  std::vector<std::string> variables;  // "NAME=value", for every process
  std::string master_address;          // empty: found by trying
  int master_port = 0;                 // 0: a free one
  std::string log_base;                // the folder in which the job's folder for logs is made
  std::vector<RankId> ranks_shown;     // in the output; empty: all
  int64_t grace_ms = 5000;             // between asking a process to end and killing it
};

// The place of a rank. Agents with one name are agents of one host, such as several tasks on a
// node.
struct RankPlace {
  RankId rank;
  HostId agent;
  int group = 0;  // the host's place among those that have ranks
  int num_hosts = 0;
  int local_rank = 0;
  int num_local = 0;  // ranks of that host
};

// Returns the places of the ranks: consecutive ranks share an agent. `agents` are the listed hosts
// of the agents. Errors: those of PlaceOnHosts.
absl::StatusOr<IdVector<RankId, RankPlace>> PlacePrograms(const HostList& agents, int processes);

// Returns the variables above, "NAME=value", without MASTER_ADDR and MASTER_PORT.
std::vector<std::string> RankVariables(const RankPlace& place, size_t world_size);

// Kills the processes that run and returns their ends. Waits 1 s for them, and up to 10 s longer
// for those that their hosts still show then, such as processes that a disk holds. A process on a
// host that does not answer, as when its agent is stopped, is not waited for.
std::vector<launch::WorkerExit> Kill(launch::Supervisor* supervisor);

// Runs the program on the hosts found, which have agents, until all processes have ended, and
// returns the report of the first that failed, with its exit code. Lines of the processes go to
// `out` and messages to `console`; both must outlive the call. The first SIGINT, SIGTERM or SIGHUP
// that `signals` takes goes to every process, and those that are left after the grace are killed; a
// second one kills at once. SIGUSR1 and SIGUSR2 go to every process. An interrupted program has an
// empty report with the code kExitInterrupted. Errors: those of HostsSupervisor, and W0875 if the
// hosts reach no address of the first of them.
absl::StatusOr<launch::FailureReport> RunProgram(const ProgramLaunch& launch,
                                                 const FoundHosts& found,
                                                 launch::SignalWatch* signals, std::ostream* out,
                                                 console::Console* console);

}  // namespace weir::hosts
