// The network of a process among others. Edges between ranks of this process cross its memory
// (loopback), edges to ranks elsewhere go over UCX. A rank sees one endpoint.
// Thread rule: as transport.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/ucx_transport.h"

namespace weir::transport {

// Parameters and errors are those of UcxNetwork::Create.
absl::StatusOr<std::unique_ptr<TransportNetwork>> MakeProcessNetwork(
    int num_ranks, const std::vector<RankId>& local_ranks, Exchange* exchange,
    const UcxTransportOptions& options);

}  // namespace weir::transport
