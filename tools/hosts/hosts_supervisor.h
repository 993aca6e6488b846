// The worker processes of a job on several hosts. A HostsSupervisor reaches an agent on each host,
// by a command whose standard input and output lead to the agent (ssh, or the agent itself) or over
// a connection that the agent has made, and lets the agents start, watch and end the workers. To
// its user it is a Supervisor.
//
//   Reach -> { Probe } -> StartWorkers -> { Tell, Wait } -> Stop -> TellEnd
//
// If the channel to an agent ends, the workers of that host end with the agent. Their exits say
// that the host is lost (WorkerExit::lost). The agents that are reached through it are lost, too.
// A lost host stays lost until ReachAgain has brought another agent. StartAgain starts a worker
// anew on its host, and StartAgainOn on another. If this process ends for any reason, the commands
// are killed, so the channels close and the agents end.
//
// Lines that a command prints to standard error go to the console with the host's name in front.
// Thread rule: as supervisor.h; Reach, Probe, StartWorkers, FetchFile and ShipFile by the thread
// that calls Wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/address_probe.h"
#include "tools/hosts/byte_stream.h"
#include "tools/hosts/link_probe.h"
#include "tools/launch/supervisor.h"

namespace weir::hosts {

// The way to the agent of a host: a command that starts the agent, whose standard streams are the
// channel, or the stream that an agent has opened (meeting.h).
struct HostAgent {
  std::string host;  // as the user wrote it, or as the host names itself
  // [0]: a path, or a name that PATH finds; empty: there is a stream.
  std::vector<std::string> arguments;
  std::string advice;                       // if the agent does not come
  std::shared_ptr<ByteStream> stream = {};  // null: there is a command
  // The host whose agent starts the command, a host earlier in the list; none: this process does.
  // Where that host does not reach this one, this process tries itself.
  HostId through = {};
  std::string machine = {};  // of the stream's agent, as HostFacts::machine; empty: not known
};

// Returns the names of the hosts, as messages name them.
IdVector<HostId, std::string> NamesOf(const IdVector<HostId, HostAgent>& agents);

// Lets each agent whose command leads to another host be reached through one before it, so that
// neither this process nor any agent starts more than `fan_out` such commands. fan_out >= 1.
void ReachThroughOthers(int fan_out, IdVector<HostId, HostAgent>* agents);

// HostFacts are what the agent of a host has told of the host.
struct HostFacts {
  std::string name;     // that the host gives itself
  std::string machine;  // the same for all hosts that are parts of one machine
  std::string build_id;
  int64_t agent_pid = 0;
  std::vector<int> cores;           // the numbers of those that its workers may use
  int64_t memory_bytes = 0;         // of the machine, or of the agent's control group
  int64_t shared_memory_bytes = 0;  // free in /dev/shm; below 0: there is none
  std::string gpus;                 // and their driver, or why there are none
  std::string starter_address;      // this machine's address as the host sees it; empty: not known
  std::vector<NetworkInterface> interfaces;  // those that are up
  int free_port = 0;  // of TCP, that no process had when the agent looked; 0: not known
};

struct HostsSupervisorOptions {
  launch::SupervisorOptions workers;
  std::string build_id;  // agents with another are refused; empty: none is
  // Of the workers: a path on their host, or a name for the PATH there; empty: that of the agent.
  std::string program;
  std::string folder;               // in which workers work, where the host has it
  int64_t hello_limit_ms = 30'000;  // for all agents together
  int64_t use_age_max_ms = 3'000;   // an older report of processor use is none (Supervisor::Use)
  // Hosts that need not come. One that has not come a moment after the others is lost.
  std::set<HostId> may_lack;
};

class HostsSupervisor : public launch::Supervisor {
 public:
  // Starts the agents that have commands and waits for all agents. kUnavailable with a problem for
  // each host whose agent has not come (W0872), or else for each whose agent is of another build
  // (W0873). After an error the agents that came have been told its exit code.
  static absl::StatusOr<std::unique_ptr<HostsSupervisor>> Reach(
      const IdVector<HostId, HostAgent>& hosts, HostsSupervisorOptions options);

  virtual const IdVector<HostId, HostFacts>& facts() const = 0;

  // Lets each host try each address (with a port). Returns the results by host, then by address. A
  // host that does not answer within the limit and 2 s has results that say so.
  virtual IdVector<HostId, std::vector<AddressProbe>> Probe(
      const std::vector<std::string>& addresses, int64_t limit_ms) = 0;

  // Lets each host listen at each of its addresses, for probes, until its agent ends. Returns the
  // addresses with ports, by host; none for a host that gives no answer within 2 s.
  virtual IdVector<HostId, std::vector<std::string>> ListenForProbes() = 0;

  // Lets a host measure the way to an address of another, which listens for probes (link_probe.h).
  // Takes about 0.4 s. A host that gives no answer has a result that says so.
  virtual LinkSpeed Measure(HostId host, const std::string& address) = 0;

  // Returns by host how far the host's clock is ahead of this machine's, from the quickest of
  // several questions; nullopt for a host that gives no answer within 2 s.
  virtual IdVector<HostId, std::optional<int64_t>> ClockOffsetsNs() = 0;

  // Starts the workers, each on its host. arguments[0] of a worker is not used: see
  // HostsSupervisorOptions::program. kUnavailable (W0874) if a host cannot; then no worker is left
  // running.
  virtual absl::Status StartWorkers(const IdVector<WorkerId, launch::WorkerLaunch>& workers) = 0;

  // Returns why the agent of a host is not there; empty: it is.
  virtual std::string LostText(HostId host) const = 0;
  // Begins to reach a lost host once more, from this process, and returns at once: if an agent of
  // the same build comes while the supervisor is served, then LostText is empty again, and the host
  // has no workers. An attempt that still goes on ends with the next. Does nothing for a host that
  // is there, that had never come, or to which no command leads.
  virtual void ReachAgain(HostId host) = 0;
  // Does the same as StartAgain, but on the host `host`, to which the worker belongs from then on.
  // Precondition: the worker does not run, or `host` is its host.
  // kUnavailable (W0874): the host is lost, gives no answer and is lost from then on, or cannot.
  virtual absl::Status StartAgainOn(WorkerId worker, HostId host) = 0;

  // Tells the agents that the job is over and with which exit code, so that those of tasks end with
  // it. Otherwise they find the starter lost when the supervisor is gone. The last call counts.
  // Call when no thread is in Wait.
  virtual void TellEnd(int exit_code) = 0;

  // Returns the content of a file of the host, which has at most `bytes_max` bytes. kNotFound,
  // kResourceExhausted, or kUnavailable if the host is lost or its bytes stop coming for 20 s.
  virtual absl::StatusOr<std::string> FetchFile(HostId host, const std::string& path,
                                                int64_t bytes_max) = 0;

  // Removes files of each host, as far as they are there. Waits for the hosts, for 2 s at most.
  virtual void RemoveFiles(const IdVector<HostId, std::vector<std::string>>& paths_of_hosts) = 0;

  // Copies the file `from` of this machine to the path to[h] of each host h, and makes the folders
  // there. A host with an empty path gets no copy. A copy appears at its path when it is complete.
  // kUnavailable (W0881) with the path and the host that cannot.
  virtual absl::Status ShipFile(const std::string& from,
                                const IdVector<HostId, std::string>& to) = 0;
};

// Tells the agents on streams that no supervisor has taken how the job ends, and waits until they
// have gone, for 2 s at most.
void EndAgents(const IdVector<HostId, HostAgent>& agents, int exit_code);

}  // namespace weir::hosts
