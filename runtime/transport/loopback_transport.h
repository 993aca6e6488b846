// The transport between the ranks of one process, each on a thread of its own. A token's data is
// written straight into the consumer's landing buffer; only a fixed-size entry crosses, in a
// bounded ring, one ring per ordered pair of ranks that share an edge. There is no lock and no
// allocation per message.
//
// Parking: a rank that finds no message marks itself parked and looks once more; a sender writes
// its entry and then looks at the mark. Both orders are sequentially consistent, so at least one of
// the two sees the other, and no wake-up is lost.
// Thread rule: one thread per endpoint. All edges are added before the first Connect; ranks may
// connect on threads of their own. Construction and destruction happen on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/transport.h"

namespace weir::transport {

class LoopbackEndpoint;

// A LoopbackNetwork joins the ranks of a process. Endpoints must not outlive the network.
class LoopbackNetwork final : public TransportNetwork {
 public:
  explicit LoopbackNetwork(int num_ranks);
  ~LoopbackNetwork() override;

  TransportEndpoint* endpoint(RankId rank) override;

 private:
  friend class LoopbackEndpoint;
  struct Ring;
  IdVector<RankId, std::unique_ptr<LoopbackEndpoint>> endpoints_;
  std::vector<std::unique_ptr<Ring>> rings_;
  Mutex connect_mutex_;
  absl::Status connect_status_ ABSL_GUARDED_BY(connect_mutex_);
  bool connected_ ABSL_GUARDED_BY(connect_mutex_) = false;

  absl::Status ConnectAll();
  bool IsConnected() ABSL_LOCKS_EXCLUDED(connect_mutex_);
  absl::Status PairEdges();
  void MakeRings();
};

}  // namespace weir::transport
