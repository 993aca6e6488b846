#include "runtime/transport/sim_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/transport/pair_key.h"

namespace weir::transport {
namespace {

using Direction = TransportEdge::Direction;
using Tamper = SimNetwork::Delivery::Tamper;
using Pieces = SimNetwork::Delivery::Pieces;
using Kind = WireMessage::Kind;
using Payload = WireMessage::Payload;

// The job and the incarnation of all simulations.
constexpr char kJobKey[] = "simulated job";
constexpr uint32_t kEpoch = 2;
constexpr uint16_t kRole = 0;

constexpr size_t kTagBytes = sizeof(uint64_t);

void FlipBit(char* bytes, size_t num_bytes, uint32_t bit) {
  bytes[bit / 8 % num_bytes] = static_cast<char>(bytes[bit / 8 % num_bytes] ^ (1 << bit % 8));
}

uint64_t HashBytes(uint64_t hash, const void* bytes, size_t size) {
  return MixKey(hash, KeyOf(static_cast<const char*>(bytes), size));
}

}  // namespace

class SimEndpoint final : public TransportEndpoint {
 public:
  SimEndpoint(SimNetwork* network, RankId rank) : network_(network), rank_(rank) {}

  absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) override;
  absl::Status Connect() override { return network_->ConnectAll(); }
  void* TryMap(EdgeHandle edge, int32_t slot) override;
  absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) override;
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override;
  absl::Status Flush() override { return absl::OkStatus(); }  // credits leave at once
  absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) override;
  void SetWakeHook(std::function<void()> hook) override { wake_hook_ = std::move(hook); }
  ParkResult Park() override {
    parked_ = !HasNews();
    return parked_ ? ParkResult::kParked : ParkResult::kMessagesWait;
  }
  void Unpark() override { parked_ = false; }
  void Close() override;
  EdgeTraffic Traffic(EdgeHandle edge) const override { return edges_[edge].traffic; }

 private:
  friend class SimNetwork;
  struct Edge {
    TransportEdge spec;
    TransportEdge peer_spec;
    EdgeHandle peer_edge;
    int lane = -1;         // from here to the peer
    int inward_lane = -1;  // from the peer to here
    bool in_ready = false;
    EdgeTraffic traffic;
  };

  absl::Status CheckSend(EdgeHandle edge, Direction direction, int32_t slot) const;
  WireMessage NewMessage(Kind kind, const Edge& edge) const;
  absl::Status HandOver(EdgeHandle edge, MessageReceiver* receiver, int64_t* num_messages);
  absl::Status CheckPayload(EdgeHandle edge, const WireMessage& message) const;
  absl::Status PeerGone(RankId rank) const {
    return CodedError(absl::StatusCode::kUnavailable, "W0521",
                      absl::StrCat("rank ", rank_, ": rank ", rank, " has left"));
  }
  bool HasNews() const {
    const auto deliverable = [this](EdgeHandle edge) { return ledger_->Front(edge) != nullptr; };
    return !damage_.ok() || GonePeer().has_value() ||
           std::any_of(ready_.begin(), ready_.end(), deliverable);
  }
  // Returns a peer that has left and has nothing under way any more, or that is lost, if there is
  // one.
  RankId GonePeer() const;
  void MarkReady(EdgeHandle edge) {
    if (!edges_[edge].in_ready) ready_.push_back(edge);
    edges_[edge].in_ready = true;
    WakeIfParked();
  }
  void WakeIfParked() {
    if (!std::exchange(parked_, false)) return;
    if (wake_hook_) wake_hook_();
  }

  SimNetwork* const network_;
  const RankId rank_;
  IdVector<EdgeHandle, Edge> edges_;
  std::unique_ptr<MessageLedger> ledger_;        // from Connect
  std::unique_ptr<MessageLedger> fresh_ledger_;  // as it was then
  std::vector<EdgeHandle> ready_;  // edges that may have something to hand over, the oldest first
  std::vector<RankId> lost_;       // ranks whose connection is broken
  absl::Status damage_;            // a wrong message; ends everything
  std::function<void()> wake_hook_;
  bool parked_ = false;
  bool closed_ = false;
};

SimNetwork::SimNetwork(int num_ranks, Mapping mapping) : mapping_(mapping) {
  for (const RankId rank : IdRange<RankId>(num_ranks))
    endpoints_.push_back(std::make_unique<SimEndpoint>(this, rank));
}
SimNetwork::~SimNetwork() = default;

TransportEndpoint* SimNetwork::endpoint(RankId rank) { return endpoints_[rank].get(); }

SimNetwork::Lane SimNetwork::lane(int index) const {
  Lane lane = lanes_[index].lane;
  lane.num_messages = lanes_[index].count;
  lane.oldest_due_ns = lanes_[index].count == 0 ? 0 : lanes_[index].at(0).due_ns;
  return lane;
}

absl::Status SimNetwork::ConnectAll() {
  if (connected_) return connect_status_;
  connected_ = true;
  connect_status_ =
      CodedError(absl::StatusCode::kInvalidArgument, "W0522", "the two sides of an edge disagree");
  // (edge, direction) -> (rank, handle)
  std::map<std::pair<EdgeId, int>, std::pair<RankId, EdgeHandle>> sides;
  for (auto& endpoint : endpoints_) {
    for (const EdgeHandle handle : endpoint->edges_.ids()) {
      const TransportEdge& spec = endpoint->edges_[handle].spec;
      const bool added =
          sides.try_emplace({spec.edge, static_cast<int>(spec.direction)}, endpoint->rank_, handle)
              .second;
      if (!added) return connect_status_;
    }
  }
  for (const auto& [key, side] : sides) {
    auto other = sides.find({key.first, 1 - key.second});
    if (other == sides.end()) return connect_status_;
    SimEndpoint::Edge& mine = endpoints_[side.first]->edges_[side.second];
    SimEndpoint::Edge& theirs = endpoints_[other->second.first]->edges_[other->second.second];
    if (mine.spec.peer != other->second.first || mine.spec.slots != theirs.spec.slots ||
        mine.spec.bytes != theirs.spec.bytes ||
        mine.spec.initial_tokens != theirs.spec.initial_tokens ||
        mine.spec.statement != theirs.spec.statement) {
      return connect_status_;
    }
    mine.peer_spec = theirs.spec;
    mine.peer_edge = other->second.second;
    mine.lane = num_lanes();
    theirs.inward_lane = mine.lane;
    LaneQueue& lane = lanes_.emplace_back();
    lane.lane.edge = key.first;
    lane.lane.from = side.first;
    lane.lane.to = other->second.first;
    lane.lane.carries = mine.spec.direction == Direction::kOutgoing ? Lane::Carries::kTokens
                                                                    : Lane::Carries::kCredits;
    lane.sender_edge = side.second;
    lane.receiver_edge = other->second.second;
    lane.ring.resize(mine.spec.slots);
    lane_of_edge_[{key.first, lane.lane.carries}] = mine.lane;
  }
  MakeLedgers();
  return connect_status_ = absl::OkStatus();
}

void SimNetwork::MakeLedgers() {
  for (auto& endpoint : endpoints_) {
    IdVector<EdgeHandle, LedgerEdge> edges;
    for (const SimEndpoint::Edge& edge : endpoint->edges_) {
      LedgerEdge& added = edges.emplace_back();
      added.spec = edge.spec;
      const bool reachable = mapping_ == Mapping::kDirect && edge.spec.landing != nullptr;
      added.landing = reachable ? LedgerEdge::Landing::kReachable : LedgerEdge::Landing::kPrivate;
    }
    const MessageLedger::Identity identity{kJobKey, kEpoch, kRole, endpoint->rank_,
                                           static_cast<int>(endpoints_.size())};
    endpoint->ledger_ = std::make_unique<MessageLedger>(identity, std::move(edges));
    for (const SimEndpoint::Edge& edge : endpoint->edges_)
      endpoint->ledger_->ExpectTag(edge.spec.peer,
                                   PairTag(kJobKey, edge.spec.peer, endpoint->rank_));
    endpoint->fresh_ledger_ = std::make_unique<MessageLedger>(*endpoint->ledger_);
  }
}

void SimNetwork::Rewind() {
  for (auto& endpoint : endpoints_) {
    SimEndpoint& e = *endpoint;
    *e.ledger_ = *e.fresh_ledger_;
    e.ready_.clear();
    e.lost_.clear();
    if (!e.damage_.ok()) e.damage_ = absl::OkStatus();
    e.parked_ = e.closed_ = false;
    for (SimEndpoint::Edge& edge : e.edges_) {
      edge.in_ready = false;
      edge.traffic = EdgeTraffic();
    }
  }
  for (LaneQueue& lane : lanes_) {
    lane.head = lane.count = 0;
    lane.busy_at = -1;
    lane.last_due_ns = lane.num_entered = 0;
  }
  now_ns_ = 0;
  num_gone_ = 0;
  busy_.clear();
  open_.clear();
  counts_ = Counts();
}

// Returns the message to pass to Send, made in place.
SimNetwork::Message& SimNetwork::NewestOf(LaneQueue& lane, int32_t slot) {
  if (lane.count == lane.ring.size()) {  // more under way than slots: the receiver will refuse them
    std::rotate(lane.ring.begin(), lane.ring.begin() + lane.head, lane.ring.end());
    lane.head = 0;
    lane.ring.emplace_back();
  }
  Message& message = lane.at(lane.count);
  message.slot = slot;
  message.late = nullptr;
  message.payload_bytes = 0;
  return message;
}

void SimNetwork::Send(int index, Message& message, int64_t bytes) {
  LaneQueue& lane = lanes_[index];
  message.due_ns = now_ns_ + (latency_ ? latency_(bytes, lane.lane.from, lane.lane.to) : 0);
  lane.last_due_ns = message.due_ns = std::max(message.due_ns, lane.last_due_ns);
  ++lane.count;
  if (lane.busy_at >= 0) return;
  lane.busy_at = static_cast<int>(busy_.size());
  busy_.push_back(index);
}

void SimNetwork::Idle(int index) {
  LaneQueue& lane = lanes_[index];
  busy_[lane.busy_at] = busy_.back();
  lanes_[busy_.back()].busy_at = lane.busy_at;
  busy_.pop_back();
  lane.busy_at = -1;
}

void SimNetwork::TakeOldest(int index, Message* message) {
  LaneQueue& lane = lanes_[index];
  std::swap(*message, lane.at(0));  // the ring keeps the room of the other's payload
  lane.head = (lane.head + 1) % lane.ring.size();
  if (--lane.count == 0) Idle(index);
}

void SimNetwork::Deliver(int index, const Delivery& how) {
  LaneQueue& lane = lanes_[index];
  Message& message = taken_;
  if (how.tamper == Tamper::kOvertaken && lane.count > 1) {
    std::swap(lane.at(0), lane.at(1));
    ++counts_.overtaken;
  }
  TakeOldest(index, &message);
  if (how.tamper > Tamper::kForeignBefore) ++counts_.tampered;
  if (how.tamper == Tamper::kLost) return Break(lane.lane.from, lane.lane.to);
  if (how.tamper == Tamper::kStaleBefore || how.tamper == Tamper::kForeignBefore)
    EnterOfOther(index, message, how.tamper);
  if (how.tamper == Tamper::kHeaderBit) {
    FlipBit(message.wire.data() + kTagBytes, message.wire.size() - kTagBytes, how.bit);
  }
  if (how.tamper != Tamper::kTwice && how.tamper != Tamper::kTwiceLater)
    return Enter(index, message, how);
  Open stray;
  stray.kind = Open::Kind::kStray;
  stray.rank = lane.lane.to;
  stray.lane = index;
  stray.message = message;
  Enter(index, message, how);
  if (how.tamper == Tamper::kTwice) return EnterStray(index, std::move(stray.message));
  open_.push_back(std::move(stray));
}

void SimNetwork::Enter(int index, Message& message, const Delivery& how) {
  LaneQueue& lane = lanes_[index];
  SimEndpoint& to = *endpoints_[lane.lane.to];
  SimEndpoint& from = *endpoints_[lane.lane.from];
  const bool in_pieces = how.pieces == Pieces::kInPieces;
  if (!in_pieces) {
    from.ledger_->EndSend(lane.sender_edge, message.slot);
    from.MarkReady(lane.sender_edge);
  } else {
    Open& left = open_.emplace_back();
    left.kind = Open::Kind::kLeft;
    left.rank = lane.lane.from;
    left.edge = lane.sender_edge;
    left.slot = message.slot;
    ++counts_.in_pieces;
  }
  if (to.closed_ || !to.damage_.ok()) return;
  ++lane.num_entered;

  const bool truncated = how.tamper == Tamper::kTruncated;
  const uint64_t payload_bytes = message.payload_bytes - (truncated && message.payload_bytes > 0);
  const size_t header_bytes = kWireMessageBytes - (truncated && message.payload_bytes == 0);
  WireMessage entered;
  const absl::StatusOr<MessageLedger::Verdict> verdict =
      to.ledger_->Enter(message.wire.data(), header_bytes, payload_bytes, &entered);
  if (!verdict.ok()) {
    to.damage_ = verdict.status();
    return to.WakeIfParked();
  }
  counts_.foreign += *verdict == MessageLedger::Verdict::kForeign;
  counts_.fenced += *verdict == MessageLedger::Verdict::kFenced;
  if (*verdict != MessageLedger::Verdict::kAccepted) return;  // under way for ever
  if (truncated) ++counts_.wrongly_accepted;
  if (payload_bytes > 0 && in_pieces) {
    Open& lands = open_.emplace_back();
    lands.kind = Open::Kind::kLands;
    lands.rank = lane.lane.to;
    lands.edge = lane.receiver_edge;
    lands.slot = entered.header.slot;
    lands.message = message;
    lands.tamper = how.tamper;
    lands.bit = how.bit;
  } else if (message.payload_bytes > 0) {
    Land(to, lane.receiver_edge, entered.header.slot, message, how);
  } else {
    if (how.tamper == Tamper::kPayloadBit && entered.payload == Payload::kMapped) {
      const TransportEdge& spec = to.edges_[lane.receiver_edge].spec;
      FlipBit(spec.landing + entered.header.slot * spec.stride, entered.header.payload_bytes,
              how.bit);
    }
    to.MarkReady(lane.receiver_edge);
  }
}

// Enters a message a second time: it must not be accepted.
void SimNetwork::EnterStray(int index, Message message) {
  SimEndpoint& to = *endpoints_[lanes_[index].lane.to];
  if (to.closed_ || !to.damage_.ok()) return;
  WireMessage entered;
  const absl::StatusOr<MessageLedger::Verdict> verdict =
      to.ledger_->Enter(message.wire.data(), message.wire.size(), message.payload_bytes, &entered);
  if (!verdict.ok()) {
    to.damage_ = verdict.status();
    return to.WakeIfParked();
  }
  counts_.foreign += *verdict == MessageLedger::Verdict::kForeign;
  counts_.fenced += *verdict == MessageLedger::Verdict::kFenced;
  if (*verdict != MessageLedger::Verdict::kAccepted) return;
  ++counts_.wrongly_accepted;
  Land(to, lanes_[index].receiver_edge, entered.header.slot, message, Delivery());
}

// Enters the message as it would be in another incarnation of the job, or in another job.
void SimNetwork::EnterOfOther(int index, const Message& message, Tamper which) {
  absl::StatusOr<WireMessage> other = DecodeWireMessage(message.wire.data(), message.wire.size());
  if (!other.ok()) return;
  other->epoch = kEpoch - 1;
  other->header.epoch = kEpoch - 1;
  other->job_tag = which == Tamper::kStaleBefore ? JobTag(kJobKey, kEpoch - 1, kRole)
                                                 : JobTag("another job", kEpoch, kRole);
  if (which == Tamper::kForeignBefore) other->epoch = kEpoch;
  Message changed = message;
  EncodeWireMessage(*other, changed.wire.data());
  EnterStray(index, std::move(changed));
}

void SimNetwork::Land(SimEndpoint& to, EdgeHandle edge, int32_t slot, const Message& message,
                      const Delivery& how) {
  const TransportEdge& spec = to.edges_[edge].spec;
  if (message.payload_bytes > 0 && spec.landing != nullptr) {
    char* landing = spec.landing + slot * spec.stride;
    std::memcpy(landing, message.late != nullptr ? message.late : message.payload.data(),
                message.payload_bytes);
    if (how.tamper == Tamper::kPayloadBit) FlipBit(landing, message.payload_bytes, how.bit);
  }
  to.ledger_->Complete(edge, slot);
  to.MarkReady(edge);
}

void SimNetwork::Settle(int k) {
  Open open = std::move(open_[k]);
  open_.erase(open_.begin() + k);
  SimEndpoint& endpoint = *endpoints_[open.rank];
  if (endpoint.closed_) return;
  switch (open.kind) {
    case Open::Kind::kLands: {
      Delivery how;
      how.tamper = open.tamper;
      how.bit = open.bit;
      return Land(endpoint, open.edge, open.slot, open.message, how);
    }
    case Open::Kind::kLeft:
      endpoint.ledger_->EndSend(open.edge, open.slot);
      return endpoint.MarkReady(open.edge);
    case Open::Kind::kStray: return EnterStray(open.lane, std::move(open.message));
  }
}

void SimNetwork::Break(RankId rank, RankId other) {
  for (int lane = 0; lane < num_lanes(); ++lane) {
    LaneQueue& queue = lanes_[lane];
    const bool between = (queue.lane.from == rank && queue.lane.to == other) ||
                         (queue.lane.from == other && queue.lane.to == rank);
    if (!between || queue.busy_at < 0) continue;
    queue.num_entered += queue.count;  // they stay under way for ever
    queue.count = 0;
    Idle(lane);
  }
  ++num_gone_;
  endpoints_[rank]->lost_.push_back(other);
  endpoints_[other]->lost_.push_back(rank);
  endpoints_[rank]->WakeIfParked();
  endpoints_[other]->WakeIfParked();
}

void SimNetwork::Kill(RankId rank) {
  endpoints_[rank]->closed_ = true;
  std::vector<RankId> peers;
  for (const SimEndpoint::Edge& edge : endpoints_[rank]->edges_) peers.push_back(edge.spec.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  for (const RankId peer : peers) Break(rank, peer);
}

bool SimNetwork::HasNotice(RankId rank) const {
  return num_gone_ > 0 && !endpoints_[rank]->closed_ && endpoints_[rank]->GonePeer().has_value();
}

int SimNetwork::LaneOf(EdgeId edge, Lane::Carries carries) const {
  auto found = lane_of_edge_.find({edge, carries});
  return found == lane_of_edge_.end() ? -1 : found->second;
}
int64_t SimNetwork::TokensUnderWay(EdgeId edge) const {
  const int lane = LaneOf(edge, Lane::Carries::kTokens);
  return lane < 0 ? 0 : UnderWay(lane);
}
int64_t SimNetwork::CreditsUnderWay(EdgeId edge) const {
  const int lane = LaneOf(edge, Lane::Carries::kCredits);
  return lane < 0 ? 0 : UnderWay(lane);
}

uint64_t SimNetwork::HashState() const {
  uint64_t hash = 1;
  const auto add_message = [&hash](const Message& message) {
    hash = HashBytes(hash, message.wire.data(), message.wire.size());
    if (message.late == nullptr)
      hash = HashBytes(hash, message.payload.data(), message.payload_bytes);
  };
  for (const LaneQueue& lane : lanes_) {
    hash = MixKey(hash, lane.count);
    for (uint32_t k = 0; k < lane.count; ++k) add_message(lane.at(k));
  }
  uint64_t open = 0;  // in any order
  for (const Open& each : open_) {
    open += MixKey(MixKey(static_cast<uint64_t>(each.kind), each.rank.value()),
                   MixKey(each.edge.value(), each.slot));
  }
  hash = MixKey(hash, open);
  for (const auto& endpoint : endpoints_) {
    hash = MixKey(hash, endpoint->ledger_->HashState());
    for (EdgeHandle edge : endpoint->ready_) hash = MixKey(hash, edge.value());
    hash = MixKey(hash, endpoint->lost_.size());
  }
  return hash;
}

absl::StatusOr<EdgeHandle> SimEndpoint::AddEdge(const TransportEdge& edge) {
  if (network_->connected_ || !network_->endpoints_.Has(edge.peer) || edge.peer == rank_ ||
      edge.slots < 1 || edge.bytes < 0 || edge.initial_tokens < 0 ||
      edge.initial_tokens > edge.slots) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("edge ", edge.edge, ": cannot be added"));
  }
  const EdgeHandle handle = edges_.next_id();
  Edge& added = edges_.emplace_back();
  added.spec = edge;
  if (edge.direction == Direction::kOutgoing) added.spec.landing = nullptr;
  return handle;
}

absl::Status SimEndpoint::CheckSend(EdgeHandle edge, Direction direction, int32_t slot) const {
  if (ledger_ != nullptr) return ledger_->CheckSend(edge, direction, slot);
  return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                    absl::StrCat("rank ", rank_, ": not connected"));
}

void* SimEndpoint::TryMap(EdgeHandle edge, int32_t slot) {
  if (!edges_.Has(edge)) return nullptr;
  const Edge& e = edges_[edge];
  if (e.lane < 0 || e.spec.direction != Direction::kOutgoing || slot < 0 || slot >= e.spec.slots ||
      network_->mapping_ != SimNetwork::Mapping::kDirect || e.peer_spec.landing == nullptr) {
    return nullptr;
  }
  return e.peer_spec.landing + slot * e.peer_spec.stride;
}

WireMessage SimEndpoint::NewMessage(Kind kind, const Edge& edge) const {
  WireMessage message;
  message.job_tag = ledger_->job_tag();
  message.pair_tag = PairTag(kJobKey, rank_, edge.spec.peer);
  message.epoch = kEpoch;
  message.role = kRole;
  message.kind = kind;
  message.sender = rank_;
  message.receiver_edge = edge.peer_edge;
  return message;
}

absl::Status SimEndpoint::Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) {
  WEIR_RETURN_IF_ERROR(CheckSend(edge, Direction::kOutgoing, header.slot));
  Edge& e = edges_[edge];
  const int64_t size = header.payload_bytes;
  const bool lands = size > 0 && e.peer_spec.landing != nullptr;
  char* mapped = static_cast<char*>(TryMap(edge, header.slot));
  if (size < 0 || size > e.spec.bytes || header.edge != e.spec.edge ||
      (lands && mapped == nullptr && bytes == nullptr)) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": bad header for edge ", e.spec.edge));
  }
  if (closed_ || network_->endpoints_[e.spec.peer]->closed_) return PeerGone(e.spec.peer);
  if (std::find(lost_.begin(), lost_.end(), e.spec.peer) != lost_.end())
    return PeerGone(e.spec.peer);

  WireMessage message = NewMessage(Kind::kToken, e);
  message.header = header;
  SimNetwork::Message& sent = network_->NewestOf(network_->lanes_[e.lane], header.slot);
  if (lands && mapped != nullptr) {
    message.payload = Payload::kMapped;
    if (bytes != mapped && bytes != nullptr) std::memcpy(mapped, bytes, size);
    message.checksum = Crc32c(mapped, size);
  } else if (lands) {
    message.payload = Payload::kSent;
    message.checksum = Crc32c(bytes, size);
    sent.payload_bytes = static_cast<uint32_t>(size);
    if (network_->mapping_ == SimNetwork::Mapping::kLate) {
      sent.late = static_cast<const char*>(bytes);
    } else {
      sent.payload.assign(static_cast<const char*>(bytes), size);
    }
  }
  message.number = ledger_->BeginSend(edge, header.slot);
  EncodeWireMessage(message, sent.wire.data());
  e.traffic.payload_bytes += size;
  ++e.traffic.tokens;
  network_->Send(e.lane, sent, size);
  return absl::OkStatus();
}

absl::Status SimEndpoint::ReturnCredit(EdgeHandle edge, int32_t slot) {
  WEIR_RETURN_IF_ERROR(CheckSend(edge, Direction::kIncoming, slot));
  Edge& e = edges_[edge];
  WireMessage message = NewMessage(Kind::kCredit, e);
  message.header.edge = e.spec.edge;
  message.header.slot = slot;
  message.number = ledger_->BeginSend(edge, slot);
  ++e.traffic.credits;
  if (closed_ || network_->endpoints_[e.spec.peer]->closed_ ||
      std::find(lost_.begin(), lost_.end(), e.spec.peer) != lost_.end()) {  // nobody waits for it
    ledger_->EndSend(edge, slot);
    ++network_->lanes_[e.lane].num_entered;  // under way for ever
    return absl::OkStatus();
  }
  SimNetwork::Message& sent = network_->NewestOf(network_->lanes_[e.lane], slot);
  EncodeWireMessage(message, sent.wire.data());
  network_->Send(e.lane, sent, 0);
  return absl::OkStatus();
}

RankId SimEndpoint::GonePeer() const {
  if (network_->num_gone_ == 0) return RankId();
  if (!lost_.empty()) return lost_.front();
  for (const Edge& edge : edges_) {
    if (edge.lane < 0 || !network_->endpoints_[edge.spec.peer]->closed_) continue;
    bool under_way = false;
    for (const SimNetwork::LaneQueue& lane : network_->lanes_) {
      under_way |= lane.lane.to == rank_ && lane.lane.from == edge.spec.peer && lane.count > 0;
    }
    if (!under_way) return edge.spec.peer;
  }
  return RankId();
}

absl::StatusOr<int64_t> SimEndpoint::Poll(MessageReceiver* receiver) {
  if (!damage_.ok()) return damage_;
  int64_t num_messages = 0;
  for (size_t k = 0; k < ready_.size(); ++k) {
    const EdgeHandle edge = ready_[k];
    edges_[edge].in_ready = false;
    absl::Status handed = HandOver(edge, receiver, &num_messages);
    if (!handed.ok()) {
      ready_.erase(ready_.begin(), ready_.begin() + static_cast<int64_t>(k) + 1);
      MarkReady(edge);
      return handed;
    }
  }
  ready_.clear();
  if (num_messages > 0) return num_messages;
  const RankId gone = GonePeer();
  if (gone.has_value()) return PeerGone(gone);
  return 0;
}

// Hands over all messages of one edge that are in order.
absl::Status SimEndpoint::HandOver(EdgeHandle edge, MessageReceiver* receiver,
                                   int64_t* num_messages) {
  while (const MessageLedger::Arrival* arrival = ledger_->Front(edge)) {
    const WireMessage& message = arrival->message;
    const MessageHeader header = message.header;
    const bool token = message.kind == Kind::kToken;
    if (token) {
      absl::Status intact = CheckPayload(edge, message);
      if (!intact.ok()) return damage_ = intact;
    }
    ledger_->Pop(edge);
    --network_->lanes_[edges_[edge].inward_lane].num_entered;
    ++*num_messages;
    WEIR_RETURN_IF_ERROR(token ? receiver->OnToken(edge, header)
                               : receiver->OnCredit(edge, header.slot));
  }
  return absl::OkStatus();
}

absl::Status SimEndpoint::CheckPayload(EdgeHandle edge, const WireMessage& message) const {
  if (message.payload == Payload::kNone) return absl::OkStatus();
  const TransportEdge& spec = edges_[edge].spec;
  const uint32_t found =
      Crc32c(spec.landing + message.header.slot * spec.stride, message.header.payload_bytes);
  if (found == message.checksum) return absl::OkStatus();
  return Damaged(
      {"W0526",
       absl::StrCat("rank ", rank_, ", token ", message.header.sequence, " from rank ", spec.peer,
                    " on edge ", spec.edge, ", slot ", message.header.slot),
       absl::StrCat(message.header.payload_bytes, " bytes with checksum ", message.checksum),
       absl::StrCat(found), ""});
}

void SimEndpoint::Close() {
  if (std::exchange(closed_, true)) return;
  ++network_->num_gone_;
  for (auto& endpoint : network_->endpoints_) {
    if (endpoint->GonePeer().has_value()) endpoint->WakeIfParked();
  }
}

}  // namespace weir::transport
