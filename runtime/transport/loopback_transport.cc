#include "runtime/transport/loopback_transport.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::transport {

// A Ring has a single producer and a single consumer. Room is never short: Connect makes room for
// all tokens and credits that may be under way between the two ranks. An entry carries its own
// number, so a message is one cache line from core to core, and nothing else.
struct LoopbackNetwork::Ring {
  struct alignas(64) Entry {
    MessageHeader header;  // of a credit: only the slot
    int32_t edge = -1;     // the receiver's EdgeHandle; ~edge for a credit
    // The low bits of the entry's number plus one, once the entry is written. The store is a
    // release, so that the rest is seen with the number, and sequentially consistent for the
    // parking handshake.
    std::atomic<uint32_t> number{0};
  };
  static_assert(sizeof(Entry) == 64, "an entry is one cache line");

  explicit Ring(uint64_t room) : mask(std::bit_ceil(room) - 1), entries(mask + 1) {}

  const uint64_t mask;
  std::vector<Entry> entries;
  std::atomic<bool> closed{false};  // by the sender, after its last entry
  alignas(64) uint64_t tail = 0;    // the sender's own
  alignas(64) uint64_t head = 0;    // the receiver's own

  void Push(int32_t edge, const MessageHeader& header) {
    Entry& entry = entries[tail & mask];
    entry.header = header;
    entry.edge = edge;
    entry.number.store(static_cast<uint32_t>(++tail), std::memory_order_seq_cst);
  }
  // Returns the next entry, or null if it has not come yet.
  const Entry* Next(std::memory_order order) const {
    const Entry& entry = entries[head & mask];
    return entry.number.load(order) == static_cast<uint32_t>(head + 1) ? &entry : nullptr;
  }
};

class LoopbackEndpoint final : public TransportEndpoint {
 public:
  LoopbackEndpoint(LoopbackNetwork* network, RankId rank) : network_(network), rank_(rank) {}

  absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) override;
  absl::Status Connect() override { return network_->ConnectAll(); }
  void* TryMap(EdgeHandle edge, int32_t slot) override;
  absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) override;
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override;
  absl::Status Flush() override { return absl::OkStatus(); }  // credits leave at once
  absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) override;
  void SetWakeHook(std::function<void()> hook) override { wake_hook_ = std::move(hook); }
  ParkResult Park() override;
  void Unpark() override { parked_.store(false, std::memory_order_relaxed); }
  void Close() override;
  EdgeTraffic Traffic(EdgeHandle edge) const override { return edges_[edge].traffic; }

 private:
  friend class LoopbackNetwork;
  using Ring = LoopbackNetwork::Ring;
  struct Edge {
    TransportEdge spec;
    EdgeHandle peer_edge;
    char* peer_landing = nullptr;
    int64_t peer_stride = 0;
    LoopbackEndpoint* peer = nullptr;
    Ring* ring = nullptr;        // to the peer
    Ring* back = nullptr;        // from the peer
    std::vector<uint8_t> taken;  // kOutgoing: by slot, until its credit is back
    EdgeTraffic traffic;
  };
  struct Incoming {
    Ring* ring;
    RankId peer;
  };

  absl::Status CheckHandle(EdgeHandle edge, TransportEdge::Direction direction, int32_t slot) const;
  absl::Status PeerGone(RankId peer) const {
    return CodedError(absl::StatusCode::kUnavailable, "W0521",
                      absl::StrCat("rank ", rank_, ": rank ", peer, " has left"));
  }
  // The writer's thread calls this function after it has written something for this endpoint.
  void WakeIfParked() {
    if (parked_.load(std::memory_order_seq_cst) &&
        parked_.exchange(false, std::memory_order_seq_cst) && wake_hook_) {
      wake_hook_();
    }
  }

  LoopbackNetwork* const network_;
  const RankId rank_;
  IdVector<EdgeHandle, Edge> edges_;
  std::vector<Incoming> incoming_;
  std::vector<Ring*> outgoing_;
  std::vector<LoopbackEndpoint*> peers_;  // of outgoing_
  std::function<void()> wake_hook_;
  bool closed_ = false;
  alignas(64) std::atomic<bool> parked_{false};
};

LoopbackNetwork::LoopbackNetwork(int num_ranks) {
  for (const RankId rank : IdRange<RankId>(num_ranks))
    endpoints_.push_back(std::make_unique<LoopbackEndpoint>(this, rank));
}
LoopbackNetwork::~LoopbackNetwork() = default;

TransportEndpoint* LoopbackNetwork::endpoint(RankId rank) { return endpoints_[rank].get(); }

absl::Status LoopbackNetwork::ConnectAll() {
  MutexLock lock(&connect_mutex_);
  if (connected_) return connect_status_;
  connected_ = true;
  connect_status_ = PairEdges();
  if (connect_status_.ok()) MakeRings();
  return connect_status_;
}

bool LoopbackNetwork::IsConnected() {
  MutexLock lock(&connect_mutex_);
  return connected_;
}

absl::Status LoopbackNetwork::PairEdges() {
  std::map<EdgeId, std::pair<RankId, EdgeHandle>> receivers;
  for (auto& endpoint : endpoints_) {
    for (const EdgeHandle handle : endpoint->edges_.ids()) {
      const TransportEdge& spec = endpoint->edges_[handle].spec;
      if (spec.direction == TransportEdge::Direction::kOutgoing) continue;
      if (!receivers.try_emplace(spec.edge, endpoint->rank_, handle).second) {
        return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                          absl::StrCat("edge ", spec.edge, ": two receivers"));
      }
    }
  }
  size_t num_paired = 0;
  for (auto& endpoint : endpoints_) {
    for (const EdgeHandle handle : endpoint->edges_.ids()) {
      LoopbackEndpoint::Edge& out = endpoint->edges_[handle];
      if (out.spec.direction == TransportEdge::Direction::kIncoming) continue;
      auto found = receivers.find(out.spec.edge);
      if (found == receivers.end() || found->second.first != out.spec.peer) {
        return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                          absl::StrCat("edge ", out.spec.edge, ": expected a receiver on rank ",
                                       out.spec.peer, "; found none"));
      }
      LoopbackEndpoint* peer = endpoints_[out.spec.peer].get();
      LoopbackEndpoint::Edge& in = peer->edges_[found->second.second];
      if (in.peer != nullptr || in.spec.peer != endpoint->rank_ ||
          in.spec.slots != out.spec.slots || in.spec.bytes != out.spec.bytes ||
          in.spec.initial_tokens != out.spec.initial_tokens ||
          in.spec.statement != out.spec.statement) {
        return CodedError(
            absl::StatusCode::kInvalidArgument, "W0522",
            absl::StrCat(
                "edge ", out.spec.edge, ": ranks ", endpoint->rank_, " and ", out.spec.peer,
                " disagree about peer, slots, bytes, initial tokens or the acts at its ends"));
      }
      out.peer = peer;
      in.peer = endpoint.get();
      out.peer_edge = found->second.second;
      in.peer_edge = handle;
      out.peer_landing = in.spec.landing;
      out.peer_stride = in.spec.stride;
      ++num_paired;
    }
  }
  if (num_paired != receivers.size())
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      "an incoming edge has no sender");
  return absl::OkStatus();
}

void LoopbackNetwork::MakeRings() {
  // room[{from, to}] counts the entries of a ring: tokens of one way and credits of the other.
  std::map<std::pair<RankId, RankId>, uint64_t> room;
  for (auto& endpoint : endpoints_) {
    for (const LoopbackEndpoint::Edge& edge : endpoint->edges_) {
      room[{endpoint->rank_, edge.spec.peer}] += static_cast<uint64_t>(edge.spec.slots);
    }
  }
  for (const auto& [pair, entries] : room) {
    LoopbackEndpoint* from = endpoints_[pair.first].get();
    LoopbackEndpoint* to = endpoints_[pair.second].get();
    Ring* ring = rings_.emplace_back(std::make_unique<Ring>(entries)).get();
    from->outgoing_.push_back(ring);
    from->peers_.push_back(to);
    to->incoming_.push_back({ring, from->rank_});
    for (LoopbackEndpoint::Edge& edge : from->edges_) {
      if (edge.spec.peer == pair.second) edge.ring = ring;
    }
    for (LoopbackEndpoint::Edge& edge : to->edges_) {
      if (edge.spec.peer == pair.first) edge.back = ring;
    }
  }
}

absl::StatusOr<EdgeHandle> LoopbackEndpoint::AddEdge(const TransportEdge& edge) {
  if (network_->IsConnected() || !network_->endpoints_.Has(edge.peer) || edge.peer == rank_ ||
      edge.slots < 1 || edge.bytes < 0 || edge.initial_tokens < 0 ||
      edge.initial_tokens > edge.slots) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("edge ", edge.edge, ": cannot be added"));
  }
  const EdgeHandle handle = edges_.next_id();
  Edge& added = edges_.emplace_back();
  added.spec = edge;
  if (edge.direction == TransportEdge::Direction::kOutgoing) {
    added.taken.assign(edge.slots, 0);
    std::fill_n(added.taken.begin(), edge.initial_tokens, 1);
  }
  return handle;
}

absl::Status LoopbackEndpoint::CheckHandle(EdgeHandle edge, TransportEdge::Direction direction,
                                           int32_t slot) const {
  if (!edges_.Has(edge) || edges_[edge].spec.direction != direction || slot < 0 ||
      slot >= edges_[edge].spec.slots || edges_[edge].ring == nullptr) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": no such edge or slot: ", edge, ", ", slot));
  }
  return absl::OkStatus();
}

void* LoopbackEndpoint::TryMap(EdgeHandle edge, int32_t slot) {
  if (!CheckHandle(edge, TransportEdge::Direction::kOutgoing, slot).ok()) return nullptr;
  const Edge& e = edges_[edge];
  return e.peer_landing == nullptr ? nullptr : e.peer_landing + slot * e.peer_stride;
}

absl::Status LoopbackEndpoint::Put(EdgeHandle edge, const MessageHeader& header,
                                   const void* bytes) {
  WEIR_RETURN_IF_ERROR(CheckHandle(edge, TransportEdge::Direction::kOutgoing, header.slot));
  Edge& e = edges_[edge];
  if (header.payload_bytes < 0 || header.payload_bytes > e.spec.bytes ||
      header.edge != e.spec.edge) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": bad header for edge ", e.spec.edge));
  }
  if (e.taken[header.slot] != 0) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ", edge ", e.spec.edge, ", slot ", header.slot,
                                   ": its credit is not back"));
  }
  if (closed_) return PeerGone(rank_);
  if (e.back->closed.load(std::memory_order_acquire)) return PeerGone(e.spec.peer);
  if (e.peer_landing != nullptr && header.payload_bytes > 0) {
    char* slot = e.peer_landing + header.slot * e.peer_stride;
    if (slot != bytes) std::memcpy(slot, bytes, header.payload_bytes);
  }
  e.traffic.payload_bytes += header.payload_bytes;
  ++e.traffic.tokens;
  e.taken[header.slot] = 1;
  e.ring->Push(e.peer_edge.value(), header);
  e.peer->WakeIfParked();
  return absl::OkStatus();
}

absl::Status LoopbackEndpoint::ReturnCredit(EdgeHandle edge, int32_t slot) {
  WEIR_RETURN_IF_ERROR(CheckHandle(edge, TransportEdge::Direction::kIncoming, slot));
  Edge& e = edges_[edge];
  ++e.traffic.credits;
  MessageHeader header;
  header.slot = slot;
  e.ring->Push(~e.peer_edge.value(), header);
  e.peer->WakeIfParked();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LoopbackEndpoint::Poll(MessageReceiver* receiver) {
  int64_t num_messages = 0;
  for (const Incoming& incoming : incoming_) {
    Ring& ring = *incoming.ring;
    // `closed` is read before the entries, so that every entry from before the closing is seen.
    const bool closed = ring.closed.load(std::memory_order_acquire);
    for (uint64_t room = ring.mask + 1; room > 0; --room) {  // one round at most
      const Ring::Entry* next = ring.Next(std::memory_order_acquire);
      if (next == nullptr) break;
      const MessageHeader header = next->header;
      const bool is_credit = next->edge < 0;
      const EdgeHandle edge(is_credit ? ~next->edge : next->edge);
      ++ring.head;
      ++num_messages;
      if (is_credit) edges_[edge].taken[header.slot] = 0;
      WEIR_RETURN_IF_ERROR(is_credit ? receiver->OnCredit(edge, header.slot)
                                     : receiver->OnToken(edge, header));
    }
    if (closed && num_messages == 0) return PeerGone(incoming.peer);
  }
  return num_messages;
}

TransportEndpoint::ParkResult LoopbackEndpoint::Park() {
  parked_.store(true, std::memory_order_seq_cst);
  for (const Incoming& incoming : incoming_) {
    if (incoming.ring->Next(std::memory_order_seq_cst) != nullptr ||
        incoming.ring->closed.load(std::memory_order_seq_cst)) {
      parked_.store(false, std::memory_order_relaxed);
      return ParkResult::kMessagesWait;
    }
  }
  return ParkResult::kParked;
}

void LoopbackEndpoint::Close() {
  if (closed_) return;
  closed_ = true;
  for (size_t i = 0; i < outgoing_.size(); ++i) {
    outgoing_[i]->closed.store(true, std::memory_order_seq_cst);
    peers_[i]->WakeIfParked();
  }
}

}  // namespace weir::transport
