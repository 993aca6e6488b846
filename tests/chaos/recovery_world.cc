#include "tests/chaos/recovery_world.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/fleet/losses.h"

namespace weir::chaos {
namespace {

// A run of more events does not end.
constexpr int64_t kEventsMax = 60'000;
// A process that is killed as it writes ends at one of so many operations on the disk.
constexpr int64_t kOperationsOfWriting = 8;

using Kind = launch::FailureEvent::Kind;

const char* ReasonOf(Kind kind) {
  switch (kind) {
    case Kind::kExit: return "its process has ended";
    case Kind::kLost: return "its connection closed";
    case Kind::kFrozen: return "no heartbeat";
    default: return "?";
  }
}

}  // namespace

const char* Name(RecoveryPhase phase) {
  switch (phase) {
    case RecoveryPhase::kStart: return "start";
    case RecoveryPhase::kRun: return "run";
    case RecoveryPhase::kSave: return "save";
    case RecoveryPhase::kCommit: return "commit";
    case RecoveryPhase::kNotice: return "notice";
    case RecoveryPhase::kHello: return "hello";
    case RecoveryPhase::kStanding: return "standing";
    case RecoveryPhase::kOpen: return "open";
    case RecoveryPhase::kMove: return "move";
    case RecoveryPhase::kJoin: return "join";
    case RecoveryPhase::kLoad: return "load";
    case RecoveryPhase::kGrow: return "grow";
  }
  return "?";
}

const char* Name(RecoveryFault::Kind kind) {
  switch (kind) {
    case RecoveryFault::Kind::kKill: return "a worker is killed";
    case RecoveryFault::Kind::kKillTwo: return "two workers are killed";
    case RecoveryFault::Kind::kKillWriting: return "a worker is killed as it uses the disk";
    case RecoveryFault::Kind::kFreeze: return "a worker freezes";
    case RecoveryFault::Kind::kLoseHost: return "a host is lost";
    case RecoveryFault::Kind::kKillStarter: return "the starter is killed";
    case RecoveryFault::Kind::kPower: return "the power fails";
    case RecoveryFault::Kind::kDiskError: return "the disk refuses an operation";
  }
  return "?";
}

RecoveryWorld::RecoveryWorld(const Options& options)
    : options_(options), random_(options.seed * 0x9e3779b97f4a7c15u + 1), disk_({options.seed}) {
  choices_.reserve(64);
}

RecoveryWorld::~RecoveryWorld() = default;

uint64_t RecoveryWorld::Draw(uint64_t bound) {
  uint64_t x = (random_ += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) % bound;
}

void RecoveryWorld::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
  TellStarter(absl::StrCat("VIOLATION: ", what));
}

void RecoveryWorld::TellStarter(const std::string& what) {
  if (options_.tells) story_.push_back(absl::StrCat(now_, "  ", what));
}

void RecoveryWorld::Tell(WorkerId worker, const std::string& what) {
  if (!options_.tells) return;
  story_.push_back(absl::StrCat(now_, "    worker ", worker, " (process ",
                                acting_ == nullptr ? 0 : acting_->id, ") ", what));
}

std::string RecoveryWorld::LabelOf(WorkerId worker) const {
  return absl::StrCat("worker ", worker);
}

// --- Processes ---

std::unique_ptr<RecoveryWorld::Process> RecoveryWorld::StartProcess(WorkerId worker) {
  auto process = std::make_unique<Process>();
  process->id = ++num_processes_;
  process->index = worker;
  process->files = std::make_unique<disk::ProcessFiles>(&disk_);
  process->worker =
      std::make_unique<VirtualWorker>(worker, epoch_, facts_, process->files.get(), this);
  return process;
}

// The files end first, so that the end of the worker's objects changes nothing on the disk.
void RecoveryWorld::Kill(Process* process, const std::string& how) { Kill(process, how, SIGKILL); }

void RecoveryWorld::Kill(Process* process, const std::string& how, int signal) {
  if (process->worker == nullptr) return;
  if (options_.tells) {
    TellStarter(absl::StrCat("  process ", process->id, " of ", LabelOf(process->index), ", which ",
                             process->worker->Activity(), ", is killed", how));
  }
  process->activity = process->worker->Activity();
  process->signal = signal;
  if (const VirtualGroup* const group = process->worker->group(); group != nullptr) {
    VirtualGroup& gone = gone_groups_.emplace_back();
    gone.id = group->id;
    gone.epoch = group->epoch;
    gone.steps_done = group->steps_done;
    gone.is_gone = true;
  }
  process->files->Kill();
  process->worker.reset();
  process->pieces.clear();
  const bool lingers = std::any_of(lingering_.begin(), lingering_.end(),
                                   [&](const auto& one) { return one.get() == process; });
  if (lingers) return;  // nobody notices
  // Only its agent sees a process end.
  const bool is_seen = !hosts_.are_used() || !hosts_.IsDead(hosts_.HostOf(process->index));
  if (is_seen) notices_.push_back({Kind::kExit, process->index, process->id, HostId()});
  if (process->is_connected)
    notices_.push_back({Kind::kLost, process->index, process->id, HostId()});
}

void RecoveryWorld::LoseHost(uint64_t who) {
  const HostId host(static_cast<int32_t>(who % hosts_.size()));
  if (hosts_.IsDead(host)) return;
  ++num_faults_;
  ++num_hosts_lost_;
  TellStarter(absl::StrCat("  host ", host, " is lost"));
  hosts_.Die(host);
  for (const WorkerId worker : workers_) {
    if (hosts_.HostOf(worker) == host) Kill(processes_[worker].get(), " with its host");
  }
  notices_.push_back({Kind::kLost, WorkerId(), 0, host});
}

void RecoveryWorld::StartStarter() {
  if (loses_power_) {
    lingering_.clear();
    disk_.Restart(disk::SimulatedDisk::Loss::kPower);
    TellStarter("the machine starts again");
  }
  loses_power_ = is_gone_ = false;
  hosts_ = RecoveryHosts();  // a person gives hosts that live
  sought_.clear();
  starter_files_ = std::make_unique<disk::ProcessFiles>(&disk_);
}

void RecoveryWorld::LoseStarter(bool loses_power) {
  ++num_faults_;
  is_gone_ = true;
  loses_power_ = loses_power;
  TellStarter(loses_power ? "THE POWER FAILS" : "THE STARTER IS KILLED");
  starter_files_->Kill();
  for (std::unique_ptr<Process>& process : processes_) {
    if (process->worker == nullptr) continue;
    process->in.clear();
    process->is_frozen = false;
    lingering_.push_back(std::move(process));
  }
  if (loses_power) {
    for (const std::unique_ptr<Process>& process : lingering_) process->files->Kill();
  }
  processes_.clear();
  hellos_.clear();
  notices_.clear();
}

const VirtualGroup* RecoveryWorld::FindGroup(int64_t id) const {
  const auto group_of = [id](const Process& process) -> const VirtualGroup* {
    const VirtualGroup* const group = process.worker == nullptr ? nullptr : process.worker->group();
    return group != nullptr && group->id == id ? group : nullptr;
  };
  for (const std::unique_ptr<Process>& process : processes_) {
    if (const VirtualGroup* const group = group_of(*process)) return group;
  }
  for (const std::unique_ptr<Process>& process : lingering_) {
    if (const VirtualGroup* const group = group_of(*process)) return group;
  }
  for (const VirtualGroup& group : gone_groups_) {
    if (group.id == id) return &group;
  }
  return nullptr;
}

const VirtualWorker* RecoveryWorld::Find(WorkerId worker) const {
  return processes_[worker]->worker.get();
}

const VirtualGroup* RecoveryWorld::GroupOf(WorkerId worker) const {
  const VirtualWorker* const found = Find(worker);
  return found == nullptr ? nullptr : found->group();
}

int64_t RecoveryWorld::ProcessOf(WorkerId worker) const {
  return Find(worker) == nullptr ? 0 : processes_[worker]->id;
}

// --- Faults ---

const RecoveryFault* RecoveryWorld::NextFault() const {
  return next_fault_ < options_.faults.size() ? &options_.faults[next_fault_] : nullptr;
}

RecoveryWorld::Process* RecoveryWorld::VictimOf(uint64_t who) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    const WorkerId worker(static_cast<int32_t>((who + i) % processes_.size()));
    if (processes_[worker]->worker != nullptr) return processes_[worker].get();
  }
  return nullptr;
}

void RecoveryWorld::CountTowardsFault() {
  const RecoveryFault* const fault = NextFault();
  if (fault == nullptr || fault->phase != phase_ || phase_ == RecoveryPhase::kCommit) return;
  if (++counted_ < fault->after) return;
  ++next_fault_;
  counted_ = 0;
  Fire(*fault);
}

void RecoveryWorld::Fire(const RecoveryFault& fault) {
  if (options_.tells) TellStarter(absl::StrCat("FAULT in ", Name(phase_), ": ", Name(fault.kind)));
  switch (fault.kind) {
    case RecoveryFault::Kind::kKillStarter: return LoseStarter(false);
    case RecoveryFault::Kind::kPower: return LoseStarter(true);
    case RecoveryFault::Kind::kDiskError:
      ++num_faults_;
      disk_.FailAt(disk_.operations() + 1 + static_cast<int64_t>(Draw(kOperationsOfWriting)),
                   Draw(2) == 0 ? EIO : ENOSPC);
      return;
    case RecoveryFault::Kind::kLoseHost:
      if (hosts_.are_used()) return LoseHost(fault.who);
      break;
    default: break;
  }
  Process* const victim = VictimOf(fault.who);
  if (victim == nullptr) return;
  ++num_faults_;
  switch (fault.kind) {
    case RecoveryFault::Kind::kKillWriting:
      victim->files->KillIn(1 + static_cast<int64_t>(Draw(kOperationsOfWriting)));
      return;
    case RecoveryFault::Kind::kFreeze:
      victim->is_frozen = true;
      victim->activity = victim->worker->Activity();
      notices_.push_back({Kind::kFrozen, victim->index, victim->id, HostId()});
      return;
    case RecoveryFault::Kind::kKillTwo:
      Kill(victim, "");
      if (Process* const second = VictimOf(fault.who + 1); second != nullptr) Kill(second, "");
      return;
    default: return Kill(victim, "");
  }
}

void RecoveryWorld::Enter(RecoveryPhase phase) {
  phase_ = phase;
  const bool writes = phase == RecoveryPhase::kRun || phase == RecoveryPhase::kSave ||
                      phase == RecoveryPhase::kCommit;
  if (!writes) disk_.Calm();
  if (phase == RecoveryPhase::kRun) moment_ = launch::FailureMoment::kSteps;
}

void RecoveryWorld::BeginStarterDisk() {
  const RecoveryFault* const fault = NextFault();
  if (fault == nullptr || phase_ != RecoveryPhase::kCommit ||
      fault->phase != RecoveryPhase::kCommit)
    return;
  ++next_fault_;
  counted_ = 0;
  if (fault->kind == RecoveryFault::Kind::kPower) {
    disk_.CrashAt(disk_.operations() + fault->after);
  } else if (fault->kind == RecoveryFault::Kind::kKillStarter) {
    starter_files_->KillIn(fault->after);
  } else if (fault->kind == RecoveryFault::Kind::kDiskError) {
    ++num_faults_;
    disk_.FailAt(disk_.operations() + fault->after, EIO);
  } else {
    Fire(*fault);
  }
}

void RecoveryWorld::EndStarterDisk() {
  if (is_gone_) return;
  if (disk_.has_crashed()) {
    TellStarter(disk_.last_fault());
    LoseStarter(true);
  } else if (starter_files_->is_killed()) {
    LoseStarter(false);
  } else if (phase_ == RecoveryPhase::kCommit) {
    starter_files_->KillIn(0);
    disk_.Calm();
  }
}

// --- Events ---

bool RecoveryWorld::Step() {
  if (is_gone_ || !violation_.empty()) return false;
  choices_.clear();
  for (const std::unique_ptr<Process>& owner : processes_) {
    Process* const process = owner.get();
    if (process->is_connected && !process->out.empty()) choices_.emplace_back(Event::kSay, process);
    if (process->worker == nullptr || process->is_frozen) continue;
    if (!process->has_said_hello) choices_.emplace_back(Event::kHello, process);
    if (!process->in.empty()) choices_.emplace_back(Event::kHear, process);
    if (process->worker->CanAct()) choices_.emplace_back(Event::kAct, process);
    if (process->worker->CanWrite()) choices_.emplace_back(Event::kWrite, process);
    if (process->worker->CanSend()) choices_.emplace_back(Event::kSend, process);
    if (!process->pieces.empty()) choices_.emplace_back(Event::kTakePiece, process);
  }
  for (const std::unique_ptr<Process>& process : lingering_) {
    choices_.emplace_back(Event::kEnd, process.get());
    if (process->worker == nullptr) continue;
    if (process->worker->CanAct()) choices_.emplace_back(Event::kAct, process.get());
    if (process->worker->CanWrite()) choices_.emplace_back(Event::kWrite, process.get());
  }
  if (!hellos_.empty()) choices_.emplace_back(Event::kGreet, nullptr);
  if (!notices_.empty()) choices_.emplace_back(Event::kNotice, nullptr);
  if (!lost_.empty()) choices_.emplace_back(Event::kTakeLost, nullptr);
  if (!sought_.empty()) choices_.emplace_back(Event::kHostComes, nullptr);
  if (choices_.empty()) return false;
  if (++now_ > kEventsMax) {
    Violate("the run does not end");
    return false;
  }
  const auto [event, process] = choices_[Draw(choices_.size())];
  Do(event, process);
  if (!is_gone_) CountTowardsFault();
  return !is_gone_;
}

void RecoveryWorld::Do(Event event, Process* process) {
  switch (event) {
    case Event::kHear: return Hear(process);
    case Event::kAct: return ActOf(process);
    case Event::kWrite:
      acting_ = process;
      process->worker->Write();
      acting_ = nullptr;
      return CheckDisk(process);
    case Event::kSend: return process->worker->Send();
    case Event::kTakePiece: return TakePiece(process);
    case Event::kSay: return Say(process);
    case Event::kHello:
      process->has_said_hello = true;
      hellos_.push_back({process->index, process->worker->started_in(), process->id});
      return;
    case Event::kGreet: return Greet();
    case Event::kNotice: return NoticeFailure();
    case Event::kTakeLost:
      failures_.insert(failures_.end(), lost_.begin(), lost_.end());
      lost_.clear();
      return;
    case Event::kHostComes: return HostComes();
    case Event::kEnd:
      process->files->Kill();
      std::erase_if(lingering_, [&](const auto& one) { return one.get() == process; });
      return;
  }
}

template <typename IsDone>
bool RecoveryWorld::Await(const char* what, const IsDone& is_done) {
  while (!is_gone_ && violation_.empty() && !is_done()) {
    if (Step() || is_gone_ || !violation_.empty()) continue;
    Violate(absl::StrCat("nothing can happen any more, and the starter waits for ", what));
  }
  return !is_gone_ && violation_.empty();
}

void RecoveryWorld::ActOf(Process* process) {
  acting_ = process;
  const int64_t step = process->worker->NextStep();
  if (step >= 0 && step + 1 == options_.poisoned_step && process->index == WorkerId(0)) {
    ++num_poisoned_;
    Kill(process, absl::StrCat(" before step ", options_.poisoned_step), options_.poison_signal);
  } else {
    const size_t num_said = process->out.size();
    process->worker->Act();
    if (process->files->is_killed()) process->out.resize(num_said);  // it died before it said more
    CheckDisk(process);
  }
  acting_ = nullptr;
}

// A process may have been killed by an operation on the disk.
void RecoveryWorld::CheckDisk(Process* process) {
  if (!process->files->is_killed() || process->worker == nullptr) return;
  Kill(process, " as it uses the disk");
}

void RecoveryWorld::Hear(Process* process) {
  ToWorker message = std::move(process->in.front());
  process->in.pop_front();
  switch (message.kind) {
    case ToWorker::Kind::kCommand:
      process->worker->HearCommand(message.number, std::move(message.command));
      return;
    case ToWorker::Kind::kEpoch: process->worker->HearEpoch(message.epoch); return;
    case ToWorker::Kind::kValue: process->worker->HearValue(message.number, message.value); return;
  }
}

void RecoveryWorld::Carry(WorkerId from, WorkerId to, uint32_t epoch, int64_t step,
                          const std::string& piece) {
  Process& buddy = *processes_[to];
  if (buddy.worker != nullptr)
    buddy.pieces.push_back({from, processes_[from]->id, epoch, step, piece});
}

void RecoveryWorld::TakePiece(Process* process) {
  const Piece piece = std::move(process->pieces.front());
  process->pieces.pop_front();
  if (!process->worker->HearPiece(piece.from, piece.epoch, piece.step, piece.bytes)) {
    ++num_fenced_;
    return;
  }
  Process& from = *processes_[piece.from];
  if (from.id == piece.from_process && from.worker != nullptr) {
    from.worker->HearTaken(piece.epoch, piece.step, static_cast<int64_t>(piece.bytes.size()));
  }
}

void RecoveryWorld::Answer(WorkerId, int64_t call, uint32_t epoch, VirtualAnswer answer) {
  acting_->out.push_back({ToStarter::Kind::kAnswer, call, epoch, std::move(answer), "", ""});
}

void RecoveryWorld::Publish(WorkerId, uint32_t epoch, const std::string& key,
                            const std::string& value) {
  acting_->out.push_back({ToStarter::Kind::kPublish, 0, epoch, {}, key, value});
}

void RecoveryWorld::Fetch(WorkerId, uint32_t epoch, const std::string& key, int64_t request) {
  acting_->out.push_back({ToStarter::Kind::kFetch, request, epoch, {}, key, ""});
}

// --- The control plane ---

void RecoveryWorld::Say(Process* process) {
  ToStarter message = std::move(process->out.front());
  process->out.pop_front();
  const WorkerId worker = process->index;
  if (!fence_->Admits(message.epoch)) {
    ++num_fenced_;
    TellStarter(absl::StrCat("a message of ", LabelOf(worker), " from epoch ", message.epoch,
                             " is refused in epoch ", epoch_));
    return;
  }
  if (message.epoch != epoch_) {
    Violate(absl::StrCat("a message of ", LabelOf(worker), " from epoch ", message.epoch,
                         " is applied in epoch ", epoch_));
  }
  const auto send = [this](const control::PublishedValues::Waiter& to, const std::string& value) {
    Process& reader = *processes_[to.worker];
    if (reader.is_connected)
      reader.in.push_back({ToWorker::Kind::kValue, to.request, epoch_, {}, value});
  };
  switch (message.kind) {
    case ToStarter::Kind::kAnswer: {
      if (message.number != call_.number || call_.answers[worker].has_value()) return;
      if (!message.answer.status.ok()) {
        call_.error.Update(At(LabelOf(worker), message.answer.status));
      }
      call_.answers[worker] = std::move(message.answer);
      --call_.num_missing;
      return;
    }
    case ToStarter::Kind::kPublish: {
      const auto waiters = values_.Publish(worker, message.key, message.value);
      if (!waiters.ok()) return Violate(std::string(waiters.status().message()));
      for (const control::PublishedValues::Waiter& waiter : *waiters) send(waiter, message.value);
      return;
    }
    case ToStarter::Kind::kFetch: {
      const auto value = values_.Fetch(message.key, {worker, message.number});
      if (!value.ok()) return Violate(std::string(value.status().message()));
      if (*value != nullptr) send({worker, message.number}, **value);
      return;
    }
  }
}

void RecoveryWorld::Greet() {
  const size_t which = Draw(hellos_.size());
  const Hello hello = hellos_[which];
  hellos_.erase(hellos_.begin() + static_cast<std::ptrdiff_t>(which));
  if (!fence_->Admits(hello.epoch)) {
    ++num_fenced_;
    TellStarter(absl::StrCat("the hello of process ", hello.process, " from epoch ", hello.epoch,
                             " is refused in epoch ", epoch_));
    return;
  }
  if (hello.epoch != epoch_) {
    return Violate(absl::StrCat("process ", hello.process, ", started for epoch ", hello.epoch,
                                ", is admitted in epoch ", epoch_));
  }
  Process& process = *processes_[hello.worker];
  if (process.id != hello.process || presence_[hello.worker] != Presence::kAwaited)
    return Violate("two processes say hello for one worker in one epoch");
  TellStarter(absl::StrCat("process ", process.id, " says hello as ", LabelOf(hello.worker)));
  presence_[hello.worker] = Presence::kConnected;
  process.is_connected = true;
  if (process.worker == nullptr)
    notices_.push_back({Kind::kLost, hello.worker, process.id, HostId()});
}

// The agent of a host gives no answer any more: its processes have ended.
void RecoveryWorld::NoticeLostHost(HostId host) {
  TellStarter(absl::StrCat("the starter notices that host ", host, " is lost"));
  hosts_.NoteLost(host);
  for (const WorkerId worker : workers_) {
    if (hosts_.HostOf(worker) != host || processes_[worker]->worker != nullptr) continue;
    notices_.push_back({Kind::kExit, worker, processes_[worker]->id, HostId()});
  }
}

void RecoveryWorld::NoticeFailure() {
  const size_t which = Draw(notices_.size());
  const Notice notice = notices_[which];
  notices_.erase(notices_.begin() + static_cast<std::ptrdiff_t>(which));
  if (notice.host.has_value()) return NoticeLostHost(notice.host);
  Process& process = *processes_[notice.worker];
  if (process.id != notice.process) return;  // its process has started anew
  if (!IsOfJob(notice.worker)) return;       // it has left the job
  TellStarter(
      absl::StrCat("the starter notices of ", LabelOf(notice.worker), ": ", ReasonOf(notice.kind)));
  launch::FailureEvent event;
  event.kind = notice.kind;
  event.moment = moment_;
  event.time_ns = now_;
  event.worker = notice.worker;
  event.reason = ReasonOf(notice.kind);
  event.last_activity = process.activity;
  if (notice.kind == Kind::kExit) {
    event.signal = process.signal;
    failures_.push_back(std::move(event));
    return;
  }
  process.is_frozen = false;  // a process that was only stopped may go on, but nobody hears it
  process.is_connected = false;
  process.in.clear();
  if (presence_[notice.worker] != Presence::kConnected) return;
  presence_[notice.worker] = Presence::kLost;
  if (call_.number > 0 && !call_.answers[notice.worker].has_value())
    call_.error.Update(
        absl::UnavailableError(absl::StrCat("W0603 ", LabelOf(notice.worker), ": ", event.reason)));
  lost_.push_back(std::move(event));
}

absl::StatusOr<IdVector<WorkerId, VirtualAnswer>> RecoveryWorld::CallAll(
    const VirtualCommand& command) {
  return Call(IdVector<WorkerId, VirtualCommand>(processes_.size(), command));
}

absl::StatusOr<IdVector<WorkerId, VirtualAnswer>> RecoveryWorld::Call(
    const IdVector<WorkerId, VirtualCommand>& commands) {
  if (is_gone_) return absl::CancelledError("the starter is gone");
  call_ = Pending();
  call_.number = ++num_calls_;
  call_.answers.resize(processes_.size());
  call_.num_missing = workers_.size();
  for (const WorkerId worker : workers_) {
    if (presence_[worker] != Presence::kConnected)
      call_.error.Update(absl::UnavailableError(LabelOf(worker) + " is not connected"));
  }
  if (options_.tells) {
    TellStarter(absl::StrCat("the starter commands '", Name(commands[workers_.front()].kind),
                             "' in epoch ", epoch_));
  }
  if (call_.error.ok()) {
    for (const WorkerId worker : workers_) {
      processes_[worker]->in.push_back(
          {ToWorker::Kind::kCommand, call_.number, epoch_, commands[worker], ""});
    }
    const bool goes_on =
        Await("answers", [this] { return call_.num_missing == 0 || !call_.error.ok(); });
    if (!goes_on) return absl::CancelledError("the starter is gone");
  }
  call_.number = 0;
  if (!call_.error.ok()) {
    TellStarter(absl::StrCat("the command fails: ", call_.error.message()));
    return call_.error;
  }
  IdVector<WorkerId, VirtualAnswer> answers;
  for (std::optional<VirtualAnswer>& answer : call_.answers)
    answers.push_back(answer.has_value() ? std::move(*answer) : VirtualAnswer());
  return answers;
}

// --- The fleet ---

absl::Status RecoveryWorld::WaitForHellos(uint64_t looks) {
  absl::Status verdict;
  const bool goes_on = Await("hellos", [&] {
    bool has_all = true;
    for (const WorkerId worker : workers_) {
      if (presence_[worker] == Presence::kLost)
        verdict.Update(absl::UnavailableError(LabelOf(worker) + " is lost"));
      has_all = has_all && presence_[worker] == Presence::kConnected;
    }
    for (const launch::FailureEvent& event : failures_) {
      if (event.kind == Kind::kExit)
        verdict.Update(absl::UnavailableError(LabelOf(event.worker) + " ended before its hello"));
    }
    if (verdict.ok() && !has_all && Draw(looks) == 0) {
      FailSilent();
      verdict.Update(absl::UnavailableError("not all have said hello"));
    }
    return has_all || !verdict.ok();
  });
  return goes_on ? verdict : absl::CancelledError("the starter is gone");
}

void RecoveryWorld::AwaitWhoComes() {
  Await("hellos of those who still start", [this] {
    return std::none_of(workers_.begin(), workers_.end(), [this](WorkerId worker) {
      return IsSilent(worker) && processes_[worker]->worker != nullptr;
    });
  });
}

bool RecoveryWorld::IsSilent(WorkerId worker) const {
  return presence_[worker] == Presence::kAwaited &&
         std::none_of(failures_.begin(), failures_.end(), [worker](const auto& event) {
           return event.worker == worker && fleet::IsLoss(event);
         });
}

void RecoveryWorld::FailSilent() {
  for (const WorkerId worker : workers_) {
    if (IsSilent(worker)) FailToCome(Kind::kNoHello, worker, "has not said hello");
  }
}

}  // namespace weir::chaos
