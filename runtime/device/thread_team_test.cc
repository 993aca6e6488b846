#include "runtime/device/thread_team.h"

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "gtest/gtest.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}  // namespace

void* operator new(std::size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size ? size : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace weir::device {
namespace {

class ThreadTeamOfSize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamOfSize, testing::Range(1, 9));

TEST_P(ThreadTeamOfSize, RunsEveryPieceExactlyOnceAndSeesItsResultsAfter) {
  ThreadTeam team(GetParam());
  EXPECT_EQ(team.num_threads(), GetParam());
  // The integers are not atomic: a lost happens-before edge shows under TSan.
  for (int64_t num_pieces : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<int> runs(num_pieces, 0);
    for (int repeat = 1; repeat <= 50; ++repeat) {
      team.For(num_pieces, [&](int64_t piece) { ++runs[piece]; });
      for (int64_t i = 0; i < num_pieces; ++i) ASSERT_EQ(runs[i], repeat) << i;
    }
  }
}

TEST_P(ThreadTeamOfSize, GivesEachWorkerItsOwnNumber) {
  ThreadTeam team(GetParam());
  std::vector<int64_t> sums(GetParam(), 0);  // one cell per worker, unsynchronised
  for (int repeat = 0; repeat < 200; ++repeat) {
    team.For(50, [&](int64_t piece, int worker) { sums[worker] += piece; });
  }
  int64_t total = 0;
  for (int64_t sum : sums) total += sum;
  EXPECT_EQ(total, 200 * (49 * 50 / 2));
}

TEST_P(ThreadTeamOfSize, AllocatesNothingPerLoop) {
  ThreadTeam team(GetParam());
  std::atomic<int64_t> sum{0};
  team.For(8, [&](int64_t piece) { sum += piece; });
  int64_t before = num_allocations.load();
  for (int repeat = 0; repeat < 100; ++repeat) {
    team.For(8, [&](int64_t piece) { sum += piece; });
  }
  EXPECT_EQ(num_allocations.load(), before);
  EXPECT_EQ(sum.load(), 101 * 28);
}

TEST(ThreadTeamTest, StopsAtOnceWhenItNeverRan) {
  for (int repeat = 0; repeat < 50; ++repeat) ThreadTeam team(4);
}

TEST(ThreadTeamTest, AlternatesBetweenLargeAndSmallLoops) {
  ThreadTeam team(4);
  int64_t expected = 0;
  std::atomic<int64_t> sum{0};
  for (int repeat = 0; repeat < 2000; ++repeat) {
    int64_t num_pieces = repeat % 3 == 0 ? 100 : 2;
    team.For(num_pieces, [&](int64_t) { sum.fetch_add(1, std::memory_order_relaxed); });
    expected += num_pieces;
    ASSERT_EQ(sum.load(), expected);
  }
}

}  // namespace
}  // namespace weir::device
