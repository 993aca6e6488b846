#include "runtime/control/coordinator.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/admission.h"
#include "runtime/control/call_errors.h"
#include "runtime/control/connection_gate.h"
#include "runtime/control/counted_wait.h"
#include "runtime/control/epoch_fence.h"
#include "runtime/control/grpc_setup.h"
#include "runtime/control/liveness.h"
#include "runtime/control/outbox.h"
#include "runtime/control/outcome.h"
#include "runtime/control/presence.h"
#include "runtime/control/published_values.h"
#include "runtime/control/worker_session.h"

namespace weir::control {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// The limit of messages that wait to be written to one worker.
constexpr size_t kQueuedMessagesMax = 1 << 19;
// The number of pings that follow one another at once when a worker has come, for a good first
// estimate of its clock.
constexpr int kFirstPings = 8;
constexpr size_t kActivityBytesMax = 4 << 10;
// The time for which the end waits for the notice of an abort to reach workers that read.
constexpr int64_t kFarewellMs = 250;

int64_t NowNs() { return MonotonicClock().NowNs(); }

std::string NameOf(WorkerId worker) { return absl::StrCat("worker ", worker); }

class GrpcCoordinator final : public Coordinator {
 public:
  GrpcCoordinator(CoordinatorOptions options, std::unique_ptr<ConnectionGate> gate);
  ~GrpcCoordinator() override;
  absl::Status Open();

  std::string address() const override { return gate_->address(); }
  absl::Status WaitForWorkers(int64_t limit_ms) override;
  absl::StatusOr<IdVector<WorkerId, std::string>> CallAll(const std::string& command,
                                                          int64_t limit_ms) override;
  absl::StatusOr<IdVector<WorkerId, std::string>> CallEach(
      const IdVector<WorkerId, std::string>& commands, int64_t limit_ms) override;
  IdVector<WorkerId, WorkerHealth> Health() const override;
  void BeginEpoch(uint32_t epoch, const std::vector<WorkerId>& anew,
                  const absl::Status& reason) override;
  int64_t num_fenced() const override {
    MutexLock lock(&mutex_);
    return fence_.num_refused();
  }
  void Dismiss(const std::vector<WorkerId>& workers) override;
  void Abort(const absl::Status& reason) override;
  void Shutdown(int64_t limit_ms) override;

 private:
  using Session = WorkerSession;
  using Message = std::shared_ptr<const std::string>;

  struct Worker {
    Presence presence = Presence::kAwaited;
    bool is_dismissed = false;   // the job goes on without it
    Session* session = nullptr;  // while connected
    absl::Status lost_because;
    std::optional<Liveness> liveness;
    ClockEstimate clock;
    int num_pings = 0;
    bool has_beaten = false;  // it knows that it is welcome
    WorkerProgress progress;
    int64_t progress_ns = 0;  // when acts last changed
    int64_t pid = 0;
    std::string last_words;
  };
  // A Call is one CallAll or CallEach, on its caller's stack.
  struct Call {
    IdVector<WorkerId, std::optional<std::string>> answers;
    int num_missing = 0;
    absl::Status error;
    bool is_over() const { return num_missing == 0 || !error.ok(); }
  };

  // The loop is one thread that drives gRPC, watches the clock and calls the hooks.
  void Run();
  void HandleTag(Session::Tag* tag, bool ok, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FindDead(int64_t now_ns, int64_t grace_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetPresence(Worker* worker, Presence presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    counts_.Move(worker->presence, presence, worker->has_beaten);
    worker->presence = presence;
  }
  void NoteDeath(const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    first_death_ns_ = std::min(first_death_ns_, worker.liveness->dies_ns());
  }
  void PingAll(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void AwaitSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Greet(Session* session, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPlace(const proto::Hello& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleFrame(Session* session, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleHeartbeat(Worker* worker, const proto::Heartbeat& beat, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status HandleMessage(WorkerId worker, const std::string& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleFetch(WorkerId worker, const proto::Fetch& fetch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandlePublish(WorkerId worker, proto::Publish* publish)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleAnswer(WorkerId worker, proto::Answer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleLeave(Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ping(Worker* worker, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndInOrder(Worker* worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    worker->session->outbox.PushLast(EndFrame(absl::OkStatus()));
    if (!is_stopping_) worker->session->StartWrite();
  }
  void Reply(WorkerId worker, int64_t request, const absl::Status& outcome,
             const std::string& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(WorkerId worker, const Message& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lose(WorkerId worker, LostWorker::How how, Problem why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DeleteIfDone(Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<IdVector<WorkerId, std::string>> Run(
      const std::vector<const std::string*>& commands, int64_t limit_ms);
  absl::Status BeginCall(Call* call, int64_t* id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Unreachable(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Absent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return abort_.has_value() || is_ending_;
  }

  const CoordinatorOptions options_;
  std::unique_ptr<ConnectionGate> gate_;
  proto::ControlPlane::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;

  mutable Mutex mutex_;  // also guards what the pointers of sessions_ and calls_ point to
  CondVar changed_;
  std::set<Session*> sessions_ ABSL_GUARDED_BY(mutex_);
  IdVector<WorkerId, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  PresenceCounts counts_ ABSL_GUARDED_BY(mutex_);
  bool some_are_dismissed_ ABSL_GUARDED_BY(mutex_) = false;  // counts_ counts them, too
  PublishedValues values_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Call*> calls_ ABSL_GUARDED_BY(mutex_);
  int64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t next_ping_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  // No connected worker is overdue before, so the loop need not look at all of them at each event.
  int64_t first_death_ns_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  absl::Status start_refusal_ ABSL_GUARDED_BY(mutex_);  // another build tried to join
  EpochFence fence_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> abort_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;    // Shutdown was called
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;  // no new operation is started
  // The loop calls the hooks without the mutex.
  std::vector<std::function<void()>> hooks_ ABSL_GUARDED_BY(mutex_);
  Attention attention_ ABSL_GUARDED_BY(mutex_);
};

GrpcCoordinator::GrpcCoordinator(CoordinatorOptions options, std::unique_ptr<ConnectionGate> gate)
    : options_(std::move(options)),
      gate_(std::move(gate)),
      workers_(options_.num_workers),
      counts_(options_.num_workers),
      fence_(options_.epoch),
      attention_(std::max<int64_t>(options_.heartbeat_ms * kNsPerMs / 4, 2 * kNsPerMs)) {}

absl::Status GrpcCoordinator::Open() {
  grpc::ServerBuilder builder;
  LimitServer(options_.num_workers, &builder);
  builder.RegisterService(&service_);
  auto door = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      CoordinatorCredentials(options_.credentials));
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    queue_->Shutdown();
    return absl::InternalError(absl::StrCat("gRPC does not serve at ", address()));
  }
  {
    MutexLock lock(&mutex_);
    next_ping_ns_ = NowNs() + options_.heartbeat_ms * kNsPerMs;
    AwaitSession();
  }
  thread_ = std::thread([this] { Run(); });
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> shared_door = std::move(door);
  gate_->Admit([shared_door](int listener, int descriptor) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listener;
    parameters.fd = descriptor;
    shared_door->HandleNewConnection(&parameters);
  });
  return absl::OkStatus();
}

GrpcCoordinator::~GrpcCoordinator() {
  gate_.reset();
  if (server_ == nullptr) return;
  {
    MutexLock lock(&mutex_);
    const auto all_know = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::none_of(sessions_.begin(), sessions_.end(),
                          [](Session* session) { return session->awaits_farewell; });
    };
    if (abort_.has_value()) changed_.WaitFor(&mutex_, kFarewellMs, all_know);
    is_stopping_ = true;
  }
  server_->Shutdown(MonotonicDeadline(0));
  queue_->Shutdown();
  thread_.join();
  for (Session* session : sessions_) delete session;
}

// --- The loop ---

void GrpcCoordinator::Run() {
  std::vector<std::function<void()>> hooks;
  while (true) {
    int64_t wake_ns;
    {
      MutexLock lock(&mutex_);
      const int64_t now_ns = NowNs();
      wake_ns = std::max(std::min(next_ping_ns_, first_death_ns_), now_ns);
      attention_.Sleeps(now_ns, wake_ns);
    }
    void* tag = nullptr;
    bool ok = false;
    const auto got = queue_->AsyncNext(&tag, &ok, MonotonicDeadline(wake_ns));
    if (got == grpc::CompletionQueue::SHUTDOWN) return;
    {
      MutexLock lock(&mutex_);
      const int64_t now_ns = NowNs();
      if (const int64_t lost_ns = attention_.Woke(now_ns); lost_ns > 0) {
        for (Worker& worker : workers_) {
          if (worker.liveness.has_value()) worker.liveness->Grant(lost_ns);
          worker.progress_ns = std::min(now_ns, worker.progress_ns + lost_ns);
        }
      }
      if (got == grpc::CompletionQueue::GOT_EVENT)
        HandleTag(static_cast<Session::Tag*>(tag), ok, now_ns);
      // A heartbeat may be among the events that are still to be read, so a worker has that long.
      const bool has_more = got == grpc::CompletionQueue::GOT_EVENT;
      FindDead(now_ns, has_more ? options_.heartbeat_ms * kNsPerMs : 0);
      PingAll(now_ns);
      hooks.swap(hooks_);
    }
    for (const auto& hook : hooks) hook();
    hooks.clear();
  }
}

void GrpcCoordinator::FindDead(int64_t now_ns, int64_t grace_ns) {
  if (now_ns - grace_ns < first_death_ns_) return;
  for (const WorkerId w : workers_.ids()) {
    Worker& worker = workers_[w];
    if (worker.presence != Presence::kConnected || !worker.liveness->IsOverdue(now_ns - grace_ns))
      continue;
    const int64_t excuse_ms = options_.excuse_ms ? options_.excuse_ms(w) : 0;
    if (!worker.liveness->Judge(now_ns, excuse_ms * kNsPerMs)) continue;
    Lose(w, LostWorker::How::kSilent,
         NoHeartbeat(options_.dead_after_ms, worker.liveness->SinceHeardNs(now_ns) / kNsPerMs));
  }
  first_death_ns_ = std::numeric_limits<int64_t>::max();
  for (const Worker& worker : workers_)
    if (worker.presence == Presence::kConnected) NoteDeath(worker);
}

void GrpcCoordinator::PingAll(int64_t now_ns) {
  if (now_ns < next_ping_ns_) return;
  next_ping_ns_ = now_ns + options_.heartbeat_ms * kNsPerMs;
  for (Worker& worker : workers_)
    if (worker.presence == Presence::kConnected) Ping(&worker, now_ns);
}

void GrpcCoordinator::HandleTag(Session::Tag* tag, bool ok, int64_t now_ns) {
  Session* session = tag->session;
  switch (tag->operation) {
    case Session::Operation::kAccept:
      session->accepting = false;
      if (ok && !is_stopping_) {
        AwaitSession();
        Greet(session, now_ns);
      } else {
        session->state = Session::State::kClosed;
      }
      break;
    case Session::Operation::kRead:
      session->reading = false;
      if (session->awaits_farewell && (!ok || session->incoming.has_leave())) {
        session->awaits_farewell = false;
        session->ends_once_written = true;
        if (ok && session->incoming.leave().words().size() <= kLastWordsBytesMax)
          workers_[session->worker].last_words = session->incoming.leave().words();
        if (!is_stopping_) session->StartWrite();
        changed_.NotifyAll();
      }
      if (ok) {
        if (session->state == Session::State::kOpen) HandleFrame(session, now_ns);
        if (!is_stopping_ && !session->finishing) session->StartRead();
      } else if (session->state == Session::State::kOpen) {
        Lose(session->worker, LostWorker::How::kBroken,
             {.code = "W0603",
              .expected = "it to stay until the job ends",
              .found = "its connection closed",
              .hint = "how its process ended"});
      }
      break;
    case Session::Operation::kWrite:
      session->writing = false;
      if (ok && !is_stopping_) session->StartWrite();
      if (!ok)
        session->ends_once_written = false;  // the read that is under way fails too and tells
      break;
    case Session::Operation::kFinish:
      session->finishing = false;
      session->is_cut = true;
      break;
  }
  DeleteIfDone(session);
}

void GrpcCoordinator::DeleteIfDone(Session* session) {
  if (session->state != Session::State::kClosed || session->has_operations()) return;
  sessions_.erase(session);
  delete session;
  changed_.NotifyAll();
}

// --- Workers come and go ---

void GrpcCoordinator::AwaitSession() {
  auto* session =
      new Session(kQueuedMessagesMax, 2 * options_.message_bytes_max + kPublishedBytesMax,
                  options_.message_bytes_max + kMessageOverheadBytes);
  sessions_.insert(session);
  session->accepting = true;
  service_.RequestWork(&session->context, &session->stream, queue_.get(), queue_.get(),
                       &session->accepted);
}

void GrpcCoordinator::Greet(Session* session, int64_t now_ns) {
  proto::Hello hello;
  absl::Status verdict = ReadHello(session->context, &hello);
  if (verdict.ok()) verdict = CheckJob(hello, options_);
  if (verdict.ok() && !fence_.Admits(hello.epoch()))
    verdict = OfAnotherEpoch(hello, fence_.epoch());
  if (verdict.ok()) {
    verdict = CheckBuild(hello, options_);
    start_refusal_.Update(verdict);  // no other worker will come in its place
  }
  if (verdict.ok()) verdict = CheckPlace(hello);
  if (!verdict.ok()) {
    session->state = Session::State::kClosed;
    session->Finish(ToGrpc(verdict));
    changed_.NotifyAll();
    return;
  }
  Worker& worker = workers_[WorkerId(hello.worker())];
  SetPresence(&worker, Presence::kConnected);
  worker.session = session;
  worker.pid = hello.pid();
  worker.progress_ns = now_ns;
  worker.liveness.emplace(now_ns, options_.dead_after_ms * kNsPerMs);
  NoteDeath(worker);
  session->worker = WorkerId(hello.worker());
  session->state = Session::State::kOpen;
  session->StartRead();
  Ping(&worker, now_ns);
  changed_.NotifyAll();
}

absl::Status GrpcCoordinator::CheckPlace(const proto::Hello& hello) {
  const WorkerId index(hello.worker());
  const auto denied = [index](const std::string& expected, const std::string& found) {
    return ErrorOf(absl::StatusCode::kPermissionDenied,
                   {.code = "W0607", .where = NameOf(index), .expected = expected, .found = found});
  };
  if (!workers_.Has(index))
    return denied(absl::StrCat("a number below ", options_.num_workers), absl::StrCat(index));
  const Worker& worker = workers_[index];
  if (worker.presence != Presence::kAwaited) {
    return denied("one worker of each number in an epoch",
                  absl::StrCat("another, process ", worker.pid, ", which came first"));
  }
  if (abort_.has_value()) return WithCode(absl::StatusCode::kAborted, *abort_);
  if (is_ending_) return absl::CancelledError("the job has ended");
  return absl::OkStatus();
}

void GrpcCoordinator::HandleLeave(Session* session) {
  Worker& worker = workers_[session->worker];
  SetPresence(&worker, Presence::kLeft);
  worker.session = nullptr;
  session->state = Session::State::kClosed;
  session->outbox.Clear();
  session->ends_once_written = true;
  if (!is_stopping_) session->StartWrite();
  for (auto& [id, call] : calls_) {
    if (!call->answers[session->worker].has_value())
      call->error.Update(Unreachable(session->worker));
  }
  changed_.NotifyAll();
}

// Closes the worker's session; calls that wait for the worker end.
void GrpcCoordinator::Lose(WorkerId index, LostWorker::How how, Problem why) {
  Worker& worker = workers_[index];
  if (worker.presence != Presence::kConnected) return;
  why.where = NameOf(index);
  LostWorker lost{how, why.found,
                  how == LostWorker::How::kSilent
                      ? ErrorOf(absl::StatusCode::kDeadlineExceeded, why)
                      : ErrorOf(absl::StatusCode::kUnavailable, why),
                  fence_.epoch()};
  SetPresence(&worker, Presence::kLost);
  worker.lost_because = lost.status;
  worker.session->state = Session::State::kClosed;
  worker.session->outbox.Clear();
  worker.session->Cancel();
  worker.session = nullptr;
  for (auto& [id, call] : calls_) {
    if (!call->answers[index].has_value()) call->error.Update(lost.status);
  }
  if (options_.on_lost && !is_stopping_ && !abort_.has_value() && !worker.is_dismissed) {
    hooks_.push_back([this, index, lost = std::move(lost)] { options_.on_lost(index, lost); });
  }
  changed_.NotifyAll();
}

// --- What they say ---

void GrpcCoordinator::HandleFrame(Session* session, int64_t now_ns) {
  const WorkerId index = session->worker;
  Worker& worker = workers_[index];
  absl::Status status;
  switch (session->incoming.kind_case()) {
    case proto::WorkerFrame::kHeartbeat:
      HandleHeartbeat(&worker, session->incoming.heartbeat(), now_ns);
      return;
    case proto::WorkerFrame::kLeave: HandleLeave(session); return;
    case proto::WorkerFrame::kPiece: {
      auto message = session->inbox.Add(session->incoming.piece());
      status = message.status();
      if (message.ok() && message->has_value()) status = HandleMessage(index, **message);
      break;
    }
    default: status = absl::InvalidArgumentError("a frame of no known kind");
  }
  if (!status.ok()) {
    Lose(index, LostWorker::How::kBroken,
         {.code = "W0603",
          .expected = "messages of the control plane",
          .found = std::string(status.message())});
  }
}

void GrpcCoordinator::HandleHeartbeat(Worker* worker, const proto::Heartbeat& beat,
                                      int64_t now_ns) {
  worker->liveness->Heard(now_ns);
  NoteDeath(*worker);
  if (!std::exchange(worker->has_beaten, true)) {
    counts_.Beat();
    if (counts_.all_have_beaten() || some_are_dismissed_) changed_.NotifyAll();
  }
  if (beat.acts() != worker->progress.acts) worker->progress_ns = now_ns;
  worker->progress = {beat.acts(), beat.done(), beat.activity().substr(0, kActivityBytesMax),
                      beat.resident_bytes()};
  if (beat.ping_sent_ns() == 0 || beat.ping_sent_ns() > now_ns) return;
  worker->clock.Add(beat.ping_sent_ns(), beat.ping_received_ns(), beat.sent_ns(), now_ns);
  if (worker->num_pings < kFirstPings) Ping(worker, now_ns);
}

absl::Status GrpcCoordinator::HandleMessage(WorkerId worker, const std::string& bytes) {
  proto::WorkerMessage message;
  if (!message.ParseFromString(bytes))
    return absl::InvalidArgumentError("a message that does not parse");
  if (!fence_.Admits(message.epoch())) return absl::OkStatus();
  switch (message.kind_case()) {
    case proto::WorkerMessage::kPublish:
      HandlePublish(worker, message.mutable_publish());
      return absl::OkStatus();
    case proto::WorkerMessage::kFetch:
      HandleFetch(worker, message.fetch());
      return absl::OkStatus();
    case proto::WorkerMessage::kAnswer:
      HandleAnswer(worker, message.mutable_answer());
      return absl::OkStatus();
    case proto::WorkerMessage::kEvent:
      if (options_.on_event) {
        hooks_.push_back([this, worker, event = std::move(*message.mutable_event())] {
          options_.on_event(worker, event);
        });
      }
      return absl::OkStatus();
    default: return absl::InvalidArgumentError("a message of no known kind");
  }
}

void GrpcCoordinator::HandlePublish(WorkerId worker, proto::Publish* publish) {
  if (options_.may_publish && !options_.may_publish(worker, publish->key()))
    return Reply(worker, publish->request(), NotItsKey(NameOf(worker), publish->key()), "");
  auto waiters = values_.Publish(worker, publish->key(), publish->value());
  Reply(worker, publish->request(), waiters.status(), "");
  if (!waiters.ok()) return;
  for (const PublishedValues::Waiter& waiter : *waiters)
    Reply(waiter.worker, waiter.request, absl::OkStatus(), publish->value());
}

void GrpcCoordinator::HandleFetch(WorkerId worker, const proto::Fetch& fetch) {
  auto value = values_.Fetch(fetch.key(), {worker, fetch.request()});
  if (!value.ok()) {
    Reply(worker, fetch.request(), value.status(), "");
  } else if (*value != nullptr) {
    Reply(worker, fetch.request(), absl::OkStatus(), **value);
  }
}

void GrpcCoordinator::HandleAnswer(WorkerId worker, proto::Answer* answer) {
  const auto found = calls_.find(answer->call());
  if (found == calls_.end()) return;  // its deadline has passed
  Call* call = found->second;
  if (call->answers[worker].has_value()) return;
  call->answers[worker] = std::move(*answer->mutable_value());
  --call->num_missing;
  call->error.Update(At(NameOf(worker), FromOutcome(answer->outcome())));
  if (call->is_over()) changed_.NotifyAll();
}

void GrpcCoordinator::Ping(Worker* worker, int64_t now_ns) {
  // A ping that waits already will give the same information: this worker reads slowly.
  if (worker->session->outbox.has_urgent()) return;
  ++worker->num_pings;
  proto::CoordinatorFrame frame;
  frame.mutable_ping()->set_sent_ns(now_ns);
  worker->session->outbox.PushUrgent(std::move(frame));
  if (!is_stopping_) worker->session->StartWrite();
}

void GrpcCoordinator::Reply(WorkerId worker, int64_t request, const absl::Status& outcome,
                            const std::string& value) {
  proto::CoordinatorMessage message;
  message.mutable_reply()->set_request(request);
  *message.mutable_reply()->mutable_outcome() = ToOutcome(outcome);
  message.mutable_reply()->set_value(value);
  Send(worker, std::make_shared<const std::string>(message.SerializeAsString()));
}

void GrpcCoordinator::Send(WorkerId index, const Message& message) {
  Worker& worker = workers_[index];
  if (worker.presence != Presence::kConnected) return;
  if (absl::Status status = worker.session->outbox.Push(message); !status.ok()) {
    Lose(index, LostWorker::How::kBroken,
         {.code = "W0603",
          .expected = "it to read what it is sent",
          .found = std::string(status.message())});
    return;
  }
  if (!is_stopping_) worker.session->StartWrite();
}

// --- Calls from outside ---

absl::Status GrpcCoordinator::Unreachable(WorkerId index) const {
  const Worker& worker = workers_[index];
  if (worker.presence == Presence::kLost) return worker.lost_because;
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {.code = "W0603",
       .where = NameOf(index),
       .expected = "it to be connected",
       .found = worker.presence == Presence::kLeft ? "it has left" : "it has not come yet"});
}

std::string GrpcCoordinator::Absent() const {
  std::vector<std::string> names;
  for (const WorkerId w : workers_.ids())
    if (names.size() <= kAbsentNamedMax && !workers_[w].has_beaten && !workers_[w].is_dismissed)
      names.push_back(names.size() < kAbsentNamedMax ? NameOf(w) : "others");
  return absl::StrJoin(names, ", ");
}

absl::Status GrpcCoordinator::WaitForWorkers(int64_t limit_ms) {
  MutexLock lock(&mutex_);
  absl::Status verdict;
  const auto is_decided = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (abort_.has_value()) {
      verdict = WithCode(absl::StatusCode::kAborted, *abort_);
    } else if (is_ending_) {
      verdict = absl::AbortedError("the job has ended");
    } else if (!start_refusal_.ok()) {
      verdict = start_refusal_;
    } else {
      if (!counts_.some_are_gone() && !some_are_dismissed_) return counts_.all_have_beaten();
      bool all_are_here = true;
      for (const WorkerId w : workers_.ids()) {
        const Presence is = workers_[w].presence;
        if (workers_[w].is_dismissed) continue;
        if (is == Presence::kLost || is == Presence::kLeft)
          verdict.Update(WithCode(absl::StatusCode::kUnavailable, Unreachable(w)));
        all_are_here &= is == Presence::kConnected && workers_[w].has_beaten;
      }
      return all_are_here || !verdict.ok();
    }
    return true;
  };
  if (WaitCounted(&changed_, &mutex_, limit_ms, is_decided)) return verdict;
  return NotAllCame(options_.job_id, options_.num_workers, limit_ms, Absent());
}

absl::StatusOr<IdVector<WorkerId, std::string>> GrpcCoordinator::CallAll(const std::string& command,
                                                                         int64_t limit_ms) {
  return Run(std::vector<const std::string*>(1, &command), limit_ms);
}

absl::StatusOr<IdVector<WorkerId, std::string>> GrpcCoordinator::CallEach(
    const IdVector<WorkerId, std::string>& commands, int64_t limit_ms) {
  if (static_cast<int>(commands.size()) != options_.num_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat(commands.size(), " commands for ", options_.num_workers, " workers"));
  }
  std::vector<const std::string*> pointers;
  for (const std::string& command : commands) pointers.push_back(&command);
  return Run(pointers, limit_ms);
}

absl::Status GrpcCoordinator::BeginCall(Call* call, int64_t* id) {
  MutexLock lock(&mutex_);
  *id = next_call_++;
  if (IsOver())
    call->error = absl::AbortedError(abort_.has_value() ? abort_->message() : "the job has ended");
  for (const WorkerId w : workers_.ids()) {
    if (workers_[w].is_dismissed) {
      call->answers[w] = "";
      --call->num_missing;
    } else if (workers_[w].presence != Presence::kConnected)
      call->error.Update(Unreachable(w));
  }
  if (call->error.ok()) calls_[*id] = call;
  return call->error;
}

// Runs one command for all workers, or one command for each.
absl::StatusOr<IdVector<WorkerId, std::string>> GrpcCoordinator::Run(
    const std::vector<const std::string*>& commands, int64_t limit_ms) {
  for (const std::string* command : commands) {
    if (static_cast<int64_t>(command->size()) <= options_.message_bytes_max) continue;
    return TooLarge("a command", options_.message_bytes_max, command->size());
  }
  Call call;
  call.answers.resize(options_.num_workers);
  call.num_missing = options_.num_workers;
  int64_t id = 0;
  WEIR_RETURN_IF_ERROR(BeginCall(&call, &id));
  std::vector<Message> messages;
  for (const std::string* command : commands) {
    proto::CoordinatorMessage message;
    message.mutable_command()->set_call(id);
    message.mutable_command()->set_command(*command);
    messages.push_back(std::make_shared<const std::string>(message.SerializeAsString()));
  }
  MutexLock lock(&mutex_);
  for (const WorkerId w : workers_.ids()) {
    if (!workers_[w].is_dismissed)
      Send(w, messages[messages.size() == 1 ? 0 : static_cast<size_t>(w.value())]);
  }
  messages.clear();
  const auto is_over = [&] { return call.is_over(); };
  const bool in_time = limit_ms == 0 || WaitCounted(&changed_, &mutex_, limit_ms, is_over);
  if (limit_ms == 0) changed_.Wait(&mutex_, is_over);
  calls_.erase(id);
  if (!call.error.ok()) return call.error;
  if (!in_time) {
    std::vector<std::string> silent;
    for (const WorkerId w : workers_.ids()) {
      if (!call.answers[w].has_value()) silent.push_back(NameOf(w));
    }
    return NoAnswerFrom(absl::StrJoin(silent, ", "), limit_ms);
  }
  IdVector<WorkerId, std::string> answers;
  for (auto& answer : call.answers) answers.push_back(std::move(*answer));
  return answers;
}

IdVector<WorkerId, WorkerHealth> GrpcCoordinator::Health() const {
  MutexLock lock(&mutex_);
  const int64_t now_ns = NowNs();
  IdVector<WorkerId, WorkerHealth> all;
  for (const Worker& worker : workers_) {
    WorkerHealth health;
    health.connected = worker.presence == Presence::kConnected;
    if (worker.liveness.has_value()) {
      health.since_heartbeat_ms = worker.liveness->SinceHeardNs(now_ns) / kNsPerMs;
      health.since_progress_ms = (now_ns - worker.progress_ns) / kNsPerMs;
    }
    health.progress = worker.progress;
    health.pid = worker.pid;
    health.clock_offset_ns = worker.clock.offset_ns();
    health.round_trip_ns = worker.clock.round_trip_ns();
    health.last_words = worker.last_words;
    all.push_back(std::move(health));
  }
  return all;
}

void GrpcCoordinator::Abort(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (abort_.has_value()) return;
  abort_ = reason.ok() ? absl::AbortedError("the job was aborted") : reason;
  for (auto& [id, call] : calls_) call->error.Update(WithCode(absl::StatusCode::kAborted, *abort_));
  for (Worker& worker : workers_) {
    if (worker.presence != Presence::kConnected) continue;
    SetPresence(&worker, Presence::kLeft);
    Session* session = std::exchange(worker.session, nullptr);
    session->state = Session::State::kClosed;
    session->outbox.Clear();
    session->outbox.PushLast(EndFrame(*abort_));
    session->awaits_farewell = true;
    if (!is_stopping_) session->StartWrite();
  }
  changed_.NotifyAll();
}

void GrpcCoordinator::BeginEpoch(uint32_t epoch, const std::vector<WorkerId>& anew,
                                 const absl::Status& reason) {
  proto::CoordinatorMessage message;
  message.mutable_new_epoch()->set_epoch(epoch);
  *message.mutable_new_epoch()->mutable_reason() = ToOutcome(reason);
  const Message told = std::make_shared<const std::string>(message.SerializeAsString());
  MutexLock lock(&mutex_);
  if (IsOver()) return;
  fence_.Begin(epoch);
  start_refusal_ = absl::OkStatus();
  values_ = PublishedValues();
  for (auto& [id, call] : calls_)
    call->error.Update(WithCode(absl::StatusCode::kUnavailable, reason));
  for (const WorkerId w : anew) {
    if (Session* const session = workers_[w].session; session != nullptr) {
      session->state = Session::State::kClosed;
      session->outbox.Clear();
      session->Cancel();
    }
    SetPresence(&workers_[w], Presence::kAwaited);
    workers_[w] = Worker();
  }
  for (const WorkerId w : workers_.ids()) Send(w, told);
  changed_.NotifyAll();
}

void GrpcCoordinator::Dismiss(const std::vector<WorkerId>& dismissed) {
  MutexLock lock(&mutex_);
  for (const WorkerId w : dismissed) {
    workers_[w].is_dismissed = true;
    some_are_dismissed_ = true;
    if (workers_[w].presence == Presence::kConnected && !IsOver()) EndInOrder(&workers_[w]);
  }
}

void GrpcCoordinator::Shutdown(int64_t limit_ms) {
  MutexLock lock(&mutex_);
  if (abort_.has_value()) return;
  if (!is_ending_) {
    is_ending_ = true;
    for (auto& [id, call] : calls_) call->error.Update(absl::AbortedError("the job has ended"));
    for (Worker& worker : workers_)
      if (worker.presence == Presence::kConnected && !worker.is_dismissed) EndInOrder(&worker);
    changed_.NotifyAll();
  }
  WaitCounted(&changed_, &mutex_, limit_ms, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return counts_.num_connected() == 0;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(CoordinatorOptions options) {
  WEIR_RETURN_IF_ERROR(CheckOptions(options));
  PrepareGrpc();
  WEIR_ASSIGN_OR_RETURN(auto gate, ConnectionGate::Open(options.bind_address, options.num_workers));
  auto coordinator = std::make_unique<GrpcCoordinator>(std::move(options), std::move(gate));
  WEIR_RETURN_IF_ERROR(coordinator->Open());
  return std::unique_ptr<Coordinator>(std::move(coordinator));
}

}  // namespace weir::control
