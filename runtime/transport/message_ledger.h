// A MessageLedger tracks the messages that may come next on the edges of a rank. Every message from
// another process is entered here before anything is touched, and is refused if it does not fit.
// The ledger puts messages of an edge back into order, since networks reorder them. The ledger
// knows no network and moves no data.
//
//   a slot of an outgoing edge: kFree -Send-> kTaken -(credit enters)-> kArriving -Pop-> kFree
//   a slot of an incoming edge: kFree -(token enters)-> kArriving -Pop-> kTaken -Send-> kFree
//
// Initial tokens take their slots from the start. Tokens and credits of an edge are numbered from 0
// each; a number that is more than `slots` ahead is impossible. A message is handed over when all
// messages before it have been, its payload is complete, and the message that this side sent from
// the slot has left. All memory is allocated at the start. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire_message.h"

namespace weir::transport {

struct LedgerEdge {
  TransportEdge spec;
  // kIncoming: the producer may have written the slot itself.
  enum class Landing : uint8_t { kPrivate, kReachable } landing = Landing::kPrivate;
};

class MessageLedger {
 public:
  struct Identity {
    std::string job_key;
    uint32_t epoch = 0;
    uint16_t role = 0;
    RankId rank{0};
    int32_t num_ranks = 0;
  };
  enum class Verdict : uint8_t {
    kAccepted,
    kForeign,  // no message of this job
    kFenced,   // of this job, of another epoch or role
  };
  // An Arrival is a token or credit that has come.
  struct Arrival {
    WireMessage message;
    enum class State : uint8_t { kNone, kReceiving, kComplete } state = State::kNone;
  };

  MessageLedger(Identity identity, IdVector<EdgeHandle, LedgerEdge> edges);

  // Tells the tag of the messages from `peer` (pair_key.h). Messages with another are damaged. Call
  // once for each rank that shares an edge, before any message comes.
  void ExpectTag(RankId peer, uint64_t pair_tag) { peers_[peer].pair_tag = pair_tag; }

  uint64_t job_tag() const { return job_tag_; }
  int num_edges() const { return static_cast<int>(edges_.size()); }
  const TransportEdge& spec(EdgeHandle edge) const { return edges_[edge].spec; }
  // Hashes all state that decides which messages may come next.
  uint64_t HashState() const;

  // Enters a message of `header_bytes` at `header`, with `payload_bytes` behind it. Accepted tokens
  // with a payload behind are kReceiving until Complete. An error is a wrong message of this job:
  // kDataLoss, with rank, edge, and what was expected and found.
  absl::StatusOr<Verdict> Enter(const char* header, size_t header_bytes, uint64_t payload_bytes,
                                WireMessage* message);
  void Complete(EdgeHandle edge, int32_t slot);

  // kInvalidArgument unless a token (outgoing) or credit (incoming) may be sent for the slot now.
  absl::Status CheckSend(EdgeHandle edge, TransportEdge::Direction direction, int32_t slot) const;
  // Precondition: CheckSend is OK. Returns the number that the message gets. The slot is leaving
  // until EndSend.
  uint32_t BeginSend(EdgeHandle edge, int32_t slot);
  void EndSend(EdgeHandle edge, int32_t slot);

  // Returns the next message of an edge if it can be handed over, else null; the result is valid
  // until Pop.
  const Arrival* Front(EdgeHandle edge) const;
  void Pop(EdgeHandle edge);

 private:
  enum class Use : uint8_t { kFree, kTaken, kArriving };
  struct Slot {
    Use use = Use::kFree;
    bool leaving = false;
    uint32_t arrival = 0;  // while kArriving: its position in arrivals
  };
  struct Edge {
    TransportEdge spec;
    LedgerEdge::Landing landing = LedgerEdge::Landing::kPrivate;
    uint32_t next_sent = 0;
    uint32_t next_received = 0;
    uint32_t head = 0;  // position of number next_received in arrivals
    std::vector<Slot> slots;
    std::vector<Arrival> arrivals;  // a ring
  };
  struct Peer {
    bool shares_edge = false;
    bool greeted = false;
    bool left = false;
    uint64_t pair_tag = 0;  // of its messages
  };

  absl::StatusOr<Verdict> EnterGreeting(const WireMessage& message, uint64_t payload_bytes);
  absl::Status CheckEdge(const WireMessage& message) const;
  absl::Status CheckPayload(const WireMessage& message, uint64_t payload_bytes) const;
  absl::Status Wrong(const WireMessage& message, const std::string& expected,
                     const std::string& found) const;

  Identity identity_;
  uint64_t job_tag_;
  IdVector<EdgeHandle, Edge> edges_;
  IdVector<RankId, Peer> peers_;
};

}  // namespace weir::transport
