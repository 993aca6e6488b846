// The requirements on every device memory, as one suite. A memory joins by instantiating the suite
// with a factory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/device/device_memory.h"

namespace weir::device {

using DeviceMemoryFactory = std::unique_ptr<DeviceMemory> (*)();

class MemoryConformance : public ::testing::TestWithParam<DeviceMemoryFactory> {
 protected:
  std::string Out(const char* from, int64_t bytes) {
    std::string out(bytes, '?');
    memory_->CopyOut(out.data(), from, bytes);
    return out;
  }

  const std::unique_ptr<DeviceMemory> memory_ = GetParam()();
};

TEST_P(MemoryConformance, BlocksAreZeroedAndAlignedAndOfTheAskedSize) {
  for (const auto reach : {DeviceMemory::Reach::kDevice, DeviceMemory::Reach::kShared}) {
    for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{5} << 20}) {
      const absl::StatusOr<DeviceBlock> block = memory_->Allocate(bytes, reach);
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_EQ(block->bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block->base()) % 4096, 0u);
      EXPECT_EQ(Out(block->base(), 1), std::string(1, '\0'));
      EXPECT_EQ(Out(block->base() + bytes - 1, 1), std::string(1, '\0'));
    }
  }
}

TEST_P(MemoryConformance, AnEmptyBlockHasNoMemory) {
  const absl::StatusOr<DeviceBlock> block = memory_->Allocate(0, DeviceMemory::Reach::kDevice);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block->base(), nullptr);
}

TEST_P(MemoryConformance, ItSaysSoWhenThereIsNotEnough) {
  const auto block = memory_->Allocate(int64_t{1} << 60, DeviceMemory::Reach::kDevice);
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(MemoryConformance, MovingHandsOverTheBlock) {
  absl::StatusOr<DeviceBlock> block = memory_->Allocate(4096, DeviceMemory::Reach::kDevice);
  ASSERT_TRUE(block.ok());
  char* const base = block->base();
  const DeviceBlock other = std::move(*block);
  EXPECT_EQ(other.base(), base);
}

TEST_P(MemoryConformance, CopiesArriveAndTouchNothingElse) {
  const DeviceBlock a = *memory_->Allocate(4096, DeviceMemory::Reach::kDevice);
  const DeviceBlock b = *memory_->Allocate(4096, DeviceMemory::Reach::kShared);
  memory_->CopyIn(a.base() + 64, "abcdef", 6);
  memory_->Copy(b.base() + 128, a.base() + 65, 4);
  EXPECT_EQ(Out(b.base() + 127, 6), std::string("\0bcde\0", 6));
  memory_->Zero(a.base() + 66, 2);
  EXPECT_EQ(Out(a.base() + 63, 8), std::string("\0ab\0\0ef\0", 8));
  EXPECT_EQ(memory_->View(a.base() + 64, 2).bytes(), absl::MakeConstSpan("ab", 2));
}

TEST_P(MemoryConformance, WhatIsFilledIsThere) {
  const DeviceBlock block = *memory_->Allocate(4096, DeviceMemory::Reach::kDevice);
  const auto fill = [](char* host) {
    host[0] = 'x';
    host[1] = 'y';
    return absl::OkStatus();
  };
  EXPECT_EQ(memory_->Fill(block.base() + 8, 2, fill), absl::OkStatus());
  EXPECT_EQ(Out(block.base() + 7, 4), std::string("\0xy\0", 4));
  const auto fail = [](char*) { return absl::DataLossError("no data"); };
  EXPECT_EQ(memory_->Fill(block.base(), 2, fail).code(), absl::StatusCode::kDataLoss);
}

TEST_P(MemoryConformance, TheHostReachesWhatIsShared) {
  const DeviceBlock block = *memory_->Allocate(4096, DeviceMemory::Reach::kShared);
  block.base()[5] = 'h';
  EXPECT_EQ(Out(block.base() + 5, 1), "h");
}

}  // namespace weir::device
