// Runs the conformance suite over UCX: a network per rank, in one process.
#include "gtest/gtest.h"
#include "runtime/transport/network_fixture_testing.h"
#include "runtime/transport/ucx_transport.h"

namespace weir::transport {
namespace {

using Lanes = UcxTransportOptions::Lanes;
using Checksum = UcxTransportOptions::Checksum;

class UcxFixture final : public SeveralNetworksFixture {
 public:
  UcxFixture(int num_ranks, Lanes lanes, Checksum checksum) {
    UcxTransportOptions options;
    options.lanes = lanes;
    options.checksum = checksum;
    options.job_key = std::string(32, 'k');
    for (const RankId rank : IdRange<RankId>(num_ranks)) {
      auto network = UcxNetwork::Create(num_ranks, {rank}, &exchange_, options);
      EXPECT_TRUE(network.ok()) << network.status();
      Add(std::move(*network), 1);
    }
  }
};

template <Lanes kLanes, Checksum kChecksum>
std::unique_ptr<TransportFixture> Make(int num_ranks) {
  return std::make_unique<UcxFixture>(num_ranks, kLanes, kChecksum);
}
INSTANTIATE_TEST_SUITE_P(UcxSharedMemory, TransportConformance,
                         ::testing::Values(&Make<Lanes::kSharedMemory, Checksum::kCrc32c>));
INSTANTIATE_TEST_SUITE_P(UcxTcp, TransportConformance,
                         ::testing::Values(&Make<Lanes::kTcp, Checksum::kCrc32c>));
INSTANTIATE_TEST_SUITE_P(UcxAutomatic, TransportConformance,
                         ::testing::Values(&Make<Lanes::kAutomatic, Checksum::kCrc32c>));
INSTANTIATE_TEST_SUITE_P(UcxNoChecksum, TransportConformance,
                         ::testing::Values(&Make<Lanes::kTcp, Checksum::kNone>));

}  // namespace
}  // namespace weir::transport
