#include "tools/launch/failure_report.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/placement.h"

namespace weir::launch {
namespace {

using Kind = FailureEvent::Kind;
using Sent = WorkerExit::Sent;

constexpr double kNsPerSecond = 1e9;
constexpr char kOurFault[] = "this is a fault of Weir: report the job, the mesh and the logs";

const FailureEvent* ExitOf(const FailedJob& job, WorkerId worker) {
  for (const FailureEvent& event : job.events) {
    if (event.kind == Kind::kExit && event.worker == worker && worker.has_value()) return &event;
  }
  return nullptr;
}

// Returns whether another worker's failure, or the starter, explains the end.
bool IsFollowingExit(const FailedJob& job, const FailureEvent& exit) {
  if (exit.signal == SIGKILL) return exit.sent == Sent::kKilled;
  if (exit.signal == SIGTERM || exit.signal == SIGINT) return exit.sent != Sent::kNothing;
  if (exit.signal != 0) return false;
  if (exit.code == 0) return true;
  if (exit.code == kExitFollowing && job.program == WorkerProgram::kWeir) return true;
  const bool says_signal = exit.code == 128 + SIGTERM || exit.code == 128 + SIGINT;
  return says_signal && exit.sent != Sent::kNothing;
}

bool IsFollowing(const FailedJob& job, const FailureEvent& event) {
  if (event.kind == Kind::kExit) return IsFollowingExit(job, event);
  if (event.kind == Kind::kBroken) {
    return std::any_of(job.events.begin(), job.events.end(), [&](const FailureEvent& other) {
      return other.worker != event.worker &&
             (other.kind == Kind::kFrozen || other.kind == Kind::kNoHello ||
              (other.kind == Kind::kExit && !IsFollowingExit(job, other)));
    });
  }
  const FailureEvent* exit = ExitOf(job, event.worker);
  if (exit == nullptr) return false;
  // An ended process cannot send anything, and its end has more information.
  if (exit->time_ns <= event.time_ns) return true;
  // A connection also breaks when its worker leaves in order.
  return event.kind == Kind::kLost && exit->signal == 0 && IsFollowingExit(job, *exit);
}

// Orders events. At the same moment a death by signal comes first, because such a death gives no
// warning and follows from nothing.
bool IsBefore(const FailureEvent& a, const FailureEvent& b) {
  return std::make_tuple(a.time_ns, a.signal == 0) < std::make_tuple(b.time_ns, b.signal == 0);
}

bool IsExit(const FailureEvent& event, int code) {
  return event.kind == Kind::kExit && event.signal == 0 && event.code == code;
}

// Returns whether a worker left as if all work were done, though other workers found the job
// unfinished.
bool LeftEarly(const FailedJob& job, const FailureEvent& event) {
  return IsExit(event, 0) && event.sent == Sent::kNothing &&
         std::any_of(job.events.begin(), job.events.end(),
                     [](const FailureEvent& other) { return IsExit(other, kExitFollowing); });
}

// Returns whether the worker saw the same loss from its side: its connection broke while it ran.
bool FollowsItsOwnLoss(const FailedJob& job, const FailureEvent& lost) {
  const FailureEvent* exit = ExitOf(job, lost.worker);
  return exit != nullptr && IsExit(*exit, kExitFollowing);
}

const FailureEvent* FirstFailure(const FailedJob& job) {
  const FailureEvent* first = nullptr;
  for (const FailureEvent& event : job.events) {
    if (!IsFollowing(job, event) && (first == nullptr || IsBefore(event, *first))) first = &event;
  }
  if (first != nullptr) return first;
  const FailureEvent *lost = nullptr, *follower = nullptr;
  for (const FailureEvent& event : job.events) {
    if (LeftEarly(job, event) && (first == nullptr || IsBefore(event, *first))) first = &event;
    if (event.kind == Kind::kLost && FollowsItsOwnLoss(job, event) &&
        (lost == nullptr || IsBefore(event, *lost)))
      lost = &event;
    if (IsExit(event, kExitFollowing) && (follower == nullptr || IsBefore(event, *follower)))
      follower = &event;
  }
  if (first == nullptr) first = lost;
  if (first == nullptr) first = follower;
  return first;
}

// Returns the end of the first failing worker, if that end says more than the starter's own
// signals.
const FailureEvent* OwnEnd(const FailedJob& job, const FailureEvent& first) {
  if (first.kind == Kind::kExit) return &first;
  const FailureEvent* exit = ExitOf(job, first.worker);
  return exit != nullptr && !IsFollowingExit(job, *exit) ? exit : nullptr;
}

std::string EndText(const FailureEvent& exit) {
  WorkerExit end;
  end.code = exit.code;
  end.signal = exit.signal;
  return ExitText(end);
}

// Returns what happened without process numbers and times.
std::string KindOfFailure(const FailureEvent& first, const FailureEvent* end) {
  if (end != nullptr) return EndText(*end);
  switch (first.kind) {
    case Kind::kExit: return EndText(first);
    case Kind::kLost: return "lost";
    case Kind::kFrozen: return "frozen";
    case Kind::kNoHello: return "no hello";
    case Kind::kStuck: return "stuck";
    case Kind::kBroken: return "lost a connection";
    case Kind::kSlow: return kSlowProcess;
  }
  return "";
}

std::string WhatHappened(const FailureEvent& first, const FailureEvent* end) {
  std::string text;
  switch (first.kind) {
    case Kind::kExit:
      return absl::StrCat(EndText(first),
                          first.code == 0 && first.signal == 0 ? ", before the job was done" : "",
                          first.cause.empty() ? "" : "; ", first.cause);
    case Kind::kLost:
      if (end != nullptr) return EndText(*end);  // the end broke the connection, and says more
      text = "lost";
      break;
    case Kind::kFrozen: text = "frozen"; break;
    case Kind::kStuck: text = "stuck"; break;
    case Kind::kNoHello:
    case Kind::kBroken: text = first.reason; break;
    case Kind::kSlow: text = kSlowProcess; break;
  }
  if (!first.reason.empty() && first.kind != Kind::kNoHello && first.kind != Kind::kBroken)
    absl::StrAppend(&text, ": ", first.reason);
  if (!first.cause.empty()) absl::StrAppend(&text, "; ", first.cause);
  if (end != nullptr) absl::StrAppend(&text, "; then ", EndText(*end));
  return text;
}

std::string AdviceOnSignal(int signal, WorkerProgram program) {
  switch (signal) {
    case SIGKILL:
      return absl::StrCat(
          "somebody killed it, or memory ran out: `dmesg | grep -i 'out of memory'` tells",
          program == WorkerProgram::kWeir ? "; `weir plan` tells what the job needs" : "");
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
      return "somebody else asked this process to end: a batch system, a container, a person";
    case SIGBUS: return "shared memory or a mapped file may have run out of room: `df -h /dev/shm`";
    case SIGXCPU:
    case SIGXFSZ: return "a limit of the shell was reached: `ulimit -a`";
    default:
      return program == WorkerProgram::kWeir ? kOurFault
                                             : "the program crashed; its last lines may say where";
  }
}

std::string AdviceOnCode(int code, WorkerProgram program) {
  if (program == WorkerProgram::kOfUser) return "";
  switch (code) {
    case 65: return "the job was rejected; its last lines say what to change";
    case 66: return "an input is missing or damaged; its last lines say which";
    case kExitSurroundings:
      return "the machine refused something that the job needs; its last lines say what";
    case 0:
    case 70: return kOurFault;
    case kExitFollowing:
      return "every worker says that another ended or that the starter was gone; the logs may tell "
             "more";
    default: return "";
  }
}

std::string Advice(const FailedJob& job, const FailureEvent& first, const FailureEvent* end) {
  if (!first.advice.empty()) return first.advice;
  if (end != nullptr)
    return end->signal != 0 ? AdviceOnSignal(end->signal, job.program)
                            : AdviceOnCode(end->code, job.program);
  switch (first.kind) {
    case Kind::kFrozen:
      return "was it stopped (SIGSTOP, a debugger, a suspended machine) or the machine out of "
             "memory and swapping? `vmstat 1` shows the latter";
    case Kind::kNoHello:
      return "its log may say how far it has come; a busy machine or a slow disk delays the start "
             "of a process, and --dead-after gives it more than 30 s";
    case Kind::kStuck:
      return "a job that cannot go on is a fault of Weir: report the job, the mesh and the logs";
    case Kind::kSlow:
      return "look at its machine: another program on its cores, heat, a device that others use; "
             "--on-slow warn leaves such a process as it is";
    case Kind::kBroken:
      return "the last lines of the logs say more; `--resume` takes the job up from its last "
             "checkpoint";
    default:
      return "both processes still ran, so something between them cut the connection: a firewall, "
             "`ss -K`, an interface that went "
             "down; `--resume` takes the job up from its last checkpoint";
  }
}

// Returns the exit code, which says whether Weir caused the end of the job, as far as is known.
int ExitCodeOf(const FailureEvent& first, const FailureEvent* end) {
  if (end != nullptr && !IsExit(*end, 0)) return end->signal != 0 ? 128 + end->signal : end->code;
  if (end != nullptr) return kExitNoProgress;
  return first.kind == Kind::kStuck && first.cause.empty() ? kExitNoProgress : kExitSurroundings;
}

// Makes a line printable. A worker's line may hold anything: colours are removed, and other control
// characters are written out.
std::string Printable(const std::string& line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {
      for (i += 2; i < line.size() && !(line[i] >= '@' && line[i] <= '~');) ++i;
    } else if ((c < 0x20 && c != '\t') || c == 0x7f) {
      absl::StrAppend(&text, "\\x", absl::Hex(c, absl::kZeroPad2));
    } else {
      text.push_back(line[i]);
    }
  }
  return text;
}

void AppendLines(const std::string& title, const std::vector<std::string>& lines,
                 std::string* text) {
  if (lines.empty()) return;
  absl::StrAppend(text, "  ", title, ":\n");
  for (const std::string& line : lines) {
    absl::StrAppend(
        text, absl::StripTrailingAsciiWhitespace(absl::StrCat("    | ", Printable(line))), "\n");
  }
}

std::string WhoOf(const FailureEvent& event) {
  return !event.worker.has_value() ? "the job"
         : event.ranks.empty()     ? absl::StrCat("worker ", event.worker)
                                   : RankLabel(event.ranks);
}

std::string PidOf(const FailureEvent& event) {
  return event.pid > 0 ? absl::StrCat(" (", ProcessText(event.pid, event.host), ")") : "";
}

std::string FailureText(const FailedJob& job, const FailureEvent& event) {
  return absl::StrCat(WhoOf(event), PidOf(event), ": ",
                      Printable(WhatHappened(event, OwnEnd(job, event))));
}

std::string MomentText(FailureMoment moment) {
  switch (moment) {
    case FailureMoment::kSteps: return "";
    case FailureMoment::kStart: return "the processes of the job were starting";
    case FailureMoment::kRestart: return "all processes of the job were starting again";
    case FailureMoment::kRecovery: return "the job was coming back from an earlier loss";
    case FailureMoment::kGrowth: return "the mesh was growing";
    case FailureMoment::kEvaluation: return "the job was evaluating its weights";
    case FailureMoment::kSaving:
      return "the job was writing weights or a checkpoint, and no step ran";
    case FailureMoment::kEnding: return "the work was done, and the processes were ending";
  }
  return "";
}

// Returns the place of a failure in the work of the job, without what differs from run to run. What
// a rank did by its last heartbeat is no place while processes start.
std::string PlaceOf(const FailureEvent& first) {
  const std::string moment =
      MomentText(first.moment == FailureMoment::kRestart ? FailureMoment::kStart : first.moment);
  return moment.empty() ? first.last_activity.substr(0, first.last_activity.find(" since "))
                        : absl::StrCat("when ", moment);
}

bool IsSentByOthers(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

// Returns whether a worker of Weir says by its exit code that its surroundings ended it: it did not
// reach the starter, a limit was reached, or it found another process gone.
bool IsEndBySurroundings(const FailureEvent& exit, WorkerProgram program) {
  return program == WorkerProgram::kWeir &&
         (IsExit(exit, kExitSurroundings) || IsExit(exit, kExitFollowing));
}

FailureOrigin OriginOf(const FailureEvent& first, const FailureEvent* end, WorkerProgram program) {
  const FailureEvent& last = end != nullptr ? *end : first;
  if (last.kind == Kind::kStuck) return FailureOrigin::kJob;
  if (last.kind != Kind::kExit || IsEndBySurroundings(last, program))
    return FailureOrigin::kOutside;
  const int signal = last.signal != 0 ? last.signal : last.code - 128;
  return IsSentByOthers(signal) ? FailureOrigin::kOutside : FailureOrigin::kJob;
}

// Returns one event of each worker other than the first that failed by itself: its end, if that is
// known. Where the whole job ends, other failures may follow from the first one, but for a SIGKILL
// that the starter has not sent.
std::vector<const FailureEvent*> AlsoFailed(const FailedJob& job, const FailureEvent& first) {
  std::map<WorkerId, const FailureEvent*> failed;
  for (const FailureEvent& event : job.events) {
    if (job.ends == FailedJob::Ends::kJob && event.signal != SIGKILL) continue;
    if (!event.worker.has_value() || event.worker == first.worker || event.kind == Kind::kBroken ||
        IsFollowing(job, event))
      continue;
    const FailureEvent*& known = failed[event.worker];
    if (known == nullptr || event.kind == Kind::kExit) known = &event;
  }
  std::vector<const FailureEvent*> events;
  for (const auto& [worker, event] : failed) events.push_back(event);
  return events;
}

// Returns a line on the other processes that have said no hello where the whole job ends, or an
// empty text. A missing hello follows from no failure, and may be that of many processes.
std::string SilentText(const FailedJob& job, const FailureEvent& first) {
  std::vector<RankId> ranks;
  for (const FailureEvent& event : job.events) {
    if (job.ends == FailedJob::Ends::kJob && event.kind == Kind::kNoHello &&
        event.worker != first.worker && !IsFollowing(job, event))
      ranks.insert(ranks.end(), event.ranks.begin(), event.ranks.end());
  }
  if (ranks.empty()) return "";
  std::sort(ranks.begin(), ranks.end());
  return absl::StrCat(RankLabel(ranks), ranks.size() == 1 ? " has" : " have", " not said hello",
                      first.kind == Kind::kNoHello ? " either" : "");
}

// Counts the workers other than the first that have ended since, but for these.
int NumFollowing(const FailedJob& job, const FailureEvent& first,
                 const std::vector<const FailureEvent*>& also_failed) {
  std::set<WorkerId> workers;
  for (const FailureEvent& event : job.events) {
    if (event.kind == Kind::kExit && event.worker != first.worker && event.time_ns >= first.time_ns)
      workers.insert(event.worker);
  }
  for (const FailureEvent* event : also_failed) workers.erase(event->worker);
  return static_cast<int>(workers.size());
}

// Returns the age of the last activity. A process reports its activity with its heartbeats.
std::string AgeText(int64_t age_ms) {
  return age_ms < 100
             ? ""
             : absl::StrFormat(", as of %.1f s before", static_cast<double>(age_ms) * 1e-3);
}

std::string FollowingText(int count, const FailureEvent& first) {
  return absl::StrCat("  ", count, first.worker.has_value() ? " other" : "",
                      count == 1 ? " worker" : " workers", " ended because of it\n");
}

}  // namespace

std::string ProcessText(int64_t pid, const std::string& host) {
  return absl::StrCat("pid ", pid, host.empty() ? "" : " on ", host);
}

FailureEvent EventOf(const WorkerExit& exit, const std::vector<RankId>& ranks) {
  FailureEvent event;
  event.kind = exit.lost.empty() ? Kind::kExit : Kind::kLost;
  event.reason = exit.lost;
  event.time_ns = exit.time_ns;
  event.worker = exit.worker;
  event.ranks = ranks;
  event.pid = exit.pid;
  event.code = exit.code;
  event.signal = exit.signal;
  event.sent = exit.sent;
  event.last_lines = exit.last_lines;
  return event;
}

FailureReport ReportFailure(const FailedJob& job) {
  const FailureEvent* first = FirstFailure(job);
  if (first == nullptr) return {};
  const FailureEvent* end = OwnEnd(job, *first);
  const FailureEvent* exit = ExitOf(job, first->worker);
  FailureReport report;
  report.exit_code = ExitCodeOf(*first, end);

  report.who = WhoOf(*first);
  report.everyone = {report.who};
  report.what = KindOfFailure(*first, end);
  report.where = PlaceOf(*first);
  report.origin = OriginOf(*first, end, job.program);
  report.time_ns = first->time_ns;
  report.text = absl::StrFormat("%s failed after %.3f s of the run\n",
                                job.ends == FailedJob::Ends::kJob ? "The job" : "A process",
                                static_cast<double>(first->time_ns - job.start_ns) / kNsPerSecond);
  absl::StrAppend(&report.text, "  first failure: ", FailureText(job, *first), "\n");
  const std::vector<const FailureEvent*> also_failed = AlsoFailed(job, *first);
  for (const FailureEvent* event : also_failed) {
    if (job.ends == FailedJob::Ends::kProcess) report.everyone.push_back(WhoOf(*event));
    absl::StrAppend(&report.text, "  also failed: ", FailureText(job, *event), "\n");
  }
  if (const std::string moment = MomentText(first->moment); !moment.empty())
    absl::StrAppend(&report.text, "  at that time: ", moment, "\n");
  if (!first->last_activity.empty()) {
    absl::StrAppend(&report.text, "  last activity", AgeText(first->activity_age_ms), ": ",
                    Printable(first->last_activity), "\n");
  }
  std::vector<std::string> details = first->details;
  if (std::string silent = SilentText(job, *first); !silent.empty())
    details.push_back(std::move(silent));
  AppendLines("details", details, &report.text);
  AppendLines("its last lines",
              first->last_lines.empty() && exit != nullptr ? exit->last_lines : first->last_lines,
              &report.text);
  if (const int count = NumFollowing(job, *first, also_failed))
    report.text += FollowingText(count, *first);
  if (!job.log_directory.empty()) {
    absl::StrAppend(&report.text, "  logs: ", job.log_directory);
    const std::string own = !first->log.empty()     ? first->log
                            : !first->ranks.empty() ? LogFileName(RankLabel(first->ranks))
                                                    : "";
    if (!own.empty()) absl::StrAppend(&report.text, "; its own: ", own);
    report.text += "\n";
  }
  for (const RemainingWorker& worker : job.remaining) {
    absl::StrAppend(&report.text, "  still there: ", RankLabel(worker.ranks), " (",
                    ProcessText(worker.pid, worker.host), "), killed by SIGKILL, but ",
                    worker.state, "\n");
  }
  const std::string advice = Advice(job, *first, end);
  if (!advice.empty()) absl::StrAppend(&report.text, "  try: ", advice, "\n");
  return report;
}

JobFailure FailureOf(const FailureReport& report, const std::string& who, int64_t steps_done) {
  constexpr int64_t kNsPerMs = 1'000'000;
  return {who, report.what, report.where, steps_done, report.time_ns / kNsPerMs, report.origin};
}

std::string FirstFailureText(const FailedJob& job) {
  const FailureEvent* const first = FirstFailure(job);
  return first == nullptr ? "" : FailureText(job, *first);
}

std::vector<FailureMark> MarkFailures(const FailedJob& job) {
  const FailureEvent* const first = FirstFailure(job);
  std::vector<const FailureEvent*> events;
  for (const FailureEvent& event : job.events) {
    if (&event == first || !IsFollowing(job, event)) events.push_back(&event);
  }
  std::sort(events.begin(), events.end(),
            [](const FailureEvent* a, const FailureEvent* b) { return IsBefore(*a, *b); });
  std::vector<FailureMark> marks;
  std::set<WorkerId> marked;
  for (const FailureEvent* event : events) {
    // The end of a worker whose connection broke is the same failure.
    if (!marked.insert(event->worker).second) continue;
    marks.push_back({event->time_ns, event->ranks, KindOfFailure(*event, OwnEnd(job, *event))});
  }
  return marks;
}

}  // namespace weir::launch
