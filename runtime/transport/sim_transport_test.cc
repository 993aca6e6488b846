#include "runtime/transport/sim_transport.h"

#include "runtime/transport/transport_conformance.h"

namespace weir::transport {
namespace {

class SimFixture final : public TransportFixture {
 public:
  SimFixture(int num_ranks, SimNetwork::Mapping mapping)
      : num_ranks_(num_ranks), network_(num_ranks, mapping) {}
  TransportEndpoint* endpoint(RankId rank) override { return network_.endpoint(rank); }
  std::vector<absl::Status> ConnectAll() override { return ConnectInTurn(*this, num_ranks_); }
  void MoveAll() override {
    while (!network_.busy_lanes().empty()) network_.Deliver(network_.busy_lanes().front());
  }

 private:
  int num_ranks_;
  SimNetwork network_;
};

std::unique_ptr<TransportFixture> MakeCopied(int num_ranks) {
  return std::make_unique<SimFixture>(num_ranks, SimNetwork::Mapping::kCopied);
}
std::unique_ptr<TransportFixture> MakeDirect(int num_ranks) {
  return std::make_unique<SimFixture>(num_ranks, SimNetwork::Mapping::kDirect);
}
INSTANTIATE_TEST_SUITE_P(SimCopied, TransportConformance, ::testing::Values(&MakeCopied));
INSTANTIATE_TEST_SUITE_P(SimDirect, TransportConformance, ::testing::Values(&MakeDirect));

class SimNetworkTest : public ::testing::Test {
 protected:
  SimNetworkTest() {
    for (uint64_t id : {7, 8}) {
      TransportEdge edge;
      edge.edge = EdgeId(id);
      edge.slots = 4;
      edge.bytes = 8;
      edge.peer = RankId(1);
      out_[id - 7] = network_.endpoint(RankId(0))->AddEdge(edge).value();
      edge.peer = RankId(0);
      edge.direction = TransportEdge::Direction::kIncoming;
      edge.landing = landing_[id - 7];
      edge.stride = 8;
      EXPECT_TRUE(network_.endpoint(RankId(1))->AddEdge(edge).ok());
    }
    EXPECT_TRUE(network_.endpoint(RankId(0))->Connect().ok());
  }
  void Put(int edge, int slot, const char* text) {
    MessageHeader header;
    header.edge = EdgeId(7 + edge);
    header.slot = slot;
    header.sequence = slot;
    header.payload_bytes = 1;
    EXPECT_TRUE(network_.endpoint(RankId(0))->Put(out_[edge], header, text).ok());
  }
  int LaneOf(uint64_t edge) const {
    for (int lane : network_.busy_lanes()) {
      if (network_.lane(lane).edge == EdgeId(edge)) return lane;
    }
    return -1;
  }
  SimNetwork network_{2};
  EdgeHandle out_[2];
  char landing_[2][32] = {};
};

TEST_F(SimNetworkTest, EdgesOvertakeEachOtherAsTheOwnerLikes) {
  Put(0, 0, "a");
  Put(1, 0, "b");
  network_.Deliver(LaneOf(8));
  network_.Deliver(LaneOf(7));
  RecordingReceiver receiver;
  ASSERT_TRUE(network_.endpoint(RankId(1))->Poll(&receiver).ok());
  EXPECT_EQ(receiver.log, (std::vector<std::string>{"token 1 0 0", "token 0 0 0"}));
}

TEST_F(SimNetworkTest, PayloadLandsWhenItIsDelivered) {
  Put(0, 0, "a");
  EXPECT_EQ(landing_[0][0], 0);
  EXPECT_EQ(network_.TokensUnderWay(EdgeId(7)), 1);
  network_.Deliver(LaneOf(7));
  EXPECT_EQ(landing_[0][0], 'a');
  EXPECT_EQ(network_.TokensUnderWay(EdgeId(7)), 1) << "in the inbox";
  RecordingReceiver receiver;
  ASSERT_TRUE(network_.endpoint(RankId(1))->Poll(&receiver).ok());
  EXPECT_EQ(network_.TokensUnderWay(EdgeId(7)), 0);
  ASSERT_TRUE(network_.endpoint(RankId(1))->ReturnCredit(EdgeHandle(0), 0).ok());
  EXPECT_EQ(network_.CreditsUnderWay(EdgeId(7)), 1);
}

TEST_F(SimNetworkTest, LatencyMakesMessagesDueLaterButNeverReordersALane) {
  int64_t latency = 100;
  network_.set_latency([&latency](int64_t, RankId, RankId) { return latency; });
  network_.set_now_ns(5);
  Put(0, 0, "a");
  EXPECT_EQ(network_.lane(LaneOf(7)).oldest_due_ns, 105);
  latency = 10;
  Put(0, 1, "b");
  network_.Deliver(LaneOf(7));
  EXPECT_EQ(network_.lane(LaneOf(7)).oldest_due_ns, 105);
}

}  // namespace
}  // namespace weir::transport
