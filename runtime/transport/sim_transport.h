// The transport of the simulator, in which nothing moves unless its owner says so. Messages wait in
// one lane per edge and direction; delivering a lane hands its oldest message to the receiver. A
// lane never reorders its messages, and the owner may pick any lane, so every order that a real
// network can show can be shown. At the owner's request the transport also does what a network
// should never do (Delivery).
//
// Messages are those of the wire and pass MessageLedger, as between processes. By default the
// consumer's slot cannot be mapped: the payload is copied when it is put and lands when it is
// delivered, as over a wire.
// Thread rule: all endpoints and the network on one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/transport/message_ledger.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire_message.h"

namespace weir::transport {

class SimEndpoint;

class SimNetwork final : public TransportNetwork {
 public:
  enum class Mapping : uint8_t {
    kCopied,
    // The payload is read from the sender's memory only when it lands, as for a receiver that
    // fetches.
    kLate,
    kDirect,  // the producer writes the consumer's slot
  };

  struct Lane {
    EdgeId edge;
    RankId from;
    RankId to;
    enum class Carries : uint8_t { kTokens, kCredits } carries = Carries::kTokens;
    int64_t num_messages = 0;
    int64_t oldest_due_ns = 0;  // when the oldest message may arrive in virtual time
  };

  // A Delivery says how a message is delivered. kInPieces: Settle delivers the payload, and the
  // sender's notice that the payload has left.
  struct Delivery {
    enum class Pieces : uint8_t { kWhole, kInPieces } pieces = Pieces::kWhole;
    enum class Tamper : uint8_t {
      kNone,
      // The next tampers are harmless, since the receiver must cope with them:
      kOvertaken,      // the next message of the lane comes first, if there is one
      kStaleBefore,    // the same message, but of the epoch before, comes first
      kForeignBefore,  // the same, of another job
      // The next tampers are harmful; the job must end with an error and never with other bits:
      kTwice,       // the message comes again right after itself
      kTwiceLater,  // the message comes again when the owner delivers the stray
      kTruncated,   // a byte of the payload is missing, or of the header if there is no payload
      kHeaderBit,   // a bit of the header behind the tag is flipped
      kPayloadBit,  // a bit of the payload is flipped
      kLost,        // the message never comes, and the connection breaks
    } tamper = Tamper::kNone;
    uint32_t bit = 0;  // kHeaderBit, kPayloadBit: the flipped bit, modulo their number
  };
  // Counts of events beside the messages themselves.
  struct Counts {
    int64_t fenced = 0;     // of another epoch, and dropped
    int64_t foreign = 0;    // of no message of this job, and dropped
    int64_t overtaken = 0;  // entered before their turn
    int64_t in_pieces = 0;
    int64_t tampered = 0;          // messages that were not as sent
    int64_t wrongly_accepted = 0;  // made by tampering, and yet accepted
  };

  explicit SimNetwork(int num_ranks, Mapping mapping = Mapping::kCopied);
  ~SimNetwork() override;

  TransportEndpoint* endpoint(RankId rank) override;

  // Virtual time: messages put from now on are due `latency(bytes, from, to)` later.
  void set_now_ns(int64_t now_ns) { now_ns_ = now_ns; }
  void set_latency(std::function<int64_t(int64_t bytes, RankId from, RankId to)> latency) {
    latency_ = std::move(latency);
  }

  // Returns the lanes that hold messages, in an order that depends on the history alone.
  const std::vector<int>& busy_lanes() const { return busy_; }
  Lane lane(int index) const;
  int num_lanes() const { return static_cast<int>(lanes_.size()); }
  // Delivers the oldest message of a busy lane to its receiver.
  void Deliver(int lane) { Deliver(lane, Delivery()); }
  void Deliver(int lane, const Delivery& how);

  // Returns the number of payloads and send completions that kInPieces left open, and of messages
  // that kTwiceLater left behind; settling an item may let its rank hand over messages.
  int num_open() const { return static_cast<int>(open_.size()); }
  RankId open_rank(int k) const { return open_[k].rank; }
  void Settle(int k);

  // Breaks the connection of two ranks, with everything that was under way between them.
  void Break(RankId rank, RankId other);
  // Ends the process of a rank, with all its connections.
  void Kill(RankId rank);
  // Returns whether polling would tell the rank that a peer is gone.
  bool HasNotice(RankId rank) const;

  // Return the messages of one edge, for conservation checks: in lanes and entered, but not yet
  // handed over.
  int64_t TokensUnderWay(EdgeId edge) const;
  int64_t CreditsUnderWay(EdgeId edge) const;
  // Returns the lane of an edge; -1 if the edge has none.
  int LaneOf(EdgeId edge, Lane::Carries carries) const;
  int64_t UnderWay(int lane) const { return lanes_[lane].count + lanes_[lane].num_entered; }
  const Counts& counts() const { return counts_; }

  // Resets to the state after Connect, for another run; memory is kept. Edges must be connected.
  void Rewind();
  // Hashes all state that decides which messages may come.
  uint64_t HashState() const;

 private:
  friend class SimEndpoint;
  struct Message {
    std::array<char, kWireMessageBytes> wire;
    int32_t slot = 0;
    const char* late = nullptr;  // kLate: where the payload is until it lands
    std::string payload;         // kCopied
    uint32_t payload_bytes = 0;
    int64_t due_ns = 0;
  };
  struct LaneQueue {
    Lane lane;
    EdgeHandle sender_edge;
    EdgeHandle receiver_edge;
    std::vector<Message> ring;  // `count` from `head`
    uint32_t head = 0;
    uint32_t count = 0;
    int busy_at = -1;  // position in busy_
    int64_t last_due_ns = 0;
    int64_t num_entered = 0;
    Message& at(uint32_t k) { return ring[(head + k) % ring.size()]; }
    const Message& at(uint32_t k) const { return ring[(head + k) % ring.size()]; }
  };
  struct Open {
    enum class Kind : uint8_t { kLands, kLeft, kStray } kind = Kind::kLands;
    RankId rank;  // whose ledger it concerns
    int lane = 0;
    EdgeHandle edge;
    int32_t slot = 0;
    Message message;
    Delivery::Tamper tamper = Delivery::Tamper::kNone;
    uint32_t bit = 0;
  };

  absl::Status ConnectAll();
  void MakeLedgers();
  void Send(int lane, Message& message, int64_t bytes);  // of the tensor, for the latency
  Message& NewestOf(LaneQueue& lane, int32_t slot);
  void TakeOldest(int lane, Message* message);
  void Idle(int lane);
  void Enter(int lane, Message& message, const Delivery& how);
  void EnterStray(int lane, Message message);
  void EnterOfOther(int lane, const Message& message, Delivery::Tamper which);
  void Land(SimEndpoint& to, EdgeHandle edge, int32_t slot, const Message& message,
            const Delivery& how);

  const Mapping mapping_;
  int64_t now_ns_ = 0;
  std::function<int64_t(int64_t, RankId, RankId)> latency_;
  IdVector<RankId, std::unique_ptr<SimEndpoint>> endpoints_;
  std::vector<LaneQueue> lanes_;
  std::map<std::pair<EdgeId, Lane::Carries>, int> lane_of_edge_;
  int num_gone_ = 0;  // endpoints closed, connections broken
  std::vector<int> busy_;
  std::vector<Open> open_;
  Counts counts_;
  Message taken_;  // room
  bool connected_ = false;
  absl::Status connect_status_;
};

}  // namespace weir::transport
