#include "runtime/transport/message_ledger.h"

#include <cstring>
#include <functional>

#include "gtest/gtest.h"
#include "runtime/base/id_vector.h"

namespace weir::transport {
namespace {

using Kind = WireMessage::Kind;
using Payload = WireMessage::Payload;
using Verdict = MessageLedger::Verdict;
using Direction = TransportEdge::Direction;

constexpr int32_t kSlots = 3;
constexpr int64_t kBytes = 100;
const std::string kKey(32, 'k');
constexpr uint64_t kPairTag = 77;  // of messages from rank 0

// Rank 1 of 3 has edge 40 to rank 0, edge 41 from rank 0 (own landing), edge 42 from rank 0
// (reachable).
class MessageLedgerTest : public ::testing::Test {
 protected:
  static MessageLedger NewLedger(int32_t initial_tokens) {
    IdVector<EdgeHandle, LedgerEdge> edges(3);
    for (const EdgeHandle edge : edges.ids()) {
      const bool is_first = edge == EdgeHandle(0);
      TransportEdge& spec = edges[edge].spec;
      spec.direction = is_first ? Direction::kOutgoing : Direction::kIncoming;
      spec.edge = EdgeId(40 + edge.value());
      spec.peer = RankId(0);
      spec.slots = kSlots;
      spec.bytes = kBytes;
      spec.initial_tokens = initial_tokens;
      spec.landing = is_first ? nullptr : landing_memory;
    }
    edges[EdgeHandle(2)].landing = LedgerEdge::Landing::kReachable;
    MessageLedger ledger({kKey, 5, 2, RankId(1), 3}, std::move(edges));
    ledger.ExpectTag(RankId(0), kPairTag);
    return ledger;
  }
  WireMessage Message(Kind kind, int edge, int32_t slot, uint32_t number) const {
    WireMessage message;
    message.job_tag = ledger_.job_tag();
    message.pair_tag = kPairTag;
    message.epoch = 5;
    message.role = 2;
    message.kind = kind;
    message.receiver_edge = EdgeHandle(edge);
    message.number = number;
    message.header.edge = EdgeId(40 + edge);
    message.header.slot = slot;
    if (kind == Kind::kToken) {
      message.payload = edge == 1 ? Payload::kSent : Payload::kMapped;
      message.header.payload_bytes = 10;
    }
    return message;
  }
  absl::StatusOr<Verdict> Enter(const WireMessage& message, uint64_t behind) {
    char bytes[kWireMessageBytes];
    EncodeWireMessage(message, bytes);
    WireMessage entered;
    return ledger_.Enter(bytes, sizeof(bytes), behind, &entered);
  }
  void ExpectAccepted(const WireMessage& message, uint64_t behind) {
    absl::StatusOr<Verdict> verdict = Enter(message, behind);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(*verdict, Verdict::kAccepted);
  }
  // Returns the numbers that can be handed over now.
  std::vector<uint32_t> TakeAll(int edge_number) {
    const EdgeHandle edge(edge_number);
    std::vector<uint32_t> numbers;
    while (const MessageLedger::Arrival* arrival = ledger_.Front(edge)) {
      numbers.push_back(arrival->message.number);
      ledger_.Pop(edge);
    }
    return numbers;
  }
  static inline char landing_memory[kSlots * kBytes];
  MessageLedger ledger_ = NewLedger(0);
};

using Numbers = std::vector<uint32_t>;

TEST_F(MessageLedgerTest, MessagesThatOvertookAreHandedOverInOrder) {
  ExpectAccepted(Message(Kind::kToken, 2, 2, 2), 0);
  ExpectAccepted(Message(Kind::kToken, 2, 0, 0), 0);
  EXPECT_EQ(TakeAll(2), Numbers{0});
  ExpectAccepted(Message(Kind::kToken, 2, 1, 1), 0);
  EXPECT_EQ(TakeAll(2), (Numbers{1, 2}));
}

TEST_F(MessageLedgerTest, ATokenWaitsForItsPayload) {
  ExpectAccepted(Message(Kind::kToken, 1, 0, 0), 10);
  EXPECT_EQ(TakeAll(1), Numbers{});
  ledger_.Complete(EdgeHandle(1), 0);
  EXPECT_EQ(TakeAll(1), Numbers{0});
}

TEST_F(MessageLedgerTest, ASlotGoesRoundAndRound) {
  for (uint32_t number = 0; number < 20; ++number) {
    const int32_t slot = static_cast<int32_t>(number % kSlots);
    ExpectAccepted(Message(Kind::kToken, 2, slot, number), 0);
    EXPECT_EQ(TakeAll(2), Numbers{number});
    ASSERT_TRUE(ledger_.CheckSend(EdgeHandle(2), Direction::kIncoming, slot).ok());
    EXPECT_EQ(ledger_.BeginSend(EdgeHandle(2), slot), number);
    ledger_.EndSend(EdgeHandle(2), slot);
  }
}

TEST_F(MessageLedgerTest, ATokenIsSentOnceUntilItsCreditIsBack) {
  ASSERT_TRUE(ledger_.CheckSend(EdgeHandle(0), Direction::kOutgoing, 1).ok());
  EXPECT_EQ(ledger_.BeginSend(EdgeHandle(0), 1), 0u);
  ledger_.EndSend(EdgeHandle(0), 1);
  EXPECT_EQ(ledger_.CheckSend(EdgeHandle(0), Direction::kOutgoing, 1).code(),
            absl::StatusCode::kInvalidArgument);
  ExpectAccepted(Message(Kind::kCredit, 0, 1, 0), 0);
  EXPECT_FALSE(ledger_.CheckSend(EdgeHandle(0), Direction::kOutgoing, 1).ok())
      << "has come but was not handed over";
  EXPECT_EQ(TakeAll(0), Numbers{0});
  EXPECT_TRUE(ledger_.CheckSend(EdgeHandle(0), Direction::kOutgoing, 1).ok());
}

TEST_F(MessageLedgerTest, ACreditWaitsUntilItsTokenHasLeft) {
  ledger_.BeginSend(EdgeHandle(0), 1);
  ExpectAccepted(Message(Kind::kCredit, 0, 1, 0), 0);
  EXPECT_EQ(TakeAll(0), Numbers{}) << "the network still reads the slot";
  ledger_.EndSend(EdgeHandle(0), 1);
  EXPECT_EQ(TakeAll(0), Numbers{0});
}

TEST_F(MessageLedgerTest, InitialTokensTakeTheirSlots) {
  ledger_ = NewLedger(2);
  EXPECT_FALSE(ledger_.CheckSend(EdgeHandle(0), Direction::kOutgoing, 1).ok());
  EXPECT_TRUE(ledger_.CheckSend(EdgeHandle(0), Direction::kOutgoing, 2).ok());
  EXPECT_TRUE(ledger_.CheckSend(EdgeHandle(1), Direction::kIncoming, 1).ok());
  EXPECT_FALSE(Enter(Message(Kind::kToken, 2, 0, 0), 0).ok());
  ExpectAccepted(Message(Kind::kToken, 2, 2, 0), 0);
}

TEST_F(MessageLedgerTest, WhatDoesNotFitIsRefusedAndNamed) {
  struct Case {
    const char* what;
    std::function<void(WireMessage&)> change;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"epoch", [](WireMessage& m) { m.epoch = 4; }, "expected epoch 5, role 2; found epoch 4"},
      {"role", [](WireMessage& m) { m.role = 9; }, "role 9"},
      {"another's tag", [](WireMessage& m) { ++m.pair_tag; }, "that rank 0 has written"},
      {"sender", [](WireMessage& m) { m.sender = RankId(2); }, "rank 2"},
      {"far sender", [](WireMessage& m) { m.sender = RankId(1 << 30); }, "rank 1073741824"},
      {"negative sender", [](WireMessage& m) { m.sender = RankId(-1); }, "rank -1"},
      {"edge number", [](WireMessage& m) { m.receiver_edge = EdgeHandle(3); }, "number 3"},
      {"negative edge number", [](WireMessage& m) { m.receiver_edge = EdgeHandle(-1); },
       "number -1"},
      {"other edge", [](WireMessage& m) { m.header.edge = EdgeId(41); }, "on edge 42"},
      {"direction", [](WireMessage& m) { m.receiver_edge = EdgeHandle(0); }, "direction"},
      {"slot", [](WireMessage& m) { m.header.slot = kSlots; }, "slot 3"},
      {"negative slot", [](WireMessage& m) { m.header.slot = -1; }, "slot -1"},
      {"early number", [](WireMessage& m) { m.number = kSlots; }, "number 0 or a little more"},
      {"late number", [](WireMessage& m) { m.number = ~0u; }, "4294967295"},
      {"bytes", [](WireMessage& m) { m.header.payload_bytes = kBytes + 1; }, "at most 100 bytes"},
      {"negative bytes", [](WireMessage& m) { m.header.payload_bytes = -1; }, "-1"},
      {"sent, not mapped", [](WireMessage& m) { m.payload = Payload::kSent; },
       "10 bytes as the header says"},
      {"no payload", [](WireMessage& m) { m.payload = Payload::kNone; }, "payload of kind 0"},
      {"mapped nothing", [](WireMessage& m) { m.header.payload_bytes = 0; },
       "0 bytes as the header says"},
      {"credit", [](WireMessage& m) { m.kind = Kind::kCredit; }, "direction"},
  };
  for (const Case& c : cases) {
    WireMessage message = Message(Kind::kToken, 2, 0, 0);
    c.change(message);
    absl::StatusOr<Verdict> verdict = Enter(message, 0);
    EXPECT_EQ(verdict.status().code(), absl::StatusCode::kDataLoss) << c.what;
    EXPECT_NE(std::string(verdict.status().message()).find(c.text), std::string::npos)
        << verdict.status();
    EXPECT_NE(std::string(verdict.status().message()).find("rank 1"), std::string::npos)
        << verdict.status();
  }
  ExpectAccepted(Message(Kind::kToken, 2, 0, 0), 0);
}

TEST_F(MessageLedgerTest, PayloadsBehindMustBeAsAnnounced) {
  EXPECT_FALSE(Enter(Message(Kind::kToken, 1, 0, 0), 9).ok());
  EXPECT_FALSE(Enter(Message(Kind::kToken, 1, 0, 0), 0).ok());
  EXPECT_FALSE(Enter(Message(Kind::kToken, 2, 0, 0), 10).ok());
  EXPECT_FALSE(Enter(Message(Kind::kHello, 0, 0, 0), 1).ok());
  WireMessage mapped = Message(Kind::kToken, 1, 0, 0);
  mapped.payload = Payload::kMapped;
  EXPECT_FALSE(Enter(mapped, 0).ok()) << "nobody else can have written there";
}

TEST_F(MessageLedgerTest, NothingComesTwice) {
  ExpectAccepted(Message(Kind::kToken, 2, 0, 0), 0);
  EXPECT_FALSE(Enter(Message(Kind::kToken, 2, 0, 0), 0).ok());
  EXPECT_FALSE(Enter(Message(Kind::kToken, 2, 1, 0), 0).ok()) << "a number again";
  EXPECT_FALSE(Enter(Message(Kind::kToken, 2, 0, 1), 0).ok()) << "a slot again";
  EXPECT_EQ(TakeAll(2), Numbers{0});
  EXPECT_FALSE(Enter(Message(Kind::kToken, 2, 0, 1), 0).ok()) << "its credit is still here";
  EXPECT_FALSE(Enter(Message(Kind::kCredit, 0, 0, 0), 0).ok()) << "nothing was sent";
  ExpectAccepted(Message(Kind::kHello, 0, 0, 0), 0);
  EXPECT_FALSE(Enter(Message(Kind::kHello, 0, 0, 0), 0).ok());
  ExpectAccepted(Message(Kind::kBye, 0, 0, 0), 0);
  EXPECT_FALSE(Enter(Message(Kind::kBye, 0, 0, 0), 0).ok());
}

TEST_F(MessageLedgerTest, OtherJobsAreForeignAndOtherEpochsFenced) {
  WireMessage message = Message(Kind::kToken, 2, 0, 0);
  message.job_tag = JobTag(std::string(32, 'x'), 5, 2);
  EXPECT_EQ(Enter(message, 0).value(), Verdict::kForeign);
  message.epoch = 4;
  message.job_tag = JobTag(kKey, 4, 2);
  EXPECT_EQ(Enter(message, 0).value(), Verdict::kFenced);
  message.role = 1;
  EXPECT_EQ(Enter(message, 0).value(), Verdict::kForeign) << "a tag of no network of this job";
  message.job_tag = JobTag(kKey, 4, 1);
  EXPECT_EQ(Enter(message, 0).value(), Verdict::kFenced);
}

TEST_F(MessageLedgerTest, EveryPrefixIsForeignAndEveryFlippedBitHarmless) {
  char good[kWireMessageBytes];
  EncodeWireMessage(Message(Kind::kToken, 2, 0, 0), good);
  WireMessage entered;
  for (size_t size = 0; size < sizeof(good); ++size) {
    EXPECT_EQ(ledger_.Enter(good, size, 0, &entered).value(), Verdict::kForeign);
  }
  for (size_t bit = 0; bit < 8 * sizeof(good); ++bit) {
    char bytes[kWireMessageBytes];
    std::memcpy(bytes, good, sizeof(bytes));
    bytes[bit / 8] ^= 1 << bit % 8;
    ledger_ = NewLedger(0);
    absl::StatusOr<Verdict> verdict = ledger_.Enter(bytes, sizeof(bytes), 0, &entered);
    if (bit < 64) {
      EXPECT_EQ(verdict.value(), Verdict::kForeign);
    }
    if (!verdict.ok() || *verdict != Verdict::kAccepted) continue;
    // The message may be another right message (slot, number, checksum, step and the like), but its
    // fields stay in bounds.
    EXPECT_GE(entered.header.slot, 0);
    EXPECT_LT(entered.header.slot, kSlots);
    EXPECT_LE(entered.header.payload_bytes, kBytes);
    EXPECT_LT(entered.number, uint32_t{kSlots});
  }
}

}  // namespace
}  // namespace weir::transport
