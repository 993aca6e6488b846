// Connects the endpoints of the UCX transport: cards, lanes, mapped memory, greetings.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/transport/envelope.h"
#include "runtime/transport/pair_key.h"
#include "runtime/transport/ucx_endpoint.h"

namespace weir::transport {
namespace {

using Direction = TransportEdge::Direction;
using Lanes = UcxTransportOptions::Lanes;

// Returns whether all of [begin, begin + bytes) is mapped in this process.
bool IsMapped(const char* begin, int64_t bytes) {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uintptr_t to = reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes);
  return to > from && ::msync(reinterpret_cast<void*>(from), to - from, MS_ASYNC) == 0;
}

}  // namespace

absl::Status UcxEndpoint::Connect() {
  if (ledger_ != nullptr)
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": connects once"));
  FindPeers();
  WEIR_RETURN_IF_ERROR(MakeRings());
  WEIR_ASSIGN_OR_RETURN(const RankCard mine, MakeCard());
  const std::string& key = network_->options.job_key;
  const std::string subject = CardSubject(network_->options.epoch, network_->options.role, rank_);
  WEIR_RETURN_IF_ERROR(
      network_->exchange->Publish(subject, SealEnvelope(key, subject, EncodeRankCard(mine))));
  for (Peer& peer : peers_) WEIR_RETURN_IF_ERROR(ReadCard(peer, mine));
  const UcxDoor::Scope scope(&door_);
  for (Peer& peer : peers_) WEIR_RETURN_IF_ERROR(Reach(peer));
  JoinEdges();
  WEIR_RETURN_IF_ERROR(Greet());
  // All peers have come, each over connections of its own making.
  door_.Close();
  connected_ = true;
  return absl::OkStatus();
}

// Finds the ranks that share an edge, and makes the records per edge and slot.
void UcxEndpoint::FindPeers() {
  std::set<RankId> ranks;  // PeersOf the card
  for (const Edge& edge : edges_) ranks.insert(edge.spec.peer);
  peers_.resize(ranks.size());
  int position = 0;
  for (const RankId rank : ranks) {
    Peer& peer = peers_[position];
    peer.rank = rank;
    peer.owner = this;
    for (Record* greeting : {&peer.hello, &peer.bye, &peer.bell}) {
      greeting->owner = this;
      greeting->slot = position;
    }
    ++position;
  }
  IdVector<EdgeHandle, LedgerEdge> ledger_edges;
  for (const EdgeHandle handle : edges_.ids()) {
    Edge& edge = edges_[handle];
    edge.peer = static_cast<int>(std::distance(ranks.begin(), ranks.find(edge.spec.peer)));
    edge.records.resize(edge.spec.slots);
    for (int32_t slot = 0; slot < edge.spec.slots; ++slot) {
      edge.records[slot].owner = this;
      edge.records[slot].edge = handle;
      edge.records[slot].slot = slot;
    }
    ledger_edges.push_back({edge.spec, edge.landing_offset >= 0 ? LedgerEdge::Landing::kReachable
                                                                : LedgerEdge::Landing::kPrivate});
  }
  ready_.reserve(edges_.size());
  const UcxTransportOptions& options = network_->options;
  MessageLedger::Identity identity{options.job_key, options.epoch, options.role, rank_,
                                   network_->num_ranks};
  ledger_ = std::make_unique<MessageLedger>(std::move(identity), std::move(ledger_edges));
}

// Makes the block of rings, one for each peer, since which of them are on this host is not known
// yet.
absl::Status UcxEndpoint::MakeRings() {
  if (network_->options.lanes == Lanes::kTcp || peers_.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(rings_, AllocateShared(RingBlockBytes(std::ssize(peers_)), &rings_memory_));
  std::memset(rings_, 0, RingBlockBytes(std::ssize(peers_)));
  sleeps_ = SleepSign(rings_);
  return absl::OkStatus();
}

absl::Status UcxEndpoint::PackKey(ucp_mem_h memory, std::string* key) const {
  void* packed = nullptr;
  size_t size = 0;
  const ucs_status_t status = ucp_rkey_pack(network_->context->get(), memory, &packed, &size);
  if (status != UCS_OK)
    return UcxError(status, absl::StrCat("rank ", rank_, " has no key to its shared memory"));
  key->assign(static_cast<const char*>(packed), size);
  ucp_rkey_buffer_release(packed);
  return absl::OkStatus();
}

absl::StatusOr<RankCard> UcxEndpoint::MakeCard() const {
  RankCard card;
  card.rank = rank_;
  card.num_ranks = network_->num_ranks;
  card.lanes = static_cast<uint8_t>(network_->options.lanes);
  card.checksum = static_cast<uint8_t>(network_->options.checksum);
  card.host = network_->host;
  card.address = address_;
  card.public_key = key_.public_key();
  if (landing_memory_ != nullptr) {
    WEIR_RETURN_IF_ERROR(PackKey(landing_memory_, &card.landing_key));
    card.landing_address = reinterpret_cast<uint64_t>(landing_);
    card.landing_bytes = landing_bytes_;
  }
  if (rings_memory_ != nullptr) {
    WEIR_RETURN_IF_ERROR(PackKey(rings_memory_, &card.rings_key));
    card.rings_address = reinterpret_cast<uint64_t>(rings_);
    card.rings_bytes = RingBlockBytes(std::ssize(peers_));
  }
  for (const EdgeHandle handle : edges_.ids()) {
    const TransportEdge& spec = edges_[handle].spec;
    CardEdge edge;
    edge.edge = spec.edge;
    edge.direction = spec.direction;
    edge.peer = spec.peer;
    edge.slots = spec.slots;
    edge.initial_tokens = spec.initial_tokens;
    edge.bytes = spec.bytes;
    edge.statement = spec.statement;
    edge.handle = handle;
    edge.landing_offset = edges_[handle].landing_offset;
    edge.stride = spec.stride;
    edge.has_landing = spec.landing != nullptr;
    card.edges.push_back(edge);
  }
  return card;
}

// No part of a card is used before its envelope has proved whole.
absl::Status UcxEndpoint::ReadCard(Peer& peer, const RankCard& mine) {
  const std::string subject =
      CardSubject(network_->options.epoch, network_->options.role, peer.rank);
  WEIR_ASSIGN_OR_RETURN(const std::string envelope, network_->exchange->Fetch(subject));
  WEIR_ASSIGN_OR_RETURN(const std::string content,
                        OpenEnvelope(network_->options.job_key, subject, envelope));
  WEIR_ASSIGN_OR_RETURN(peer.card, DecodeRankCard(content));
  const RankCard& card = peer.card;
  if (card.rank != peer.rank || card.num_ranks != mine.num_ranks || card.lanes != mine.lanes ||
      card.checksum != mine.checksum) {
    return CodedError(
        absl::StatusCode::kInvalidArgument, "W0522",
        absl::StrCat("rank ", rank_, " of ", mine.num_ranks, ", lanes ", mine.lanes, ", checksum ",
                     mine.checksum, ": the card of rank ", peer.rank, " says rank ", card.rank,
                     " of ", card.num_ranks, ", lanes ", card.lanes, ", checksum ", card.checksum));
  }
  WEIR_ASSIGN_OR_RETURN(const std::string secret, key_.SecretWith(card.public_key));
  peer.pair_tag = PairTag(secret, rank_, peer.rank);
  ledger_->ExpectTag(peer.rank, PairTag(secret, peer.rank, rank_));
  WEIR_ASSIGN_OR_RETURN(peer.pairs, PairEdges(mine, card));
  return absl::OkStatus();
}

absl::Status UcxEndpoint::Reach(Peer& peer) {
  const Lanes lanes = network_->options.lanes;
  peer.same_host = lanes != Lanes::kTcp && peer.card.host == network_->host;
  if (lanes == Lanes::kSharedMemory && !peer.same_host) {
    return CodedError(
        absl::StatusCode::kUnavailable, "W0525",
        absl::StrCat("rank ", rank_, " shares no memory with rank ", peer.rank, ": one is on '",
                     network_->host, "', the other on '", peer.card.host, "'"));
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.card.address.data());
  // UCX with error handling would leave shared memory alone and take TCP.
  params.err_mode = peer.same_host ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  if (!peer.same_host) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_handler.arg = &peer;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t why) {
      Lose(*static_cast<Peer*>(arg), why);
    };
  }
  ucs_status_t status = ucp_ep_create(worker_, &params, &peer.ep);
  if (status != UCS_OK) {
    peer.ep = nullptr;
    return UcxError(status, absl::StrCat("rank ", rank_, " cannot reach rank ", peer.rank));
  }
  return peer.same_host ? MapMemory(peer) : absl::OkStatus();
}

// Maps the peer's landing memory and its rings. What UCX cannot map is done without: then tokens
// are sent, and all messages go through UCX.
absl::Status UcxEndpoint::MapMemory(Peer& peer) {
  const RankCard& card = peer.card;
  WEIR_ASSIGN_OR_RETURN(peer.landing, MapOf(peer, card.landing_key, card.landing_address,
                                            card.landing_bytes, &peer.rkey));
  WEIR_ASSIGN_OR_RETURN(char* const rings, MapOf(peer, card.rings_key, card.rings_address,
                                                 card.rings_bytes, &peer.rings_rkey));
  // Each rank has a ring for each of its peers, in the order of the ranks.
  peer.from_peer = RingReader(rings_, &peer - peers_.data());
  const std::vector<RankId> ranks = PeersOf(card.edges);
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (rings == nullptr) return absl::OkStatus();
  if (mine == ranks.end() || card.rings_bytes < RingBlockBytes(std::ssize(ranks))) {
    return Damaged(
        {"W0523", absl::StrCat("rank ", peer.rank, "'s card"),
         absl::StrCat("a ring for each of ", ranks.size(), " peers, rank ", rank_, " among them"),
         absl::StrCat(card.rings_bytes, " bytes"), ""});
  }
  peer.to_peer = RingWriter(rings, mine - ranks.begin());
  peer.peer_sleeps = SleepSign(rings);
  return absl::OkStatus();
}

// Returns where `bytes` of the peer's memory lie in this process; null if UCX cannot map them.
absl::StatusOr<char*> UcxEndpoint::MapOf(const Peer& peer, const std::string& key, uint64_t address,
                                         int64_t bytes, ucp_rkey_h* rkey) const {
  if (key.empty()) return nullptr;
  ucs_status_t status = ucp_ep_rkey_unpack(peer.ep, key.data(), rkey);
  if (status != UCS_OK) {
    *rkey = nullptr;
    return UcxError(status, absl::StrCat("rank ", rank_, " cannot read rank ", peer.rank,
                                         "'s key to its memory"));
  }
  void* here = nullptr;
  if (ucp_rkey_ptr(*rkey, address, &here) != UCS_OK) return nullptr;
  if (!IsMapped(static_cast<const char*>(here), bytes)) {
    return Damaged({"W0523", absl::StrCat("rank ", peer.rank, "'s card"),
                    absl::StrCat(bytes, " bytes of shared memory"), "less", ""});
  }
  return static_cast<char*>(here);
}

void UcxEndpoint::JoinEdges() {
  for (const EdgeHandle handle : edges_.ids()) {
    Edge& edge = edges_[handle];
    const Peer& peer = peers_[edge.peer];
    const CardEdge& other = peer.card.edges[peer.pairs[handle.value()]];
    edge.peer_edge = other.handle;
    if (edge.spec.direction == Direction::kIncoming || !other.has_landing) continue;
    edge.payload = WireMessage::Payload::kSent;
    if (peer.landing != nullptr && other.landing_offset >= 0) {
      edge.payload = WireMessage::Payload::kMapped;
      edge.mapped = peer.landing + other.landing_offset;
      edge.mapped_stride = other.stride;
    }
  }
  all_have_rings_ =
      std::all_of(peers_.begin(), peers_.end(), [](Peer& peer) { return peer.to_peer.HasRoom(1); });
  for (Peer& peer : peers_) {
    peer.card = RankCard();
    peer.pairs.clear();
  }
}

// Every peer is heard once before tensors move, so that every connection is known to work.
absl::Status UcxEndpoint::Greet() {
  for (Peer& peer : peers_) {
    EncodeWireMessage(NewMessage(WireMessage::Kind::kHello, peer, EdgeHandle(0)), peer.hello.wire);
    WEIR_RETURN_IF_ERROR(Send(peer, peer.hello, nullptr, 0));
  }
  const auto heard = [](const Peer& peer) { return peer.greeted; };
  const auto gone = [](const Peer& peer) { return peer.lost || (peer.left && !peer.greeted); };
  absl::Status job;
  WorkUntil(absl::Now() + absl::Milliseconds(network_->options.connect_limit_ms), [&] {
    job = network_->exchange->JobStatus();
    return !damage_.ok() || !job.ok() || std::any_of(peers_.begin(), peers_.end(), gone) ||
           (num_pending_greetings_ == 0 && std::all_of(peers_.begin(), peers_.end(), heard));
  });
  if (!damage_.ok()) return damage_;
  if (!job.ok()) return job;
  for (const Peer& peer : peers_) {
    if (gone(peer)) return PeerGone(peer);
  }
  for (const Peer& peer : peers_) {
    if (!heard(peer) || num_pending_greetings_ > 0) {
      return CodedError(absl::StatusCode::kDeadlineExceeded, "W0527",
                        absl::StrCat("rank ", rank_, ": rank ", peer.rank, " was not heard within ",
                                     network_->options.connect_limit_ms, " ms"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::transport
