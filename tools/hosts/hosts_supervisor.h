// The worker processes of a job on several hosts. A HostsSupervisor starts an agent on each host by
// a command whose standard input and output lead to the agent (ssh, srun, mpirun, or the agent
// itself), and lets the agents start, watch and end the workers. To its user it is a Supervisor.
//
//   Reach -> { Probe } -> StartWorkers -> { Tell, Wait } -> Stop
//
// If the channel to an agent ends, the workers of that host end with the agent. Their exits say
// that the host is lost (WorkerExit::lost). If this process ends for any reason, the commands are
// killed, so the channels close and the agents end.
//
// Lines that a command prints to standard error go to the console with the host's name in front.
// Thread rule: as supervisor.h; Reach, Probe and StartWorkers by the thread that calls Wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hosts/address_probe.h"
#include "tools/launch/supervisor.h"

namespace weir::hosts {

// A HostCommand starts the agent of a host.
struct HostCommand {
  std::string host;                    // as the user wrote it
  std::vector<std::string> arguments;  // [0]: the path of a program
  std::string advice;                  // if the agent does not come
};

// HostFacts are what the agent of a host has told of the host.
struct HostFacts {
  std::string name;  // that the host gives itself
  int64_t agent_pid = 0;
  int cores = 0;  // that its workers may use
  int64_t memory_bytes = 0;
  std::string starter_address;  // this machine's address as the host sees it; empty: not known
};

struct HostsSupervisorOptions {
  launch::SupervisorOptions workers;
  std::string build_id;             // agents with another are refused
  std::string program;              // of the workers, on their host; empty: that of the agent
  std::string folder;               // in which workers work, where the host has it
  int64_t hello_limit_ms = 30'000;  // for all agents together
};

class HostsSupervisor : public launch::Supervisor {
 public:
  // Starts the agents and waits for all of them. kUnavailable with a problem for each host whose
  // agent has not come: W0872; kFailedPrecondition: W0873, an agent is of another build.
  static absl::StatusOr<std::unique_ptr<HostsSupervisor>> Reach(
      const std::vector<HostCommand>& hosts, HostsSupervisorOptions options);

  virtual const std::vector<HostFacts>& facts() const = 0;  // by host

  // Lets each host try each address (with a port). Returns the results by host, then by address. A
  // host that does not answer within the limit and 2 s has results that say so.
  virtual std::vector<std::vector<AddressProbe>> Probe(const std::vector<std::string>& addresses,
                                                       int64_t limit_ms) = 0;

  // Starts the workers, each on its host. arguments[0] of a worker is not used: see
  // HostsSupervisorOptions::program. kUnavailable (W0874) if a host cannot; then no worker is left
  // running.
  virtual absl::Status StartWorkers(const std::vector<launch::WorkerLaunch>& workers) = 0;
};

}  // namespace weir::hosts
