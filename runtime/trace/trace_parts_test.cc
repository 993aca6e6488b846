#include "runtime/trace/trace_parts.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "proto/trace.pb.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

constexpr uint32_t kRankSequence = 2;

// Returns a trace of one packet that describes the job and of `num_packets` others.
std::string Part(int64_t num_packets, const std::string& name) {
  proto::Trace trace;
  proto::TracePacket* job = trace.add_packet();
  job->set_trusted_packet_sequence_id(kTraceJobSequence);
  job->set_timestamp(1000);
  for (int64_t i = 0; i < num_packets; ++i) {
    proto::TracePacket* packet = trace.add_packet();
    packet->set_trusted_packet_sequence_id(kRankSequence);
    packet->set_timestamp(static_cast<uint64_t>(2000 + i));
    packet->mutable_track_event()->set_name(name);
  }
  return trace.SerializeAsString();
}

std::vector<proto::TracePacket> Packets(const std::string& trace) {
  std::vector<proto::TracePacket> packets;
  EXPECT_EQ(ForEachTracePacket(trace, "joined",
                               [&](proto::TracePacket& packet) { packets.push_back(packet); }),
            absl::OkStatus());
  return packets;
}

TEST(TracePartsTest, TheJobIsDescribedOnceAndTimesAreThoseOfTheJob) {
  const absl::StatusOr<std::string> joined =
      JoinTraceParts({{Part(1, "a"), 0}, {Part(1, "b"), 500}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  const std::vector<proto::TracePacket> packets = Packets(*joined);
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[0].trusted_packet_sequence_id(), kTraceJobSequence);
  EXPECT_EQ(packets[1].track_event().name(), "a");
  EXPECT_EQ(packets[1].timestamp(), 2000u);
  EXPECT_EQ(packets[2].track_event().name(), "b");
  EXPECT_EQ(packets[2].timestamp(), 1500u);
}

// The report of a failure waits for the trace. A time per packet that grows with the trace would
// let this test run for an hour.
TEST(TracePartsTest, TheTimeOfAPacketDoesNotGrowWithTheTrace) {
  constexpr int64_t kPackets = 500'000;
  const std::string part = Part(kPackets, std::string(100, 'x'));
  const absl::StatusOr<std::string> joined = JoinTraceParts({{part, 0}, {part, 0}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_GT(joined->size(), 100 * kPackets * 2);
}

TEST(TracePartsTest, APartThatIsNoTraceIsAnError) {
  EXPECT_EQ(JoinTraceParts({{"no trace", 0}}).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir::trace
