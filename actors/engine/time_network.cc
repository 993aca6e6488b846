#include "actors/engine/time_network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"

namespace weir::actors {

TimeNetwork::TimeNetwork(const ManualClock* clock, std::function<Way(RankId from, RankId to)> ways)
    : clock_(clock), ways_(std::move(ways)) {}
TimeNetwork::~TimeNetwork() = default;

transport::TransportEndpoint* TimeNetwork::endpoint(RankId rank) { return time_endpoint(rank); }

TimeEndpoint* TimeNetwork::time_endpoint(RankId rank) {
  std::unique_ptr<TimeEndpoint>& endpoint = endpoints_[rank];
  if (endpoint == nullptr) endpoint = std::make_unique<TimeEndpoint>(this, rank);
  return endpoint.get();
}

absl::Status TimeNetwork::ConnectAll() {
  if (connected_) return connect_status_;
  connected_ = true;
  std::map<EdgeId, std::pair<TimeEndpoint*, EdgeHandle>> receivers;
  size_t num_loose = 0;
  for (auto& [rank, endpoint] : endpoints_) {
    for (const EdgeHandle handle : endpoint->edges_.ids()) {
      const transport::TransportEdge& spec = endpoint->edges_[handle].spec;
      if (loose_.contains(spec.edge)) {
        AddLoose(endpoint.get(), handle);
        ++num_loose;
      } else if (spec.direction == transport::TransportEdge::Direction::kIncoming) {
        receivers[spec.edge] = {endpoint.get(), handle};
      }
    }
  }
  for (auto& [rank, endpoint] : endpoints_) {
    for (const EdgeHandle handle : endpoint->edges_.ids()) {
      if (!connect_status_.ok()) break;
      const transport::TransportEdge& spec = endpoint->edges_[handle].spec;
      if (spec.direction == transport::TransportEdge::Direction::kIncoming ||
          loose_.contains(spec.edge))
        continue;
      const auto image = images_.find(spec.edge);
      const auto to = receivers.find(image == images_.end() ? spec.edge : image->second);
      if (to == receivers.end()) {
        return connect_status_ =
                   CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                              absl::StrCat("edge ", spec.edge, ": expected a receiver on rank ",
                                           spec.peer, "; found none"));
      }
      connect_status_ = Join(endpoint.get(), handle, to->second.first, to->second.second);
    }
  }
  if (connect_status_.ok() && edges_.size() != receivers.size() + num_loose) {
    connect_status_ = CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                                 "an incoming edge has no sender, or two");
  }
  return connect_status_;
}

absl::Status TimeNetwork::Join(TimeEndpoint* from, EdgeHandle handle, TimeEndpoint* to,
                               EdgeHandle to_handle) {
  TimeEndpoint::EdgeEnd& out = from->edges_[handle];
  TimeEndpoint::EdgeEnd& in = to->edges_[to_handle];
  if (in.edge >= 0 || in.spec.slots != out.spec.slots || in.spec.bytes != out.spec.bytes ||
      in.spec.initial_tokens != out.spec.initial_tokens) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("edge ", out.spec.edge, ": ranks ", from->rank_, " and ",
                                   to->rank_, " disagree about slots, bytes or initial tokens"));
  }
  Edge& edge = edges_.emplace_back();
  edge.from = from;
  edge.to = to;
  edge.from_handle = handle;
  edge.to_handle = to_handle;
  // The ways are those of the edge in the job; an image edge has the same ways.
  edge.there = ways_(from->rank_, out.spec.peer);
  edge.back = ways_(out.spec.peer, from->rank_);
  if (to->rank_ != out.spec.peer) edge.there.in = ways_(in.spec.peer, to->rank_).in;
  edge.in_edge = in.spec.edge;
  if (const auto payloads = payloads_.find(out.spec.edge); payloads != payloads_.end())
    edge.payloads = payloads->second;
  edge.tokens.resize(out.spec.slots);
  edge.credits.resize(out.spec.slots);
  out.edge = in.edge = static_cast<int32_t>(edges_.size()) - 1;
  return absl::OkStatus();
}

void TimeNetwork::AddLoose(TimeEndpoint* endpoint, EdgeHandle handle) {
  TimeEndpoint::EdgeEnd& end = endpoint->edges_[handle];
  const bool out = end.spec.direction == transport::TransportEdge::Direction::kOutgoing;
  Edge& edge = edges_.emplace_back();
  (out ? edge.from : edge.to) = endpoint;
  (out ? edge.from_handle : edge.to_handle) = handle;
  edge.there = out ? ways_(endpoint->rank_, end.spec.peer) : ways_(end.spec.peer, endpoint->rank_);
  edge.back = out ? ways_(end.spec.peer, endpoint->rank_) : ways_(endpoint->rank_, end.spec.peer);
  edge.in_edge = end.spec.edge;
  edge.tokens.resize(end.spec.slots);
  edge.credits.resize(end.spec.slots);
  edge.num_put = end.spec.initial_tokens;
  end.edge = static_cast<int32_t>(edges_.size()) - 1;
  if (out) return;
  for (int32_t slot = end.spec.initial_tokens; slot < end.spec.slots; ++slot)
    SendLoose(end.edge, slot);
}

// Sends a token on an incoming edge that has no sender here.
void TimeNetwork::SendLoose(int32_t index, int32_t slot) {
  Edge& edge = edges_[index];
  Flight& flight = edge.tokens[(edge.first_token + edge.num_tokens++) % edge.tokens.size()];
  flight.header.edge = edge.in_edge;
  flight.header.epoch = 1;
  flight.header.slot = slot;
  flight.header.sequence = edge.num_put++;
  flight.header.payload_bytes = edge.to->edges_[edge.to_handle].spec.bytes;
  flight.sent_ns = clock_->NowNs();
  flight.receive_ns =
      edge.there.receive_ns + std::llround(static_cast<double>(flight.header.payload_bytes) *
                                           edge.there.receive_ns_per_byte);
  posted_.push_back({clock_->NowNs() + edge.there.latency_ns, 2 * index});
}

int64_t& TimeNetwork::FreeAt(int32_t way) {
  if (way >= static_cast<int32_t>(free_at_.size())) free_at_.resize(way + 1, 0);
  return free_at_[way];
}

absl::Status TimeNetwork::Put(int32_t index, const transport::MessageHeader& header) {
  Edge& edge = edges_[index];
  const int32_t slots = static_cast<int32_t>(edge.tokens.size());
  if (edge.num_tokens == slots || header.slot < 0 || header.slot >= slots) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0522",
                      absl::StrCat("edge ", header.edge, ": slot ", header.slot, " is not free"));
  }
  const int64_t now = clock_->NowNs();
  int64_t bytes = header.payload_bytes;
  if (!edge.payloads.empty()) bytes = edge.payloads[edge.num_put % edge.payloads.size()];
  ++edge.num_put;
  ++num_messages_;
  payload_bytes_ += static_cast<double>(bytes);
  const int64_t begin = edge.there.out >= 0 ? std::max(now, FreeAt(edge.there.out)) : now;
  const int64_t takes_ns =
      edge.there.message_ns + std::llround(static_cast<double>(bytes) * edge.there.ns_per_byte);
  if (edge.there.out >= 0) FreeAt(edge.there.out) = begin + takes_ns;
  if (edge.to == nullptr) {  // nobody is at the way in
    edge.credits[(edge.first_credit + edge.num_credits++) % slots] = header.slot;
    posted_.push_back(
        {begin + takes_ns + edge.there.latency_ns + edge.back.latency_ns, 2 * index + 1});
    return absl::OkStatus();
  }
  Flight& flight = edge.tokens[(edge.first_token + edge.num_tokens++) % slots];
  flight.header = header;
  flight.header.edge = edge.in_edge;
  flight.sent_ns = now;
  flight.receive_ns = edge.there.receive_ns +
                      std::llround(static_cast<double>(bytes) * edge.there.receive_ns_per_byte);
  if (edge.there.in >= 0) {
    posted_.push_back({begin, 2 * index, Arrival::At::kWayIn, takes_ns});
  } else {
    posted_.push_back({begin + takes_ns + edge.there.latency_ns, 2 * index});
  }
  return absl::OkStatus();
}

void TimeNetwork::Enter(int32_t lane, int64_t takes_ns) {
  const Edge& edge = edges_[lane / 2];
  const Way& way = lane % 2 == 0 ? edge.there : edge.back;
  int64_t& free_at = FreeAt(way.in);
  free_at = std::max(clock_->NowNs(), free_at) + takes_ns;
  posted_.push_back({free_at + way.latency_ns, lane});
}

void TimeNetwork::ReturnCredit(int32_t index, int32_t slot) {
  Edge& edge = edges_[index];
  if (edge.from == nullptr) return SendLoose(index, slot);
  const int32_t slots = static_cast<int32_t>(edge.credits.size());
  edge.credits[(edge.first_credit + edge.num_credits++) % slots] = slot;
  const int64_t now = clock_->NowNs();
  const Way& back = edge.back;
  if (!back.queues_credits || back.out < 0) {
    posted_.push_back({now + back.latency_ns, 2 * index + 1});
    return;
  }
  const int64_t begin = std::max(now, FreeAt(back.out));
  if (back.in >= 0) {
    posted_.push_back({begin, 2 * index + 1, Arrival::At::kWayIn, 0});
  } else {
    posted_.push_back({begin + back.latency_ns, 2 * index + 1});
  }
}

RankId TimeNetwork::Arrive(int32_t lane) {
  TimeEndpoint* to = lane % 2 == 0 ? edges_[lane / 2].to : edges_[lane / 2].from;
  to->inbox_.push_back(lane);
  return to->rank_;
}

absl::StatusOr<EdgeHandle> TimeEndpoint::AddEdge(const transport::TransportEdge& edge) {
  const EdgeHandle handle = edges_.next_id();
  edges_.push_back({edge, -1, {}});
  return handle;
}

void* TimeEndpoint::TryMap(EdgeHandle edge, int32_t slot) {
  const TimeNetwork::Edge& joined = network_->edges_[edges_[edge].edge];
  const transport::TransportEdge& spec = joined.to->edges_[joined.to_handle].spec;
  return spec.landing == nullptr ? nullptr : spec.landing + slot * spec.stride;
}

absl::Status TimeEndpoint::Put(EdgeHandle edge, const transport::MessageHeader& header,
                               const void* /*bytes*/) {
  EdgeEnd& end = edges_[edge];
  ++end.traffic.tokens;
  end.traffic.payload_bytes += header.payload_bytes;
  return network_->Put(end.edge, header);
}

absl::Status TimeEndpoint::ReturnCredit(EdgeHandle edge, int32_t slot) {
  EdgeEnd& end = edges_[edge];
  ++end.traffic.credits;
  network_->ReturnCredit(end.edge, slot);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TimeEndpoint::Poll(transport::MessageReceiver* receiver) {
  if (inbox_.empty()) return 0;
  polled_.swap(inbox_);
  for (int32_t lane : polled_) {
    TimeNetwork::Edge& edge = network_->edges_[lane / 2];
    const int32_t slots = static_cast<int32_t>(edge.tokens.size());
    absl::Status taken;
    if (lane % 2 == 0) {
      const TimeNetwork::Flight& flight = edge.tokens[edge.first_token];
      edge.first_token = edge.first_token + 1 == slots ? 0 : edge.first_token + 1;
      --edge.num_tokens;
      edge.last_taken_sent_ns = flight.sent_ns;
      receive_ns_ += flight.receive_ns;
      taken = receiver->OnToken(edge.to_handle, flight.header);
    } else {
      const int32_t slot = edge.credits[edge.first_credit];
      edge.first_credit = edge.first_credit + 1 == slots ? 0 : edge.first_credit + 1;
      --edge.num_credits;
      taken = receiver->OnCredit(edge.from_handle, slot);
    }
    if (!taken.ok()) return taken;
  }
  const int64_t num_polled = static_cast<int64_t>(polled_.size());
  polled_.clear();
  return num_polled;
}

int64_t TimeEndpoint::last_sent_ns(EdgeHandle edge) const {
  return network_->edges_[edges_[edge].edge].last_taken_sent_ns;
}

int64_t TimeEndpoint::TakeReceiveNs() { return std::exchange(receive_ns_, 0); }

}  // namespace weir::actors
