#include "runtime/transport/process_transport.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/transport/loopback_transport.h"

namespace weir::transport {
namespace {

// A Half is one of the two transports below an endpoint, with the numbers of its edges above.
class Half final : public MessageReceiver {
 public:
  explicit Half(TransportEndpoint* endpoint) : endpoint_(endpoint) {}

  TransportEndpoint* endpoint() const { return endpoint_; }
  bool has_edges() const { return !outer_.empty(); }
  absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge, EdgeHandle outer) {
    WEIR_ASSIGN_OR_RETURN(EdgeHandle inner, endpoint_->AddEdge(edge));
    outer_.push_back(outer);
    return inner;
  }
  absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) {
    receiver_ = receiver;
    return endpoint_->Poll(this);
  }
  absl::Status OnToken(EdgeHandle edge, const MessageHeader& header) override {
    return receiver_->OnToken(outer_[edge], header);
  }
  absl::Status OnCredit(EdgeHandle edge, int32_t slot) override {
    return receiver_->OnCredit(outer_[edge], slot);
  }

 private:
  TransportEndpoint* const endpoint_;
  IdVector<EdgeHandle, EdgeHandle> outer_;  // by inner handle
  MessageReceiver* receiver_ = nullptr;
};

class ProcessEndpoint final : public TransportEndpoint {
 public:
  // `remote` is null if all ranks are here.
  ProcessEndpoint(RankId rank, TransportEndpoint* local, TransportEndpoint* remote,
                  IdVector<RankId, bool> is_local)
      : rank_(rank), local_(local), remote_(remote), is_local_(std::move(is_local)) {
    local_.endpoint()->SetWakeHook([this] { OnNews(); });
    if (remote != nullptr) remote->SetWakeHook([this] { OnNews(); });
  }

  absl::StatusOr<char*> AllocateLanding(int64_t bytes) override {
    if (remote_.endpoint() == nullptr) return nullptr;
    return remote_.endpoint()->AllocateLanding(bytes);
  }

  absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) override {
    if (!is_local_.Has(edge.peer)) {
      return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                        absl::StrCat("edge ", edge.edge, ": no rank ", edge.peer));
    }
    const EdgeHandle outer = edges_.next_id();
    Half& half = is_local_[edge.peer] ? local_ : remote_;
    WEIR_ASSIGN_OR_RETURN(const EdgeHandle inner, half.AddEdge(edge, outer));
    edges_.push_back({&half, inner});
    return outer;
  }

  // The remote half connects even without edges elsewhere, since other ranks may believe that there
  // are some.
  absl::Status Connect() override {
    WEIR_RETURN_IF_ERROR(local_.endpoint()->Connect());
    if (remote_.endpoint() != nullptr) WEIR_RETURN_IF_ERROR(remote_.endpoint()->Connect());
    return absl::OkStatus();
  }

  void* TryMap(EdgeHandle edge, int32_t slot) override {
    return edges_.Has(edge) ? edges_[edge].half->endpoint()->TryMap(edges_[edge].inner, slot)
                            : nullptr;
  }
  absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) override {
    if (!edges_.Has(edge)) return NoSuchEdge(edge);
    return edges_[edge].half->endpoint()->Put(edges_[edge].inner, header, bytes);
  }
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override {
    if (!edges_.Has(edge)) return NoSuchEdge(edge);
    return edges_[edge].half->endpoint()->ReturnCredit(edges_[edge].inner, slot);
  }
  absl::Status Flush() override {
    absl::Status flushed = local_.endpoint()->Flush();
    if (remote_.endpoint() != nullptr) flushed.Update(remote_.endpoint()->Flush());
    return flushed;
  }

  absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) override {
    int64_t num_messages = 0;
    absl::Status gone;
    for (Half* half : {&local_, &remote_}) {
      if (!half->has_edges()) continue;
      absl::StatusOr<int64_t> n = half->Poll(receiver);
      if (n.ok()) {
        num_messages += *n;
      } else if (absl::IsUnavailable(n.status())) {
        gone = n.status();
      } else {
        return n;
      }
    }
    if (num_messages == 0 && !gone.ok()) return gone;
    return num_messages;
  }

  void SetWakeHook(std::function<void()> hook) override {
    MutexLock lock(&hook_mutex_);
    hook_ = std::move(hook);
  }

  // Parks both halves. News of one half that comes before both are parked ends the parking here,
  // without the hook.
  ParkResult Park() override {
    state_.store(State::kParking);
    for (Half* half : {&local_, &remote_}) {
      if (!half->has_edges()) continue;
      if (half->endpoint()->Park() == ParkResult::kMessagesWait) {
        Unpark();
        return ParkResult::kMessagesWait;
      }
    }
    State expected = State::kParking;
    if (state_.compare_exchange_strong(expected, State::kParked)) return ParkResult::kParked;
    Unpark();
    return ParkResult::kMessagesWait;
  }
  void Unpark() override {
    state_.store(State::kAwake);
    for (Half* half : {&local_, &remote_}) {
      if (half->has_edges()) half->endpoint()->Unpark();
    }
  }

  void Close() override {
    local_.endpoint()->Close();
    if (remote_.endpoint() != nullptr) remote_.endpoint()->Close();
  }
  EdgeTraffic Traffic(EdgeHandle edge) const override {
    return edges_[edge].half->endpoint()->Traffic(edges_[edge].inner);
  }

 private:
  struct Edge {
    Half* half = nullptr;
    EdgeHandle inner;
  };
  enum class State : uint8_t { kAwake, kParking, kParked };

  absl::Status NoSuchEdge(EdgeHandle edge) const {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": no such edge: ", edge));
  }
  // Each half calls this function from a thread of its own. Both may have news at once; the hook is
  // called once.
  void OnNews() {
    if (state_.exchange(State::kAwake) != State::kParked) return;
    MutexLock lock(&hook_mutex_);
    if (hook_) hook_();
  }

  const RankId rank_;
  Half local_;
  Half remote_;
  const IdVector<RankId, bool> is_local_;
  IdVector<EdgeHandle, Edge> edges_;
  Mutex hook_mutex_;
  std::function<void()> hook_ ABSL_GUARDED_BY(hook_mutex_);
  // kParking while the owner parks the halves: in this state news only ends the parking.
  // Sequentially consistent.
  std::atomic<State> state_{State::kAwake};
};

class ProcessNetwork final : public TransportNetwork {
 public:
  ProcessNetwork(int num_ranks, const std::vector<RankId>& local_ranks,
                 std::unique_ptr<UcxNetwork> remote)
      : local_(num_ranks), remote_(std::move(remote)), endpoints_(num_ranks) {
    IdVector<RankId, bool> is_local(num_ranks, false);
    for (const RankId rank : local_ranks) is_local[rank] = true;
    for (const RankId rank : local_ranks) {
      TransportEndpoint* remote_endpoint = remote_ == nullptr ? nullptr : remote_->endpoint(rank);
      endpoints_[rank] =
          std::make_unique<ProcessEndpoint>(rank, local_.endpoint(rank), remote_endpoint, is_local);
    }
  }
  ~ProcessNetwork() override { remote_.reset(); }  // its thread calls the endpoints

  TransportEndpoint* endpoint(RankId rank) override { return endpoints_[rank].get(); }

 private:
  LoopbackNetwork local_;
  std::unique_ptr<UcxNetwork> remote_;  // null if all ranks are here
  IdVector<RankId, std::unique_ptr<ProcessEndpoint>> endpoints_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TransportNetwork>> MakeProcessNetwork(
    int num_ranks, const std::vector<RankId>& local_ranks, Exchange* exchange,
    const UcxTransportOptions& options) {
  std::vector<RankId> sorted = local_ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front().value() < 0 || sorted.back().value() >= num_ranks ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return CodedError(
        absl::StatusCode::kInvalidArgument, "W0522",
        absl::StrCat(sorted.size(), " ranks of ", num_ranks, " cannot be one process"));
  }
  std::unique_ptr<UcxNetwork> remote;
  if (static_cast<int>(sorted.size()) < num_ranks) {
    WEIR_ASSIGN_OR_RETURN(remote, UcxNetwork::Create(num_ranks, sorted, exchange, options));
  }
  return std::unique_ptr<TransportNetwork>(
      std::make_unique<ProcessNetwork>(num_ranks, sorted, std::move(remote)));
}

}  // namespace weir::transport
