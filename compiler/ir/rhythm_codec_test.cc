#include "compiler/ir/rhythm_codec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

// Draws numbers by seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(UniformAt(seed_, n_++) * static_cast<float>(limit));
  }

 private:
  uint64_t seed_, n_ = 0;
};

Station RandomStation(Draw* draw) {
  return {static_cast<int>(draw->Below(5)), static_cast<int>(draw->Below(4))};
}

JobRhythm RandomRhythm(uint64_t seed) {
  Draw draw(seed);
  JobRhythm rhythm;
  rhythm.iteration_ns = draw.Below(1000);
  rhythm.micro_batch_ns = draw.Below(100);
  rhythm.bubble = static_cast<double>(draw.Below(100)) / 128;
  rhythm.stations.resize(draw.Below(6));
  for (std::vector<StationTime>& places : rhythm.stations) {
    for (int64_t n = draw.Below(4); n > 0; --n) {
      // A station in three has no actor.
      const int64_t time = draw.Below(3) == 0 ? 0 : 1 + draw.Below(9);
      places.push_back({draw.Below(1 << 20), draw.Below(99), draw.Below(9), time, draw.Below(7)});
    }
  }
  for (int64_t n = draw.Below(5); n > 0; --n) {
    RegisterFamily family{RandomStation(&draw), {}, draw.Below(9), draw.Below(3)};
    for (int64_t c = draw.Below(4); c > 0; --c) family.consumers.push_back(RandomStation(&draw));
    rhythm.slots[family] = 1 + draw.Below(8);
  }
  return rhythm;
}

void ExpectEqual(const JobRhythm& found, const JobRhythm& expected) {
  EXPECT_EQ(found.iteration_ns, expected.iteration_ns);
  EXPECT_EQ(found.micro_batch_ns, expected.micro_batch_ns);
  EXPECT_EQ(found.bubble, expected.bubble);
  EXPECT_EQ(found.slots, expected.slots);
  for (int item = -1; item < 7; ++item) {
    for (int place = -1; place < 6; ++place) {
      const StationTime* a = found.Find({item, place});
      const StationTime* b = expected.Find({item, place});
      ASSERT_EQ(a == nullptr, b == nullptr) << item << "." << place;
      if (a == nullptr) continue;
      EXPECT_EQ(a->start_ns, b->start_ns);
      EXPECT_EQ(a->micro_batch_stride_ns, b->micro_batch_stride_ns);
      EXPECT_EQ(a->chunk_stride_ns, b->chunk_stride_ns);
      EXPECT_EQ(a->time_ns, b->time_ns);
      EXPECT_EQ(a->latency_ns, b->latency_ns);
    }
  }
}

TEST(RhythmCodec, ARhythmSurvivesTheMessage) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const JobRhythm rhythm = RandomRhythm(seed);
    proto::RhythmSpec spec;
    ASSERT_TRUE(spec.ParseFromString(ToProto(rhythm).SerializeAsString()));
    const absl::StatusOr<JobRhythm> got = RhythmFromProto(spec);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*got, rhythm));
    EXPECT_EQ(ToText(*got), ToText(rhythm));
  }
}

TEST(RhythmCodec, AnEmptyMessageIsAnEmptyRhythm) {
  const absl::StatusOr<JobRhythm> rhythm = RhythmFromProto({});
  ASSERT_TRUE(rhythm.ok()) << rhythm.status();
  EXPECT_TRUE(rhythm->stations.empty());
  EXPECT_TRUE(rhythm->slots.empty());
}

proto::RhythmSpec::Station StationOf(int32_t item, int32_t place) {
  proto::RhythmSpec::Station station;
  station.set_item(item);
  station.set_index(place);
  return station;
}

TEST(RhythmCodec, AStationOutsideAnyProgramIsRefusedWhereverItStands) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const proto::RhythmSpec::Station& bad :
       {StationOf(-1, 0), StationOf(0, -1), StationOf(kMost, 0), StationOf(0, kMost),
        StationOf(std::numeric_limits<int32_t>::min(), 0), StationOf(1 << 20, 0),
        StationOf(0, 1 << 16)}) {
    proto::RhythmSpec in_times, in_producer, in_consumer;
    *in_times.add_time()->mutable_station() = bad;
    *in_producer.add_family()->mutable_producer() = bad;
    *in_consumer.add_family()->add_consumer() = bad;
    for (const proto::RhythmSpec& spec : {in_times, in_producer, in_consumer}) {
      EXPECT_EQ(RhythmFromProto(spec).status().code(), absl::StatusCode::kInvalidArgument)
          << spec.ShortDebugString();
    }
  }
}

// A few bytes must not make a process reserve much memory: a sound message names every place.
TEST(RhythmCodec, AMessageThatNamesFewPlacesCannotAskForMany) {
  proto::RhythmSpec spec;
  *spec.add_time()->mutable_station() = StationOf(0, 60'000);
  EXPECT_EQ(RhythmFromProto(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.clear_time();
  for (int item = 0; item < 300; ++item)
    *spec.add_time()->mutable_station() = StationOf(item, 65'000);
  EXPECT_EQ(RhythmFromProto(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

// Damaged bytes give an error or a rhythm, which then survives the message like any other.
TEST(RhythmCodec, DamagedBytesAreRefusedOrGiveARhythm) {
  int parsed = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 10000; ++seed) {
    Draw draw(seed);
    std::string bytes = ToProto(RandomRhythm(seed % 20 + 1)).SerializeAsString();
    for (int64_t n = 1 + draw.Below(4); n > 0 && !bytes.empty(); --n)
      bytes[draw.Below(static_cast<int64_t>(bytes.size()))] = static_cast<char>(draw.Below(256));
    if (draw.Below(3) == 0) bytes.resize(draw.Below(static_cast<int64_t>(bytes.size()) + 1));
    proto::RhythmSpec spec;
    if (!spec.ParseFromString(bytes)) continue;
    const absl::StatusOr<JobRhythm> rhythm = RhythmFromProto(spec);
    if (!rhythm.ok()) {
      EXPECT_EQ(rhythm.status().code(), absl::StatusCode::kInvalidArgument);
      ++refused;
      continue;
    }
    ++parsed;
    const absl::StatusOr<JobRhythm> again = RhythmFromProto(ToProto(*rhythm));
    ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.status();
    EXPECT_EQ(ToText(*again), ToText(*rhythm)) << "seed " << seed;
  }
  EXPECT_GT(parsed, 100);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace weir::compiler
