// A rank also sleeps while UCX cannot be armed because a peer is in the middle of sending. That
// state may last, since the peer may be stopped there. This test takes the place of that peer: it
// makes arming fail for as long as it likes.
#include <dlfcn.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/transport/network_fixture_testing.h"
#include "runtime/transport/process_pair_testing.h"
#include "runtime/transport/ucx_transport.h"
#include "ucp/api/ucp.h"

namespace {
std::atomic<bool> a_peer_is_sending{false};
std::atomic<int64_t> num_arms{0};
}  // namespace

// The linker finds this function before UCX's own.
extern "C" ucs_status_t ucp_worker_arm(ucp_worker_h worker) {
  static const auto next =
      reinterpret_cast<ucs_status_t (*)(ucp_worker_h)>(::dlsym(RTLD_NEXT, "ucp_worker_arm"));
  num_arms.fetch_add(1);
  return a_peer_is_sending.load() ? UCS_ERR_BUSY : next(worker);
}

namespace weir::transport {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using Lanes = UcxTransportOptions::Lanes;
using ParkResult = TransportEndpoint::ParkResult;
constexpr int64_t kBytes = 64;
constexpr char kPayload[] = "all that was sent";

int64_t CpuNs() {
  timespec used;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1'000'000'000 + used.tv_nsec;
}

// BusyPeer has an edge from rank 0 to rank 1, each rank a network of its own in this process.
class BusyPeer : public ::testing::TestWithParam<Lanes> {
 protected:
  class Fixture final : public SeveralNetworksFixture {
   public:
    explicit Fixture(Lanes lanes) {
      UcxTransportOptions options;
      options.lanes = lanes;
      options.job_key = std::string(32, 'k');
      for (int rank : {0, 1})
        Add(UcxNetwork::Create(2, {RankId(rank)}, &exchange_, options).value(), 1);
    }
  };

  void SetUp() override {
    fixture_ = std::make_unique<Fixture>(GetParam());
    for (int rank : {0, 1}) {
      TransportEdge edge;
      edge.edge = EdgeId(7);
      edge.peer = RankId(1 - rank);
      edge.bytes = kBytes;
      if (rank == 1) {
        edge.direction = TransportEdge::Direction::kIncoming;
        edge.landing = landing_.data();
        edge.stride = kBytes;
      }
      ASSERT_TRUE(fixture_->endpoint(RankId(rank))->AddEdge(edge).ok());
    }
    waiting()->SetWakeHook([this] {
      num_wakes_.fetch_add(1);
      bell_.Ring();
    });
    for (const absl::Status& status : fixture_->ConnectAll()) ASSERT_TRUE(status.ok()) << status;
    a_peer_is_sending.store(true);
  }
  void TearDown() override { a_peer_is_sending.store(false); }

  TransportEndpoint* waiting() { return fixture_->endpoint(RankId(1)); }
  // Works as an engine does until a token is there or `limit` has passed.
  bool WaitForToken(std::chrono::milliseconds limit) {
    RecordingReceiver receiver;
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      EXPECT_TRUE(waiting()->Poll(&receiver).ok());
      if (!receiver.tokens.empty()) return true;
      if (waiting()->Park() == ParkResult::kParked) bell_.Await();
    }
    return false;
  }
  // Runs rank 0: sends after `delay`, and then works as an engine does, since a message may need
  // the work of both ends.
  void RunSender(std::chrono::milliseconds delay, const std::atomic<bool>& done) {
    std::this_thread::sleep_for(delay);
    MessageHeader header;
    header.epoch = 1;
    header.edge = EdgeId(7);
    header.payload_bytes = sizeof(kPayload);
    EXPECT_TRUE(fixture_->endpoint(RankId(0))->Put(EdgeHandle(0), header, kPayload).ok());
    RecordingReceiver receiver;
    while (!done.load()) {
      EXPECT_TRUE(fixture_->endpoint(RankId(0))->Poll(&receiver).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Returns whether a token that rank 0 sends after `delay` arrives.
  bool Receives(std::chrono::milliseconds delay) {
    std::atomic<bool> done{false};
    std::thread sender([&] { RunSender(delay, done); });
    const bool received = WaitForToken(std::chrono::milliseconds(10'000));
    done.store(true);
    sender.join();
    return received;
  }

  std::unique_ptr<Fixture> fixture_;
  std::vector<char> landing_ = std::vector<char>(kBytes);
  Bell bell_;
  std::atomic<int64_t> num_wakes_{0};
};

TEST_P(BusyPeer, ARankThatWaitsForOneThatHasStoppedWhileSendingUsesNextToNoProcessorTime) {
  EXPECT_FALSE(WaitForToken(std::chrono::milliseconds(500)));  // the naps grow
  const int64_t cpu_ns = CpuNs(), wakes = num_wakes_.load(), arms = num_arms.load();
  EXPECT_FALSE(WaitForToken(std::chrono::milliseconds(2'000)));
  EXPECT_LT(CpuNs() - cpu_ns, 100'000'000) << "5 % of a core";
  EXPECT_LT(num_wakes_.load() - wakes, 100);
  EXPECT_LT(num_arms.load() - arms, 1'000);
}

TEST_P(BusyPeer, WhatComesInTheMeantimeIsHandedOverAtTheEndOfTheNap) {
  EXPECT_FALSE(WaitForToken(std::chrono::milliseconds(300)));
  EXPECT_TRUE(Receives(std::chrono::milliseconds(0)));
  EXPECT_STREQ(landing_.data(), kPayload);
}

TEST_P(BusyPeer, OnceThePeerGoesOnMessagesWakeTheRankAgain) {
  EXPECT_FALSE(WaitForToken(std::chrono::milliseconds(300)));
  a_peer_is_sending.store(false);
  const int64_t wakes = num_wakes_.load();
  EXPECT_TRUE(Receives(std::chrono::milliseconds(300)));
  EXPECT_LT(num_wakes_.load() - wakes, 20) << "armed, it sleeps until there is news";
}

INSTANTIATE_TEST_SUITE_P(Lanes, BusyPeer, ::testing::Values(Lanes::kSharedMemory, Lanes::kTcp),
                         [](const auto& test) {
                           return test.param == Lanes::kTcp ? "Tcp" : "SharedMemory";
                         });

}  // namespace
}  // namespace weir::transport
