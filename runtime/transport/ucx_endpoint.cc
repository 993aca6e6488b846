#include "runtime/transport/ucx_endpoint.h"

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/tick_clock.h"
#include "runtime/transport/envelope.h"
#include "runtime/transport/fall_asleep.h"

namespace weir::transport {
namespace {

constexpr unsigned kMessageId = 1;
// From this size on UCX asks the receiver first, and the payload goes straight into its slot. A
// smaller payload is copied on arrival: on TCP a copy costs less than asking, as long as the
// message fits one of UCX's segments.
constexpr size_t kRendezvousBytesHere = 16 << 10;
constexpr size_t kRendezvousBytesTcp = kTcpSegmentBytes - (1 << 10);
// Arming fails while a peer is in the middle of sending. Mostly the peer finishes at once, but a
// peer that is stopped there, or gets no core, may take for ever. A rank therefore makes this many
// attempts, fewer once attempts have been in vain, and then naps.
constexpr int kArmsMax = 64;
// Rounds of UCX before a rank that wants to sleep looks around.
constexpr int kRoundsMax = 10'000;
constexpr int kArmsAfterNap = 4;
// A credit that is held back is sent after this many polls that find nothing, in a row.
constexpr int kPollsInVainMax = 4;
// Where all peers have rings, UCX brings bells and the rare message that found its ring full, so it
// works in one of this many polls.
constexpr int kPollsOfRingsMax = 8;
// A poll after an act of some length lets UCX work in any case. These ticks (tick_clock.h) are half
// a microsecond or a little more.
constexpr int64_t kTicksOfRingsMax = 1'500;
constexpr int64_t kNsPerSecond = 1'000'000'000;
const absl::Duration kCloseMax = absl::Milliseconds(200);
// The interval at which a wait looks at states that no event announces, such as the end of the job.
constexpr int64_t kLookMs = 50;

using Direction = TransportEdge::Direction;

}  // namespace

absl::StatusOr<std::unique_ptr<UcxEndpoint>> UcxEndpoint::Create(Network* network, RankId rank,
                                                                 int index) {
  WEIR_ASSIGN_OR_RETURN(PairKey key, PairKey::Make());
  std::unique_ptr<UcxEndpoint> endpoint(new UcxEndpoint(network, rank, index, std::move(key)));
  WEIR_RETURN_IF_ERROR(endpoint->MakeWorker());
  return endpoint;
}

UcxEndpoint::UcxEndpoint(Network* network, RankId rank, int index, PairKey key)
    : network_(network),
      rank_(rank),
      index_(index),
      key_(std::move(key)),
      door_(Hmac(network->options.job_key, absl::StrCat("weir door, epoch ", network->options.epoch,
                                                        ", role ", network->options.role))) {}

absl::Status UcxEndpoint::MakeWorker() {
  const UcxDoor::Scope scope(&door_);
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(network_->context->get(), &params, &worker_);
  if (status != UCS_OK)
    return UcxError(status, absl::StrCat("rank ", rank_, " gets no UCX worker"));
  ucp_address_t* address = nullptr;
  size_t size = 0;
  status = ucp_worker_get_address(worker_, &address, &size);
  if (status != UCS_OK) return UcxError(status, absl::StrCat("rank ", rank_, " has no address"));
  address_.assign(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(worker_, address);
  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return UcxError(status, absl::StrCat("rank ", rank_, " cannot sleep"));
  timer_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_fd_ < 0) {
    return CodedError(
        absl::StatusCode::kUnavailable, "W0525",
        absl::StrCat("rank ", rank_, " cannot sleep: no timer: ", std::strerror(errno)));
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxEndpoint::OnMessage;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return UcxError(status, absl::StrCat("rank ", rank_, " cannot receive"));
  return absl::OkStatus();
}

UcxEndpoint::~UcxEndpoint() {
  Close();
  door_.Release();
  CloseUcx();
  if (timer_fd_ >= 0) ::close(timer_fd_);
}

absl::StatusOr<char*> UcxEndpoint::AllocateLanding(int64_t bytes) {
  if (landing_memory_ != nullptr || bytes < 0) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": landing memory of ", bytes, " bytes"));
  }
  if (network_->options.lanes == UcxTransportOptions::Lanes::kTcp || bytes == 0) return nullptr;
  WEIR_ASSIGN_OR_RETURN(landing_, AllocateShared(bytes, &landing_memory_));
  landing_bytes_ = bytes;
  return landing_;
}

absl::StatusOr<char*> UcxEndpoint::AllocateShared(int64_t bytes, ucp_mem_h* memory) const {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = static_cast<size_t>(bytes);
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucs_status_t status = ucp_mem_map(network_->context->get(), &params, memory);
  if (status != UCS_OK) {
    return UcxError(status,
                    absl::StrCat("rank ", rank_, " gets no shared memory of ", bytes, " bytes"));
  }
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  status = ucp_mem_query(*memory, &attributes);
  if (status != UCS_OK) return UcxError(status, "shared memory without an address");
  return static_cast<char*>(attributes.address);
}

absl::StatusOr<EdgeHandle> UcxEndpoint::AddEdge(const TransportEdge& edge) {
  const bool has_landing = edge.direction == Direction::kIncoming && edge.landing != nullptr;
  if (ledger_ != nullptr || edge.peer.value() < 0 || edge.peer.value() >= network_->num_ranks ||
      edge.peer == rank_ || edge.slots < 1 || edge.bytes < 0 || edge.initial_tokens < 0 ||
      edge.initial_tokens > edge.slots || (has_landing && edge.stride < edge.bytes)) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("edge ", edge.edge, ": cannot be added"));
  }
  const EdgeHandle handle = edges_.next_id();
  Edge& added = edges_.emplace_back();
  added.spec = edge;
  if (!has_landing) added.spec.landing = nullptr;
  if (has_landing && landing_ != nullptr) {
    const std::less_equal<const char*> before;
    const int64_t span = edge.stride * (edge.slots - 1) + edge.bytes;
    if (before(landing_, edge.landing) && before(edge.landing + span, landing_ + landing_bytes_)) {
      added.landing_offset = edge.landing - landing_;
    }
  }
  return handle;
}

void* UcxEndpoint::TryMap(EdgeHandle edge, int32_t slot) {
  if (!connected_ || !edges_.Has(edge)) return nullptr;
  const Edge& e = edges_[edge];
  if (e.mapped == nullptr || slot < 0 || slot >= e.spec.slots) return nullptr;
  return e.mapped + slot * e.mapped_stride;
}

void UcxEndpoint::Lose(Peer& peer, ucs_status_t why) {
  if (!peer.lost) peer.lost_because = why;
  peer.lost = true;
}

// A peer that leaves says so. A lost peer may live, when only the way to it is gone.
absl::Status UcxEndpoint::PeerGone(const Peer& peer) const {
  if (peer.left || !peer.lost)
    return CodedError(absl::StatusCode::kUnavailable, "W0521",
                      absl::StrCat("rank ", rank_, ": rank ", peer.rank, " has left"));
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {kBrokenConnection, absl::StrCat("rank ", rank_),
       absl::StrCat("a connection to rank ", peer.rank, " until the job ends"),
       absl::StrCat("it broke: ", ucs_status_string(peer.lost_because)),
       "look for what cuts connections, such as a firewall, `ss -K` or an interface that "
       "went down; "
       "--transport shm needs no network"});
}

UcxEndpoint::Peer* UcxEndpoint::PeerOf(RankId rank) {
  for (Peer& peer : peers_) {
    if (peer.rank == rank) return &peer;
  }
  return nullptr;
}

WireMessage UcxEndpoint::NewMessage(WireMessage::Kind kind, const Peer& peer,
                                    EdgeHandle receiver_edge) const {
  WireMessage message;
  message.job_tag = ledger_->job_tag();
  message.pair_tag = peer.pair_tag;
  message.epoch = network_->options.epoch;
  message.role = network_->options.role;
  message.kind = kind;
  message.sender = rank_;
  message.receiver_edge = receiver_edge;
  return message;
}

absl::Status UcxEndpoint::Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) {
  if (!connected_)
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": not connected"));
  WEIR_RETURN_IF_ERROR(ledger_->CheckSend(edge, Direction::kOutgoing, header.slot));
  Edge& e = edges_[edge];
  const int64_t size = header.payload_bytes;
  const bool sends = size > 0 && e.payload == WireMessage::Payload::kSent;
  if (size < 0 || size > e.spec.bytes || header.edge != e.spec.edge ||
      (sends && bytes == nullptr)) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": bad header for edge ", e.spec.edge));
  }
  Peer& peer = peers_[e.peer];
  if (closed_)
    return CodedError(absl::StatusCode::kUnavailable, "W0521",
                      absl::StrCat("rank ", rank_, " has left"));
  if (peer.left || peer.lost) return PeerGone(peer);

  WireMessage message = NewMessage(WireMessage::Kind::kToken, peer, e.peer_edge);
  message.header = header;
  if (size > 0) {
    message.payload = e.payload;
    const void* read_at = bytes;
    if (e.payload == WireMessage::Payload::kMapped) {
      char* slot = e.mapped + header.slot * e.mapped_stride;
      if (bytes != slot && bytes != nullptr) std::memcpy(slot, bytes, size);
      read_at = slot;
    }
    if (e.payload != WireMessage::Payload::kNone &&
        network_->options.checksum == UcxTransportOptions::Checksum::kCrc32c) {
      message.checksum = Crc32c(read_at, size);
    }
  }
  message.number = ledger_->BeginSend(edge, header.slot);
  e.traffic.payload_bytes += size;
  ++e.traffic.tokens;
  Record& record = e.records[header.slot];
  EncodeWireMessage(message, record.wire);
  return Send(peer, record, sends ? bytes : nullptr, sends ? size : 0);
}

absl::Status UcxEndpoint::ReturnCredit(EdgeHandle edge, int32_t slot) {
  if (!connected_)
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("rank ", rank_, ": not connected"));
  WEIR_RETURN_IF_ERROR(ledger_->CheckSend(edge, Direction::kIncoming, slot));
  Edge& e = edges_[edge];
  Peer& peer = peers_[e.peer];
  WireMessage message = NewMessage(WireMessage::Kind::kCredit, peer, e.peer_edge);
  message.header.edge = e.spec.edge;
  message.header.slot = slot;
  message.number = ledger_->BeginSend(edge, slot);
  ++e.traffic.credits;
  if (closed_ || peer.left || peer.lost) {  // nobody waits for it
    ledger_->EndSend(edge, slot);
    return absl::OkStatus();
  }
  if (peer.num_held == kRidersMax) WEIR_RETURN_IF_ERROR(SendHeld(peer));
  EncodeWireMessage(message, e.records[slot].wire);
  peer.held[peer.num_held++] = &e.records[slot];
  ++num_held_;
  num_polls_in_vain_ = 0;
  return absl::OkStatus();
}

absl::Status UcxEndpoint::Flush() {
  absl::Status first;
  for (size_t i = 0; i < peers_.size() && num_held_ > 0; ++i) {
    if (peers_[i].num_held > 0) first.Update(SendHeld(peers_[i]));
  }
  return first;
}

// Sends the credits that wait for a token to this peer, in one message.
absl::Status UcxEndpoint::SendHeld(Peer& peer) {
  if (closed_ || peer.left || peer.lost) {  // nobody waits for them
    for (int i = 0; i < peer.num_held; ++i)
      ledger_->EndSend(peer.held[i]->edge, peer.held[i]->slot);
    num_held_ -= peer.num_held;
    peer.num_held = 0;
    return absl::OkStatus();
  }
  Record& first = *peer.held[0];
  --peer.num_held;
  --num_held_;
  std::copy(peer.held.begin() + 1, peer.held.end(), peer.held.begin());
  return Send(peer, first, nullptr, 0);
}

// Puts the message in record.wire, and behind it what is held back for this peer, into the peer's
// ring, if there is one with room for all of it.
bool UcxEndpoint::PutIntoRing(Peer& peer, const Record& record) {
  if (!peer.to_peer.HasRoom(1 + peer.num_held)) return false;
  std::array<RingRider, 2> riders;
  const int num_riders = std::min<int>(peer.num_held, riders.size());
  for (int i = 0; i < num_riders; ++i) {
    WireMessage credit;
    std::memcpy(&credit, peer.held[i]->wire, sizeof(credit));
    riders[i] = {credit.receiver_edge, credit.header.slot, credit.number};
  }
  peer.to_peer.Put(record.wire, riders);
  for (int i = num_riders; i < peer.num_held; ++i) peer.to_peer.Put(peer.held[i]->wire, {});
  ledger_->EndSend(record.edge, record.slot);
  for (int i = 0; i < peer.num_held; ++i) ledger_->EndSend(peer.held[i]->edge, peer.held[i]->slot);
  peer.num_sent += 1 + peer.num_held;
  num_held_ -= peer.num_held;
  peer.num_held = 0;
  ++traffic_.sends;
  ++traffic_.ring_sends;
  return true;
}

// Wakes a peer that sleeps, by a message through UCX. A bell that UCX has not sent yet does for
// this one, too.
absl::Status UcxEndpoint::RingBell(Peer& peer) {
  if (peer.bell_under_way) return absl::OkStatus();
  peer.bell_under_way = true;
  EncodeWireMessage(NewMessage(WireMessage::Kind::kBell, peer, EdgeHandle(0)), peer.bell.wire);
  return Send(peer, peer.bell, nullptr, 0);
}

// Sends the message in record.wire, and behind it what is held back for this peer. What has no
// payload behind it goes through the peer's ring, all else through UCX.
absl::Status UcxEndpoint::Send(Peer& peer, Record& record, const void* bytes, size_t size) {
  if (size == 0 && record.edge.has_value() && PutIntoRing(peer, record))
    return peer.peer_sleeps.TakeDown() ? RingBell(peer) : absl::OkStatus();
  record.num_riders = peer.num_held;
  for (int i = 0; i < peer.num_held; ++i) {
    record.riders[i] = peer.held[i];
    std::memcpy(record.wire + (1 + i) * kWireMessageBytes, peer.held[i]->wire, kWireMessageBytes);
  }
  num_held_ -= peer.num_held;
  peer.num_held = 0;
  ucp_request_param_t param;
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS;
  const size_t rendezvous_bytes = peer.same_host ? kRendezvousBytesHere : kRendezvousBytesTcp;
  param.flags = size >= rendezvous_bytes ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.user_data = &record;
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    Record* sent = static_cast<Record*>(user_data);
    // An answer may have overtaken this.
    if (sent->edge.has_value()) sent->owner->MarkReady(sent->edge);
    for (int i = 0; i < sent->num_riders; ++i) sent->owner->MarkReady(sent->riders[i]->edge);
    sent->owner->OnLeft(*sent, status);
    ucp_request_free(request);
  };
  const bool is_greeting = !record.edge.has_value();
  num_pending_greetings_ += is_greeting;
  num_pending_ += record.num_riders + !is_greeting;
  peer.num_sent += record.num_riders + !is_greeting;
  traffic_.pending_sends_max = std::max(traffic_.pending_sends_max, num_pending_);
  ++traffic_.sends;
  const size_t header_bytes = kWireMessageBytes * static_cast<size_t>(1 + record.num_riders);
  ucs_status_ptr_t request =
      ucp_am_send_nbx(peer.ep, kMessageId, record.wire, header_bytes, bytes, size, &param);
  if (UCS_PTR_IS_PTR(request)) return absl::OkStatus();
  const ucs_status_t status = UCS_PTR_STATUS(request);
  OnLeft(record, status);
  return status == UCS_OK ? absl::OkStatus() : PeerGone(peer);
}

// Handles UCX's release of a record, of the payload that belonged to it, and of its riders.
void UcxEndpoint::OnLeft(Record& record, ucs_status_t status) {
  for (int i = 0; i < record.num_riders; ++i) EndSend(*record.riders[i], status);
  EndSend(record, status);
}

void UcxEndpoint::EndSend(const Record& record, ucs_status_t status) {
  if (!record.edge.has_value()) {
    --num_pending_greetings_;
    Peer& peer = peers_[record.slot];
    if (&record == &peer.bell) peer.bell_under_way = false;
    if (status != UCS_OK) Lose(peer, status);
    return;
  }
  --num_pending_;
  ledger_->EndSend(record.edge, record.slot);
  if (status != UCS_OK) Lose(peers_[edges_[record.edge].peer], status);
}

ucs_status_t UcxEndpoint::OnMessage(void* endpoint, const void* header, size_t header_bytes,
                                    void* data, size_t size, const ucp_am_recv_param_t* param) {
  UcxEndpoint* const self = static_cast<UcxEndpoint*>(endpoint);
  const char* const first = static_cast<const char*>(header);
  // A payload belongs to the first message of a header. What has no whole messages is one, for the
  // ledger to judge.
  const bool is_whole = header_bytes > kWireMessageBytes && header_bytes % kWireMessageBytes == 0 &&
                        header_bytes <= kWireMessageBytes * (1 + kRidersMax);
  self->Enter(first, is_whole ? kWireMessageBytes : header_bytes, data, size, param);
  for (size_t at = kWireMessageBytes; is_whole && at < header_bytes; at += kWireMessageBytes)
    self->Enter(first + at, kWireMessageBytes, nullptr, 0, param);
  return UCS_OK;  // what is not received by now may be dropped
}

void UcxEndpoint::Enter(const char* header, size_t header_bytes, void* data, size_t size,
                        const ucp_am_recv_param_t* param) {
  if (ledger_ == nullptr || !damage_.ok()) return;
  WireMessage message;
  absl::StatusOr<MessageLedger::Verdict> verdict =
      ledger_->Enter(header, header_bytes, size, &message);
  if (!verdict.ok()) {
    damage_ = verdict.status();
    return;
  }
  switch (*verdict) {
    case MessageLedger::Verdict::kForeign: ++traffic_.foreign_messages; return;
    case MessageLedger::Verdict::kFenced: ++traffic_.fenced_messages; return;
    case MessageLedger::Verdict::kAccepted: break;
  }
  if (message.kind == WireMessage::Kind::kHello || message.kind == WireMessage::Kind::kBye)
    return OnGreeting(message);
  if (message.kind == WireMessage::Kind::kBell) return;  // it has ended the sleep
  if (size > 0) return Receive(message, data, size, param);
  MarkReady(message.receiver_edge);
}

// The ledger has checked that `size` bytes fit the slot and that the slot is free.
void UcxEndpoint::Receive(const WireMessage& message, void* data, size_t size,
                          const ucp_am_recv_param_t* param) {
  const EdgeHandle edge = message.receiver_edge;
  Edge& e = edges_[edge];
  const int32_t slot = message.header.slot;
  char* landing = e.spec.landing + slot * e.spec.stride;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    std::memcpy(landing, data, size);
    ledger_->Complete(edge, slot);
    return MarkReady(edge);
  }
  ucp_request_param_t receive;
  receive.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  receive.memory_type = UCS_MEMORY_TYPE_HOST;
  receive.user_data = &e.records[slot];
  receive.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
    Record* record = static_cast<Record*>(user_data);
    UcxEndpoint* self = record->owner;
    if (status == UCS_OK) {
      self->ledger_->Complete(record->edge, record->slot);
      self->MarkReady(record->edge);
    } else {
      Lose(self->peers_[self->edges_[record->edge].peer], status);
    }
    ucp_request_free(request);
  };
  ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker_, data, landing, size, &receive);
  if (UCS_PTR_IS_PTR(request)) return;
  if (UCS_PTR_STATUS(request) != UCS_OK) {
    Lose(peers_[e.peer], UCS_PTR_STATUS(request));
    return;
  }
  ledger_->Complete(edge, slot);
  MarkReady(edge);
}

void UcxEndpoint::OnGreeting(const WireMessage& message) {
  Peer* peer = PeerOf(message.sender);
  if (message.kind == WireMessage::Kind::kHello) {
    peer->greeted = true;
  } else {
    peer->left = true;
    peer->num_expected = message.header.sequence;
  }
}

void UcxEndpoint::MarkReady(EdgeHandle edge) {
  if (edges_[edge].in_ready) return;
  edges_[edge].in_ready = true;
  ready_.push_back(edge);
}

// Takes what peers of this host have put into their rings, and no more than a ring holds, since a
// peer may go on.
void UcxEndpoint::TakeFromRings() {
  if (rings_ == nullptr) return;
  if (std::exchange(shows_sleep_, false)) sleeps_.Hide();
  RingEntry entry;
  for (Peer& peer : peers_) {
    for (int64_t taken = 0; taken < kRingEntries && damage_.ok() && peer.from_peer.TryTake(&entry);
         ++taken) {
      Enter(entry.wire, kWireMessageBytes, nullptr, 0, nullptr);
      for (const RingRider& rider : entry.riders) {
        if (rider.receiver_edge.has_value() && damage_.ok()) EnterRider(entry, rider);
      }
    }
  }
}

// Enters a credit with the sender and the tags of the message that the credit rides on.
void UcxEndpoint::EnterRider(const RingEntry& entry, const RingRider& rider) {
  WireMessage message;
  std::memcpy(&message, entry.wire, sizeof(message));
  message.kind = WireMessage::Kind::kCredit;
  message.payload = WireMessage::Payload::kNone;
  message.receiver_edge = rider.receiver_edge;
  message.number = rider.number;
  message.checksum = 0;
  message.header = MessageHeader();
  message.header.slot = rider.slot;
  if (edges_.Has(rider.receiver_edge)) message.header.edge = edges_[rider.receiver_edge].spec.edge;
  char wire[kWireMessageBytes];
  EncodeWireMessage(message, wire);
  Enter(wire, kWireMessageBytes, nullptr, 0, nullptr);
}

absl::StatusOr<int64_t> UcxEndpoint::Poll(MessageReceiver* receiver) {
  if (!connected_) return 0;
  TakeFromRings();
  if (const int64_t ticks = TickClock::Now(); !all_have_rings_ || num_pending_ > 0 ||
                                              ++num_polls_of_rings_ >= kPollsOfRingsMax ||
                                              ticks - ucx_worked_ticks_ >= kTicksOfRingsMax) {
    // A message may take UCX several rounds; messages that have come by then are handed over at
    // once.
    while (ucp_worker_progress(worker_) != 0 && ready_.empty() && damage_.ok()) {
    }
    num_polls_of_rings_ = 0;
    ucx_worked_ticks_ = ticks;
  }
  if (!damage_.ok()) return damage_;
  int64_t num_messages = 0;
  while (!ready_.empty()) {
    const EdgeHandle edge = ready_.back();
    ready_.pop_back();
    edges_[edge].in_ready = false;
    absl::Status handed = HandOver(edge, receiver, &num_messages);
    if (!handed.ok()) {
      MarkReady(edge);
      return handed;
    }
  }
  if (num_messages == 0) {
    for (const Peer& peer : peers_) {
      if (IsGone(peer)) return PeerGone(peer);
    }
    if (num_held_ > 0 && ++num_polls_in_vain_ > kPollsInVainMax) WEIR_RETURN_IF_ERROR(Flush());
  }
  return num_messages;
}

// Hands over all messages of one edge that are in order.
absl::Status UcxEndpoint::HandOver(EdgeHandle edge, MessageReceiver* receiver,
                                   int64_t* num_messages) {
  while (const MessageLedger::Arrival* arrival = ledger_->Front(edge)) {
    const WireMessage message = arrival->message;
    if (message.kind == WireMessage::Kind::kToken) {
      absl::Status intact = CheckPayload(edge, message);
      if (!intact.ok()) return damage_ = intact;
    }
    ledger_->Pop(edge);
    ++peers_[edges_[edge].peer].num_handed;
    ++*num_messages;
    WEIR_RETURN_IF_ERROR(message.kind == WireMessage::Kind::kToken
                             ? receiver->OnToken(edge, message.header)
                             : receiver->OnCredit(edge, message.header.slot));
  }
  return absl::OkStatus();
}

absl::Status UcxEndpoint::CheckPayload(EdgeHandle edge, const WireMessage& message) const {
  if (message.payload == WireMessage::Payload::kNone ||
      network_->options.checksum == UcxTransportOptions::Checksum::kNone) {
    return absl::OkStatus();
  }
  const TransportEdge& spec = edges_[edge].spec;
  const uint32_t found =
      Crc32c(spec.landing + message.header.slot * spec.stride, message.header.payload_bytes);
  if (found == message.checksum) return absl::OkStatus();
  return Damaged(
      {"W0526",
       absl::StrCat("rank ", rank_, ", token ", message.header.sequence, " from rank ", spec.peer,
                    " on edge ", spec.edge, ", slot ", message.header.slot),
       absl::StrCat(message.header.payload_bytes, " bytes with checksum ", message.checksum),
       absl::StrCat(found), "look for faulty memory or network hardware"});
}

void UcxEndpoint::SetWakeHook(std::function<void()> hook) {
  MutexLock lock(&hook_mutex_);
  hook_ = std::move(hook);
}

void UcxEndpoint::OnNews(uint32_t parking) {
  if (!parked_.compare_exchange_strong(parking, kAwake)) return;
  MutexLock lock(&hook_mutex_);
  if (hook_) hook_();
}

bool UcxEndpoint::HasNews() const {
  const auto deliverable = [this](EdgeHandle edge) { return ledger_->Front(edge) != nullptr; };
  const auto gone = [this](const Peer& peer) { return IsGone(peer); };
  const auto writes = [](const Peer& peer) { return peer.from_peer.has_message(); };
  return !damage_.ok() || std::any_of(ready_.begin(), ready_.end(), deliverable) ||
         std::any_of(peers_.begin(), peers_.end(), gone) ||
         std::any_of(peers_.begin(), peers_.end(), writes);
}

// Sleeper is the endpoint as FallAsleep sees it.
class UcxEndpoint::Sleeper {
 public:
  explicit Sleeper(UcxEndpoint* endpoint) : endpoint_(endpoint) {}

  // UCX has work without end where a socket is half dead.
  bool Work() {
    int rounds = 0;
    while (rounds < kRoundsMax && ucp_worker_progress(endpoint_->worker_) != 0) ++rounds;
    return rounds < kRoundsMax;
  }
  void ShowSign() {
    if (endpoint_->rings_ == nullptr) return;
    endpoint_->sleeps_.Show();
    endpoint_->shows_sleep_ = true;
  }
  bool HasNews() const { return endpoint_->HasNews(); }
  // Once armed, the descriptor announces everything that comes from here on, and everything for
  // which UCX itself waits.
  Armed Arm() {
    const ucs_status_t status = ucp_worker_arm(endpoint_->worker_);
    if (status == UCS_OK) return Armed::kYes;
    if (status == UCS_ERR_BUSY) return Armed::kBusy;
    absl::Status& damage = endpoint_->damage_;
    if (damage.ok())
      damage = UcxError(status, absl::StrCat("rank ", endpoint_->rank_, " cannot sleep"));
    return Armed::kFailed;
  }

 private:
  UcxEndpoint* const endpoint_;
};

TransportEndpoint::ParkResult UcxEndpoint::Park() {
  if (!connected_ || peers_.empty()) return ParkResult::kParked;
  Flush().IgnoreError();  // a peer that is gone shows in the next Poll
  Sleeper sleeper(this);
  switch (FallAsleep(sleeper, nap_.IsFirst() ? kArmsMax : kArmsAfterNap)) {
    case FallenAsleep::kNews: nap_.Reset(); return ParkResult::kMessagesWait;
    case FallenAsleep::kFailed: return ParkResult::kMessagesWait;
    case FallenAsleep::kYes: nap_.Reset(); return StartParking(index_);
    case FallenAsleep::kBusy: break;
  }
  // Half a message lies there. Its sender gives no sign when it goes on, so the clock ends this
  // parking.
  const int64_t nap_ns = nap_.NextNs();
  const itimerspec nap = {{0, 0}, {nap_ns / kNsPerSecond, nap_ns % kNsPerSecond}};
  ::timerfd_settime(timer_fd_, 0, &nap, nullptr);
  return StartParking(index_ + 1);
}

// Parks until the descriptor with this number at the wake thread has news.
TransportEndpoint::ParkResult UcxEndpoint::StartParking(int watched) {
  if (++parking_ == kAwake) ++parking_;
  parked_.store(parking_);
  network_->wake->Watch(watched, parking_);
  return ParkResult::kParked;
}

void UcxEndpoint::WorkUntil(absl::Time deadline, const std::function<bool()>& done) {
  GrowingNap nap;
  int arms_in_vain = 0;
  while (!done()) {
    if (ucp_worker_progress(worker_) != 0) {
      nap.Reset();
      arms_in_vain = 0;
      continue;
    }
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return;
    if (ucp_worker_arm(worker_) == UCS_OK) {
      pollfd fd{event_fd_, POLLIN, 0};
      ::poll(&fd, 1, static_cast<int>(std::min<int64_t>(left_ms, kLookMs)));
    } else if (++arms_in_vain >= kArmsMax) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(nap.NextNs()));
    }
  }
}

void UcxEndpoint::Close() {
  if (closed_) return;
  if (connected_) Flush().IgnoreError();
  closed_ = true;
  parked_.store(kAwake);
  for (Peer& peer : peers_) {
    if (peer.ep == nullptr || peer.lost) continue;
    WireMessage bye = NewMessage(WireMessage::Kind::kBye, peer, EdgeHandle(0));
    bye.header.sequence = peer.num_sent;
    EncodeWireMessage(bye, peer.bye.wire);
    (void)Send(peer, peer.bye, nullptr, 0);
  }
  if (worker_ != nullptr) {
    WorkUntil(absl::Now() + kCloseMax,
              [this] { return num_pending_ + num_pending_greetings_ == 0; });
  }
}

void UcxEndpoint::CloseUcx() {
  std::set<void*> closing;  // requests
  for (Peer& peer : peers_) {
    for (ucp_rkey_h rkey : {peer.rkey, peer.rings_rkey}) {
      if (rkey != nullptr) ucp_rkey_destroy(rkey);
    }
    if (peer.ep == nullptr) continue;
    ucp_request_param_t param;
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    // Only endpoints that report errors may be cut off.
    param.flags = peer.same_host ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
    param.user_data = &closing;
    param.cb.send = [](void* request, ucs_status_t, void* requests) {
      static_cast<std::set<void*>*>(requests)->erase(request);
      ucp_request_free(request);
    };
    void* const request = ucp_ep_close_nbx(peer.ep, &param);
    if (UCS_PTR_IS_PTR(request)) closing.insert(request);
  }
  if (!closing.empty()) WorkUntil(absl::Now() + kCloseMax, [&closing] { return closing.empty(); });
  // A peer that takes nothing more, or too late, leaves requests behind. UCX aborts the process if
  // a worker ends before the owner of such a request has given the request up.
  for (void* request : closing) ucp_request_free(request);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  for (ucp_mem_h memory : {landing_memory_, rings_memory_}) {
    if (memory != nullptr) ucp_mem_unmap(network_->context->get(), memory);
  }
}

}  // namespace weir::transport
