#include "runtime/memory/arena.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ArenaTest, GivesZeroedAlignedMemoryOfTheAskedSize) {
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{5} << 20}) {
    absl::StatusOr<Arena> arena = Arena::Create(bytes);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(arena->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % 4096, 0u);
    EXPECT_EQ(arena->base()[0], 0);
    EXPECT_EQ(arena->base()[bytes - 1], 0);
    arena->base()[bytes - 1] = 1;
  }
}

TEST(ArenaTest, AnEmptyArenaHasNoMemory) {
  absl::StatusOr<Arena> arena = Arena::Create(0);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->base(), nullptr);
}

TEST(ArenaTest, SaysSoWhenTheSystemRefuses) {
  absl::StatusOr<Arena> arena = Arena::Create(int64_t{1} << 60);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ArenaTest, MovingHandsOverTheMemory) {
  absl::StatusOr<Arena> arena = Arena::Create(4096);
  ASSERT_TRUE(arena.ok());
  char* base = arena->base();
  Arena other = std::move(*arena);
  EXPECT_EQ(other.base(), base);
}

}  // namespace
}  // namespace weir
