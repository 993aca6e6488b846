// Fixtures of the conformance suite for networks that need a process each: one network per rank,
// all in this process. The networks find each other through a LocalExchange and connect on threads.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/transport/exchange.h"
#include "runtime/transport/transport_conformance.h"

namespace weir::transport {

class SeveralNetworksFixture : public TransportFixture {
 public:
  static constexpr int64_t kLimitMs = 20'000;

  TransportEndpoint* endpoint(int rank) override {
    return networks_[network_of_rank_[rank]]->endpoint(rank);
  }

  std::vector<absl::Status> ConnectAll() override {
    const int num_ranks = static_cast<int>(network_of_rank_.size());
    std::vector<absl::Status> statuses(num_ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([this, rank, &statuses] { statuses[rank] = endpoint(rank)->Connect(); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  // Parking lets an endpoint work without handing anything over.
  void MoveAll() override {
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
      for (size_t rank = 0; rank < network_of_rank_.size(); ++rank) {
        endpoint(static_cast<int>(rank))->Park();
        endpoint(static_cast<int>(rank))->Unpark();
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
    network_of_rank_.insert(network_of_rank_.end(), num_ranks, networks_.size());
    networks_.push_back(std::move(network));
  }
  LocalExchange exchange_{kLimitMs};

 private:
  std::vector<std::unique_ptr<TransportNetwork>> networks_;
  std::vector<size_t> network_of_rank_;
};

}  // namespace weir::transport
