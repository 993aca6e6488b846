// The transport of the simulator: nothing moves unless its owner says so. Messages
// wait in one lane per edge and direction; delivering a lane hands its oldest message
// to the receiver. Lanes never reorder within, and the owner may pick any lane, so
// every order that a real network could show can be shown.
//
// By default the consumer's slot cannot be mapped and the payload is copied when it is
// put and lands when it is delivered, as over a wire.
// Thread rule: all endpoints and the network on one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/transport/transport.h"

namespace weir {

class SimEndpoint;

class SimNetwork final : public TransportNetwork {
 public:
  enum class Mapping : uint8_t { kCopied, kDirect };

  struct Lane {
    uint64_t edge = 0;
    int from = 0;
    int to = 0;
    enum class Carries : uint8_t { kTokens, kCredits } carries = Carries::kTokens;
    int64_t num_messages = 0;
    int64_t oldest_due_ns = 0;  // when the oldest message may arrive in virtual time
  };

  explicit SimNetwork(int num_ranks, Mapping mapping = Mapping::kCopied);
  ~SimNetwork() override;

  TransportEndpoint* endpoint(int rank) override;

  // Virtual time: messages put from now on are due `latency(bytes, from, to)` later.
  void set_now_ns(int64_t now_ns) { now_ns_ = now_ns; }
  void set_latency(std::function<int64_t(int64_t bytes, int from, int to)> latency) { latency_ = std::move(latency); }

  // Lanes that hold messages, in an order that depends on the history alone.
  const std::vector<int>& busy_lanes() const { return busy_; }
  Lane lane(int index) const;
  int num_lanes() const { return static_cast<int>(lanes_.size()); }
  // Moves the oldest message of a busy lane to its receiver's inbox.
  void Deliver(int lane);
  // Of one edge, for conservation checks: in lanes and in inboxes not yet polled.
  int64_t TokensUnderWay(uint64_t edge) const;
  int64_t CreditsUnderWay(uint64_t edge) const;

 private:
  friend class SimEndpoint;
  struct Message {
    MessageHeader header;
    std::string payload;
    int64_t due_ns = 0;
  };
  struct LaneQueue {
    Lane lane;
    EdgeHandle receiver_edge = -1;
    std::deque<Message> queue;
    int busy_at = -1;  // position in busy_
    int64_t last_due_ns = 0;
    int64_t num_in_inbox = 0;
  };

  absl::Status ConnectAll();
  void Send(int lane, Message message);
  int64_t UnderWay(uint64_t edge, Lane::Carries carries) const;

  const Mapping mapping_;
  int64_t now_ns_ = 0;
  std::function<int64_t(int64_t, int, int)> latency_;
  std::vector<std::unique_ptr<SimEndpoint>> endpoints_;
  std::vector<LaneQueue> lanes_;
  std::map<std::pair<uint64_t, Lane::Carries>, int> lane_of_edge_;
  int num_closed_ = 0;
  std::vector<int> busy_;
  bool connected_ = false;
  absl::Status connect_status_;
};

}  // namespace weir
