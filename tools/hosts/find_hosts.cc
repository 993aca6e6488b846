#include "tools/hosts/find_hosts.h"

#include <openssl/sha.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "tools/hosts/address_probe.h"
#include "tools/hosts/agent.h"
#include "tools/hosts/host_name.h"
#include "tools/hosts/meeting.h"
#include "tools/hosts/ssh_command.h"
#include "tools/hosts/task_group.h"
#include "tools/launch/parent_signals.h"
#include "tools/launch/program_path.h"
#include "tools/launch/signal_watch.h"

namespace weir::hosts {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr char kNobodyMeets[] = "weir-meeting none";  // the first task cannot listen
constexpr char kHostsVariable[] = "WEIR_HOSTS";
constexpr size_t kAddressesMax = 12;  // in an invitation that a starter shares
constexpr int64_t kFirstTaskSaysMs = 1'000;
constexpr int64_t kSayMs = 5'000;  // of waiting before a line says so
constexpr int64_t kSecretFileBytesMax = 4096;
constexpr size_t kSecretFileBytesMin = 16;

std::string ProgramOf(const HostsRequest& request) {
  return request.program.empty() ? launch::ResolvedProgram(launch::kOwnProgramLink)
                                 : request.program;
}

int64_t LimitMs(const HostsRequest& request) { return std::llround(request.meeting_limit_s * 1e3); }

bool IsCoded(const absl::Status& status, const char* code) {
  const std::optional<Problem> problem = ProblemOf(status);
  return problem.has_value() && problem->code == code;
}

const char* NameOf(Backend backend) { return kBackendNames[static_cast<int>(backend)]; }

absl::Status NoProgram(Backend backend, const std::string& what, const std::string& found,
                       const std::string& hint) {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0879", absl::StrCat("the backend ", NameOf(backend)), what, found, hint});
}

// Returns the addresses at which the agents may reach this machine.
std::vector<std::string> AddressesFor(const std::string& wanted, bool is_on_one_host) {
  if (!wanted.empty()) return {wanted};
  if (is_on_one_host) return {kLoopback};
  std::vector<std::string> addresses = OwnAddresses();
  if (addresses.empty()) addresses.emplace_back(kLoopback);
  if (addresses.size() > kAddressesMax) addresses.resize(kAddressesMax);
  return addresses;
}

absl::StatusOr<std::unique_ptr<Meeting>> OpenMeeting(const std::vector<std::string>& addresses,
                                                     uint16_t port, const std::string& secret) {
  absl::StatusOr<std::unique_ptr<Meeting>> meeting = Meeting::Open(addresses, port, secret);
  if (meeting.ok()) return meeting;
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0878", "the starter", "an address to meet the agents at",
                  std::string(meeting.status().message()),
                  absl::IsAlreadyExists(meeting.status())
                      ? "another --port in every task, or the end of what has this one"
                      : "--addr ADDRESS names another one"});
}

// While an InterruptibleWait lives, the first signal that asks to end makes its check kCancelled.
class InterruptibleWait {
 public:
  std::function<absl::Status()> check() const {
    return [this] {
      return signals_.interrupted() ? absl::CancelledError("interrupted") : absl::OkStatus();
    };
  }

 private:
  launch::SignalWatch signals_{launch::SecondSignal::kEndsTheProcess};
};

absl::StatusOr<std::vector<Visitor>> AwaitVisitors(Meeting* meeting, const std::string& where,
                                                   TaskId first, TaskId end, int64_t limit_ms,
                                                   std::ostream* console,
                                                   const std::function<absl::Status()>& check) {
  std::vector<TaskId> tasks;
  for (int32_t task = first.value(); task < end.value(); ++task) tasks.emplace_back(task);
  const MonotonicClock clock;
  int64_t say_ns = clock.NowNs() + kSayMs * 1'000'000;
  const auto serve = [&]() -> absl::Status {
    if (clock.NowNs() >= say_ns) {
      say_ns = std::numeric_limits<int64_t>::max();
      *console << "waiting for " << tasks.size() - static_cast<size_t>(meeting->num_visitors())
               << " of " << tasks.size() << " agents at "
               << absl::StrJoin(meeting->invitation().addresses, " or ") << ", up to "
               << limit_ms / 1000 << " s"
               << (meeting->turned_away().empty() ? "" : "; turned away: ")
               << meeting->turned_away() << std::endl;
    }
    return check();
  };
  absl::StatusOr<std::vector<Visitor>> visitors = meeting->Await(tasks, limit_ms, serve);
  if (visitors.ok() || absl::IsCancelled(visitors.status())) return visitors;
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {"W0878", where, absl::StrCat(tasks.size(), tasks.size() == 1 ? " agent" : " agents"),
       std::string(visitors.status().message()),
       meeting->turned_away().empty()
           ? "look at what the tasks printed; --addr ADDRESS names an address of this machine that "
             "they reach; --meet-within SECONDS waits longer"
           : "the same --secret-file in all tasks, and another --port for each job"});
}

// The name of this host in the job: Slurm's, or the host's own.
std::string OwnName() {
  const std::string node = OwnVariable("SLURMD_NODENAME");
  return node.empty() ? HostName() : node;
}

// The agent of the host on which this process runs.
HostAgent AgentHere(const HostsRequest& request) {
  HostAgent agent = {OwnName(),
                     {ProgramOf(request), "agent", "--scheduled"},
                     "--weir PATH names the program of Weir",
                     {}};
  agent.machine = MachineId();
  return agent;
}

HostAgent AgentOf(Visitor visitor) {
  HostAgent agent = {
      std::move(visitor.name), {}, "look at what the task printed", std::move(visitor.stream)};
  agent.machine = std::move(visitor.machine);
  return agent;
}

absl::StatusOr<std::unique_ptr<TaskGroup>> JoinTasks(Backend backend) {
  absl::StatusOr<std::unique_ptr<TaskGroup>> group =
      backend == Backend::kPmix  ? TaskGroup::JoinPmix()
      : backend == Backend::kPmi ? TaskGroup::JoinPmi(OwnVariable)
                                 : TaskGroup::JoinSlurmStep(OwnVariable);
  if (group.ok()) return group;
  const char* const needed = backend == Backend::kPmix  ? "PMIx's library and server"
                             : backend == Backend::kPmi ? "a starter that speaks PMI 1.1"
                                                        : "a task of a step";
  const char* const hint =
      backend == Backend::kPmix
          ? "mpirun or srun --mpi=pmix as the starter, and the package libpmix2 on every host"
      : backend == Backend::kPmi ? "MPICH's mpiexec as the starter"
                                 : "srun as the starter";
  // Each of several tasks would train the whole job by itself.
  return NoProgram(backend, needed, std::string(group.status().message()),
                   absl::StrCat(hint, HasOtherTasks(OwnVariable)
                                          ? "; or --hosts with ssh, outside of the starter"
                                          : "; or --backend local"));
}

absl::Status NotShared(Backend backend, const TaskGroup& group, const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  if (absl::IsDeadlineExceeded(status))
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {"W0878", absl::StrCat("the ", group.num_tasks(), " tasks"),
                    "all of them at the start", std::string(status.message()),
                    "the same command of weir in every task; --meet-within SECONDS waits longer"});
  return NoProgram(
      backend, "a way to tell all tasks of the first", std::string(status.message()),
      backend == Backend::kSlurm
          ? "srun --mpi=pmix, or a working folder that all tasks share and may write to"
          : "--hosts with ssh, outside of it");
}

// Another task than the first is an agent.
absl::StatusOr<FoundHosts> ServeTask(const HostsRequest& request, Backend backend,
                                     TaskGroup* group) {
  FoundHosts found;
  absl::StatusOr<std::string> text =
      group->Share("", LimitMs(request), [] { return absl::OkStatus(); });
  if (!text.ok()) return NotShared(backend, *group, text.status());
  if (*text == kNobodyMeets) {
    found.served = 0;  // the first task says why
    return found;
  }
  WEIR_ASSIGN_OR_RETURN(Invitation invitation, ParseInvitation(*text));
  const auto latest = [group, &invitation] {
    if (const std::optional<std::string> again = group->Again()) {
      if (absl::StatusOr<Invitation> now = ParseInvitation(*again); now.ok())
        invitation = *std::move(now);
    }
    return invitation;
  };
  found.served = RunAgentOfTask(latest, group->task(), OwnName(),
                                {AgentSignals::kIgnored, AgentCode::kDone}, LimitMs(request));
  return found;
}

// The starter is the first of the tasks that a scheduler has begun; the others are agents.
absl::StatusOr<FoundHosts> MeetTasks(const HostsRequest& request, Backend backend,
                                     std::ostream* console) {
  launch::EndWithParent();                // a starter of tasks that is killed leaves them otherwise
  std::optional<InterruptibleWait> wait;  // until the group has removed its file
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TaskGroup> group, JoinTasks(backend));
  if (group->task() != kFirstTask) return ServeTask(request, backend, group.get());
  FoundHosts found;
  if (group->num_tasks() == 1) return found;
  wait.emplace();
  WEIR_ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  absl::StatusOr<std::unique_ptr<Meeting>> meeting =
      OpenMeeting(AddressesFor(request.address, group->is_on_one_host()), 0, secret);
  const std::string invitation =
      meeting.ok() ? std::string(absl::StripSuffix(InvitationText((*meeting)->invitation()), "\n"))
                   : kNobodyMeets;
  absl::StatusOr<std::string> shared = group->Share(invitation, LimitMs(request), wait->check());
  if (!meeting.ok()) return meeting.status();
  if (!shared.ok()) return NotShared(backend, *group, shared.status());
  WEIR_ASSIGN_OR_RETURN(
      std::vector<Visitor> visitors,
      AwaitVisitors(meeting->get(), absl::StrCat("the ", group->num_tasks(), " tasks"), TaskId(1),
                    TaskId(group->num_tasks()), LimitMs(request), console, wait->check()));
  found.agents.push_back(AgentHere(request));
  for (Visitor& visitor : visitors) found.agents.push_back(AgentOf(std::move(visitor)));
  // A host is that of the task with its number.
  for (const HostId host : found.agents.ids())
    found.listed.push_back({found.agents[host].host, 1, absl::StrCat("task ", host),
                            StarterOfTasks(backend, OwnVariable)});
  return found;
}

// The command that starts an agent on each node.
absl::StatusOr<std::vector<std::string>> SrunCommand(const HostsRequest& request,
                                                     const HostList& nodes) {
  const std::string srun = launch::FindInOwnPath("srun");
  if (srun.empty())
    return NoProgram(Backend::kSlurm, "srun, which starts an agent on each node",
                     "no program 'srun'",
                     "the package slurm-client on this node, or --hosts with ssh");
  std::vector<std::string> names;
  for (const ListedHost& node : nodes) names.push_back(node.name);
  const std::string count = absl::StrCat(names.size());
  // The agents share the cores and the memory of the job with the task that starts them.
  return std::vector<std::string>{srun,
                                  "--quiet",
                                  "--mpi=none",
                                  "--mem=0",
                                  "--cpu-bind=none",
                                  "--kill-on-bad-exit=0",
                                  absl::StrCat("--nodes=", count),
                                  absl::StrCat("--ntasks=", count),
                                  "--ntasks-per-node=1",
                                  absl::StrCat("--nodelist=", absl::StrJoin(names, ",")),
                                  ProgramOf(request),
                                  "agent",
                                  "--task-from",
                                  "SLURM_PROCID"};
}

// In a batch script, and in the shell of salloc, srun starts an agent on each node.
absl::StatusOr<FoundHosts> StartBySlurm(const HostsRequest& request, std::ostream* console) {
  WEIR_ASSIGN_OR_RETURN(const HostList nodes, ReadSlurmNodes(OwnVariable));
  FoundHosts found;
  WEIR_ASSIGN_OR_RETURN(found.fan_out_command, SrunCommand(request, nodes));
  WEIR_ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  WEIR_ASSIGN_OR_RETURN(
      std::unique_ptr<Meeting> meeting,
      OpenMeeting(AddressesFor(request.address, /*is_on_one_host=*/false), 0, secret));
  absl::StatusOr<std::unique_ptr<FanOut>> fan_out =
      FanOut::Start(found.fan_out_command, InvitationText(meeting->invitation()), "srun", console);
  if (!fan_out.ok()) return fan_out.status();
  found.fan_out = *std::move(fan_out);
  const InterruptibleWait wait;
  WEIR_ASSIGN_OR_RETURN(std::vector<Visitor> visitors,
                        AwaitVisitors(meeting.get(), absl::StrCat("the nodes ", HostsText(nodes)),
                                      TaskId(0), TaskId(nodes.next_id().value()), LimitMs(request),
                                      console, [&]() -> absl::Status {
                                        WEIR_RETURN_IF_ERROR(wait.check()());
                                        return found.fan_out->Check();
                                      }));
  // Slurm numbers the tasks in its order of the nodes, which need not be that of the list.
  for (Visitor& visitor : visitors) {
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const ListedHost& listed) {
      return listed.name == visitor.name;
    });
    found.listed.push_back(
        {visitor.name, node == nodes.end() ? 1 : node->slots, "Slurm", ListedBy::kAllocation});
    found.agents.push_back(AgentOf(std::move(visitor)));
  }
  return found;
}

absl::Status BadIndex(const std::string& where, const std::string& expected,
                      const std::string& found, const std::string& hint) {
  return Rejected({"W0880", where, expected, found, hint});
}

// The secret that all tasks find in a file is any text; its digest is the key.
absl::StatusOr<std::string> SecretFrom(const std::string& path) {
  if (path.empty())
    return BadIndex("the backend index", "a file with a secret that all tasks share", "none",
                    "--secret-file PATH, or WEIR_SECRET_FILE");
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::MappedFile> file,
                        store::MappedFile::Open(path, "secret file"));
  if (file->size() > kSecretFileBytesMax)
    return BadIndex(path, absl::StrCat("a secret of at most ", kSecretFileBytesMax, " bytes"),
                    absl::StrCat(file->size(), " bytes"), "another file");
  const absl::string_view secret = absl::StripAsciiWhitespace(file->text());
  if (secret.size() < kSecretFileBytesMin)
    return BadIndex(path, absl::StrCat("a secret of at least ", kSecretFileBytesMin, " bytes"),
                    absl::StrCat(secret.size(), " bytes"),
                    "`openssl rand -hex 32` writes a good one");
  std::string key(SHA256_DIGEST_LENGTH, '\0');
  ::SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(),
           reinterpret_cast<unsigned char*>(key.data()));
  return key;
}

bool ListsHosts(const HostsRequest& request) {
  return !request.list.empty() || !request.file.empty() || !OwnVariable(kHostsVariable).empty();
}

absl::StatusOr<HostList> ReadList(const HostsRequest& request) {
  if (!request.list.empty()) return ParseHosts(request.list);
  if (!request.file.empty()) return ReadHostFile(request.file);
  return ParseHosts(OwnVariable(kHostsVariable), kHostsVariable, ListedBy::kVariable);
}

// Every task runs the same command with the same list of hosts, and knows its own place in it. The
// first is the starter.
absl::StatusOr<FoundHosts> MeetByIndex(const HostsRequest& request, std::ostream* console) {
  FoundHosts found;
  WEIR_ASSIGN_OR_RETURN(found.listed, ReadList(request));
  int task = -1;
  const std::string index = OwnVariable("JOB_COMPLETION_INDEX");
  const int num_tasks = found.listed.next_id().value();
  if (!absl::SimpleAtoi(index, &task) || task < 0 || task >= num_tasks)
    return BadIndex("JOB_COMPLETION_INDEX", absl::StrCat("a number from 0 to ", num_tasks - 1),
                    absl::StrCat("'", index, "'"), "a host in the list for each task");
  WEIR_ASSIGN_OR_RETURN(const std::string secret, SecretFrom(request.secret_file));
  const std::string& first = found.listed.front().name;
  if (task > 0) {
    const Invitation invitation = {secret, {EntryText(first, request.port)}};
    found.served =
        RunAgentOfTask([&] { return invitation; }, TaskId(task), found.listed[HostId(task)].name,
                       {AgentSignals::kTold, AgentCode::kOfJob}, LimitMs(request));
    return found;
  }
  std::vector<std::string> addresses =
      request.address.empty() ? AddressesOf(first) : std::vector<std::string>{request.address};
  // Some systems know their own name as an address of the loopback interface alone.
  if (request.address.empty() &&
      std::all_of(addresses.begin(), addresses.end(),
                  [](const std::string& address) { return InterfaceOf(address) == "lo"; })) {
    for (std::string& address : OwnAddresses()) addresses.push_back(std::move(address));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Meeting> meeting,
                        OpenMeeting(addresses, request.port, secret));
  std::vector<Visitor> visitors;
  if (num_tasks > 1) {
    const InterruptibleWait wait;
    WEIR_ASSIGN_OR_RETURN(
        visitors, AwaitVisitors(meeting.get(), absl::StrCat("the ", num_tasks, " tasks"), TaskId(1),
                                TaskId(num_tasks), LimitMs(request), console, wait.check()));
  }
  found.agents.push_back(AgentHere(request));
  for (Visitor& visitor : visitors) found.agents.push_back(AgentOf(std::move(visitor)));
  return found;
}

// Refuses an environment in which every task would train the whole job by itself.
absl::Status CheckSurroundings(const HostsRequest& request, const Detected& detected,
                               bool lists_hosts) {
  if (request.backend != "auto") return absl::OkStatus();
  if (!lists_hosts && !OwnVariable("JOB_COMPLETION_INDEX").empty() && !request.secret_file.empty())
    return BadIndex("JOB_COMPLETION_INDEX", "the list of all tasks' hosts", "none",
                    "WEIR_HOSTS or --hosts in every task, or --backend local to train alone");
  if (detected.backend != Backend::kSsh) return absl::OkStatus();
  const Backend around = DetectBackend("auto", /*lists_hosts=*/false, OwnVariable).backend;
  const bool is_task = around == Backend::kPmix || around == Backend::kPmi ||
                       (around == Backend::kSlurm && IsSlurmStep(OwnVariable));
  if (!is_task) return absl::OkStatus();
  return BadIndex("the list of hosts", absl::StrCat("the tasks of the backend ", NameOf(around)),
                  "hosts for ssh in every task",
                  "no --hosts, --hostfile and WEIR_HOSTS; or --backend ssh, in one task");
}

// Refuses a request that does not fit the backend, and an environment in which every task would
// train the whole job by itself.
absl::Status CheckRequest(const HostsRequest& request, const Detected& detected) {
  const bool lists_hosts = ListsHosts(request);
  const bool needs_list = detected.backend == Backend::kSsh || detected.backend == Backend::kIndex;
  const std::string wanted = absl::StrCat("--backend ", NameOf(detected.backend));
  if (needs_list && !lists_hosts)
    return BadIndex(wanted, "the hosts of the job", "none",
                    "--hosts LIST, --hostfile PATH or WEIR_HOSTS");
  WEIR_RETURN_IF_ERROR(CheckSurroundings(request, detected, lists_hosts));
  if (!needs_list && lists_hosts)
    return BadIndex(wanted, "hosts that the scheduler names", "a list of hosts",
                    "no --hosts, --hostfile and WEIR_HOSTS");
  return absl::OkStatus();
}

}  // namespace

void FoundHosts::TellEnd(int exit_code) { EndAgents(agents, exit_code); }

FoundHosts::~FoundHosts() {
  for (const HostAgent& agent : agents) {
    if (agent.stream != nullptr) agent.stream->Close();
  }
}

std::string HostsText(const HostList& hosts) {
  constexpr size_t kShownMax = 4;
  std::vector<ListedHost> shown;  // neighbours of one name as one
  for (const ListedHost& host : hosts) {
    if (shown.empty() || shown.back().name != host.name) {
      shown.push_back(host);
    } else {
      shown.back().slots += host.slots;
    }
  }
  std::vector<std::string> names;
  for (const ListedHost& host : shown) {
    if (names.size() == kShownMax && shown.size() > kShownMax + 1) break;
    names.push_back(EntryText(host.name, host.slots > 1 ? host.slots : 0));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (names.size() < shown.size())
    absl::StrAppend(&text, " and ", shown.size() - names.size(), " more");
  return text;
}

absl::StatusOr<FoundHosts> ListHosts(const HostsRequest& request) {
  FoundHosts found;
  if (!ListsHosts(request)) return found;
  WEIR_ASSIGN_OR_RETURN(found.listed, ReadList(request));
  for (const ListedHost& host : found.listed) {
    WEIR_ASSIGN_OR_RETURN(HostAgent agent,
                          AgentCommand(host.name, {request.ssh, ProgramOf(request)}));
    found.agents.push_back(std::move(agent));
  }
  ReachThroughOthers(request.fan_out, &found.agents);
  return found;
}

namespace {

absl::StatusOr<FoundHosts> FindBy(Backend backend, const HostsRequest& request,
                                  std::ostream* console) {
  switch (backend) {
    case Backend::kLocal: return FoundHosts();
    case Backend::kSsh: return ListHosts(request);
    case Backend::kIndex: return MeetByIndex(request, console);
    case Backend::kPmix:
    case Backend::kPmi: return MeetTasks(request, backend, console);
    case Backend::kSlurm:
      return IsSlurmStep(OwnVariable) ? MeetTasks(request, backend, console)
                                      : StartBySlurm(request, console);
  }
  return FoundHosts();
}

// Names the hosts and commands of FindBy, as far as they are known before the tasks meet.
absl::StatusOr<FoundHosts> NameBy(Backend backend, const HostsRequest& request) {
  if (backend == Backend::kSsh) return ListHosts(request);
  FoundHosts found;
  if (backend == Backend::kIndex) {
    WEIR_ASSIGN_OR_RETURN(found.listed, ReadList(request));
  }
  if (backend == Backend::kSlurm && !IsSlurmStep(OwnVariable)) {
    WEIR_ASSIGN_OR_RETURN(found.listed, ReadSlurmNodes(OwnVariable));
    WEIR_ASSIGN_OR_RETURN(found.fan_out_command, SrunCommand(request, found.listed));
  }
  for (const ListedHost& host : found.listed) found.agents.push_back({host.name, {}, "", nullptr});
  if (found.listed.empty() && backend != Backend::kLocal)
    found.line = absl::StrCat("hosts: those of the tasks (backend ", NameOf(backend),
                              "), which are known once the tasks meet");
  if (IsLaterTask(OwnVariable)) found.served = 0;
  return found;
}

}  // namespace

bool IsSaidByFirstTask() {
  if (!IsLaterTask(OwnVariable)) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(kFirstTaskSaysMs));
  return true;
}

bool IsSaidByFirstTaskOnHost() { return IsLaterTaskOnHost(OwnVariable) && IsSaidByFirstTask(); }

absl::StatusOr<FoundHosts> FindHosts(const HostsRequest& request, std::ostream* console) {
  const Detected detected = DetectBackend(request.backend, ListsHosts(request), OwnVariable);
  if (detected.backend == Backend::kLocal && request.backend != "auto") return FoundHosts();
  absl::Status refused = CheckRequest(request, detected);
  absl::StatusOr<FoundHosts> found = !refused.ok() ? absl::StatusOr<FoundHosts>(refused)
                                     : request.starts_nothing
                                         ? NameBy(detected.backend, request)
                                         : FindBy(detected.backend, request, console);
  if (absl::IsCancelled(found.status())) {
    *console << "weir: interrupted before the first step: no file is written or changed"
             << std::endl;
    found = FoundHosts();
    found->served = launch::kExitInterrupted;
  } else if ((!refused.ok() && IsSaidByFirstTask()) ||
             (IsCoded(found.status(), "W0879") && IsSaidByFirstTaskOnHost())) {
    const int exit_code = ExitCode(found.status());
    found = FoundHosts();
    found->served = exit_code;
  }
  if (!found.ok()) return found;
  found->backend = detected.backend;
  if (!found->listed.empty())
    found->line = absl::StrCat("hosts: ", HostsText(found->listed), " (backend ",
                               NameOf(detected.backend), ": ", detected.why, ")");
  return found;
}

}  // namespace weir::hosts
