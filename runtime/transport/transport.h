// The transport: how tokens and credits cross from rank to rank. Narrow on purpose;
// loopback (threads of one process), UCX (processes and hosts) and the simulator stand
// behind it and pass one conformance suite (transport_conformance.h).
//
// An edge joins one outbound register of a rank to one inbound register of another.
// A credit is the permission to write slot k of the consumer's landing buffer, so
// data is put straight into it and is never queued. Messages of one edge and
// direction arrive in order; messages of different edges may overtake each other.
//
//   lifecycle of an endpoint: AllocateLanding, AddEdge ... , Connect, { Put | ReturnCredit | Poll |
//   Park }, Close
//
// Bounds: at most `slots` tokens and `slots` credits of an edge are under way, so every
// queue is sized at Connect and a Put never blocks and never fails for lack of room.
// Thread rule: an endpoint belongs to its rank's thread; only the wake hook is called
// from other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// What travels with a token. The receiver checks every field against its own plan;
// no address, offset or size of it is used unchecked. While shapes are static the
// payload's length tells all there is to say about the actual shape.
struct MessageHeader {
  uint32_t epoch = 0;  // of the plan; other epochs are refused
  uint16_t role = 0;
  uint16_t codec_version = 0;  // 0: plain
  uint64_t edge = 0;
  int32_t slot = 0;
  int32_t micro_batch = 0;
  int64_t sequence = 0;  // +1 per token of the edge, from its number of initial tokens
  int64_t step = 0;
  int64_t version = 0;        // of what is sent, for asynchronous edges; else the step
  int64_t payload_bytes = 0;  // at most the register's bytes
};

struct TransportEdge {
  enum class Direction : uint8_t { kOutgoing, kIncoming };
  Direction direction = Direction::kOutgoing;
  uint64_t edge = 0;  // unique in the job; the same on both ranks
  int32_t peer = 0;
  int32_t slots = 1;
  int32_t initial_tokens = 0;
  int64_t bytes = 0;  // of one slot
  // What this side holds of the actors at both ends and of when they act, as a number: equal on
  // both sides, or the edge is refused when they connect.
  uint64_t statement = 0;
  // kIncoming: where slot k lands, landing + k * stride. Null when nothing is computed.
  char* landing = nullptr;
  int64_t stride = 0;
};

// Names an edge at its endpoint: the number that AddEdge gave, from 0.
using EdgeHandle = int32_t;

// What an endpoint hands over in Poll.
class MessageReceiver {
 public:
  // A token: its payload lies in the landing buffer. An error ends the Poll.
  virtual absl::Status OnToken(EdgeHandle edge, const MessageHeader& header) = 0;
  // A credit of an outgoing edge.
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

  // Memory for the landing buffers of this endpoint, `bytes` in all, that other processes
  // can reach; it lives as long as the endpoint. Null: any memory will do. Once, before AddEdge.
  virtual absl::StatusOr<char*> AllocateLanding(int64_t /*bytes*/) { return nullptr; }

  // Registers one side of an edge. Before Connect.
  virtual absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) = 0;
  // This endpoint's edges are all registered; finds the other sides. May wait for ranks of
  // other processes, so ranks of one process connect on a thread each. kInvalidArgument if
  // the sides of an edge disagree, kDeadlineExceeded if a rank does not come.
  virtual absl::Status Connect() = 0;

  // The consumer's slot, where this side can write it directly; null where it cannot.
  // Constant from Connect to Close. What is mapped must be put from there.
  virtual void* TryMap(EdgeHandle edge, int32_t slot) = 0;

  // Sends a token with header.payload_bytes from `bytes`, which must stay as they are until
  // the slot's credit is back. A slot is free once its credit has been handed over by Poll.
  // kUnavailable when the peer is gone, kInvalidArgument when the header is not of this edge or the
  // slot is not free: no producer can have more under way than the slots.
  virtual absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) = 0;
  // Gives slot `slot` of an incoming edge back to its producer.
  virtual absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) = 0;

  // Hands over what has arrived, never blocks; returns how many messages. kUnavailable
  // once a peer is gone and all it sent before has been handed over.
  virtual absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) = 0;

  // The hook is called once when a message comes in for a parked endpoint, by another
  // thread; that ends the parking. A network may also call it when it needs its rank to poll
  // for its own sake. Set before Connect.
  virtual void SetWakeHook(std::function<void()> hook) = 0;
  enum class ParkResult : uint8_t { kParked, kMessagesWait };
  virtual ParkResult Park() = 0;
  virtual void Unpark() = 0;

  // Leaves: peers see it as gone. Waits only a little for what is under way, and never
  // for a peer that does not answer. Idempotent.
  virtual void Close() = 0;

  // Sent (outgoing: tokens, bytes) and returned (incoming: credits) so far.
  virtual EdgeTraffic Traffic(EdgeHandle edge) const = 0;
};

// A network as one process sees it: the endpoints of its own ranks.
class TransportNetwork {
 public:
  virtual ~TransportNetwork() = default;
  // Of a rank of this process; lives as long as the network.
  virtual TransportEndpoint* endpoint(int rank) = 0;
};

}  // namespace weir
