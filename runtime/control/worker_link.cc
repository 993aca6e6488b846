#include "runtime/control/worker_link.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/call_errors.h"
#include "runtime/control/command_queue.h"
#include "runtime/control/counted_wait.h"
#include "runtime/control/grpc_setup.h"
#include "runtime/control/liveness.h"
#include "runtime/control/outbox.h"
#include "runtime/control/outcome.h"

namespace weir::control {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr size_t kEventsMax = 1 << 16;
constexpr size_t kCommandsMax = 1 << 10;
constexpr size_t kActivityBytesMax = 4 << 10;
constexpr size_t kKeyShownBytes = 64;
// The time for last words to reach a coordinator that has just spoken.
constexpr int64_t kFarewellMs = 2'000;
// The link sleeps until an event comes if it has nothing to watch.
constexpr int64_t kIdleMs = 3'600'000;
// The pause between attempts to reach a coordinator that does not answer.
constexpr int64_t kFirstRetryMs = 10;
constexpr int64_t kRetryMsMax = 500;
// Under TLS 1.3 a party learns that its certificate is refused by a connection that opens and
// closes. A single such connection may have other reasons.
constexpr int kHangUpsMax = 3;
constexpr char kNoAnswer[] = "no answer";

int64_t NowNs() { return MonotonicClock().NowNs(); }

class GrpcWorkerLink final : public WorkerLink {
 public:
  explicit GrpcWorkerLink(WorkerLinkOptions options);
  ~GrpcWorkerLink() override;
  // Makes one attempt to connect. kUnavailable if another attempt may help.
  absl::Status Open(int64_t limit_ms);

  absl::Status Serve(const Handler& handler) override;
  void Send(std::string event) override;
  absl::Status Publish(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Fetch(const std::string& key) override;
  absl::Status JobStatus() override;
  std::unique_ptr<transport::Exchange> ExchangeOf(uint32_t epoch) override;

 private:
  class EpochExchange;
  enum class Operation : intptr_t { kStart = 1, kRead, kWrite, kFinish };
  using Commands = CommandQueue<std::string>;
  // A Request is a publish or fetch under way.
  struct Request {
    std::optional<absl::StatusOr<std::string>> reply;
  };

  void Run();
  void HandleDone(Operation operation, bool ok, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleFrame(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status HandleMessage(const std::string& bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the link still beats: until it has left, or the job is aborted.
  bool Beats() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_welcome_ && !is_closed_ && !is_leaving_ && (!end_.has_value() || end_->ok());
  }
  bool IsDue(int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Beats() && (ping_to_answer_.has_value() || now_ns >= next_beat_ns_);
  }
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  void CheckCoordinator(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t ExcuseMs() const { return options_.excuse_ms ? options_.excuse_ms() : 0; }
  int64_t NextWakeNs(int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void StartRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Push(const proto::WorkerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(std::string words, int64_t limit_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string LastWords(const absl::Status& reason) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<Commands::Command> NextCommand() ABSL_LOCKS_EXCLUDED(mutex_);
  // nullopt: the present epoch.
  absl::StatusOr<std::string> Ask(proto::WorkerMessage message, const std::string& key,
                                  std::optional<uint32_t> epoch);
  absl::Status PublishIn(std::optional<uint32_t> epoch, const std::string& key,
                         const std::string& value);
  absl::StatusOr<std::string> FetchIn(std::optional<uint32_t> epoch, const std::string& key);
  absl::Status JobStatusIn(uint32_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EpochEnded(const std::string& where) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleEpoch(const proto::NewEpoch& epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status JobEnded(const std::string& where) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WorkerLinkOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<proto::ControlPlane::Stub> stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::thread thread_;
  Attention attention_;               // the thread's
  proto::CoordinatorFrame incoming_;  // of the read under way, or the thread's

  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<proto::WorkerFrame, proto::CoordinatorFrame>>
      stream_ ABSL_GUARDED_BY(mutex_);
  bool starting_ ABSL_GUARDED_BY(mutex_) = false;  // operations under way
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;    // the call is over; no operation may follow
  grpc::Status call_status_ ABSL_GUARDED_BY(mutex_);  // how the call ended
  bool is_welcome_ ABSL_GUARDED_BY(mutex_) = false;
  Outbox<proto::WorkerFrame> outbox_ ABSL_GUARDED_BY(mutex_);
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  std::optional<Liveness> coordinator_ ABSL_GUARDED_BY(mutex_);
  int64_t next_beat_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  struct ReceivedPing {
    int64_t sent_ns;
    int64_t received_ns;
  };
  std::optional<ReceivedPing> ping_to_answer_ ABSL_GUARDED_BY(mutex_);
  Commands commands_ ABSL_GUARDED_BY(mutex_);  // in the epoch of the job
  std::map<int64_t, Request> requests_ ABSL_GUARDED_BY(mutex_);
  int64_t next_request_ ABSL_GUARDED_BY(mutex_) = 1;
  // The epoch that on_epoch is to be told, and why it has begun.
  std::optional<std::pair<uint32_t, absl::Status>> owed_epoch_ ABSL_GUARDED_BY(mutex_);
  absl::Status epoch_because_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // of the job: OK if orderly
  // The coordinator has aborted the job, and awaits the farewell.
  bool is_dismissed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_owed_abort_ ABSL_GUARDED_BY(mutex_) = false;  // on_abort is to be called
};

GrpcWorkerLink::GrpcWorkerLink(WorkerLinkOptions options)
    : options_(std::move(options)),
      attention_(std::max<int64_t>(options_.heartbeat_ms * kNsPerMs / 4, 2 * kNsPerMs)),
      outbox_(kEventsMax, 2 * (options_.message_bytes_max + kMessageOverheadBytes)),
      inbox_(options_.message_bytes_max + kMessageOverheadBytes),
      commands_(options_.epoch) {}

absl::Status GrpcWorkerLink::Open(int64_t limit_ms) {
  proto::Hello hello;
  hello.set_job_id(options_.job_id);
  hello.set_epoch(options_.epoch);
  hello.set_worker(options_.worker.value());
  hello.set_build_id(options_.build_id);
  hello.set_pid(getpid());
  channel_ = ChannelTo(options_.coordinator_address, options_.job_id, options_.credentials);
  stub_ = proto::ControlPlane::NewStub(channel_);
  context_.AddMetadata(kHelloKey, hello.SerializeAsString());
  {
    MutexLock lock(&mutex_);
    stream_ = stub_->PrepareAsyncWork(&context_, &queue_);
    starting_ = true;
    stream_->StartCall(reinterpret_cast<void*>(Operation::kStart));
  }
  thread_ = std::thread([this] { Run(); });
  MutexLock lock(&mutex_);
  WaitCounted(&changed_, &mutex_, limit_ms, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_welcome_ || is_closed_ || end_.has_value();
  });
  if (is_welcome_) return absl::OkStatus();
  if (end_.has_value())
    return end_->ok() ? absl::CancelledError("the job has ended")
                      : WithCode(absl::StatusCode::kAborted, *end_);
  return is_closed_ ? FromGrpc(call_status_)
                    : absl::UnavailableError(absl::StrCat(kNoAnswer, " within ", limit_ms, " ms"));
}

GrpcWorkerLink::~GrpcWorkerLink() {
  if (!thread_.joinable()) {
    queue_.Shutdown();
    return;
  }
  {
    MutexLock lock(&mutex_);
    if (end_.has_value() && end_->ok()) Leave("", options_.coordinator_dead_after_ms);
    if (!end_.has_value()) end_ = absl::CancelledError("the link is gone");
    is_owed_abort_ = false;
    Cut();
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return is_closed_ && !starting_ && !reading_ && !writing_ && !finishing_;
    });
  }
  queue_.Shutdown();
  thread_.join();
}

// --- The link's thread ---

void GrpcWorkerLink::Run() {
  while (true) {
    int64_t wake_ns;
    {
      MutexLock lock(&mutex_);
      const int64_t now_ns = NowNs();
      wake_ns = NextWakeNs(now_ns);
      attention_.Sleeps(now_ns, wake_ns);
    }
    void* tag = nullptr;
    bool ok = false;
    const auto got = queue_.AsyncNext(&tag, &ok, MonotonicDeadline(wake_ns));
    if (got == grpc::CompletionQueue::SHUTDOWN) return;
    std::optional<absl::Status> abort;
    std::optional<std::pair<uint32_t, absl::Status>> epoch;
    bool is_due;
    {
      MutexLock lock(&mutex_);
      const int64_t now_ns = NowNs();
      const int64_t lost_ns = attention_.Woke(now_ns);
      if (coordinator_.has_value() && lost_ns > 0) coordinator_->Grant(lost_ns);
      if (got == grpc::CompletionQueue::GOT_EVENT) {
        HandleDone(static_cast<Operation>(reinterpret_cast<intptr_t>(tag)), ok, now_ns);
      } else {
        CheckCoordinator(now_ns);
      }
      if (std::exchange(is_owed_abort_, false)) abort = *end_;
      epoch = std::exchange(owed_epoch_, std::nullopt);
      is_due = IsDue(now_ns);
    }
    if (epoch.has_value() && options_.on_epoch) options_.on_epoch(epoch->first, epoch->second);
    if (abort.has_value() && options_.on_abort) options_.on_abort(*abort);
    if (is_due) Beat();
  }
}

int64_t GrpcWorkerLink::NextWakeNs(int64_t now_ns) const {
  if (!Beats()) return now_ns + kIdleMs * kNsPerMs;
  if (ping_to_answer_.has_value()) return now_ns;
  const int64_t dies_ns = end_.has_value() ? next_beat_ns_ : coordinator_->dies_ns();
  return std::max(now_ns, std::min(next_beat_ns_, dies_ns));
}

void GrpcWorkerLink::HandleDone(Operation operation, bool ok, int64_t now_ns) {
  switch (operation) {
    case Operation::kStart: starting_ = false; break;
    case Operation::kRead:
      reading_ = false;
      if (ok) HandleFrame(now_ns);
      break;
    case Operation::kWrite:
      writing_ = false;
      if (ok) StartWrite();
      break;
    case Operation::kFinish:
      finishing_ = false;
      HandleClosed();
      break;
  }
  if (operation == Operation::kStart || operation == Operation::kRead) {
    if (ok) {
      StartRead();
    } else {
      finishing_ = true;
      stream_->Finish(&call_status_, reinterpret_cast<void*>(Operation::kFinish));
    }
  }
  changed_.NotifyAll();
}

void GrpcWorkerLink::HandleClosed() {
  is_closed_ = true;
  if (!is_welcome_) return;
  End(ErrorOf(absl::StatusCode::kUnavailable,
              {.code = "W0609",
               .where = absl::StrCat("worker ", options_.worker),
               .expected = absl::StrCat("the coordinator at ", options_.coordinator_address,
                                        " until the job ends"),
               .found = absl::StrCat("its connection closed: ", call_status_.error_message())}));
}

void GrpcWorkerLink::CheckCoordinator(int64_t now_ns) {
  if (!coordinator_.has_value() || end_.has_value() || !coordinator_->IsOverdue(now_ns)) return;
  if (!coordinator_->Judge(now_ns, ExcuseMs() * kNsPerMs)) return;
  End(ErrorOf(
      absl::StatusCode::kUnavailable,
      {.code = "W0609",
       .where = absl::StrCat("worker ", options_.worker),
       .expected = absl::StrCat("a word from the coordinator within ",
                                options_.coordinator_dead_after_ms, " ms"),
       .found = absl::StrCat("none for ", coordinator_->SinceHeardNs(now_ns) / kNsPerMs, " ms")}));
  Cut();
}

void GrpcWorkerLink::HandleFrame(int64_t now_ns) {
  absl::Status status;
  if (coordinator_.has_value()) coordinator_->Heard(now_ns);
  switch (incoming_.kind_case()) {
    case proto::CoordinatorFrame::kPing:
      if (!is_welcome_) {
        is_welcome_ = true;
        coordinator_.emplace(now_ns, options_.coordinator_dead_after_ms * kNsPerMs);
      }
      ping_to_answer_ = {incoming_.ping().sent_ns(), now_ns};
      return;
    case proto::CoordinatorFrame::kEnd:
      End(FromOutcome(incoming_.end().outcome()));
      // After an abort no other message goes before the farewell.
      if (!end_->ok()) {
        is_dismissed_ = true;
        outbox_.Clear();
      }
      return;
    case proto::CoordinatorFrame::kPiece: {
      auto message = inbox_.Add(incoming_.piece());
      status = message.status();
      if (message.ok() && message->has_value()) status = HandleMessage(**message);
      break;
    }
    default: status = absl::InvalidArgumentError("a frame of no known kind");
  }
  if (!status.ok()) {
    End(ErrorOf(absl::StatusCode::kUnavailable, {.code = "W0609",
                                                 .where = absl::StrCat("worker ", options_.worker),
                                                 .expected = "messages of the control plane",
                                                 .found = std::string(status.message())}));
    Cut();
  }
}

absl::Status GrpcWorkerLink::HandleMessage(const std::string& bytes) {
  proto::CoordinatorMessage message;
  if (!message.ParseFromString(bytes))
    return absl::InvalidArgumentError("a message that does not parse");
  if (message.has_command()) {
    if (commands_.size() >= kCommandsMax)
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kCommandsMax, " commands"));
    commands_.Push(message.command().call(),
                   std::move(*message.mutable_command()->mutable_command()));
    return absl::OkStatus();
  }
  if (message.has_new_epoch()) {
    HandleEpoch(message.new_epoch());
    return absl::OkStatus();
  }
  if (!message.has_reply()) return absl::InvalidArgumentError("a message of no known kind");
  const auto found = requests_.find(message.reply().request());
  if (found == requests_.end()) return absl::OkStatus();  // its deadline has passed
  const absl::Status outcome = FromOutcome(message.reply().outcome());
  if (outcome.ok()) {
    found->second.reply = std::move(*message.mutable_reply()->mutable_value());
  } else {
    found->second.reply = outcome;
  }
  return absl::OkStatus();
}

void GrpcWorkerLink::HandleEpoch(const proto::NewEpoch& epoch) {
  commands_.BeginEpoch(epoch.epoch());
  epoch_because_ = WithCode(absl::StatusCode::kUnavailable, FromOutcome(epoch.reason()));
  owed_epoch_ = {commands_.epoch(), epoch_because_};
  for (auto& [number, request] : requests_) {
    if (!request.reply.has_value()) request.reply = EpochEnded(absl::StrCat("request ", number));
  }
  changed_.NotifyAll();
}

void GrpcWorkerLink::Beat() {
  WorkerProgress progress;
  if (options_.progress) progress = options_.progress();
  MutexLock lock(&mutex_);
  const int64_t now_ns = NowNs();
  next_beat_ns_ = now_ns + options_.heartbeat_ms * kNsPerMs;
  const auto ping = std::exchange(ping_to_answer_, std::nullopt);
  if (outbox_.has_urgent()) return;  // the last frame still waits: the connection is slow
  proto::WorkerFrame frame;
  proto::Heartbeat* beat = frame.mutable_heartbeat();
  beat->set_acts(progress.acts);
  beat->set_done(progress.done);
  beat->set_activity(progress.activity.substr(0, kActivityBytesMax));
  beat->set_resident_bytes(progress.resident_bytes);
  if (ping.has_value()) {
    beat->set_ping_sent_ns(ping->sent_ns);
    beat->set_ping_received_ns(ping->received_ns);
  }
  beat->set_sent_ns(now_ns);
  outbox_.PushUrgent(std::move(frame));
  StartWrite();
}

// --- The stream ---

void GrpcWorkerLink::StartRead() {
  if (is_closed_ || finishing_) return;
  reading_ = true;
  stream_->Read(&incoming_, reinterpret_cast<void*>(Operation::kRead));
}

void GrpcWorkerLink::StartWrite() {
  if (is_closed_ || finishing_ || writing_) return;
  auto frame = outbox_.Next();
  if (!frame.has_value()) return;
  writing_ = true;
  stream_->Write(*frame, reinterpret_cast<void*>(Operation::kWrite));
}

void GrpcWorkerLink::Push(const proto::WorkerMessage& message) {
  if (absl::Status status =
          outbox_.Push(std::make_shared<const std::string>(message.SerializeAsString()));
      !status.ok()) {
    End(ErrorOf(absl::StatusCode::kResourceExhausted,
                {.code = "W0610",
                 .where = absl::StrCat("worker ", options_.worker),
                 .expected = "the coordinator to take what it is sent",
                 .found = std::string(status.message()),
                 .hint = "fewer events"}));
    Cut();
    return;
  }
  StartWrite();
}

// Ends the job for this worker; the first reason stays.
void GrpcWorkerLink::End(const absl::Status& reason) {
  if (end_.has_value()) return;
  end_ = reason;
  is_owed_abort_ = !reason.ok();
  changed_.NotifyAll();
}

// Makes all operations under way on the stream fail soon.
void GrpcWorkerLink::Cut() {
  if (!is_closed_) context_.TryCancel();
}

// Sends the notice that this worker knows of the end and leaves, behind the messages that wait.
// Returns once the coordinator has all of them, or when the limit is used up.
void GrpcWorkerLink::Leave(std::string words, int64_t limit_ms) {
  if (!std::exchange(is_leaving_, true)) {
    proto::WorkerFrame frame;
    frame.mutable_leave()->set_words(std::move(words));
    outbox_.PushLast(std::move(frame));
    StartWrite();
  }
  changed_.WaitFor(&mutex_, limit_ms,
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_closed_; });
}

std::string GrpcWorkerLink::LastWords(const absl::Status& reason) const {
  std::string words = options_.last_words ? options_.last_words(reason) : "";
  return words.size() <= kLastWordsBytesMax ? words : "";
}

// --- Calls from outside ---

absl::Status GrpcWorkerLink::Serve(const Handler& handler) {
  while (std::optional<Commands::Command> command = NextCommand()) {
    absl::StatusOr<std::string> answer = handler(command->content);
    command->content = std::string();
    if (answer.ok() && static_cast<int64_t>(answer->size()) > options_.message_bytes_max) {
      answer = ErrorOf(absl::StatusCode::kResourceExhausted,
                       {.code = "W0613",
                        .where = "an answer",
                        .expected = absl::StrCat("at most ", options_.message_bytes_max, " bytes"),
                        .found = absl::StrCat(answer->size())});
    }
    proto::WorkerMessage message;
    message.set_epoch(command->epoch);
    message.mutable_answer()->set_call(command->call);
    *message.mutable_answer()->mutable_outcome() = ToOutcome(answer.status());
    if (answer.ok()) message.mutable_answer()->set_value(*std::move(answer));
    MutexLock lock(&mutex_);
    if (!end_.has_value() || end_->ok()) Push(message);
  }
  absl::Status end;
  bool is_dismissed = false;
  {
    MutexLock lock(&mutex_);
    end = *end_;
    is_dismissed = is_dismissed_;
    if (end.ok()) Leave("", options_.coordinator_dead_after_ms);
  }
  if (is_dismissed) {
    std::string words = LastWords(end);
    MutexLock lock(&mutex_);
    const int64_t limit_ms = words.empty() ? 0 : kFarewellMs;
    Leave(std::move(words), limit_ms);
  }
  return end;
}

// Waits for the next command; absent once the job has ended.
std::optional<GrpcWorkerLink::Commands::Command> GrpcWorkerLink::NextCommand() {
  MutexLock lock(&mutex_);
  changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || !commands_.empty();
  });
  if (end_.has_value()) return std::nullopt;
  return commands_.Pop();
}

void GrpcWorkerLink::Send(std::string event) {
  proto::WorkerMessage message;
  message.set_event(std::move(event));
  MutexLock lock(&mutex_);
  message.set_epoch(commands_.epoch());
  if (!end_.has_value() || end_->ok()) Push(message);
}

// The exchange of ranks that work in one epoch.
class GrpcWorkerLink::EpochExchange final : public transport::Exchange {
 public:
  EpochExchange(GrpcWorkerLink* link, uint32_t epoch) : link_(link), epoch_(epoch) {}
  absl::Status Publish(const std::string& key, const std::string& value) override {
    return link_->PublishIn(epoch_, key, value);
  }
  absl::StatusOr<std::string> Fetch(const std::string& key) override {
    return link_->FetchIn(epoch_, key);
  }
  absl::Status JobStatus() override { return link_->JobStatusIn(epoch_); }

 private:
  GrpcWorkerLink* const link_;
  const uint32_t epoch_;
};

std::unique_ptr<transport::Exchange> GrpcWorkerLink::ExchangeOf(uint32_t epoch) {
  return std::make_unique<EpochExchange>(this, epoch);
}

absl::Status GrpcWorkerLink::Publish(const std::string& key, const std::string& value) {
  return PublishIn(std::nullopt, key, value);
}

absl::StatusOr<std::string> GrpcWorkerLink::Fetch(const std::string& key) {
  return FetchIn(std::nullopt, key);
}

absl::Status GrpcWorkerLink::PublishIn(std::optional<uint32_t> epoch, const std::string& key,
                                       const std::string& value) {
  if (static_cast<int64_t>(value.size()) > options_.message_bytes_max) {
    return TooLarge(absl::StrCat("key '", key.substr(0, kKeyShownBytes), "'"),
                    options_.message_bytes_max, value.size());
  }
  proto::WorkerMessage message;
  message.mutable_publish()->set_key(key);
  message.mutable_publish()->set_value(value);
  return Ask(std::move(message), key, epoch).status();
}

absl::StatusOr<std::string> GrpcWorkerLink::FetchIn(std::optional<uint32_t> epoch,
                                                    const std::string& key) {
  proto::WorkerMessage message;
  message.mutable_fetch()->set_key(key);
  return Ask(std::move(message), key, epoch);
}

absl::Status GrpcWorkerLink::JobStatus() {
  MutexLock lock(&mutex_);
  return end_.has_value() ? JobEnded(absl::StrCat("worker ", options_.worker)) : absl::OkStatus();
}

absl::Status GrpcWorkerLink::JobStatusIn(uint32_t epoch) {
  MutexLock lock(&mutex_);
  const std::string where = absl::StrCat("worker ", options_.worker);
  if (end_.has_value()) return JobEnded(where);
  return epoch == commands_.epoch() ? absl::OkStatus() : EpochEnded(where);
}

// Returns the error for calls of an old epoch.
absl::Status GrpcWorkerLink::EpochEnded(const std::string& where) const {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {.code = "W0758",
                  .where = where,
                  .expected = "ranks of the present epoch",
                  .found = absl::StrCat("the job is in epoch ", commands_.epoch(), ": ",
                                        epoch_because_.message())});
}

// Returns the error for calls after the end of the job.
absl::Status GrpcWorkerLink::JobEnded(const std::string& where) const {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {.code = "W0609",
                  .where = where,
                  .expected = "a job that runs",
                  .found = end_->ok() ? "its end" : std::string(end_->message())});
}

// Sends a publish or fetch, and waits for the reply.
absl::StatusOr<std::string> GrpcWorkerLink::Ask(proto::WorkerMessage message,
                                                const std::string& key,
                                                std::optional<uint32_t> epoch) {
  MutexLock lock(&mutex_);
  const std::string where = absl::StrCat("key '", key.substr(0, kKeyShownBytes), "'");
  if (epoch.has_value() && *epoch != commands_.epoch()) return EpochEnded(where);
  message.set_epoch(commands_.epoch());
  const int64_t request = next_request_++;
  if (message.has_publish()) message.mutable_publish()->set_request(request);
  if (message.has_fetch()) message.mutable_fetch()->set_request(request);
  const auto entry = requests_.emplace(request, Request()).first;
  if (!end_.has_value()) Push(message);
  const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || entry->second.reply.has_value();
  };
  int64_t limit_ms = options_.fetch_limit_ms;
  // A coordinator that was excused at the last look has its time anew, as in Liveness::Judge.
  bool was_excused = false;
  while (limit_ms > 0 && !WaitCounted(&changed_, &mutex_, limit_ms, is_over)) {
    limit_ms = ExcuseMs();
    const bool is_excused = limit_ms > 0;
    if (!is_excused && was_excused) limit_ms = options_.coordinator_dead_after_ms;
    was_excused = is_excused;
  }
  const auto reply = std::move(entry->second.reply);
  requests_.erase(entry);
  if (reply.has_value()) return *reply;
  if (end_.has_value()) return JobEnded(where);
  return ErrorOf(absl::StatusCode::kDeadlineExceeded,
                 {.code = "W0611",
                  .where = where,
                  .expected = absl::StrCat("an answer within ", options_.fetch_limit_ms, " ms"),
                  .found = "none",
                  .hint = "which worker should have published it"});
}

// The meaning of the text of a failed attempt to connect; gRPC gives the reason only in that text.
enum class Failure { kNobodyThere, kHungUp, kNotTrusted };
Failure FailureOf(const std::string& text) {
  if (absl::StrContains(text, "Ssl handshake failed") || absl::StrContains(text, "Peer name"))
    return Failure::kNotTrusted;
  if (absl::StrContains(text, "Failed to connect to remote host") ||
      absl::StrContains(text, "timed out") || absl::StrContains(text, kNoAnswer))
    return Failure::kNobodyThere;
  return Failure::kHungUp;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerLink>> WorkerLink::Connect(WorkerLinkOptions options) {
  PrepareGrpc();
  int64_t deadline_ns = NowNs() + options.connect_limit_ms * kNsPerMs;
  int64_t retry_ms = kFirstRetryMs;
  int num_hung_up = 0;
  while (true) {
    auto link = std::make_unique<GrpcWorkerLink>(options);
    const int64_t left_ms = std::max<int64_t>((deadline_ns - NowNs()) / kNsPerMs, 1);
    const absl::Status status = link->Open(left_ms);
    if (status.ok()) return std::unique_ptr<WorkerLink>(std::move(link));
    link.reset();
    if (status.code() != absl::StatusCode::kUnavailable) return status;
    const std::string text(status.message());
    const Failure failure = FailureOf(text);
    if (failure == Failure::kHungUp) ++num_hung_up;
    if (failure == Failure::kNotTrusted || num_hung_up == kHangUpsMax) {
      return ErrorOf(absl::StatusCode::kPermissionDenied,
                     {.code = "W0606",
                      .where = absl::StrCat("worker ", options.worker),
                      .expected = absl::StrCat("the coordinator of job ", options.job_id, " at ",
                                               options.coordinator_address),
                      .found = absl::StrCat(failure == Failure::kNotTrusted
                                                ? "one that is not trusted: "
                                                : "one that does not trust this worker: ",
                                            text)});
    }
    if (NowNs() + retry_ms * kNsPerMs >= deadline_ns && options.excuse_ms) {
      deadline_ns = std::max(deadline_ns, NowNs() + options.excuse_ms() * kNsPerMs);
    }
    if (NowNs() + retry_ms * kNsPerMs >= deadline_ns) {
      return ErrorOf(absl::StatusCode::kUnavailable,
                     {.code = "W0608",
                      .where = absl::StrCat("worker ", options.worker),
                      .expected = absl::StrCat("a coordinator at ", options.coordinator_address,
                                               " within ", options.connect_limit_ms, " ms"),
                      .found = text});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(retry_ms));
    retry_ms = std::min(2 * retry_ms, kRetryMsMax);
  }
}

}  // namespace weir::control
