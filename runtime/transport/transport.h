// The transport carries tokens and credits from rank to rank. The interface is narrow on purpose;
// loopback (threads of one process), UCX (processes and hosts) and the simulator implement it and
// pass one conformance suite (transport_conformance.h).
//
// An edge joins one outbound register of a rank to one inbound register of another. A credit is the
// permission to write slot k of the consumer's landing buffer, so data is put straight into the
// buffer and is never queued. Messages of one edge and direction arrive in order; messages of
// different edges may overtake each other.
//
//   lifecycle of an endpoint: AllocateLanding, AddEdge ... , Connect, { Put | ReturnCredit | Poll |
//   Park }, Close
//
// Bounds: at most `slots` tokens and `slots` credits of an edge are under way, so every queue is
// sized at Connect, and a Put never blocks and never fails for lack of room.
// Thread rule: an endpoint belongs to its rank's thread; only the wake hook is called from other
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace weir::transport {

// A MessageHeader travels with a token. The receiver checks every field against its own plan and
// uses no address, offset or size of the header unchecked. While shapes are static, the payload's
// length fully describes the actual shape.
struct MessageHeader {
  uint32_t epoch = 0;  // of the plan; other epochs are refused
  uint16_t role = 0;
  uint16_t codec_version = 0;  // 0: plain
  EdgeId edge;
  int32_t slot = 0;
  int32_t micro_batch = 0;
  int64_t sequence = 0;  // +1 per token of the edge, from its number of initial tokens
  int64_t step = 0;
  int64_t version = 0;        // of the payload, for asynchronous edges; else the step
  int64_t payload_bytes = 0;  // at most the register's bytes
};

struct TransportEdge {
  enum class Direction : uint8_t { kOutgoing, kIncoming };
  Direction direction = Direction::kOutgoing;
  EdgeId edge;  // unique in the job; the same on both ranks
  RankId peer{0};
  int32_t slots = 1;
  int32_t initial_tokens = 0;
  int64_t bytes = 0;  // of one slot
  // A hash of this side's knowledge of the actors at both ends and of their times. The hash must be
  // equal on both sides, or the edge is refused when they connect.
  uint64_t statement = 0;
  // kIncoming: slot k lands at landing + k * stride. Null when nothing is computed.
  char* landing = nullptr;
  int64_t stride = 0;
};

// A MessageReceiver takes the messages that an endpoint hands over in Poll.
class MessageReceiver {
 public:
  // Takes a token, whose payload lies in the landing buffer. An error ends the Poll.
  virtual absl::Status OnToken(EdgeHandle edge, const MessageHeader& header) = 0;
  // Takes a credit of an outgoing edge.
  virtual absl::Status OnCredit(EdgeHandle edge, int32_t slot) = 0;

 protected:
  ~MessageReceiver() = default;
};

struct EdgeTraffic {
  int64_t payload_bytes = 0;
  int64_t tokens = 0;
  int64_t credits = 0;
};

class TransportEndpoint {
 public:
  virtual ~TransportEndpoint() = default;

  // Returns memory for the landing buffers of this endpoint, `bytes` in all, that other processes
  // can reach; the memory lives as long as the endpoint. Null: any memory will do. Call once,
  // before AddEdge.
  virtual absl::StatusOr<char*> AllocateLanding(int64_t /*bytes*/) { return nullptr; }

  // Registers one side of an edge, and returns its name at this endpoint: the handles count from 0
  // in the order of these calls. Call before Connect.
  virtual absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) = 0;
  // Connects this endpoint, whose edges are all registered, to the other sides. May wait for ranks
  // of other processes, so ranks of one process connect on a thread each. kInvalidArgument if the
  // sides of an edge disagree, kDeadlineExceeded if a rank does not come.
  virtual absl::Status Connect() = 0;

  // Returns the consumer's slot if this side can write the slot directly, else null. The result is
  // constant from Connect to Close. A mapped slot must be put from its mapped address.
  virtual void* TryMap(EdgeHandle edge, int32_t slot) = 0;

  // Sends a token with header.payload_bytes from `bytes`, which must not change until the slot's
  // credit is back. A slot is free once its credit has been handed over by Poll. kUnavailable when
  // the peer is gone, kInvalidArgument when the header is not of this edge or the slot is not free:
  // no producer can have more tokens under way than the slots.
  virtual absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) = 0;
  // Gives slot `slot` of an incoming edge back to its producer. An endpoint may hold the credit
  // back for a moment, so that it travels with the next token to the same rank: until Flush, Park,
  // or some polls in a row that find nothing.
  virtual absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) = 0;
  // Sends what is held back. Call it before work that takes long.
  virtual absl::Status Flush() = 0;

  // Hands over the messages that have arrived and never blocks; returns the number of messages.
  // kUnavailable once a peer is gone and all its earlier messages have been handed over.
  virtual absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) = 0;

  // The hook is called once when a message comes in for a parked endpoint, by another thread; that
  // call ends the parking. A network may also call the hook when it needs its rank to poll for the
  // network's own sake. Set the hook before Connect.
  virtual void SetWakeHook(std::function<void()> hook) = 0;
  enum class ParkResult : uint8_t { kParked, kMessagesWait };
  virtual ParkResult Park() = 0;
  virtual void Unpark() = 0;

  // Leaves the network: peers see this endpoint as gone. Waits only a little for messages under
  // way, and never for a peer that does not answer. Idempotent.
  virtual void Close() = 0;

  // Returns the traffic so far: sent (outgoing: tokens, bytes) and returned (incoming: credits).
  virtual EdgeTraffic Traffic(EdgeHandle edge) const = 0;
};

// A TransportNetwork is a network as one process sees it: the endpoints of its own ranks.
class TransportNetwork {
 public:
  virtual ~TransportNetwork() = default;
  // Returns the endpoint of a rank of this process; it lives as long as the network.
  virtual TransportEndpoint* endpoint(RankId rank) = 0;
};

}  // namespace weir::transport
