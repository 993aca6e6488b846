// The network of the virtual-time engine. A message arrives when the links between the two devices
// have carried it. A message occupies a way out of the sender and a way into the receiver for
// message_ns + bytes * ns_per_byte; each way carries one message after another. The message arrives
// latency_ns after it has passed both ways. A message asks for the way in when it gets the way out;
// if it must wait for the way in, it waits between the two, and the way out is free for the next
// message. Credits take the latency alone, or, on ways that queue credits, wait on both ways for
// what these carry before them.
//
// Nothing is copied: a consumer's slot is mapped where the executor has memory, and only headers
// travel where the executor has none. Rank classes: some ranks may stand for others. A token that
// leaves on an edge to an absent rank then arrives on the image of that edge among the present
// ranks (SetImages). Not here: when acts start and end (time_engine.h). Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/transport/transport.h"

namespace weir::actors {

class TimeEndpoint;

class TimeNetwork final : public transport::TransportNetwork {
 public:
  // A Way holds the costs of a message from one rank to another.
  struct Way {
    int64_t latency_ns = 0;
    int64_t message_ns = 0;
    double ns_per_byte = 0;
    // The ways that the message occupies, as small numbers that others may share; -1: none.
    int32_t out = -1;
    int32_t in = -1;
    bool queues_credits = false;
    // The time for which the message keeps the receiving device from acting, and the same per byte.
    int64_t receive_ns = 0;
    double receive_ns_per_byte = 0;
  };
  // An Arrival is the next event of a lane, for the oldest message of the lane that still awaits
  // the event.
  struct Arrival {
    enum class At : uint8_t { kWayIn, kReceiver };
    int64_t at_ns = 0;
    int32_t lane = 0;
    At at = At::kReceiver;
    int64_t takes_ns = 0;  // on the way in
  };

  // `clock` must outlive the network.
  TimeNetwork(const ManualClock* clock, std::function<Way(RankId from, RankId to)> ways);
  ~TimeNetwork() override;

  transport::TransportEndpoint* endpoint(RankId rank) override;
  TimeEndpoint* time_endpoint(RankId rank);

  // Call before Connect. Maps each outgoing edge to the incoming edge that its tokens arrive on; an
  // edge not named is its own image.
  void SetImages(std::map<EdgeId, EdgeId> images) { images_ = std::move(images); }
  // Call before Connect. The other end of a loose edge has no representative here. A message on an
  // outgoing loose edge is dropped, and its credit comes back in due time. An incoming loose edge
  // has a token for every free slot, one latency after the slot was given back.
  void SetLoose(std::vector<EdgeId> edges) { loose_.insert(edges.begin(), edges.end()); }
  // Call before Connect. `bytes` holds the payloads of the tokens of a step of an outgoing edge,
  // repeated for every step; by default the header gives the payload.
  void SetPayloads(EdgeId edge, std::vector<int64_t> bytes) { payloads_[edge] = std::move(bytes); }

  // Messages put since the last call, with the times of their arrivals; the caller clears the
  // vector.
  std::vector<Arrival>& posted() { return posted_; }
  // Takes the way in, and posts the time at which the message will arrive.
  void Enter(int32_t lane, int64_t takes_ns);
  // Puts the oldest message of the lane into the receiver's inbox. Returns the receiver's rank.
  RankId Arrive(int32_t lane);

  int64_t num_messages() const { return num_messages_; }
  double payload_bytes() const { return payload_bytes_; }

 private:
  friend class TimeEndpoint;
  struct Flight {
    transport::MessageHeader header;
    int64_t sent_ns = 0;
    int64_t receive_ns = 0;
  };
  // An Edge carries tokens one way (lane 2i) and credits back (lane 2i + 1). Rings of `slots` each.
  struct Edge {
    TimeEndpoint* from = nullptr;  // null: loose
    TimeEndpoint* to = nullptr;    // null: loose
    EdgeHandle from_handle;
    EdgeHandle to_handle;
    Way there;
    Way back;
    EdgeId in_edge;
    std::vector<int64_t> payloads;
    std::vector<Flight> tokens;
    int32_t first_token = 0, num_tokens = 0;
    std::vector<int32_t> credits;
    int32_t first_credit = 0, num_credits = 0;
    int64_t num_put = 0;
    int64_t last_taken_sent_ns = 0;  // of the token handed over last
  };

  absl::Status ConnectAll();
  absl::Status Join(TimeEndpoint* from, EdgeHandle handle, TimeEndpoint* to, EdgeHandle to_handle);
  void AddLoose(TimeEndpoint* endpoint, EdgeHandle handle);
  void SendLoose(int32_t edge, int32_t slot);
  int64_t& FreeAt(int32_t way);
  absl::Status Put(int32_t edge, const transport::MessageHeader& header);
  void ReturnCredit(int32_t edge, int32_t slot);

  const ManualClock* const clock_;
  const std::function<Way(RankId, RankId)> ways_;
  std::map<RankId, std::unique_ptr<TimeEndpoint>> endpoints_;
  std::map<EdgeId, EdgeId> images_;
  std::set<EdgeId> loose_;
  std::map<EdgeId, std::vector<int64_t>> payloads_;
  std::vector<Edge> edges_;
  std::vector<int64_t> free_at_;  // by way
  std::vector<Arrival> posted_;
  int64_t num_messages_ = 0;
  double payload_bytes_ = 0;
  bool connected_ = false;
  absl::Status connect_status_;
};

class TimeEndpoint final : public transport::TransportEndpoint {
 public:
  TimeEndpoint(TimeNetwork* network, RankId rank) : network_(network), rank_(rank) {}

  absl::StatusOr<EdgeHandle> AddEdge(const transport::TransportEdge& edge) override;
  absl::Status Connect() override { return network_->ConnectAll(); }
  void* TryMap(EdgeHandle edge, int32_t slot) override;
  absl::Status Put(EdgeHandle edge, const transport::MessageHeader& header,
                   const void* bytes) override;
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override;
  absl::Status Flush() override { return absl::OkStatus(); }  // credits leave at once
  absl::StatusOr<int64_t> Poll(transport::MessageReceiver* receiver) override;
  void SetWakeHook(std::function<void()>) override {}  // nobody sleeps in virtual time
  ParkResult Park() override { return ParkResult::kParked; }
  void Unpark() override {}
  void Close() override {}
  transport::EdgeTraffic Traffic(EdgeHandle edge) const override { return edges_[edge].traffic; }

  bool has_messages() const { return !inbox_.empty(); }
  // Returns the time at which the token that Poll handed over last on an incoming edge was put.
  int64_t last_sent_ns(EdgeHandle edge) const;
  // Returns the device time that the messages handed over by Poll have cost since the last call.
  int64_t TakeReceiveNs();

 private:
  friend class TimeNetwork;
  struct EdgeEnd {
    transport::TransportEdge spec;
    int32_t edge = -1;  // in the network
    transport::EdgeTraffic traffic;
  };
  TimeNetwork* const network_;
  const RankId rank_;
  IdVector<EdgeHandle, EdgeEnd> edges_;
  std::vector<int32_t> inbox_;  // lanes, in order of arrival
  std::vector<int32_t> polled_;
  int64_t receive_ns_ = 0;
};

}  // namespace weir::actors
