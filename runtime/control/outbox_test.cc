#include "runtime/control/outbox.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace weir::control {
namespace {

using Box = Outbox<proto::WorkerFrame>;

Box::Message MessageOf(size_t bytes, char fill = 'x') {
  return std::make_shared<const std::string>(bytes, fill);
}

proto::WorkerFrame BeatOf(int64_t acts) {
  proto::WorkerFrame frame;
  frame.mutable_heartbeat()->set_acts(acts);
  return frame;
}

proto::WorkerFrame LeaveFrame() {
  proto::WorkerFrame frame;
  frame.mutable_leave();
  return frame;
}

TEST(OutboxTest, MessagesComeOutInOrderAndWholeAtTheOtherEnd) {
  Box box(10, 10 << 20);
  Inbox inbox(10 << 20);
  const size_t sizes[] = {0, 1, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1, 3 * kPieceBytes};
  char fill = 'a';
  for (size_t size : sizes) ASSERT_TRUE(box.Push(MessageOf(size, fill++)).ok());
  fill = 'a';
  for (size_t size : sizes) {
    std::optional<std::string> message;
    while (!message.has_value()) {
      const auto frame = box.Next();
      ASSERT_TRUE(frame.has_value());
      EXPECT_LE(frame->piece().part().size(), kPieceBytes);
      message = *inbox.Add(frame->piece());
    }
    EXPECT_EQ(*message, std::string(size, fill++));
  }
  EXPECT_TRUE(box.empty());
  EXPECT_FALSE(box.Next().has_value());
}

TEST(OutboxTest, AnUrgentFrameWaitsForOnePieceAtMost) {
  Box box(10, 10 << 20);
  ASSERT_TRUE(box.Push(MessageOf(3 * kPieceBytes)).ok());
  EXPECT_TRUE(box.Next()->has_piece());
  box.PushUrgent(BeatOf(7));
  EXPECT_TRUE(box.has_urgent());
  EXPECT_EQ(box.Next()->heartbeat().acts(), 7);
  EXPECT_TRUE(box.Next()->has_piece());
  EXPECT_TRUE(box.Next()->piece().last());
}

TEST(OutboxTest, TheLastFrameFollowsAllThatWaitsAndNothingFollowsIt) {
  Box box(10, 10 << 20);
  ASSERT_TRUE(box.Push(MessageOf(1)).ok());
  box.PushLast(LeaveFrame());
  ASSERT_TRUE(box.Push(MessageOf(1)).ok());
  box.PushUrgent(BeatOf(1));
  EXPECT_TRUE(box.Next()->has_piece());
  EXPECT_TRUE(box.Next()->has_leave());
  EXPECT_TRUE(box.empty());
}

TEST(OutboxTest, ItRefusesMoreThanItsBoundsAndDropsNothing) {
  Box few(2, 100);
  EXPECT_TRUE(few.Push(MessageOf(1)).ok());
  EXPECT_TRUE(few.Push(MessageOf(1)).ok());
  EXPECT_EQ(few.Push(MessageOf(1)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(few.Next().has_value());
  EXPECT_TRUE(few.Push(MessageOf(1)).ok());
  Box small(10, 100);
  EXPECT_TRUE(small.Push(MessageOf(60)).ok());
  EXPECT_EQ(small.Push(MessageOf(41)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(small.Push(MessageOf(40)).ok());
}

TEST(OutboxTest, AnInboxTakesNoMessageBeyondItsLimit) {
  Inbox inbox(10);
  proto::Piece piece;
  piece.set_part("12345");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(inbox.Add(piece).ok());
  piece.set_last(true);
  EXPECT_EQ(inbox.Add(piece).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weir::control
