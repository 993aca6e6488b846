// Finds the cause of a failure, as far as this host shows it: the state of processes, connections
// whose data does not arrive, limits. The search runs while the processes still exist.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/limits/process_limits.h"
#include "tools/fleet/fleet.h"
#include "tools/launch/placement.h"
#include "tools/launch/process_state.h"
#include "tools/launch/stalled_connections.h"

namespace weir::fleet {
namespace {

constexpr int kLooksForStalls = 12;
constexpr int kRepeatsForSure = 2;
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

constexpr char kNetworkAdvice[] =
    "the network between the processes does not deliver: an interface is down, or drops packets "
    "(`ip -s link`, a firewall, a "
    "wrong MTU); on one host --transport shm needs no network for tensors";

std::string Describe(const launch::StalledConnection& connection) {
  const std::string what = absl::StrCat(connection.bytes_waiting, " bytes from ", connection.local,
                                        " to ", connection.remote);
  if (connection.times_repeated == 0)
    return absl::StrCat(what, " cannot be sent, though the receiver has read all that came");
  return absl::StrCat(what, " were sent ", connection.times_repeated + 1,
                      " times without an answer");
}

}  // namespace

// Looks for connections of these workers, or of this process, that carry nothing. The system
// repeats lost data after 0.2 s, 0.6 s, 1.4 s, and later on a busy machine. A silence may therefore
// show before its cause does. Data that was repeated once may arrive yet, so it counts only after
// all looks: a network that loses much lets some of it through, and counts anew.
std::vector<launch::StalledConnection> Fleet::AwaitStalledConnections(
    const std::vector<WorkerId>& workers) {
  std::vector<launch::StalledConnection> perhaps;
  for (int look = 1;; ++look) {
    std::vector<launch::StalledConnection> stalled = launch::FindStalledConnections({::getpid()});
    for (const launch::WorkerLook& seen : supervisor_->Look(workers))
      stalled.insert(stalled.end(), seen.stalled.begin(), seen.stalled.end());
    std::vector<launch::StalledConnection> surely = stalled;
    std::erase_if(surely, [](const launch::StalledConnection& connection) {
      return connection.times_repeated < kRepeatsForSure;
    });
    if (!surely.empty()) return surely;
    if (!stalled.empty()) perhaps = std::move(stalled);
    if (look == kLooksForStalls) return perhaps;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// Explains a worker that no longer beats.
void Fleet::ExplainSilence(launch::FailureEvent* event) {
  const pid_t pid = static_cast<pid_t>(event->pid);
  const launch::WorkerLook look = supervisor_->Look({event->worker}).front();
  if (!look.is_seen) {
    event->cause = absl::StrCat("its host '", event->host, "' does not answer either");
    event->advice = absl::StrCat(
        "the host is down, or the network to it: `ping ", event->host, "`",
        may_recover_.load() ? "" : "; `--resume` takes the job up from its last checkpoint");
    return;
  }
  const launch::ProcessState::Kind kind = look.kind;
  if (std::string advice = launch::StateAdvice(kind, pid); !advice.empty()) {
    event->cause = absl::StrCat("its process ", launch::StateText(kind));
    event->advice = std::move(advice);
    return;
  }
  if (kind == launch::ProcessState::Kind::kGone) return;
  const std::vector<launch::StalledConnection> stalled = AwaitStalledConnections({event->worker});
  if (stalled.empty()) return;
  event->cause = absl::StrCat("its process ", launch::StateText(kind),
                              ", but the network does not carry what it says");
  event->details.push_back(Describe(stalled[0]));
  event->advice = kNetworkAdvice;
}

// Explains a job without acts: something may keep a worker from acting.
void Fleet::ExplainStandstill(launch::FailureEvent* event) {
  std::vector<WorkerId> all;
  for (const WorkerId worker : workers()) all.push_back(worker);
  const std::vector<launch::WorkerLook> looks = supervisor_->Look(all);
  for (size_t i = 0; i < all.size(); ++i) {
    const WorkerId worker = all[i];
    const pid_t pid = static_cast<pid_t>(supervisor_->pid(worker));
    const launch::WorkerLook& look = looks[i];
    if (!look.is_seen) continue;
    const launch::ProcessState::Kind kind = look.kind;
    std::string advice = launch::StateAdvice(kind, pid);
    if (advice.empty() || !event->cause.empty()) continue;
    event->cause =
        absl::StrCat("the process of ", LabelOf(worker), " (",
                     launch::ProcessText(pid, HostOf(worker)), ") ", launch::StateText(kind));
    event->advice = std::move(advice);
  }
  if (!event->cause.empty()) return;
  const std::vector<launch::StalledConnection> stalled = AwaitStalledConnections(all);
  if (stalled.empty()) return;
  event->cause = "data between processes does not arrive";
  for (size_t i = 0; i < std::min<size_t>(stalled.size(), 3); ++i)
    event->details.push_back(Describe(stalled[i]));
  event->advice = kNetworkAdvice;
}

// Explains the end of a worker. A worker has the limits of this process, and a limit may have ended
// it.
void Fleet::ExplainExit(const launch::WorkerExit& exit, launch::FailureEvent* event) {
  rlimit time = {RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(RLIMIT_CPU, &time);
  const bool is_killed = exit.signal == SIGKILL && exit.sent != launch::WorkerExit::Sent::kKilled;
  // The system counts CPU time in ticks and checks only now and then.
  if (!is_killed || time.rlim_max == RLIM_INFINITY ||
      exit.cpu_ms + 500 < static_cast<int64_t>(time.rlim_max) * 1000)
    return;
  event->cause = absl::StrFormat("it had used %.1f s of processor time, and that is limited",
                                 static_cast<double>(exit.cpu_ms) * 1e-3);
  event->advice = absl::StrCat("raise the limit (", limits::LimitText(RLIMIT_CPU), ")");
}

}  // namespace weir::fleet
