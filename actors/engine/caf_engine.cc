#include "actors/engine/caf_engine.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/stall_report.h"
#include "caf/all.hpp"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/device/kernel_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__SANITIZE_THREAD__)
// Debian's CAF is not instrumented, so ThreadSanitizer does not see that its mailbox orders the
// writing of a message before its reading. Only reports whose innermost frame is CAF's are dropped;
// accesses between ranks are still watched, and ordered by Board.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race_top:^caf::\nrace_top:/include/caf/"
         "\nrace:^caf::mailbox_element_vals\ncalled_from_lib:libcaf_core.so\n";
}
#endif

namespace weir::actors {
namespace {

constexpr int kPollsWithOwnCore = 1000;  // longer than a sleep and a wake between processes
constexpr int kPollsElse = 20;

// Returns the number of polls that a rank makes before it parks and goes back to its mailbox; each
// poll has a pause that yields the core's other thread.
int PollsBeforeParking(const CafEngineOptions& options, const std::vector<RankExecutor*>& ranks) {
  if (options.polls_before_parking != CafEngineOptions::kChoosePolls)
    return options.polls_before_parking;
  int threads = 0;
  for (const RankExecutor* rank : ranks) {
    const device::ThreadTeam* team = rank->device()->team();
    threads += team != nullptr ? team->num_threads() : 1;
  }
  // Compares with the cores that this process may use (it may be pinned), and with the cores that
  // the machine has for the whole job.
  const bool fits_here = threads <= static_cast<int>(std::thread::hardware_concurrency());
  const bool job_fits = options.threads_on_machine <= ::sysconf(_SC_NPROCESSORS_ONLN);
  return fits_here && job_fits ? kPollsWithOwnCore : kPollsElse;
}

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// CAF 0.17 names messages by atoms; no message carries more than a number.
using RunAtom = caf::atom_constant<caf::atom("run")>;    // (steps): new limits
using WakeAtom = caf::atom_constant<caf::atom("wake")>;  // a message waits
using MeetAtom = caf::atom_constant<caf::atom("meet")>;  // all ranks have come to a meeting
using StopAtom = caf::atom_constant<caf::atom("stop")>;  // leave
using RestAtom = caf::atom_constant<caf::atom("rest")>;  // to the controller: all ranks are at rest
using FaultAtom = caf::atom_constant<caf::atom("fault")>;  // to the controller: see Board::fault

// The Board holds the parked states and faults of the ranks. Writes are rare: when a rank parks or
// faults.
class Board {
 public:
  // A Parked is the record that a rank leaves when it parks.
  struct Parked {
    int64_t run = 0;       // 0: not parked
    int64_t surplus = 0;   // messages sent less received
    bool at_rest = false;  // no message of this run will come
  };

  Board(size_t num_ranks, CafEngineOptions::Rest rest) : rest_(rest), ranks_(num_ranks) {}

  CafEngineOptions::Rest rest() const { return rest_; }

  void BeginRun(int64_t run) {
    MutexLock lock(&mutex_);
    run_ = run;
  }
  // Called before a rank works: the record that the rank left when it parked no longer holds.
  void Unpark(size_t rank) {
    MutexLock lock(&mutex_);
    ranks_[rank].run = 0;
  }
  // Counts the wake-ups of ranks that wait for meetings: nothing is at rest while one is under way.
  void AddWake() {
    MutexLock lock(&mutex_);
    ++num_wakes_;
  }
  // Rank `rank` has got its wake-up, and works.
  void TakeWake(size_t rank) {
    MutexLock lock(&mutex_);
    --num_wakes_;
    ranks_[rank].run = 0;
  }
  // Parks rank `rank`. Returns true if everything is then at rest.
  bool Park(size_t rank, const Parked& parked) {
    MutexLock lock(&mutex_);
    ranks_[rank] = parked;
    if (num_wakes_ > 0) return false;
    int64_t under_way = 0;
    bool all_at_rest = true;
    for (const Parked& p : ranks_) {
      if (p.run != run_) return false;
      under_way += p.surplus;
      all_at_rest &= p.at_rest;
    }
    return rest_ == CafEngineOptions::Rest::kBalanced ? under_way == 0 : all_at_rest;
  }
  // Returns true for the first fault of all.
  bool Fault(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (!fault_.ok()) return false;
    fault_ = status;
    stop_.store(true, std::memory_order_relaxed);
    return true;
  }
  absl::Status fault() const {
    MutexLock lock(&mutex_);
    return fault_;
  }
  // Ranks read this flag between acts. The flag orders nothing; the mailbox does.
  const std::atomic<bool>& stop() const { return stop_; }
  void Stop() {
    MutexLock lock(&mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }

 private:
  const CafEngineOptions::Rest rest_;
  mutable Mutex mutex_;
  int64_t run_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Parked> ranks_ ABSL_GUARDED_BY(mutex_);
  int num_wakes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};
};

// A RankActor is the state of one rank's CAF actor.
class RankActor {
 public:
  RankActor(RankExecutor* rank, size_t index, Board* board, caf::actor controller, int polls)
      : rank_(rank),
        index_(index),
        board_(board),
        controller_(std::move(controller)),
        polls_(polls) {}

  void OnRun(int64_t steps) {
    device::BecomeKernelThread();  // CAF has one thread for this actor alone
    // Unpark orders the caller's writes before the run, also for tools that do not see CAF's
    // mailbox.
    board_->Unpark(index_);
    rank_->endpoint()->Unpark();
    ++run_;
    rank_->RaiseLimits(steps);
    Work();
  }

  // A rank that comes last to a meeting wakes the others, from its own thread. Returns whether this
  // rank is to get the message; a rank that is awake looks for itself.
  bool TakesWake() {
    if (!sleeps_.exchange(false)) return false;
    board_->AddWake();
    return true;
  }
  void OnMeeting() {
    board_->TakeWake(index_);
    Work();
  }

  // Runs until no work is left, and parks.
  void Work() {
    sleeps_ = false;
    board_->Unpark(index_);
    rank_->SetSleep(RankExecutor::Sleep::kAwake);
    while (!board_->stop().load(std::memory_order_relaxed)) {
      absl::Status status = RunRank();
      if (!status.ok()) {
        if (board_->Fault(status)) caf::anon_send(controller_, FaultAtom::value);
        return;
      }
      if (board_->stop().load(std::memory_order_relaxed)) break;
      // A meeting that ends from here on sends a message, and one that has ended is seen here.
      sleeps_ = true;
      if (rank_->HasEndedMeeting() ||
          rank_->endpoint()->Park() == transport::TransportEndpoint::ParkResult::kMessagesWait) {
        sleeps_ = false;
        continue;
      }
      rank_->SetSleep(rank_->all_done() ? RankExecutor::Sleep::kDone
                                        : RankExecutor::Sleep::kWaiting);
      if (board_->Park(index_, Parking())) {
        caf::anon_send(controller_, RestAtom::value, run_);
      }
      return;
    }
    // After a stop, Unpark orders this thread's writes before the end of StopAll.
    board_->Unpark(index_);
  }

 private:
  Board::Parked Parking() const {
    const bool at_rest = board_->rest() == CafEngineOptions::Rest::kLocal && rank_->all_done() &&
                         rank_->CheckAtRest().ok();
    return {run_, rank_->num_sent() - rank_->num_received(), at_rest};
  }

  // Exceptions of kernels' libraries end here.
  absl::Status RunRank() {
    try {
      int64_t seen = -1;
      for (int poll = 0; poll <= polls_; ++poll) {
        WEIR_RETURN_IF_ERROR(rank_->RunUntilIdle(board_->stop()));
        if (rank_->all_done()) break;  // only credits can come
        if (std::exchange(seen, rank_->num_received()) != rank_->num_received()) poll = 0;
        Pause();
      }
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
      return ErrorOf(
          absl::StatusCode::kUnavailable,
          {"W0981", absl::StrCat("rank ", rank_->plan().rank), "memory", "none left",
           "raise the limits of memory (ulimit -v, a container's), or use less: `weir plan` tells "
           "what the job needs"});
    } catch (const std::exception& e) {
      return CodedError(absl::StatusCode::kInternal, "W0517",
                        absl::StrCat("rank ", rank_->plan().rank, ": a kernel threw: ", e.what()));
    }
  }

  RankExecutor* rank_;
  size_t index_;
  Board* board_;
  caf::actor controller_;
  int polls_;
  int64_t run_ = 0;
  // The thread of another rank may clear the flag, which is set before the last look at meetings.
  std::atomic<bool> sleeps_{false};
};

caf::behavior RankBehavior(caf::event_based_actor* self, std::shared_ptr<RankActor> rank) {
  return {
      [rank](RunAtom, int64_t steps) { rank->OnRun(steps); },
      [rank](WakeAtom) { rank->Work(); },
      [rank](MeetAtom) { rank->OnMeeting(); },
      [self](StopAtom) { self->quit(); },
  };
}

// CAF's own pool has no work here, so it gets one thread and does not poll.
struct Config : caf::actor_system_config {
  Config() {
    set("scheduler.max-threads", 1);
    set("scheduler.policy", caf::atom("sharing"));
  }
};

class CafEngine final : public Engine {
 public:
  CafEngine(std::vector<RankExecutor*> ranks, const CafEngineOptions& options)
      : ranks_(std::move(ranks)),
        board_(ranks_.size(), options.rest),
        system_(config_),
        controller_(system_),
        to_controller_(caf::actor_cast<caf::actor>(controller_.ptr())) {
    const int polls = PollsBeforeParking(options, ranks_);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      auto state = std::make_shared<RankActor>(ranks_[i], i, &board_, to_controller_, polls);
      caf::actor actor = system_.spawn<caf::detached>(RankBehavior, state);
      ranks_[i]->endpoint()->SetWakeHook([actor] { caf::anon_send(actor, WakeAtom::value); });
      ranks_[i]->SetMeetingHook([actor, state] {
        if (state->TakesWake()) caf::anon_send(actor, MeetAtom::value);
      });
      actors_.push_back(std::move(actor));
    }
  }

  ~CafEngine() override {
    // Ranks that have ended well leave their groups before the stop, which is the end of waits.
    const bool ended_well = board_.fault().ok();
    if (ended_well) LeaveGroups();
    StopAll();
    if (!ended_well) LeaveGroups();
    for (RankExecutor* rank : ranks_) {
      rank->endpoint()->SetWakeHook(nullptr);
      rank->SetMeetingHook(nullptr);
    }
  }

  absl::Status RunSteps(int64_t steps) override {
    if (absl::Status fault = board_.fault(); !fault.ok()) {
      StopAll();
      return fault;
    }
    board_.BeginRun(++run_);
    for (const caf::actor& actor : actors_) caf::anon_send(actor, RunAtom::value, steps);
    bool over = actors_.empty();
    while (!over) {
      controller_->receive([&](RestAtom, int64_t run) { over = run == run_; },
                           [&](FaultAtom) { over = true; });
    }
    if (absl::Status fault = board_.fault(); !fault.ok()) {
      // After StopAll, a reader of the ranks finds them at rest.
      StopAll();
      return fault;
    }
    for (const RankExecutor* rank : ranks_) {
      if (!rank->all_done()) {
        absl::Status stalled = CodedError(
            absl::StatusCode::kAborted, "W0516",
            absl::StrCat("no progress: every rank is at rest and no message is under way, but",
                         DescribeStall(ranks_)));
        board_.Fault(stalled);
        StopAll();
        return stalled;
      }
    }
    return absl::OkStatus();
  }

  absl::Status fault() const override { return board_.fault(); }

  void Stop(absl::Status reason) override {
    if (board_.Fault(reason)) caf::anon_send(to_controller_, FaultAtom::value);
  }

 private:
  void LeaveGroups() {
    for (RankExecutor* rank : ranks_) rank->LeaveGroups();
  }

  // Stops all ranks and returns when no rank's thread runs any more.
  void StopAll() {
    board_.Stop();
    for (const caf::actor& actor : actors_) caf::anon_send(actor, StopAtom::value);
    for (const caf::actor& actor : actors_) controller_->wait_for(actor);
    board_.Stop();
    actors_.clear();
  }

  std::vector<RankExecutor*> ranks_;
  Board board_;
  Config config_;
  caf::actor_system system_;
  caf::scoped_actor controller_;
  const caf::actor to_controller_;
  std::vector<caf::actor> actors_;
  int64_t run_ = 0;
};

}  // namespace

std::unique_ptr<Engine> MakeCafEngine(std::vector<RankExecutor*> ranks,
                                      const CafEngineOptions& options) {
  return std::make_unique<CafEngine>(std::move(ranks), options);
}

}  // namespace weir::actors
