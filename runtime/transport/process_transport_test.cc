#include "runtime/transport/process_transport.h"

#include "gtest/gtest.h"
#include "runtime/transport/network_fixture_testing.h"

namespace weir::transport {
namespace {

using Lanes = UcxTransportOptions::Lanes;

UcxTransportOptions OptionsFor(Lanes lanes) {
  UcxTransportOptions options;
  options.lanes = lanes;
  options.job_key = std::string(32, 'k');
  return options;
}

class ProcessFixture final : public SeveralNetworksFixture {
 public:
  ProcessFixture(int num_ranks, int ranks_per_process, Lanes lanes) {
    for (int first = 0; first < num_ranks; first += ranks_per_process) {
      std::vector<RankId> ranks;
      for (int rank = first; rank < std::min(num_ranks, first + ranks_per_process); ++rank)
        ranks.push_back(RankId(rank));
      auto network = MakeProcessNetwork(num_ranks, ranks, &exchange_, OptionsFor(lanes));
      EXPECT_TRUE(network.ok()) << network.status();
      Add(std::move(*network), static_cast<int>(ranks.size()));
    }
  }
};

template <int kRanksPerProcess, Lanes kLanes>
std::unique_ptr<TransportFixture> Make(int num_ranks) {
  return std::make_unique<ProcessFixture>(num_ranks, kRanksPerProcess, kLanes);
}
INSTANTIATE_TEST_SUITE_P(AllRanksHere, TransportConformance,
                         ::testing::Values(&Make<8, Lanes::kAutomatic>));
INSTANTIATE_TEST_SUITE_P(RanksElsewhereByMemory, TransportConformance,
                         ::testing::Values(&Make<1, Lanes::kAutomatic>));
INSTANTIATE_TEST_SUITE_P(RanksElsewhereByTcp, TransportConformance,
                         ::testing::Values(&Make<1, Lanes::kTcp>));

}  // namespace
}  // namespace weir::transport
