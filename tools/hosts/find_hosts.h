// Finds the hosts of a job and brings the agents of those hosts to this process, in the way of the
// backend (backend.h). Thread rule: one thread; FindHosts by one that lives as long as the job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/backend.h"
#include "tools/hosts/fan_out.h"
#include "tools/hosts/host_list.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

inline constexpr uint16_t kMeetingPort = 29'417;  // of the backend `index`

struct HostsRequest {
  std::string backend = "auto";
  std::string list;         // as --hosts takes it; empty: that of WEIR_HOSTS, if `file` is empty
  std::string file;         // a host file; empty: none
  std::string ssh = "ssh";  // a program and perhaps its options
  int fan_out = 32;     // hosts that one machine reaches by ssh; others are reached through these
  std::string program;  // of Weir on the hosts; empty: the path of this one
  std::string address;  // of this machine, for the hosts; empty: found
  std::string secret_file;  // of the backend `index`
  uint16_t port = kMeetingPort;
  // For all agents to come, of tasks of a scheduler, which may begin minutes apart.
  double meeting_limit_s = 60;
  // Start and meet nothing: the result names the hosts and the commands that lead to their agents,
  // as far as this process knows them.
  bool starts_nothing = false;
};

struct FoundHosts {
  FoundHosts() = default;
  FoundHosts(FoundHosts&&) = default;
  FoundHosts& operator=(FoundHosts&&) = default;
  // Closes the streams to the agents, which end then.
  ~FoundHosts();

  // Tells the agents that no supervisor has taken (hosts_supervisor.h) how the job ends.
  void TellEnd(int exit_code);

  Backend backend = Backend::kLocal;
  std::string line;  // for people: the backend, why, and the hosts; empty: there is nothing to say
  // The command that has started the agents. It lives as long as they do.
  std::unique_ptr<FanOut> fan_out;
  std::vector<std::string> fan_out_command;  // the words of that command; empty: there is none
  HostList listed;                           // empty: this machine alone, without agents
  IdVector<HostId, HostAgent> agents;
  // The exit code of this process, if the job is over: the process was a task that served as an
  // agent, was asked to end while it waited for agents, or leaves the words to the first task.
  // Otherwise this process is the starter.
  std::optional<int> served;
};

// Returns the hosts that the request lists, with the commands that lead to their agents over ssh.
// Reaches none.
absl::StatusOr<FoundHosts> ListHosts(const HostsRequest& request);

// Decides the backend and brings the agents. In all tasks but the first of an MPI starter or of
// indexed tasks, serves as an agent until the job is over. Output of the agents themselves goes to
// `console`, which must outlive the result. SIGINT, SIGTERM and SIGHUP end the wait for agents in
// good order. kUnavailable (W0878) if tasks do not come, (W0879) if
// the starter of the tasks, or a program of it, is missing; Rejected (W0880) for indexed tasks
// without secret or place.
absl::StatusOr<FoundHosts> FindHosts(const HostsRequest& request, std::ostream* console);

// Returns whether the first task says what every task finds wrong by itself, such as a wrong
// command line, so that this one need not. Then blocks for 1 s: some schedulers end all tasks when
// the first of them fails, and this one must not come before the words.
bool IsSaidByFirstTask();

// The same for what is wrong with a host, which the first task on it says.
bool IsSaidByFirstTaskOnHost();

// Returns "n1 (2 slots), n2" for people; of many hosts the first ones.
std::string HostsText(const HostList& hosts);

}  // namespace weir::hosts
