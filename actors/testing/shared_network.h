// A loopback network for several Sessions of one process, each on a thread of its own, as
// if they were processes: whoever connects waits until all ranks have come.
// It can also behave like a transport that owns its landing memory, or cannot map it.
// Thread rule: as transport.h; Abandon may be called by any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "runtime/transport/loopback_transport.h"
#include "runtime/transport/transport.h"

namespace weir {

class SharedNetwork final : public TransportNetwork {
 public:
  enum class Landing : uint8_t {
    kAnywhere,  // where the ranks have it
    kOwn,       // in memory of the network, that starts at an odd address and is not zero
  };
  enum class Mapping : uint8_t { kDirect, kCopied };

  SharedNetwork(int num_ranks, Landing landing, Mapping mapping);
  ~SharedNetwork() override;

  TransportEndpoint* endpoint(int rank) override;

  // A rank will not come: Connect gives all others this error.
  void Abandon(absl::Status reason);

 private:
  class Endpoint;
  absl::Status ConnectOne(TransportEndpoint* endpoint);

  const Landing landing_;
  const Mapping mapping_;
  LoopbackNetwork loopback_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_waiting_ = 0;  // guarded by mutex_, as the rest
  absl::Status abandoned_;
};

}  // namespace weir
