// Fixtures of the conformance suite for networks that need a process each: one network per rank,
// all in this process. The networks find each other through a LocalExchange and connect on threads.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/transport/exchange.h"
#include "runtime/transport/transport_conformance.h"

namespace weir::transport {

class SeveralNetworksFixture : public TransportFixture {
 public:
  static constexpr int64_t kLimitMs = 20'000;

  TransportEndpoint* endpoint(RankId rank) override {
    return networks_[network_of_rank_[rank]]->endpoint(rank);
  }

  std::vector<absl::Status> ConnectAll() override {
    IdVector<RankId, absl::Status> statuses(network_of_rank_.size());
    std::vector<std::thread> threads;
    for (const RankId rank : network_of_rank_.ids()) {
      threads.emplace_back([this, rank, &statuses] { statuses[rank] = endpoint(rank)->Connect(); });
    }
    for (std::thread& thread : threads) thread.join();
    return std::vector<absl::Status>(statuses.begin(), statuses.end());
  }
  // Parking lets an endpoint work without handing anything over.
  void MoveAll() override {
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
      for (const RankId rank : network_of_rank_.ids()) {
        endpoint(rank)->Park();
        endpoint(rank)->Unpark();
      }
    }
  }
  bool Await(const std::function<bool()>& done) override {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(kLimitMs);
    while (!done()) {
      if (absl::Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

 protected:
  // Networks must be added in the order of their first rank.
  void Add(std::unique_ptr<TransportNetwork> network, int num_ranks) {
    network_of_rank_.resize(network_of_rank_.size() + num_ranks, networks_.size());
    networks_.push_back(std::move(network));
  }
  LocalExchange exchange_{kLimitMs};

 private:
  std::vector<std::unique_ptr<TransportNetwork>> networks_;
  IdVector<RankId, size_t> network_of_rank_;
};

}  // namespace weir::transport
