#include "runtime/trace/kept_acts.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/trace.pb.h"
#include "runtime/base/tick_clock.h"
#include "runtime/base/transfer/transfer_note.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int64_t kBytesPerBlock = 512;  // of stat

// A Memory is a file in memory, as a parent makes it.
class Memory {
 public:
  Memory() : descriptor_(::memfd_create("kept_acts_test", MFD_CLOEXEC)) {}
  ~Memory() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }
  std::string Bytes() const {
    struct stat found = {};
    ::fstat(descriptor_, &found);
    std::string bytes(static_cast<size_t>(found.st_size), '\0');
    EXPECT_EQ(::pread(descriptor_, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  int64_t BackedBytes() const {
    struct stat found = {};
    ::fstat(descriptor_, &found);
    return found.st_blocks * kBytesPerBlock;
  }

 private:
  const int descriptor_;
};

// A job of one rank: `make` fills a register with two slots, which `read` reads.
TracedJob Job(const ActRing& acts) {
  TracedJob job;
  job.plan_id = "of the test";
  job.num_ranks = 2;
  job.num_stages = 2;
  job.micro_batches = 3;
  job.schedule = "1F1B";
  job.predicted_bubble = 0.25;
  job.first_step = 7;
  job.describing_rank = RankId(1);
  TracedRank& rank = job.ranks.emplace_back();
  rank.rank = RankId(1);
  rank.device = "stage 1";
  rank.arena_bytes = 4096;
  rank.scratch_bytes = 64;
  rank.states.push_back({"weight", "weights", 256, 512});
  for (const char* name : {"make", "read"}) {
    TracedActor& actor = rank.actors.emplace_back();
    actor.name = name;
    actor.function = "of layers.1";
    actor.phase = "forward";
    actor.priority = 3;
    actor.planned_ns = 1000;
    actor.acts_per_step = 3;
  }
  rank.actors[ActorId(0)].outputs = {{RegisterId(0), Span()}};
  rank.actors[ActorId(1)].inputs = {{RegisterId(0), Span()}};
  rank.actors[ActorId(1)].outputs = {{RegisterId(1), Span()}};
  rank.registers.emplace_back() = {.name = "x", .bytes = 4096, .slots = 2};
  rank.registers.back().token_holder = "actor 'make' on rank 1";
  rank.registers.back().slot_holder = "actor 'read' on rank 1";
  TracedRegister& sent = rank.registers.emplace_back();
  sent.name = "move y rank 1 to 0";
  sent.boxing = "move y";
  sent.crosses_ranks = true;
  sent.edge = EdgeId(9);
  sent.other_rank = RankId(0);
  sent.planned_way_ns = 50;
  TransferNote note;
  sent.note = std::make_shared<const TransferNote>(note);
  rank.acts = &acts;
  return job;
}

// The acts follow each other without a gap, so no two ends fall into the same nanosecond, whatever
// the scale.
void FillRecord(int64_t number, ActRecord* record) {
  static const int64_t first = TickClock::Now();
  constexpr int64_t kTicks = 100'000;
  *record = {};
  record->actor = ActorId(static_cast<int32_t>(number % 2));
  record->waited_register = RegisterId(0);
  record->wait = number % 2 == 0 ? ActRecord::Wait::kCredit : ActRecord::Wait::kInput;
  record->step = 7 + number / 6;
  record->micro_batch = static_cast<int32_t>(number / 2 % 3);
  record->start = first + number * kTicks;
  record->ready = record->start;
  record->end = record->start + kTicks;
}

void Do(int64_t first, int64_t count, ActRing* acts) {
  for (int64_t i = first; i < first + count; ++i) {
    FillRecord(i, &acts->Next());
    acts->Commit();
  }
}

// Returns the packets of a trace without their times.
std::vector<std::string> Packets(const std::string& trace) {
  std::vector<std::string> packets;
  EXPECT_EQ(ForEachTracePacket(trace, "kept",
                               [&packets](proto::TracePacket& packet) {
                                 packet.clear_timestamp();
                                 packets.push_back(packet.ShortDebugString());
                               }),
            absl::OkStatus());
  return packets;
}

// Returns the numbers of the steps of the acts in a trace, in order.
std::vector<int64_t> StepsOf(const std::string& trace) {
  std::map<uint64_t, std::string> names;
  std::vector<int64_t> steps;
  EXPECT_EQ(
      ForEachTracePacket(trace, "kept",
                         [&](proto::TracePacket& packet) {
                           for (const auto& name : packet.interned_data().debug_annotation_names())
                             names[name.iid()] = name.str();
                           for (const auto& a : packet.track_event().debug_annotations()) {
                             if (names[a.name_iid()] == "step") steps.push_back(a.int_value());
                           }
                         }),
      absl::OkStatus());
  return steps;
}

TEST(KeptActsTest, TheTraceIsThatWhichTheProcessWouldHaveWritten) {
  const Memory memory;
  ActRing acts(64);
  TracedJob job = Job(acts);
  {
    const auto kept = KeptActs::Open(memory.descriptor());
    ASSERT_NE(kept, nullptr);
    Do(0, 2, &acts);  // a record from before moves along
    ASSERT_EQ(kept->Keep(job, {&acts}), absl::OkStatus());
    Do(2, 10, &acts);
    kept->NoteTime();
  }
  const absl::StatusOr<std::string> trace = TraceOfKept(memory.Bytes());
  ASSERT_TRUE(trace.ok()) << trace.status();
  job.ranks[0].scale = TickScale::Between({0, 0}, {1'000'000, 1'000'000});
  std::stringstream own;
  ASSERT_EQ(WriteTrace(job, TraceBeginNs(job), own), absl::OkStatus());
  EXPECT_THAT(Packets(*trace), ElementsAreArray(Packets(own.str())));
  EXPECT_THAT(StepsOf(*trace), ElementsAre(8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9));
}

TEST(KeptActsTest, ARecordThatIsNotCommittedIsNoPartOfTheTrace) {
  const Memory memory;
  ActRing acts(4);
  const auto kept = KeptActs::Open(memory.descriptor());
  ASSERT_EQ(kept->Keep(Job(acts), {&acts}), absl::OkStatus());
  Do(0, 2, &acts);
  FillRecord(2, &acts.Next());  // the process is killed here
  EXPECT_THAT(StepsOf(*TraceOfKept(memory.Bytes())), ElementsAre(8, 8));
  // In a full ring, the next record takes the room of the oldest one.
  acts.Commit();
  Do(3, 8, &acts);
  acts.Next().step = -1;
  EXPECT_THAT(StepsOf(*TraceOfKept(memory.Bytes())), ElementsAre(9, 9, 9));
}

TEST(KeptActsTest, RanksThatAreLoadedAnewReplaceTheOldOnes) {
  const Memory memory;
  const auto kept = KeptActs::Open(memory.descriptor());
  auto old = std::make_unique<ActRing>(1 << 12);
  ASSERT_EQ(kept->Keep(Job(*old), {old.get()}), absl::OkStatus());
  Do(0, 3, old.get());
  const int64_t backed = memory.BackedBytes();
  ActRing beside(1 << 12);
  ASSERT_EQ(kept->Keep(Job(beside), {&beside}), absl::OkStatus());
  Do(6, 1, &beside);
  EXPECT_GT(memory.BackedBytes(), backed + (1 << 17));
  EXPECT_THAT(StepsOf(*TraceOfKept(memory.Bytes())), ElementsAre(9));
  Do(3, 3, old.get());  // they may still work
  old.reset();
  EXPECT_LE(memory.BackedBytes(), backed) << "their memory is given back";
  EXPECT_THAT(StepsOf(*TraceOfKept(memory.Bytes())), ElementsAre(9));
}

TEST(KeptActsTest, MemoryWithoutRanksHasNoTrace) {
  const Memory memory;
  EXPECT_EQ(TraceOfKept(memory.Bytes()).status().code(), absl::StatusCode::kNotFound);
  const auto kept = KeptActs::Open(memory.descriptor());
  EXPECT_EQ(TraceOfKept(memory.Bytes()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(KeptActs::Open(-1), nullptr);
}

TEST(KeptActsTest, RanksThatNeedTooMuchStayWhereTheyAre) {
  const Memory memory;
  const auto kept = KeptActs::Open(memory.descriptor());
  ActRing acts(kKeptBytesMax / static_cast<int64_t>(sizeof(ActRecord)));
  EXPECT_EQ(kept->Keep(Job(acts), {&acts}).code(), absl::StatusCode::kResourceExhausted);
  Do(0, 1, &acts);
  EXPECT_EQ(acts.size(), 1);
}

TEST(KeptActsTest, DamagedMemoryGivesATraceOrAnErrorAndNeverACrash) {
  const Memory memory;
  ActRing acts(8);
  const auto kept = KeptActs::Open(memory.descriptor());
  ASSERT_EQ(kept->Keep(Job(acts), {&acts}), absl::OkStatus());
  Do(0, 12, &acts);
  const std::string good = memory.Bytes();
  ASSERT_TRUE(TraceOfKept(good).ok());
  for (size_t length = 0; length < good.size(); length += 97)
    (void)TraceOfKept(good.substr(0, length));
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    (void)TraceOfKept(bad);
  }
}

}  // namespace
}  // namespace weir::trace
