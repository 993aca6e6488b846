// A SharedNetwork is a loopback network for several Sessions of one process, each on a thread of
// its own, as if they were processes: Connect waits until all ranks have come. The network can also
// behave like a transport that owns its landing memory, or cannot map it.
// Thread rule: as transport.h; any thread may call Abandon.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/loopback_transport.h"
#include "runtime/transport/transport.h"

namespace weir::actors {

class SharedNetwork final : public transport::TransportNetwork {
 public:
  enum class Landing : uint8_t {
    kAnywhere,  // where the ranks have it
    kOwn,       // in memory of the network, which starts at an odd address and is not zero
  };
  enum class Mapping : uint8_t { kDirect, kCopied };

  SharedNetwork(int num_ranks, Landing landing, Mapping mapping);
  ~SharedNetwork() override;

  transport::TransportEndpoint* endpoint(RankId rank) override;

  // Declares that a rank will not come: Connect gives all other ranks this error.
  void Abandon(absl::Status reason);

 private:
  class Endpoint;
  absl::Status ConnectOne(transport::TransportEndpoint* endpoint);

  const Landing landing_;
  const Mapping mapping_;
  transport::LoopbackNetwork loopback_;
  IdVector<RankId, std::unique_ptr<Endpoint>> endpoints_;
  Mutex mutex_;
  CondVar changed_;
  size_t num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status abandoned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::actors
