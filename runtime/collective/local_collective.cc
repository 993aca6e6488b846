#include "runtime/collective/local_collective.h"

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/collective/operation_check.h"
#include "runtime/collective/reference_compute.h"
#include "runtime/device/walled_memory.h"

namespace weir::collective {
namespace {

// A wait looks at the caller's stop flag so often.
constexpr int64_t kSliceMs = 10;

using Work = std::variant<Operation, OwnMoves>;

// An operation of a communicator, counted from 0.
struct Issue {
  int64_t number = 0;
  std::string text;  // what all ranks have in common
};

// The ranks that have come to an operation with their streams.
struct Meeting {
  std::vector<std::optional<Work>> works;  // by place in the group
  int num_here = 0;
  bool is_computed = false;
  int num_gone = 0;
};

struct Group {
  std::string name;
  int64_t epoch = 0;
  std::vector<RankId> ranks;
  std::set<int> joined;                        // places
  std::map<int, std::function<void()>> wakes;  // of polled members, by place
  int num_left = 0;                            // whose communicators are gone
  absl::Status error;                          // the first
  std::map<int64_t, Meeting> meetings;         // by number of the operation
  int num_computing = 0;                       // meetings whose memory is in use outside the mutex
};

bool IsStopped(const CommunicatorSpec& spec) {
  return spec.stop != nullptr && spec.stop->load(std::memory_order_relaxed);
}

std::string OperationName(const Group& group, const Issue& issue) {
  return absl::StrCat("operation ", issue.number, " of group ", group.name, " (epoch ", group.epoch,
                      "), ", issue.text);
}

absl::Status MismatchError(const CommunicatorSpec& spec, const std::string& expected,
                           const std::string& found) {
  return ErrorOf(absl::StatusCode::kFailedPrecondition,
                 {.code = "W0951",
                  .where = Place(spec),
                  .expected = expected,
                  .found = found,
                  .hint = "issue the operations of all groups in one order on all ranks"});
}

absl::Status Refusal(const CommunicatorSpec& spec, const std::string& expected,
                     const std::string& found) {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {.code = "W0952", .where = Place(spec), .expected = expected, .found = found});
}

}  // namespace

// The groups of the process, and what their ranks have issued.
class LocalCollectives::World {
 public:
  std::string NewId() {
    MutexLock lock(&mutex_);
    return absl::StrCat("local collective ", num_ids_++);
  }
  // Returns the group once all its ranks have joined.
  absl::StatusOr<Group*> Join(const CommunicatorSpec& spec);
  // Returns the group at once.
  absl::StatusOr<Group*> JoinPolled(const CommunicatorSpec& spec, std::function<void()> wake);
  // Ends a member's part in the group: with `is_idle`, others may finish what they have issued.
  void Leave(const CommunicatorSpec& spec, Group* group);
  // Notes that the member issues an operation, and compares with what others have issued.
  absl::Status Announce(const CommunicatorSpec& spec, Group* group, const Issue& issue);
  // Waits, with a member's stream, for the other members, and does the operation.
  absl::Status Meet(const CommunicatorSpec& spec, Group* group, const Issue& issue, Work work);
  // Does the member's part without waiting: notes it, and does the operation if it is the last.
  absl::Status Arrive(const CommunicatorSpec& spec, Group* group, const Issue& issue, Work work);
  // Returns whether the operation, to which the member came at `arrived_ns`, has ended.
  absl::StatusOr<bool> HasEnded(const CommunicatorSpec& spec, Group* group, const Issue& issue,
                                int64_t arrived_ns);
  int64_t NowNs() const { return clock_.NowNs(); }
  absl::Status ErrorOfGroup(const Group* group) {
    MutexLock lock(&mutex_);
    return group->error;
  }
  // Fails the group, and waits until nobody uses the memory of its operations.
  void Abort(const CommunicatorSpec& spec, Group* group);

 private:
  // Holds what one of two ranks has issued and the other has not, of the groups that have both.
  struct PairOrder {
    RankId ahead;
    struct Entry {
      Group* group = nullptr;
      Issue issue;
    };
    std::deque<Entry> entries;
  };
  using Pair = std::pair<RankId, RankId>;

  void TellChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++num_changes_;
    changed_.NotifyAll();
  }
  // Returns at the next change, or after a slice of time.
  void WaitForChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    changed_.WaitFor(&mutex_, kSliceMs,
                     [this, seen = num_changes_]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_changes_ != seen; });
  }
  absl::Status FailLocked(Group* group, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Group*> JoinLocked(const CommunicatorSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Meeting*> ArriveLocked(const CommunicatorSpec& spec, Group* group,
                                        const Issue& issue, Work work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FailOverdue(const CommunicatorSpec& spec, Group* group, const Issue& issue,
                           const Meeting& meeting, int64_t waited_ms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIssues(const Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does the operation at which all ranks are. Releases the mutex meanwhile.
  absl::Status ComputeAll(const CommunicatorSpec& spec, Group* group, const Issue& issue,
                          Meeting* meeting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFit(const CommunicatorSpec& spec, const Issue& issue,
                        const std::vector<OwnMoves>& moves) const;
  std::string Missing(const Group& group, const std::set<int>& here) const;

  const MonotonicClock clock_{};
  Mutex mutex_;
  CondVar changed_;
  int64_t num_changes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_ids_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::unique_ptr<Group>> groups_ ABSL_GUARDED_BY(mutex_);  // by id
  std::map<Pair, PairOrder> orders_ ABSL_GUARDED_BY(mutex_);
};

std::string LocalCollectives::World::Missing(const Group& group, const std::set<int>& here) const {
  std::vector<std::string> missing;
  for (int place = 0; place < static_cast<int>(group.ranks.size()); ++place) {
    if (here.count(place) == 0)
      missing.push_back(absl::StrCat("place ", place, " (rank ", group.ranks[place], ")"));
  }
  return absl::StrJoin(missing, ", ");
}

absl::StatusOr<Group*> LocalCollectives::World::JoinLocked(const CommunicatorSpec& spec) {
  std::unique_ptr<Group>& kept = groups_[spec.unique_id];
  if (kept == nullptr) {
    kept = std::make_unique<Group>();
    kept->name = spec.group;
    kept->epoch = spec.epoch;
    kept->ranks = spec.ranks;
  }
  Group* const group = kept.get();
  if (group->name != spec.group || group->epoch != spec.epoch || group->ranks != spec.ranks)
    return Refusal(spec, "the group, epoch and ranks that another rank has given for this id",
                   absl::StrCat("group ", group->name, ", epoch ", group->epoch, ", ranks ",
                                absl::StrJoin(group->ranks, " "), " there"));
  if (!group->joined.insert(spec.rank).second)
    return Refusal(spec, "one communicator for each rank and id", "a second one");
  TellChange();
  return group;
}

absl::StatusOr<Group*> LocalCollectives::World::JoinPolled(const CommunicatorSpec& spec,
                                                           std::function<void()> wake) {
  MutexLock lock(&mutex_);
  WEIR_ASSIGN_OR_RETURN(Group* const group, JoinLocked(spec));
  if (wake) group->wakes[spec.rank] = std::move(wake);
  return group;
}

absl::StatusOr<Group*> LocalCollectives::World::Join(const CommunicatorSpec& spec) {
  MutexLock lock(&mutex_);
  WEIR_ASSIGN_OR_RETURN(Group* const group, JoinLocked(spec));
  const int64_t end_ns = clock_.NowNs() + spec.limit_ms * 1'000'000;
  while (static_cast<int>(group->joined.size()) < spec.size() && group->error.ok()) {
    if (IsStopped(spec))
      FailLocked(group, Refusal(spec, "all ranks of the group", "the caller's wish to stop"))
          .IgnoreError();
    else if (clock_.NowNs() >= end_ns)
      FailLocked(group,
                 Refusal(spec, absl::StrCat("all ranks of the group within ", spec.limit_ms, " ms"),
                         absl::StrCat("no ", Missing(*group, group->joined))))
          .IgnoreError();
    else
      WaitForChange();
  }
  if (group->error.ok()) return group;
  const absl::Status error = group->error;
  ++group->num_left;
  return error;
}

void LocalCollectives::World::Leave(const CommunicatorSpec& spec, Group* group) {
  MutexLock lock(&mutex_);
  group->wakes.erase(spec.rank);
  if (++group->num_left < spec.size()) return;
  ForgetIssues(group);
  groups_.erase(spec.unique_id);
}

absl::Status LocalCollectives::World::FailLocked(Group* group, const absl::Status& status) {
  if (group->error.ok()) {
    group->error = status;
    ForgetIssues(group);
  }
  TellChange();
  return group->error;
}

void LocalCollectives::World::Abort(const CommunicatorSpec& spec, Group* group) {
  MutexLock lock(&mutex_);
  FailLocked(group, ErrorOf(absl::StatusCode::kUnavailable,
                            {.code = "W0952",
                             .where = Place(spec),
                             .expected = "a communicator that no rank has aborted",
                             .found = absl::StrCat("an abort by ", Member(spec, spec.rank))}))
      .IgnoreError();
  changed_.Wait(&mutex_, [group] { return group->num_computing == 0; });
}

void LocalCollectives::World::ForgetIssues(const Group* group) {
  for (auto& [pair, order] : orders_)
    std::erase_if(order.entries,
                  [group](const PairOrder::Entry& entry) { return entry.group == group; });
}

absl::Status LocalCollectives::World::Announce(const CommunicatorSpec& spec, Group* group,
                                               const Issue& issue) {
  MutexLock lock(&mutex_);
  if (!group->error.ok()) return group->error;
  const RankId self = spec.ranks[spec.rank];
  for (const RankId other : spec.ranks) {
    if (other == self) continue;
    PairOrder& order = orders_[{std::min(self, other), std::max(self, other)}];
    if (order.entries.empty() || order.ahead == self) {
      order.ahead = self;
      order.entries.push_back({group, issue});
      continue;
    }
    const PairOrder::Entry expected = order.entries.front();
    if (expected.group == group && expected.issue.number == issue.number &&
        expected.issue.text == issue.text) {
      order.entries.pop_front();
      continue;
    }
    const absl::Status error = MismatchError(
        spec,
        absl::StrCat(OperationName(*expected.group, expected.issue), ", which rank ", other,
                     " has issued next of all that it shares with rank ", self),
        absl::StrCat(OperationName(*group, issue), " on rank ", self));
    FailLocked(expected.group, error).IgnoreError();
    return FailLocked(group, error);
  }
  return absl::OkStatus();
}

absl::Status LocalCollectives::World::CheckFit(const CommunicatorSpec& spec, const Issue& issue,
                                               const std::vector<OwnMoves>& moves) const {
  const std::vector<MoveMismatch> mismatches = Mismatches(moves);
  if (mismatches.empty()) return absl::OkStatus();
  const MoveMismatch& first = mismatches[0];
  const auto text = [](int64_t count) {
    return count < 0 ? std::string("none") : absl::StrCat("one of ", count, " elements");
  };
  const std::string from = Member(spec, first.from_rank), to = Member(spec, first.to_rank);
  return MismatchError(
      spec,
      absl::StrCat("sends that fit the receives of operation ", issue.number, ", ", issue.text),
      absl::StrCat("a send of ", from, " to ", to, ": ", text(first.sent),
                   "; and the receive there: ", text(first.received)));
}

absl::Status LocalCollectives::World::ComputeAll(const CommunicatorSpec& spec, Group* group,
                                                 const Issue& issue, Meeting* meeting) {
  std::vector<Operation> operations;
  std::vector<OwnMoves> moves;
  for (std::optional<Work>& work : meeting->works) {
    if (Operation* const operation = std::get_if<Operation>(&*work))
      operations.push_back(*operation);
    else
      moves.push_back(std::get<OwnMoves>(*std::move(work)));
  }
  WEIR_RETURN_IF_ERROR(CheckFit(spec, issue, moves));
  ++group->num_computing;
  mutex_.Unlock();
  if (moves.empty())
    Compute(operations);
  else
    Compute(moves);
  mutex_.Lock();
  --group->num_computing;
  TellChange();
  return absl::OkStatus();
}

absl::StatusOr<Meeting*> LocalCollectives::World::ArriveLocked(const CommunicatorSpec& spec,
                                                               Group* group, const Issue& issue,
                                                               Work work) {
  if (!group->error.ok()) return group->error;
  Meeting& meeting = group->meetings[issue.number];
  meeting.works.resize(spec.size());
  meeting.works[spec.rank] = std::move(work);
  if (++meeting.num_here < spec.size()) return &meeting;
  const absl::Status status = ComputeAll(spec, group, issue, &meeting);
  if (!status.ok()) return FailLocked(group, status);
  meeting.is_computed = true;
  TellChange();
  return &meeting;
}

absl::Status LocalCollectives::World::FailOverdue(const CommunicatorSpec& spec, Group* group,
                                                  const Issue& issue, const Meeting& meeting,
                                                  int64_t waited_ms) {
  std::set<int> here;
  for (int place = 0; place < spec.size(); ++place) {
    if (meeting.works[place].has_value()) here.insert(place);
  }
  const Work& own = *meeting.works[spec.rank];
  const auto* const operation = std::get_if<Operation>(&own);
  const auto* const moves = std::get_if<OwnMoves>(&own);
  const int64_t bytes = operation != nullptr
                            ? BytesOf(*operation, spec.size())
                            : BytesOf(Moves{moves->dtype, moves->sends, moves->receives});
  return FailLocked(group, At(absl::StrCat("without ", Missing(*group, here)),
                              Overdue(spec, issue.number, issue.text, bytes, waited_ms)));
}

absl::Status LocalCollectives::World::Arrive(const CommunicatorSpec& spec, Group* group,
                                             const Issue& issue, Work work) {
  std::vector<std::function<void()>> wakes;
  {
    MutexLock lock(&mutex_);
    WEIR_ASSIGN_OR_RETURN(const Meeting* const meeting,
                          ArriveLocked(spec, group, issue, std::move(work)));
    if (!meeting->is_computed) return absl::OkStatus();
    for (const auto& [place, wake] : group->wakes) {
      if (place != spec.rank) wakes.push_back(wake);
    }
  }
  for (const std::function<void()>& wake : wakes) wake();
  return absl::OkStatus();
}

absl::StatusOr<bool> LocalCollectives::World::HasEnded(const CommunicatorSpec& spec, Group* group,
                                                       const Issue& issue, int64_t arrived_ns) {
  MutexLock lock(&mutex_);
  const auto meeting = group->meetings.find(issue.number);
  if (meeting != group->meetings.end() && meeting->second.is_computed) {
    if (++meeting->second.num_gone == spec.size()) group->meetings.erase(meeting);
    return true;
  }
  if (!group->error.ok()) return group->error;
  if (meeting->second.num_here == spec.size()) return false;
  if (IsStopped(spec)) {
    return FailLocked(group, Refusal(spec, absl::StrCat("all ranks at operation ", issue.number),
                                     "the caller's wish to stop"));
  }
  const int64_t waited_ms = (clock_.NowNs() - arrived_ns) / 1'000'000;
  if (spec.overdue_ms > 0 && waited_ms >= spec.overdue_ms)
    return FailOverdue(spec, group, issue, meeting->second, waited_ms);
  return false;
}

absl::Status LocalCollectives::World::Meet(const CommunicatorSpec& spec, Group* group,
                                           const Issue& issue, Work work) {
  MutexLock lock(&mutex_);
  WEIR_ASSIGN_OR_RETURN(Meeting* const arrived, ArriveLocked(spec, group, issue, std::move(work)));
  Meeting& meeting = *arrived;
  const int64_t begin_ns = clock_.NowNs();
  // Once all are here, their memory is in use until the result is there.
  while (!meeting.is_computed && (group->error.ok() || group->num_computing > 0)) {
    const int64_t waited_ms = (clock_.NowNs() - begin_ns) / 1'000'000;
    if (group->error.ok() && meeting.num_here < spec.size()) {
      if (IsStopped(spec)) {
        FailLocked(group, Refusal(spec, absl::StrCat("all ranks at operation ", issue.number),
                                  "the caller's wish to stop"))
            .IgnoreError();
        continue;
      }
      if (spec.overdue_ms > 0 && waited_ms >= spec.overdue_ms) {
        FailOverdue(spec, group, issue, meeting, waited_ms).IgnoreError();
        continue;
      }
    }
    WaitForChange();
  }
  if (!meeting.is_computed) return group->error;
  if (++meeting.num_gone == spec.size()) group->meetings.erase(issue.number);
  return absl::OkStatus();
}

namespace {

// Returns where the host reaches memory of an emulated device.
char* Inside(const char* address) {
  return static_cast<char*>(device::WalledMemory::Inside(address));
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalCollectives::World> world, const CommunicatorSpec& spec,
                    Group* group)
      : member_(std::make_shared<Member>(std::move(world), spec, group)) {}
  ~LocalCommunicator() override {
    // Work in the streams keeps the member. If there is some, the memory of its operations may go.
    if (member_->num_issued.load() != member_->num_ended.load()) Abort();
  }

  const CommunicatorSpec& spec() const override { return member_->spec; }

  absl::Status Run(const Operation& operation, device::CudaStream stream) override {
    WEIR_RETURN_IF_ERROR(CheckOperation(spec(), operation));
    Operation inside = operation;
    inside.from = Inside(operation.from);
    inside.to = Inside(operation.to);
    return Put(Text(operation), inside, stream);
  }
  absl::Status SendReceive(const Moves& moves, device::CudaStream stream) override {
    WEIR_RETURN_IF_ERROR(CheckMoves(spec(), moves));
    OwnMoves own;
    own.dtype = moves.dtype;
    own.sends.assign(moves.sends.begin(), moves.sends.end());
    own.receives.assign(moves.receives.begin(), moves.receives.end());
    for (SendMove& send : own.sends) send.from = Inside(send.from);
    for (ReceiveMove& receive : own.receives) receive.to = Inside(receive.to);
    return Put(Text(moves), std::move(own), stream);
  }
  absl::Status AsyncError() override { return member_->world->ErrorOfGroup(member_->group); }
  void Abort() override { member_->world->Abort(spec(), member_->group); }

 private:
  // A member of the group, as long as the communicator or its work in a stream is there.
  struct Member {
    Member(std::shared_ptr<LocalCollectives::World> its_world, const CommunicatorSpec& its_spec,
           Group* its_group)
        : world(std::move(its_world)), spec(its_spec), group(its_group) {}
    ~Member() { world->Leave(spec, group); }

    absl::Status Meet(const Issue& issue, const Work& work) {
      const absl::Status status = world->Meet(spec, group, issue, work);
      ++num_ended;
      return status;
    }
    // Comes to the operation at the first call, which sets `arrived_ns`. Returns whether the
    // operation has ended, well or not; AsyncError tells which.
    bool Attempt(const Issue& issue, const Work& work, int64_t* arrived_ns) {
      bool fails = false;
      if (*arrived_ns < 0) {
        *arrived_ns = world->NowNs();
        fails = !world->Arrive(spec, group, issue, work).ok();
      }
      if (!fails) {
        const absl::StatusOr<bool> ended = world->HasEnded(spec, group, issue, *arrived_ns);
        if (ended.ok() && !*ended) return false;
      }
      ++num_ended;
      return true;
    }

    const std::shared_ptr<LocalCollectives::World> world;
    const CommunicatorSpec spec;
    Group* const group;
    // Counted by the thread of the device and by the one that does the stream's work.
    std::atomic<int64_t> num_issued = 0;
    std::atomic<int64_t> num_ended = 0;
  };

  absl::Status Put(const std::string& text, Work work, device::CudaStream stream) {
    const Issue issue{member_->num_issued.load(), text};
    WEIR_RETURN_IF_ERROR(member_->world->Announce(spec(), member_->group, issue));
    ++member_->num_issued;
    if (stream.handle == nullptr) return member_->Meet(issue, work);
    static_cast<device::EmulatedStream*>(stream.handle)
        ->PutAttempts(
            [member = member_, issue, work = std::move(work), arrived_ns = int64_t{-1}]() mutable {
              return member->Attempt(issue, work, &arrived_ns);
            });
    return absl::OkStatus();
  }

  const std::shared_ptr<Member> member_;
};

class LocalPolledCommunicator final : public PolledCommunicator {
 public:
  LocalPolledCommunicator(std::shared_ptr<LocalCollectives::World> world, CommunicatorSpec spec,
                          Group* group)
      : world_(std::move(world)), spec_(std::move(spec)), group_(group) {}
  ~LocalPolledCommunicator() override {
    if (!under_way_.empty()) world_->Abort(spec_, group_);
    world_->Leave(spec_, group_);
  }

  const CommunicatorSpec& spec() const override { return spec_; }

  absl::StatusOr<int64_t> Begin(const Operation& operation) override {
    WEIR_RETURN_IF_ERROR(CheckOperation(spec_, operation));
    Operation inside = operation;
    inside.from = Inside(operation.from);
    inside.to = Inside(operation.to);
    const Issue issue{num_begun_++, Text(operation)};
    WEIR_RETURN_IF_ERROR(world_->Announce(spec_, group_, issue));
    under_way_.push_back({issue, world_->NowNs()});
    WEIR_RETURN_IF_ERROR(world_->Arrive(spec_, group_, issue, inside));
    return issue.number;
  }

  absl::StatusOr<bool> HasEnded(int64_t number) override {
    for (size_t i = 0; i < under_way_.size(); ++i) {
      if (under_way_[i].issue.number != number) continue;
      WEIR_ASSIGN_OR_RETURN(const bool ended, world_->HasEnded(spec_, group_, under_way_[i].issue,
                                                               under_way_[i].arrived_ns));
      if (ended) under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
      return ended;
    }
    return true;
  }

 private:
  struct UnderWay {
    Issue issue;
    int64_t arrived_ns = 0;
  };
  const std::shared_ptr<LocalCollectives::World> world_;
  const CommunicatorSpec spec_;
  Group* const group_;
  int64_t num_begun_ = 0;
  std::vector<UnderWay> under_way_;
};

}  // namespace

LocalCollectives::LocalCollectives() : world_(std::make_shared<World>()) {}
LocalCollectives::~LocalCollectives() = default;

absl::StatusOr<std::string> LocalCollectives::NewUniqueId() { return world_->NewId(); }

absl::StatusOr<std::unique_ptr<Communicator>> LocalCollectives::Create(
    const CommunicatorSpec& spec) {
  WEIR_RETURN_IF_ERROR(CheckSpec(spec));
  WEIR_ASSIGN_OR_RETURN(Group* const group, world_->Join(spec));
  return std::make_unique<LocalCommunicator>(world_, spec, group);
}

absl::StatusOr<std::unique_ptr<PolledCommunicator>> LocalCollectives::CreatePolled(
    const CommunicatorSpec& spec, std::function<void()> wake) {
  WEIR_RETURN_IF_ERROR(CheckSpec(spec));
  WEIR_ASSIGN_OR_RETURN(Group* const group, world_->JoinPolled(spec, std::move(wake)));
  return std::make_unique<LocalPolledCommunicator>(world_, spec, group);
}

}  // namespace weir::collective
