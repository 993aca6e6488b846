#include "runtime/transport/message_ring.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace weir::transport {
namespace {

constexpr int64_t kNumRings = 3;

// Block is the memory of a receiver, as zeros.
class Block {
 public:
  Block() : lines_(std::make_unique<Line[]>(RingBlockBytes(kNumRings) / sizeof(Line))) {}
  char* get() const { return lines_[0].bytes; }

 private:
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  std::unique_ptr<Line[]> lines_;
};

std::string Wire(int number) {
  std::string wire(kWireMessageBytes, 'm');
  std::memcpy(wire.data(), &number, sizeof(number));
  return wire;
}

std::string Take(RingReader& reader) {
  RingEntry entry;
  return reader.TryTake(&entry) ? std::string(entry.wire, kWireMessageBytes) : "";
}

TEST(MessageRing, MessagesArriveOnceAndInOrder) {
  Block block;
  RingWriter writer(block.get(), 1);
  RingReader reader(block.get(), 1);
  EXPECT_FALSE(reader.has_message());
  for (int number = 0; number < 3; ++number) {
    ASSERT_TRUE(writer.HasRoom(1));
    writer.Put(Wire(number).data(), {});
  }
  EXPECT_TRUE(reader.has_message());
  for (int number = 0; number < 3; ++number) EXPECT_EQ(Take(reader), Wire(number));
  EXPECT_EQ(Take(reader), "");
}

TEST(MessageRing, CreditsRideOnAMessage) {
  Block block;
  RingWriter writer(block.get(), 0);
  RingReader reader(block.get(), 0);
  writer.Put(Wire(0).data(), {{{EdgeHandle(7), 3, 41}, {EdgeHandle(0), 0, 42}}});
  writer.Put(Wire(1).data(), {});
  RingEntry entry;
  ASSERT_TRUE(reader.TryTake(&entry));
  EXPECT_EQ(entry.riders[0].receiver_edge, EdgeHandle(7));
  EXPECT_EQ(entry.riders[0].slot, 3);
  EXPECT_EQ(entry.riders[0].number, 41u);
  EXPECT_EQ(entry.riders[1].receiver_edge, EdgeHandle(0));
  EXPECT_EQ(entry.riders[1].number, 42u);
  ASSERT_TRUE(reader.TryTake(&entry));
  EXPECT_FALSE(entry.riders[0].receiver_edge.has_value());
}

TEST(MessageRing, RingsOfABlockAreApart) {
  Block block;
  RingWriter first(block.get(), 0), last(block.get(), kNumRings - 1);
  for (int number = 0; number < kRingEntries; ++number) {
    first.Put(Wire(number).data(), {});
    last.Put(Wire(1000 + number).data(), {});
  }
  RingReader from_first(block.get(), 0), from_second(block.get(), 1),
      from_last(block.get(), kNumRings - 1);
  EXPECT_EQ(Take(from_second), "");
  for (int number = 0; number < kRingEntries; ++number) {
    EXPECT_EQ(Take(from_first), Wire(number));
    EXPECT_EQ(Take(from_last), Wire(1000 + number));
  }
}

TEST(MessageRing, AFullRingHasNoRoomUntilMessagesAreTaken) {
  Block block;
  RingWriter writer(block.get(), 0);
  RingReader reader(block.get(), 0);
  for (int number = 0; number < kRingEntries; ++number) {
    ASSERT_TRUE(writer.HasRoom(1));
    writer.Put(Wire(number).data(), {});
  }
  EXPECT_FALSE(writer.HasRoom(1));
  EXPECT_EQ(Take(reader), Wire(0));
  EXPECT_TRUE(writer.HasRoom(1));
  EXPECT_FALSE(writer.HasRoom(2));
}

TEST(MessageRing, WithoutARingThereIsNeitherRoomNorAMessage) {
  EXPECT_FALSE(RingWriter().HasRoom(1));
  EXPECT_FALSE(RingReader().has_message());
}

TEST(MessageRing, WhatOthersWriteIntoTheMemoryNeverMakesAMessageOfTheWrongTurn) {
  Block block;
  std::memset(block.get(), 0x7f, RingBlockBytes(kNumRings));
  RingReader reader(block.get(), 0);
  EXPECT_EQ(Take(reader), "");
  // A receiver that claims to have taken more than was put gets nothing more through the ring once
  // the ring is full by the sender's own count.
  RingWriter writer(block.get(), 0);
  for (int number = 0; number < kRingEntries; ++number) writer.Put(Wire(number).data(), {});
  EXPECT_FALSE(writer.HasRoom(1));
}

TEST(SleepSign, OneSenderAloneIsToldToWakeTheOwner) {
  Block block;
  SleepSign owner(block.get()), sender(block.get()), other(block.get());
  EXPECT_FALSE(sender.TakeDown());
  owner.Show();
  EXPECT_TRUE(sender.TakeDown());
  EXPECT_FALSE(other.TakeDown());
  owner.Show();
  owner.Hide();
  EXPECT_FALSE(sender.TakeDown());
}

// Each round the owner either sees the message after it has shown the sign, or the sender sees the
// sign: otherwise the owner would sleep for ever.
TEST(SleepSign, NoMessageIsMissedByAnOwnerThatGoesToSleep) {
  constexpr int kRounds = 20'000;
  Block block;
  std::atomic<int> woken{-1};
  std::thread sender([&] {
    RingWriter writer(block.get(), 0);
    SleepSign sign(block.get());
    for (int round = 0; round < kRounds; ++round) {
      while (!writer.HasRoom(1)) std::this_thread::yield();
      writer.Put(Wire(round).data(), {});
      if (sign.TakeDown()) woken.store(round);
    }
  });
  RingReader reader(block.get(), 0);
  SleepSign sign(block.get());
  for (int taken = 0; taken < kRounds;) {
    const int woken_before = woken.load();
    sign.Show();
    if (!reader.has_message()) {
      while (woken.load() == woken_before) std::this_thread::yield();
    }
    sign.Hide();
    for (std::string wire = Take(reader); !wire.empty(); wire = Take(reader)) {
      ASSERT_EQ(wire, Wire(taken));
      ++taken;
    }
  }
  sender.join();
}

}  // namespace
}  // namespace weir::transport
