#include "runtime/transport/message_ledger.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::transport {
namespace {

using Kind = WireMessage::Kind;
using Payload = WireMessage::Payload;
using Direction = TransportEdge::Direction;

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kHello: return "hello";
    case Kind::kToken: return "token";
    case Kind::kCredit: return "credit";
    case Kind::kBye: return "bye";
    case Kind::kBell: return "bell";
  }
  return "message";
}

}  // namespace

MessageLedger::MessageLedger(Identity identity, IdVector<EdgeHandle, LedgerEdge> edges)
    : identity_(std::move(identity)),
      job_tag_(JobTag(identity_.job_key, identity_.epoch, identity_.role)),
      peers_(identity_.num_ranks) {
  edges_.reserve(edges.size());
  for (LedgerEdge& given : edges) {
    Edge& edge = edges_.emplace_back();
    edge.spec = given.spec;
    edge.landing = given.landing;
    edge.slots.resize(given.spec.slots);
    edge.arrivals.resize(given.spec.slots);
    for (int32_t slot = 0; slot < given.spec.initial_tokens; ++slot)
      edge.slots[slot].use = Use::kTaken;
    peers_[given.spec.peer].shares_edge = true;
  }
}

absl::Status MessageLedger::Wrong(const WireMessage& message, const std::string& expected,
                                  const std::string& found) const {
  const bool of_edge = edges_.Has(message.receiver_edge);
  return Damaged(
      {"W0524",
       absl::StrCat(
           "rank ", identity_.rank, ", ", NameOf(message.kind), " from rank ", message.sender,
           of_edge ? absl::StrCat(" on edge ", edges_[message.receiver_edge].spec.edge) : ""),
       expected, found, ""});
}

absl::StatusOr<MessageLedger::Verdict> MessageLedger::Enter(const char* header, size_t header_bytes,
                                                            uint64_t payload_bytes,
                                                            WireMessage* message) {
  if (header_bytes != kWireMessageBytes) return Verdict::kForeign;
  absl::StatusOr<WireMessage> decoded = DecodeWireMessage(header, header_bytes);
  if (!decoded.ok()) {
    uint64_t tag = 0;
    std::memcpy(&tag, header, sizeof(tag));
    if (tag != job_tag_) return Verdict::kForeign;
    return Wrong({}, "a message", std::string(decoded.status().message()));
  }
  *message = *decoded;
  const bool of_network = message->epoch == identity_.epoch && message->role == identity_.role;
  if (message->job_tag != job_tag_) {
    const bool of_job =
        !of_network && message->job_tag == JobTag(identity_.job_key, message->epoch, message->role);
    return of_job ? Verdict::kFenced : Verdict::kForeign;
  }
  if (!of_network) {
    return Wrong(*message, absl::StrCat("epoch ", identity_.epoch, ", role ", identity_.role),
                 absl::StrCat("epoch ", message->epoch, ", role ", message->role));
  }
  if (!peers_.Has(message->sender) || !peers_[message->sender].shares_edge) {
    return Wrong(*message, "a rank that shares an edge", absl::StrCat("rank ", message->sender));
  }
  if (message->pair_tag != peers_[message->sender].pair_tag)
    return Wrong(*message, absl::StrCat("a message that rank ", message->sender, " has written"),
                 "the tag of another");
  if (message->kind != Kind::kToken && message->kind != Kind::kCredit)
    return EnterGreeting(*message, payload_bytes);
  WEIR_RETURN_IF_ERROR(CheckEdge(*message));
  WEIR_RETURN_IF_ERROR(CheckPayload(*message, payload_bytes));

  Edge& edge = edges_[message->receiver_edge];
  Slot& slot = edge.slots[message->header.slot];
  const uint32_t ahead = message->number - edge.next_received;
  slot.arrival = static_cast<uint32_t>((uint64_t{edge.head} + ahead) % edge.arrivals.size());
  slot.use = Use::kArriving;
  Arrival& arrival = edge.arrivals[slot.arrival];
  arrival.message = *message;
  arrival.state = payload_bytes > 0 ? Arrival::State::kReceiving : Arrival::State::kComplete;
  return Verdict::kAccepted;
}

absl::StatusOr<MessageLedger::Verdict> MessageLedger::EnterGreeting(const WireMessage& message,
                                                                    uint64_t payload_bytes) {
  Peer& peer = peers_[message.sender];
  bool many = false;  // bells may come often
  bool& seen = message.kind == Kind::kHello ? peer.greeted
               : message.kind == Kind::kBye ? peer.left
                                            : many;
  if (seen || payload_bytes != 0 || message.payload != Payload::kNone ||
      message.header.sequence < 0) {
    return Wrong(message, "one without payload",
                 seen ? "a second one" : absl::StrCat(payload_bytes, " bytes"));
  }
  seen = true;
  return Verdict::kAccepted;
}

// Checks by edge, slot and number whether it is this message's turn.
absl::Status MessageLedger::CheckEdge(const WireMessage& message) const {
  if (!edges_.Has(message.receiver_edge)) {
    return Wrong(message, absl::StrCat("one of ", num_edges(), " edges"),
                 absl::StrCat("number ", message.receiver_edge));
  }
  const Edge& edge = edges_[message.receiver_edge];
  const Direction direction =
      message.kind == Kind::kToken ? Direction::kIncoming : Direction::kOutgoing;
  if (edge.spec.direction != direction)
    return Wrong(message, "the other direction", NameOf(message.kind));
  if (message.sender != edge.spec.peer) {
    return Wrong(message, absl::StrCat("rank ", edge.spec.peer),
                 absl::StrCat("rank ", message.sender));
  }
  const MessageHeader& header = message.header;
  if (header.edge != edge.spec.edge)
    return Wrong(message, "its own edge", absl::StrCat("edge ", header.edge));
  if (header.slot < 0 || header.slot >= edge.spec.slots) {
    return Wrong(message, absl::StrCat("one of ", edge.spec.slots, " slots"),
                 absl::StrCat("slot ", header.slot));
  }
  const uint32_t ahead = message.number - edge.next_received;
  if (ahead >= edge.arrivals.size()) {
    return Wrong(message, absl::StrCat("number ", edge.next_received, " or a little more"),
                 absl::StrCat(message.number));
  }
  if (edge.arrivals[(uint64_t{edge.head} + ahead) % edge.arrivals.size()].state !=
      Arrival::State::kNone) {
    return Wrong(message, "each number once", absl::StrCat("number ", message.number, " again"));
  }
  const Use expected = direction == Direction::kIncoming ? Use::kFree : Use::kTaken;
  if (edge.slots[header.slot].use != expected) {
    return Wrong(message,
                 direction == Direction::kIncoming ? "a slot with credit" : "a slot that was sent",
                 absl::StrCat("slot ", header.slot));
  }
  return absl::OkStatus();
}

absl::Status MessageLedger::CheckPayload(const WireMessage& message, uint64_t payload_bytes) const {
  const Edge& edge = edges_[message.receiver_edge];
  const int64_t announced = message.header.payload_bytes;
  const int64_t announced_max = message.kind == Kind::kToken ? edge.spec.bytes : 0;
  if (announced < 0 || announced > announced_max) {
    return Wrong(message, absl::StrCat("at most ", announced_max, " bytes"),
                 absl::StrCat(announced));
  }
  uint64_t behind = 0;
  bool fits = true;
  switch (message.payload) {
    case Payload::kNone: fits = announced == 0 || edge.spec.landing == nullptr; break;
    case Payload::kMapped:
      fits = edge.landing == LedgerEdge::Landing::kReachable && announced > 0;
      break;
    case Payload::kSent:
      fits = edge.spec.landing != nullptr && announced > 0;
      behind = static_cast<uint64_t>(announced);
      break;
  }
  if (!fits || payload_bytes != behind) {
    return Wrong(
        message, absl::StrCat(announced, " bytes as the header says"),
        absl::StrCat(payload_bytes, " bytes, payload of kind ", static_cast<int>(message.payload)));
  }
  return absl::OkStatus();
}

void MessageLedger::Complete(EdgeHandle edge, int32_t slot) {
  edges_[edge].arrivals[edges_[edge].slots[slot].arrival].state = Arrival::State::kComplete;
}

absl::Status MessageLedger::CheckSend(EdgeHandle edge, Direction direction, int32_t slot) const {
  if (!edges_.Has(edge) || edges_[edge].spec.direction != direction || slot < 0 ||
      slot >= edges_[edge].spec.slots) {
    return CodedError(
        absl::StatusCode::kInvalidArgument, "W0522",
        absl::StrCat("rank ", identity_.rank, ": no such edge or slot: ", edge, ", ", slot));
  }
  const Use expected = direction == Direction::kOutgoing ? Use::kFree : Use::kTaken;
  if (edges_[edge].slots[slot].use != expected) {
    return CodedError(
        absl::StatusCode::kInvalidArgument, "W0522",
        absl::StrCat("rank ", identity_.rank, ", edge ", edges_[edge].spec.edge, ", slot ", slot,
                     direction == Direction::kOutgoing ? ": its credit is not back"
                                                       : ": it holds no token"));
  }
  return absl::OkStatus();
}

uint32_t MessageLedger::BeginSend(EdgeHandle edge, int32_t slot) {
  Edge& e = edges_[edge];
  e.slots[slot].use = e.spec.direction == Direction::kOutgoing ? Use::kTaken : Use::kFree;
  e.slots[slot].leaving = true;
  return e.next_sent++;
}

void MessageLedger::EndSend(EdgeHandle edge, int32_t slot) {
  edges_[edge].slots[slot].leaving = false;
}

const MessageLedger::Arrival* MessageLedger::Front(EdgeHandle edge) const {
  const Edge& e = edges_[edge];
  const Arrival& arrival = e.arrivals[e.head];
  if (arrival.state != Arrival::State::kComplete) return nullptr;
  if (e.slots[arrival.message.header.slot].leaving) return nullptr;
  return &arrival;
}

void MessageLedger::Pop(EdgeHandle edge) {
  Edge& e = edges_[edge];
  Arrival& arrival = e.arrivals[e.head];
  e.slots[arrival.message.header.slot].use =
      e.spec.direction == Direction::kOutgoing ? Use::kFree : Use::kTaken;
  arrival.state = Arrival::State::kNone;
  e.head = e.head + 1 == e.arrivals.size() ? 0 : e.head + 1;
  ++e.next_received;
}

uint64_t MessageLedger::HashState() const {
  uint64_t hash = 1;
  for (const Edge& edge : edges_) {
    hash = MixKey(hash, MixKey(edge.next_sent, edge.next_received));
    for (const Slot& slot : edge.slots)
      hash = MixKey(hash, static_cast<uint64_t>(slot.use) * 2 + slot.leaving);
    for (size_t i = 0; i < edge.arrivals.size(); ++i) {
      const Arrival& arrival = edge.arrivals[(edge.head + i) % edge.arrivals.size()];
      hash = MixKey(hash, static_cast<uint64_t>(arrival.state));
      if (arrival.state != Arrival::State::kNone)
        hash = MixKey(hash, static_cast<uint64_t>(arrival.message.header.slot));
    }
  }
  return hash;
}

}  // namespace weir::transport
