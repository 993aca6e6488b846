// Collectives by NCCL. Communicators are non-blocking (ncclConfig_t::blocking = 0), so that no call
// waits for other ranks without end: each call is polled until NCCL has taken it, the limit is
// over, or the caller's stop flag is set. After an error of NCCL the communicator is aborted.
//
// NCCL does not say when an operation has ended on the device. Where the spec has marks, a
// communicator marks the stream behind each operation, and AsyncError finds the first that is
// overdue. Marks also bound how far the host runs ahead, since NCCL waits for ever when it is a few
// thousand operations ahead of a peer.
//
// An all-to-all is a group of sends and receives, as in NCCL's own guide, because the call for it
// is younger than the versions that Weir takes. The association of sums is NCCL's, and sums
// of bf16 and f16 are rounded at each addition.
//
// Thread rule: as collective.h. NCCL is not safe for two threads of one device, so calls from a
// second thread are refused (W0951) without a call of NCCL; another thread sets the stop flag.
#pragma once

#include <memory>
#include <string>

#include "runtime/collective/collective.h"
#include "runtime/collective/nccl_library.h"

namespace weir::collective {

class NcclCollectives final : public CollectiveLibrary {
 public:
  explicit NcclCollectives(const NcclLibrary& library) : library_(library) {}

  std::string name() const override;
  absl::StatusOr<std::string> NewUniqueId() override;
  absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorSpec& spec) override;

 private:
  const NcclLibrary library_;
};

}  // namespace weir::collective
