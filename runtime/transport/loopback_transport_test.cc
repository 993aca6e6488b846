#include "runtime/transport/loopback_transport.h"
#include "runtime/base/mutex.h"

#include <atomic>
#include <thread>

#include "runtime/transport/transport_conformance.h"

namespace weir::transport {
namespace {

class LoopbackFixture final : public TransportFixture {
 public:
  explicit LoopbackFixture(int num_ranks) : num_ranks_(num_ranks), network_(num_ranks) {}
  TransportEndpoint* endpoint(RankId rank) override { return network_.endpoint(RankId(rank)); }
  std::vector<absl::Status> ConnectAll() override { return ConnectInTurn(*this, num_ranks_); }
  void MoveAll() override {}

 private:
  int num_ranks_;
  LoopbackNetwork network_;
};

std::unique_ptr<TransportFixture> Make(int num_ranks) {
  return std::make_unique<LoopbackFixture>(num_ranks);
}
INSTANTIATE_TEST_SUITE_P(Loopback, TransportConformance, ::testing::Values(&Make));

// A Sleeper is a rank on a thread of its own that parks when no message comes.
class Sleeper {
 public:
  void Wake() {
    MutexLock lock(&mutex_);
    awake_ = true;
    condition_.NotifyOne();
  }
  void Sleep() {
    MutexLock lock(&mutex_);
    condition_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return awake_; });
    awake_ = false;
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;
};

// Sends messages of edge `in` back on edge `out`, counts them, and checks order and payload.
class PingPong final : public MessageReceiver {
 public:
  PingPong(TransportEndpoint* endpoint, int64_t rounds) : endpoint_(endpoint), rounds_(rounds) {}

  void Serve() {
    char byte = 0;
    Send(byte);
    while (received_ < rounds_ || credits_ < rounds_) {
      absl::StatusOr<int64_t> n = endpoint_->Poll(this);
      ASSERT_TRUE(n.ok()) << n.status();
      if (*n == 0 && endpoint_->Park() == TransportEndpoint::ParkResult::kParked) sleeper.Sleep();
    }
  }
  absl::Status OnToken(EdgeHandle, const MessageHeader& header) override {
    if (header.sequence != received_) return absl::DataLossError("out of order");
    if (landing[header.slot] != static_cast<char>(received_))
      return absl::DataLossError("wrong bytes");
    ++received_;
    absl::Status credit = endpoint_->ReturnCredit(in, header.slot);
    if (!credit.ok()) return credit;
    Send(static_cast<char>(sent_));
    return absl::OkStatus();
  }
  absl::Status OnCredit(EdgeHandle, int32_t) override {
    ++credits_;
    return absl::OkStatus();
  }

  EdgeHandle in;
  EdgeHandle out;
  Sleeper sleeper;
  char landing[2] = {};

 private:
  void Send(char byte) {
    if (sent_ == rounds_) return;
    MessageHeader header;
    header.edge = EdgeId(out_edge);
    header.slot = static_cast<int32_t>(sent_ % 2);
    header.sequence = sent_++;
    header.payload_bytes = 1;
    EXPECT_TRUE(endpoint_->Put(out, header, &byte).ok());
  }

 public:
  int out_edge = 0;

 private:
  TransportEndpoint* endpoint_;
  int64_t rounds_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
  int64_t credits_ = 0;
};

TEST(LoopbackThreadsTest, NoMessageAndNoWakeUpIsLostBetweenThreadsThatPark) {
  constexpr int64_t kRounds = 20000;
  LoopbackNetwork network(2);
  PingPong ranks[2] = {{network.endpoint(RankId(0)), kRounds},
                       {network.endpoint(RankId(1)), kRounds}};
  for (int rank : {0, 1}) {
    TransportEdge edge;
    edge.slots = 2;
    edge.bytes = 1;
    edge.peer = RankId(1 - rank);
    edge.edge = EdgeId(ranks[rank].out_edge = 10 + rank);
    ranks[rank].out = network.endpoint(RankId(rank))->AddEdge(edge).value();
    edge.edge = EdgeId(10 + 1 - rank);
    edge.direction = TransportEdge::Direction::kIncoming;
    edge.landing = ranks[rank].landing;
    edge.stride = 1;
    ranks[rank].in = network.endpoint(RankId(rank))->AddEdge(edge).value();
    network.endpoint(RankId(rank))->SetWakeHook([&ranks, rank] { ranks[rank].sleeper.Wake(); });
  }
  ASSERT_TRUE(network.endpoint(RankId(0))->Connect().ok());
  std::thread other([&ranks] { ranks[1].Serve(); });
  ranks[0].Serve();
  other.join();
}

}  // namespace
}  // namespace weir::transport
