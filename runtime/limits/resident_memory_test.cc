#include "runtime/limits/resident_memory.h"

#include <cstddef>
#include <vector>

#include "gtest/gtest.h"

namespace weir::limits {
namespace {

constexpr size_t kBytes = 64 << 20;

TEST(ResidentMemoryTest, MemoryCountsOnceItIsWritten) {
  const int64_t before = OwnResidentBytes();
  EXPECT_GT(before, 0);
  const std::vector<char> written(kBytes, 1);
  EXPECT_GT(OwnResidentBytes() - before, static_cast<int64_t>(kBytes / 2));
  EXPECT_EQ(written.back(), 1);
}

}  // namespace
}  // namespace weir::limits
