#include "actors/testing/shared_network.h"

#include <functional>
#include <string>
#include <utility>

namespace weir::actors {

// An Endpoint is the loopback endpoint of a rank, with its own Connect and its own landing memory.
class SharedNetwork::Endpoint final : public transport::TransportEndpoint {
 public:
  Endpoint(SharedNetwork* network, transport::TransportEndpoint* inner)
      : network_(network), inner_(inner) {}

  absl::StatusOr<char*> AllocateLanding(int64_t bytes) override {
    if (network_->landing_ == Landing::kAnywhere) return nullptr;
    landing_.assign(static_cast<size_t>(bytes) + 1, '\x5a');
    return landing_.data() + 1;
  }
  absl::StatusOr<EdgeHandle> AddEdge(const transport::TransportEdge& edge) override {
    return inner_->AddEdge(edge);
  }
  absl::Status Connect() override { return network_->ConnectOne(inner_); }
  void* TryMap(EdgeHandle edge, int32_t slot) override {
    return network_->mapping_ == Mapping::kDirect ? inner_->TryMap(edge, slot) : nullptr;
  }
  absl::Status Put(EdgeHandle edge, const transport::MessageHeader& header,
                   const void* bytes) override {
    return inner_->Put(edge, header, bytes);
  }
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override {
    return inner_->ReturnCredit(edge, slot);
  }
  absl::Status Flush() override { return inner_->Flush(); }
  absl::StatusOr<int64_t> Poll(transport::MessageReceiver* receiver) override {
    return inner_->Poll(receiver);
  }
  void SetWakeHook(std::function<void()> hook) override { inner_->SetWakeHook(std::move(hook)); }
  ParkResult Park() override { return inner_->Park(); }
  void Unpark() override { inner_->Unpark(); }
  void Close() override { inner_->Close(); }
  transport::EdgeTraffic Traffic(EdgeHandle edge) const override { return inner_->Traffic(edge); }

 private:
  SharedNetwork* const network_;
  transport::TransportEndpoint* const inner_;
  std::string landing_;
};

SharedNetwork::SharedNetwork(int num_ranks, Landing landing, Mapping mapping)
    : landing_(landing), mapping_(mapping), loopback_(num_ranks) {
  for (const RankId rank : IdRange<RankId>(num_ranks)) {
    endpoints_.push_back(std::make_unique<Endpoint>(this, loopback_.endpoint(rank)));
  }
}

SharedNetwork::~SharedNetwork() = default;

transport::TransportEndpoint* SharedNetwork::endpoint(RankId rank) {
  return endpoints_[rank].get();
}

absl::Status SharedNetwork::ConnectOne(transport::TransportEndpoint* endpoint) {
  MutexLock lock(&mutex_);
  ++num_waiting_;
  changed_.NotifyAll();
  changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_waiting_ == endpoints_.size() || !abandoned_.ok();
  });
  return abandoned_.ok() ? endpoint->Connect() : abandoned_;  // the first connects all
}

void SharedNetwork::Abandon(absl::Status reason) {
  MutexLock lock(&mutex_);
  if (abandoned_.ok()) abandoned_ = std::move(reason);
  changed_.NotifyAll();
}

}  // namespace weir::actors
