#include "runtime/collective/nccl_collective.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/collective/operation_check.h"

namespace weir::collective {
namespace {

// A communicator waits when so many of its operations are in flight; NCCL's proxies take 2,048.
constexpr size_t kInFlightMax = 512;
constexpr auto kNap = std::chrono::microseconds(50);

NcclDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return NcclDataType::kFloat32;
    case DType::kBF16: return NcclDataType::kBfloat16;
    case DType::kF16: return NcclDataType::kFloat16;
    case DType::kI32: return NcclDataType::kInt32;
    case DType::kBool: break;
  }
  return NcclDataType::kUint8;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclLibrary& library, const CommunicatorSpec& spec)
      : nccl_(library.functions()), spec_(spec) {}
  ~NcclCommunicator() override {
    if (comm_ == nullptr) return;
    // A communicator without operations ends in order. NCCL ends others by an abort.
    const bool is_idle = spec_.marks != nullptr && error_.ok() && in_flight_.empty();
    if (is_idle && Poll("ncclCommFinalize", nccl_.CommFinalize(comm_)).ok() && comm_ != nullptr)
      nccl_.CommDestroy(std::exchange(comm_, nullptr));
    Abort();
  }

  absl::Status Connect() {
    NcclUniqueId id;
    if (spec_.unique_id.size() != sizeof(id))
      return Failure("an id of NCCL", absl::StrCat(spec_.unique_id.size(), " bytes"));
    std::memcpy(&id, spec_.unique_id.data(), sizeof(id));
    NcclConfig config;
    config.blocking = 0;
    return Poll("ncclCommInitRankConfig",
                nccl_.CommInitRankConfig(&comm_, spec_.size(), id, spec_.rank, &config));
  }

  const CommunicatorSpec& spec() const override { return spec_; }

  absl::Status Run(const Operation& operation, device::CudaStream stream) override {
    WEIR_RETURN_IF_ERROR(CheckOperation(spec_, operation));
    return Issue(Text(operation), BytesOf(operation, spec_.size()), stream,
                 [&](NcclStream* nccl_stream) { return Enqueue(operation, nccl_stream); });
  }

  absl::Status SendReceive(const Moves& moves, device::CudaStream stream) override {
    WEIR_RETURN_IF_ERROR(CheckMoves(spec_, moves));
    return Issue(Text(moves), BytesOf(moves), stream,
                 [&](NcclStream* nccl_stream) { return Enqueue(moves, nccl_stream); });
  }

  absl::Status AsyncError() override {
    WEIR_RETURN_IF_ERROR(CheckThread());
    if (!error_.ok()) return error_;
    NcclResult result = NcclResult::kSuccess;
    const NcclResult asked = nccl_.CommGetAsyncError(comm_, &result);
    if (asked != NcclResult::kSuccess) return Fail("ncclCommGetAsyncError", asked);
    if (result != NcclResult::kSuccess && result != NcclResult::kInProgress)
      return Fail("an operation", result);
    return Watch();
  }

  void Abort() override {
    if (error_.ok())
      error_ = Failure("a communicator that its rank has not aborted", "an abort by this rank");
    for (const InFlight& operation : in_flight_) spec_.marks->Drop(operation.mark);
    in_flight_.clear();
    if (comm_ != nullptr) nccl_.CommAbort(std::exchange(comm_, nullptr));
  }

 private:
  struct InFlight {
    int64_t number = 0;
    int64_t mark = 0;
    int64_t issued_ns = 0;
    std::string text;
    int64_t bytes = 0;
  };

  absl::Status Failure(const std::string& expected, const std::string& found) const {
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {.code = "W0952", .where = Place(spec_), .expected = expected, .found = found});
  }
  // The first error stays, and ends what NCCL does for this communicator.
  absl::Status Keep(const absl::Status& status) {
    if (error_.ok()) error_ = status;
    Abort();
    return error_;
  }
  absl::Status Fail(const std::string& call, NcclResult result) {
    const char* const detail = nccl_.GetLastError(comm_);
    return Keep(Failure(absl::StrCat(call, " of NCCL to succeed"),
                        absl::StrCat(nccl_.GetErrorString(result), " (", static_cast<int>(result),
                                     ")", detail == nullptr || *detail == '\0' ? "" : ": ",
                                     detail == nullptr ? "" : detail)));
  }

  absl::Status CheckThread() const {
    if (std::this_thread::get_id() == thread_) return absl::OkStatus();
    return ErrorOf(absl::StatusCode::kInternal,
                   {.code = "W0951",
                    .where = Place(spec_),
                    .expected = "calls from the thread that made the communicator",
                    .found = "a call from another thread"});
  }

  // Waits until NCCL has done what `result` is the beginning of.
  absl::Status Poll(const std::string& call, NcclResult result) {
    const int64_t end_ns = clock_.NowNs() + spec_.limit_ms * 1'000'000;
    while (result == NcclResult::kInProgress) {
      if (spec_.stop != nullptr && spec_.stop->load(std::memory_order_relaxed))
        return Keep(Failure(absl::StrCat("the end of ", call), "the caller's wish to stop"));
      if (clock_.NowNs() >= end_ns)
        return Keep(Failure(absl::StrCat(call, " to end within ", spec_.limit_ms, " ms"),
                            "it is still in progress, so a rank of the group has not come"));
      std::this_thread::sleep_for(kNap);
      const NcclResult asked = nccl_.CommGetAsyncError(comm_, &result);
      if (asked != NcclResult::kSuccess) result = asked;
    }
    return result == NcclResult::kSuccess ? absl::OkStatus() : Fail(call, result);
  }

  absl::Status Issue(const std::string& text, int64_t bytes, device::CudaStream stream,
                     const std::function<NcclResult(NcclStream*)>& enqueue) {
    WEIR_RETURN_IF_ERROR(CheckThread());
    if (!error_.ok()) return error_;
    WEIR_RETURN_IF_ERROR(AwaitRoom());
    const int64_t number = num_issued_++;
    WEIR_RETURN_IF_ERROR(Poll(absl::StrCat("operation ", number, " (", text, ")"),
                              enqueue(static_cast<NcclStream*>(stream.handle))));
    if (spec_.marks == nullptr) return absl::OkStatus();
    const absl::StatusOr<int64_t> mark = spec_.marks->Mark(stream);
    if (!mark.ok()) return Keep(At(Place(spec_), mark.status()));
    in_flight_.push_back({number, *mark, clock_.NowNs(), text, bytes});
    return absl::OkStatus();
  }

  NcclResult Enqueue(const Operation& operation, NcclStream* stream) {
    if (operation.count == 0) return NcclResult::kSuccess;  // on all ranks
    const NcclDataType type = TypeOf(operation.dtype);
    const NcclRedOp op = operation.combiner == Combiner::kSum ? NcclRedOp::kSum : NcclRedOp::kMax;
    const size_t count = operation.count;
    switch (operation.kind) {
      case Operation::Kind::kAllReduce:
        return nccl_.AllReduce(operation.from, operation.to, count, type, op, comm_, stream);
      case Operation::Kind::kReduceScatter:
        return nccl_.ReduceScatter(operation.from, operation.to, count, type, op, comm_, stream);
      case Operation::Kind::kAllGather:
        return nccl_.AllGather(operation.from, operation.to, count, type, comm_, stream);
      case Operation::Kind::kAllToAll: break;
    }
    const int64_t block = operation.count * SizeOf(operation.dtype);
    std::vector<SendMove> sends;
    std::vector<ReceiveMove> receives;
    for (int peer = 0; peer < spec_.size(); ++peer) {
      sends.push_back({peer, operation.count, operation.from + peer * block});
      receives.push_back({peer, operation.count, operation.to + peer * block});
    }
    return Enqueue(Moves{operation.dtype, sends, receives}, stream);
  }

  NcclResult Enqueue(const Moves& moves, NcclStream* stream) {
    const NcclDataType type = TypeOf(moves.dtype);
    NcclResult result = nccl_.GroupStart();
    if (result != NcclResult::kSuccess) return result;
    // Calls of a group begin at its end, and their errors come from there.
    const auto note = [&result](NcclResult next) {
      if (result == NcclResult::kSuccess && next != NcclResult::kInProgress) result = next;
    };
    for (const SendMove& send : moves.sends) {
      if (send.count > 0)
        note(nccl_.Send(send.from, send.count, type, send.to_rank, comm_, stream));
    }
    for (const ReceiveMove& receive : moves.receives) {
      if (receive.count > 0)
        note(nccl_.Recv(receive.to, receive.count, type, receive.from_rank, comm_, stream));
    }
    const NcclResult ended = nccl_.GroupEnd();
    return result == NcclResult::kSuccess ? ended : result;
  }

  // Forgets the operations that have ended, and returns an error if the oldest other is overdue.
  absl::Status Watch() {
    while (!in_flight_.empty()) {
      const InFlight& oldest = in_flight_.front();
      const absl::StatusOr<bool> is_past = spec_.marks->IsPast(oldest.mark);
      if (!is_past.ok()) return Keep(At(Place(spec_), is_past.status()));
      if (!*is_past) {
        const int64_t waited_ms = (clock_.NowNs() - oldest.issued_ns) / 1'000'000;
        if (spec_.overdue_ms == 0 || waited_ms < spec_.overdue_ms) return absl::OkStatus();
        return Keep(Overdue(spec_, oldest.number, oldest.text, oldest.bytes, waited_ms));
      }
      in_flight_.pop_front();
    }
    return absl::OkStatus();
  }

  absl::Status AwaitRoom() {
    while (in_flight_.size() >= kInFlightMax) {
      WEIR_RETURN_IF_ERROR(AsyncError());
      if (spec_.stop != nullptr && spec_.stop->load(std::memory_order_relaxed))
        return Keep(Failure("operations in flight to end", "the caller's wish to stop"));
      if (in_flight_.size() >= kInFlightMax) std::this_thread::sleep_for(kNap);
    }
    return absl::OkStatus();
  }

  const NcclFunctions nccl_;
  const CommunicatorSpec spec_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const MonotonicClock clock_;
  NcclComm* comm_ = nullptr;
  absl::Status error_;
  int64_t num_issued_ = 0;
  std::deque<InFlight> in_flight_;  // only with marks; oldest first
};

}  // namespace

std::string NcclCollectives::name() const {
  return absl::StrCat("NCCL ", NcclVersionText(library_.version()), " of ", library_.path());
}

absl::StatusOr<std::string> NcclCollectives::NewUniqueId() {
  NcclUniqueId id;
  const NcclResult result = library_.functions().GetUniqueId(&id);
  if (result == NcclResult::kSuccess) return std::string(id.internal, sizeof(id.internal));
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {.code = "W0952",
                  .where = name(),
                  .expected = "ncclGetUniqueId to succeed",
                  .found = absl::StrCat(library_.functions().GetErrorString(result), ": ",
                                        library_.functions().GetLastError(nullptr))});
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclCollectives::Create(
    const CommunicatorSpec& spec) {
  WEIR_RETURN_IF_ERROR(CheckSpec(spec));
  auto communicator = std::make_unique<NcclCommunicator>(library_, spec);
  WEIR_RETURN_IF_ERROR(communicator->Connect());
  return communicator;
}

}  // namespace weir::collective
