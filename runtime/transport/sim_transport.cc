#include "runtime/transport/sim_transport.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir {

class SimEndpoint final : public TransportEndpoint {
 public:
  SimEndpoint(SimNetwork* network, int rank) : network_(network), rank_(rank) {}

  absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) override;
  absl::Status Connect() override { return network_->ConnectAll(); }
  void* TryMap(EdgeHandle edge, int32_t slot) override;
  absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) override;
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override;
  absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) override;
  void SetWakeHook(std::function<void()> hook) override { wake_hook_ = std::move(hook); }
  ParkResult Park() override {
    parked_ = inbox_.empty() && GonePeer() < 0;
    return parked_ ? ParkResult::kParked : ParkResult::kMessagesWait;
  }
  void Unpark() override { parked_ = false; }
  void Close() override;
  EdgeTraffic Traffic(EdgeHandle edge) const override { return edges_[edge].traffic; }

 private:
  friend class SimNetwork;
  struct Edge {
    TransportEdge spec;
    Edge* peer_edge = nullptr;
    int lane = -1;  // from here to the peer
    std::vector<bool> taken;  // kOutgoing: by slot, until its credit is back
    EdgeTraffic traffic;
  };
  struct Arrived {
    int lane;
    SimNetwork::Message message;
  };

  absl::Status CheckHandle(EdgeHandle edge, TransportEdge::Direction direction, int32_t slot) const;
  // A peer that has left and of which nothing is under way any more; -1 if none.
  int GonePeer() const;
  void WakeIfParked() {
    if (!std::exchange(parked_, false)) return;
    if (wake_hook_) wake_hook_();
  }

  SimNetwork* const network_;
  const int rank_;
  std::deque<Edge> edges_;  // addresses stay
  std::deque<Arrived> inbox_;
  std::function<void()> wake_hook_;
  bool parked_ = false;
  bool closed_ = false;
};

SimNetwork::SimNetwork(int num_ranks, Mapping mapping) : mapping_(mapping) {
  for (int rank = 0; rank < num_ranks; ++rank) endpoints_.push_back(std::make_unique<SimEndpoint>(this, rank));
}
SimNetwork::~SimNetwork() = default;

TransportEndpoint* SimNetwork::endpoint(int rank) { return endpoints_[rank].get(); }

SimNetwork::Lane SimNetwork::lane(int index) const {
  Lane lane = lanes_[index].lane;
  lane.num_messages = static_cast<int64_t>(lanes_[index].queue.size());
  lane.oldest_due_ns = lanes_[index].queue.empty() ? 0 : lanes_[index].queue.front().due_ns;
  return lane;
}

absl::Status SimNetwork::ConnectAll() {
  if (connected_) return connect_status_;
  connected_ = true;
  connect_status_ = absl::InvalidArgumentError("W0522 the two sides of an edge disagree");
  std::map<std::pair<uint64_t, int>, std::pair<int, EdgeHandle>> sides;  // (edge, direction) -> (rank, handle)
  for (auto& endpoint : endpoints_) {
    for (size_t i = 0; i < endpoint->edges_.size(); ++i) {
      const TransportEdge& spec = endpoint->edges_[i].spec;
      const bool added = sides.try_emplace({spec.edge, static_cast<int>(spec.direction)}, endpoint->rank_,
                                           static_cast<EdgeHandle>(i)).second;
      if (!added) return connect_status_;
    }
  }
  for (const auto& [key, side] : sides) {
    auto other = sides.find({key.first, 1 - key.second});
    if (other == sides.end()) return connect_status_;
    SimEndpoint::Edge& mine = endpoints_[side.first]->edges_[side.second];
    SimEndpoint::Edge& theirs = endpoints_[other->second.first]->edges_[other->second.second];
    if (mine.spec.peer != other->second.first || mine.spec.slots != theirs.spec.slots ||
        mine.spec.bytes != theirs.spec.bytes || mine.spec.initial_tokens != theirs.spec.initial_tokens) {
      return connect_status_;
    }
    mine.peer_edge = &theirs;
    mine.lane = num_lanes();
    LaneQueue& lane = lanes_.emplace_back();
    lane.lane.edge = key.first;
    lane.lane.from = side.first;
    lane.lane.to = other->second.first;
    lane.lane.carries = mine.spec.direction == TransportEdge::Direction::kOutgoing ? Lane::Carries::kTokens
                                                                                   : Lane::Carries::kCredits;
    lane.receiver_edge = other->second.second;
    lane_of_edge_[{key.first, lane.lane.carries}] = mine.lane;
  }
  return connect_status_ = absl::OkStatus();
}

void SimNetwork::Send(int index, Message message) {
  LaneQueue& lane = lanes_[index];
  message.due_ns = now_ns_ + (latency_ ? latency_(message.header.payload_bytes, lane.lane.from, lane.lane.to) : 0);
  lane.last_due_ns = message.due_ns = std::max(message.due_ns, lane.last_due_ns);
  lane.queue.push_back(std::move(message));
  if (lane.busy_at >= 0) return;
  lane.busy_at = static_cast<int>(busy_.size());
  busy_.push_back(index);
}

void SimNetwork::Deliver(int index) {
  LaneQueue& lane = lanes_[index];
  SimEndpoint* to = endpoints_[lane.lane.to].get();
  Message message = std::move(lane.queue.front());
  lane.queue.pop_front();
  if (lane.queue.empty()) {
    busy_[lane.busy_at] = busy_.back();
    lanes_[busy_.back()].busy_at = lane.busy_at;
    busy_.pop_back();
    lane.busy_at = -1;
  }
  const TransportEdge& spec = to->edges_[lane.receiver_edge].spec;
  if (!message.payload.empty() && spec.landing != nullptr) {
    std::memcpy(spec.landing + message.header.slot * spec.stride, message.payload.data(), message.payload.size());
  }
  ++lane.num_in_inbox;
  to->inbox_.push_back({index, std::move(message)});
  to->WakeIfParked();
}

int64_t SimNetwork::UnderWay(uint64_t edge, Lane::Carries carries) const {
  auto found = lane_of_edge_.find({edge, carries});
  if (found == lane_of_edge_.end()) return 0;
  const LaneQueue& lane = lanes_[found->second];
  return static_cast<int64_t>(lane.queue.size()) + lane.num_in_inbox;
}
int64_t SimNetwork::TokensUnderWay(uint64_t edge) const { return UnderWay(edge, Lane::Carries::kTokens); }
int64_t SimNetwork::CreditsUnderWay(uint64_t edge) const { return UnderWay(edge, Lane::Carries::kCredits); }

absl::StatusOr<EdgeHandle> SimEndpoint::AddEdge(const TransportEdge& edge) {
  const int num_ranks = static_cast<int>(network_->endpoints_.size());
  if (network_->connected_ || edge.peer < 0 || edge.peer >= num_ranks || edge.peer == rank_ || edge.slots < 1 ||
      edge.bytes < 0 || edge.initial_tokens < 0 || edge.initial_tokens > edge.slots) {
    return absl::InvalidArgumentError(absl::StrCat("W0522 edge ", edge.edge, ": cannot be added"));
  }
  Edge& added = edges_.emplace_back();
  added.spec = edge;
  if (edge.direction == TransportEdge::Direction::kOutgoing) {
    added.taken.assign(edge.slots, false);
    std::fill_n(added.taken.begin(), edge.initial_tokens, true);
  }
  return static_cast<EdgeHandle>(edges_.size() - 1);
}

absl::Status SimEndpoint::CheckHandle(EdgeHandle edge, TransportEdge::Direction direction, int32_t slot) const {
  if (edge < 0 || edge >= static_cast<EdgeHandle>(edges_.size()) || edges_[edge].spec.direction != direction ||
      slot < 0 || slot >= edges_[edge].spec.slots || edges_[edge].lane < 0) {
    return absl::InvalidArgumentError(absl::StrCat("W0522 rank ", rank_, ": no such edge or slot: ", edge, ", ", slot));
  }
  return absl::OkStatus();
}

void* SimEndpoint::TryMap(EdgeHandle edge, int32_t slot) {
  if (!CheckHandle(edge, TransportEdge::Direction::kOutgoing, slot).ok()) return nullptr;
  const TransportEdge& peer = edges_[edge].peer_edge->spec;
  if (network_->mapping_ == SimNetwork::Mapping::kCopied || peer.landing == nullptr) return nullptr;
  return peer.landing + slot * peer.stride;
}

absl::Status SimEndpoint::Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) {
  WEIR_RETURN_IF_ERROR(CheckHandle(edge, TransportEdge::Direction::kOutgoing, header.slot));
  Edge& e = edges_[edge];
  if (header.payload_bytes < 0 || header.payload_bytes > e.spec.bytes || header.edge != e.spec.edge) {
    return absl::InvalidArgumentError(absl::StrCat("W0522 rank ", rank_, ": bad header for edge ", e.spec.edge));
  }
  if (e.taken[header.slot]) {
    return absl::InvalidArgumentError(absl::StrCat("W0522 rank ", rank_, ", edge ", e.spec.edge, ", slot ", header.slot,
                                                   ": its credit is not back"));
  }
  if (closed_ || network_->endpoints_[e.spec.peer]->closed_) {
    return absl::UnavailableError(absl::StrCat("W0521 rank ", rank_, ": rank ", e.spec.peer, " has left"));
  }
  SimNetwork::Message message;
  message.header = header;
  const bool mapped = bytes != nullptr && bytes == TryMap(edge, header.slot);
  if (bytes != nullptr && !mapped) message.payload.assign(static_cast<const char*>(bytes), header.payload_bytes);
  e.traffic.payload_bytes += header.payload_bytes;
  ++e.traffic.tokens;
  e.taken[header.slot] = true;
  network_->Send(e.lane, std::move(message));
  return absl::OkStatus();
}

absl::Status SimEndpoint::ReturnCredit(EdgeHandle edge, int32_t slot) {
  WEIR_RETURN_IF_ERROR(CheckHandle(edge, TransportEdge::Direction::kIncoming, slot));
  SimNetwork::Message message;
  message.header.slot = slot;
  ++edges_[edge].traffic.credits;
  network_->Send(edges_[edge].lane, std::move(message));
  return absl::OkStatus();
}

int SimEndpoint::GonePeer() const {
  if (network_->num_closed_ == 0) return -1;
  for (const Edge& edge : edges_) {
    if (edge.peer_edge == nullptr || !network_->endpoints_[edge.spec.peer]->closed_) continue;
    bool under_way = false;
    for (const SimNetwork::LaneQueue& lane : network_->lanes_) {
      under_way |= lane.lane.to == rank_ && lane.lane.from == edge.spec.peer && !lane.queue.empty();
    }
    if (!under_way) return edge.spec.peer;
  }
  return -1;
}

absl::StatusOr<int64_t> SimEndpoint::Poll(MessageReceiver* receiver) {
  int64_t num_messages = 0;
  while (!inbox_.empty()) {
    const int index = inbox_.front().lane;
    const MessageHeader header = inbox_.front().message.header;
    inbox_.pop_front();
    ++num_messages;
    SimNetwork::LaneQueue& lane = network_->lanes_[index];
    --lane.num_in_inbox;
    if (lane.lane.carries == SimNetwork::Lane::Carries::kCredits) edges_[lane.receiver_edge].taken[header.slot] = false;
    WEIR_RETURN_IF_ERROR(lane.lane.carries == SimNetwork::Lane::Carries::kTokens
                             ? receiver->OnToken(lane.receiver_edge, header)
                             : receiver->OnCredit(lane.receiver_edge, header.slot));
  }
  if (num_messages > 0) return num_messages;
  const int gone = GonePeer();
  if (gone >= 0) return absl::UnavailableError(absl::StrCat("W0521 rank ", rank_, ": rank ", gone, " has left"));
  return 0;
}

void SimEndpoint::Close() {
  if (std::exchange(closed_, true)) return;
  ++network_->num_closed_;
  for (auto& endpoint : network_->endpoints_) {
    if (endpoint->GonePeer() >= 0) endpoint->WakeIfParked();
  }
}

}  // namespace weir
