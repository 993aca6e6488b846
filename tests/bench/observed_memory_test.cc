// Tests whether a session takes the memory that its plans say, to 2 %, for a job that is large
// enough.
#include "tests/bench/observed_memory.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weir::bench {
namespace {

TEST(ObservedMemory, IsWhatIsPlannedToTwoInAHundred) {
  for (const MemoryCase& of : MemoryCases()) {
    const ObservedMemory observed = ObserveApart(DeepGpt(), of);
    EXPECT_GT(observed.planned, 100 << 20) << of.what;
    EXPECT_LE(std::abs(observed.anonymous - observed.planned), 0.02 * observed.planned)
        << of.what << ": " << observed.planned / (1 << 20) << " MiB planned, "
        << observed.anonymous / (1 << 20) << " observed";
  }
}

}  // namespace
}  // namespace weir::bench
