// The requirements on every transport, as one suite. A transport joins by instantiating the suite
// with a factory:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportConformance,
//   ::testing::Values(&MakeLoopbackFixture));
//
// The suite is single-threaded but for Connect: MoveAll() lets all sent messages arrive, on any
// thread that the transport needs. Each transport's own tests cover threads.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/id_vector.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/transport_fixture.h"

namespace weir::transport {

class TransportConformance : public ::testing::TestWithParam<TransportFixtureFactory> {
 protected:
  static constexpr EdgeId kEdge{42};
  static constexpr EdgeId kOtherEdge{43};

  // Connects one edge from rank 0 to rank 1.
  void Connect(int32_t slots, int64_t bytes, int32_t initial_tokens = 0) {
    fixture_ = GetParam()(2);
    bytes_ = bytes;
    stride_ = bytes + 64;
    absl::StatusOr<char*> given = fixture_->endpoint(RankId(1))->AllocateLanding(stride_ * slots);
    ASSERT_TRUE(given.ok()) << given.status();
    own_landing_.resize(*given == nullptr ? stride_ * slots : 0);
    landing_ = *given == nullptr ? own_landing_.data() : *given;
    std::memset(landing_, 'x', stride_ * slots);
    TransportEdge edge;
    edge.edge = kEdge;
    edge.slots = slots;
    edge.bytes = bytes;
    edge.initial_tokens = initial_tokens;
    edge.peer = RankId(1);
    out_ = fixture_->endpoint(RankId(0))->AddEdge(edge).value();
    edge.peer = RankId(0);
    edge.direction = TransportEdge::Direction::kIncoming;
    edge.landing = landing_;
    edge.stride = stride_;
    in_ = fixture_->endpoint(RankId(1))->AddEdge(edge).value();
    for (const absl::Status& status : fixture_->ConnectAll()) ASSERT_EQ(status, absl::OkStatus());
    fixture_->MoveAll();  // the network's own messages, which may wake too
  }
  // Sends `text` as token `sequence`, as the executor does: through the map if there is one.
  absl::Status Put(int32_t slot, int64_t sequence, const std::string& text) {
    MessageHeader header;
    header.edge = kEdge;
    header.slot = slot;
    header.sequence = sequence;
    header.payload_bytes = static_cast<int64_t>(text.size());
    void* mapped = fixture_->endpoint(RankId(0))->TryMap(out_, slot);
    if (mapped != nullptr && !text.empty()) std::memcpy(mapped, text.data(), text.size());
    return fixture_->endpoint(RankId(0))->Put(out_, header,
                                              mapped != nullptr ? mapped : text.data());
  }
  // Polls until `expected` messages have come, and once more; returns the number of messages that
  // came.
  int64_t Poll(RankId rank, RecordingReceiver* receiver, int64_t expected) {
    int64_t sum = 0;
    const auto poll = [&] {
      fixture_->MoveAll();
      absl::StatusOr<int64_t> n = fixture_->endpoint(rank)->Poll(receiver);
      EXPECT_TRUE(n.ok() || sum == expected) << n.status();
      sum += n.value_or(0);
      return !n.ok() || sum >= expected;
    };
    fixture_->Await(poll);
    poll();
    return sum;
  }
  std::string Landed(int32_t slot, size_t size) const {
    return std::string(&landing_[slot * stride_], size);
  }

  std::unique_ptr<TransportFixture> fixture_;
  EdgeHandle out_;
  EdgeHandle in_;
  int64_t bytes_ = 0;
  int64_t stride_ = 0;
  char* landing_ = nullptr;
  std::vector<char> own_landing_;
};

TEST_P(TransportConformance, TokensOfAnEdgeArriveInOrderWithTheirPayload) {
  Connect(3, 8);
  const std::vector<std::string> texts = {"first", "second", "third"};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Put(i, i, texts[i]), absl::OkStatus());
  RecordingReceiver receiver;
  EXPECT_EQ(Poll(RankId(1), &receiver, 3), 3);
  const std::string e = absl::StrCat(in_);
  EXPECT_EQ(receiver.log, (std::vector<std::string>{"token " + e + " 0 0", "token " + e + " 1 1",
                                                    "token " + e + " 2 2"}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Landed(i, texts[i].size()), texts[i]);
    EXPECT_EQ(receiver.tokens[i].payload_bytes, static_cast<int64_t>(texts[i].size()));
    EXPECT_EQ(receiver.tokens[i].edge, kEdge);
  }
  EXPECT_EQ(Landed(0, 6), "firstx") << "a short payload touches no more of the slot than its bytes";
  EXPECT_EQ(Poll(RankId(1), &receiver, 0), 0);
}

TEST_P(TransportConformance, HeadersArriveAsTheyWereSent) {
  Connect(1, 8);
  MessageHeader header;
  header.epoch = 3;
  header.role = 4;
  header.codec_version = 5;
  header.edge = kEdge;
  header.micro_batch = 6;
  header.sequence = int64_t{1} << 40;
  header.step = 7;
  header.version = 8;
  ASSERT_EQ(fixture_->endpoint(RankId(0))->Put(out_, header, nullptr), absl::OkStatus());
  RecordingReceiver receiver;
  ASSERT_EQ(Poll(RankId(1), &receiver, 1), 1);
  EXPECT_EQ(std::memcmp(&receiver.tokens[0], &header, sizeof(header)), 0);
}

TEST_P(TransportConformance, CreditsComeBackInOrderAndLetSlotsBeWrittenAgain) {
  Connect(2, 4);
  RecordingReceiver at_consumer, at_producer;
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(Put(0, 2 * round, "aaa" + std::to_string(round)), absl::OkStatus());
    ASSERT_EQ(Put(1, 2 * round + 1, "bbb" + std::to_string(round)), absl::OkStatus());
    EXPECT_EQ(Poll(RankId(1), &at_consumer, 2), 2);
    EXPECT_EQ(Landed(0, 4), "aaa" + std::to_string(round));
    EXPECT_EQ(Landed(1, 4), "bbb" + std::to_string(round));
    for (int slot : {0, 1})
      ASSERT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, slot), absl::OkStatus());
    at_producer.log.clear();
    EXPECT_EQ(Poll(RankId(0), &at_producer, 2), 2);
    const std::string e = absl::StrCat(out_);
    EXPECT_EQ(at_producer.log,
              (std::vector<std::string>{"credit " + e + " 0", "credit " + e + " 1"}));
  }
}

TEST_P(TransportConformance, AFlushedCreditNeedsNothingMoreOfItsSender) {
  Connect(1, 4);
  RecordingReceiver at_consumer, at_producer;
  ASSERT_EQ(Put(0, 0, "data"), absl::OkStatus());
  ASSERT_EQ(Poll(RankId(1), &at_consumer, 1), 1);
  ASSERT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, 0), absl::OkStatus());
  ASSERT_EQ(fixture_->endpoint(RankId(1))->Flush(), absl::OkStatus());
  EXPECT_TRUE(fixture_->Await([&] {
    EXPECT_TRUE(fixture_->endpoint(RankId(0))->Poll(&at_producer).ok());
    return at_producer.log.size() == 1;
  }));
}

TEST_P(TransportConformance, AllSlotsAndCreditsMayBeUnderWayAtOnce) {
  constexpr int kSlots = 64;
  Connect(kSlots, 4);
  RecordingReceiver receiver, at_producer;
  for (int round = 0; round < 3; ++round) {
    for (int slot = 0; slot < kSlots; ++slot)
      ASSERT_EQ(Put(slot, round * kSlots + slot, "data"), absl::OkStatus());
    EXPECT_EQ(Poll(RankId(1), &receiver, kSlots), kSlots);
    for (int slot = 0; slot < kSlots; ++slot)
      ASSERT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, slot), absl::OkStatus());
    EXPECT_EQ(Poll(RankId(0), &at_producer, kSlots), kSlots);
  }
}

TEST_P(TransportConformance, AProducerWithoutCreditsStopsAtItsSlots) {
  Connect(3, 4);
  RecordingReceiver at_consumer, at_producer;
  for (int slot = 0; slot < 3; ++slot) ASSERT_EQ(Put(slot, slot, "full"), absl::OkStatus());
  for (int slot = 0; slot < 3; ++slot)
    EXPECT_EQ(Put(slot, 3, "full").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Poll(RankId(1), &at_consumer, 3), 3);
  EXPECT_EQ(Put(0, 3, "full").code(), absl::StatusCode::kInvalidArgument)
      << "arrived, but not given back";
  EXPECT_EQ(fixture_->endpoint(RankId(0))->Traffic(out_).tokens, 3);
  ASSERT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, 1), absl::OkStatus());
  EXPECT_EQ(Poll(RankId(0), &at_producer, 1), 1);
  EXPECT_EQ(Put(0, 3, "full").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(1, 3, "more"), absl::OkStatus());
  EXPECT_EQ(Poll(RankId(1), &at_consumer, 1), 1);
  EXPECT_EQ(Landed(1, 4), "more");
}

TEST_P(TransportConformance, InitialTokensTakeTheirSlotsUntilTheyAreGivenBack) {
  Connect(2, 4, 1);
  RecordingReceiver at_consumer, at_producer;
  EXPECT_EQ(Put(0, 1, "aaaa").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(1, 1, "aaaa"), absl::OkStatus());
  EXPECT_EQ(Poll(RankId(1), &at_consumer, 1), 1);
  ASSERT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, 0), absl::OkStatus());
  EXPECT_EQ(Poll(RankId(0), &at_producer, 1), 1);
  EXPECT_EQ(Put(0, 2, "bbbb"), absl::OkStatus());
}

TEST_P(TransportConformance, CarriesEmptyAndHugeMessages) {
  constexpr int64_t kHuge = int64_t{8} << 20;
  Connect(2, kHuge);
  std::string huge(kHuge, '\0');
  for (size_t i = 0; i < huge.size(); ++i) huge[i] = static_cast<char>(i * 31 >> 3);
  ASSERT_EQ(Put(0, 0, ""), absl::OkStatus());
  ASSERT_EQ(Put(1, 1, huge), absl::OkStatus());
  RecordingReceiver receiver;
  EXPECT_EQ(Poll(RankId(1), &receiver, 2), 2);
  EXPECT_EQ(receiver.tokens[0].payload_bytes, 0);
  EXPECT_EQ(Landed(0, 1), "x");
  EXPECT_TRUE(Landed(1, huge.size()) == huge);
}

TEST_P(TransportConformance, AnEdgeOfNoBytesIsOnlyOrder) {
  Connect(1, 0);
  ASSERT_EQ(Put(0, 0, ""), absl::OkStatus());
  RecordingReceiver receiver;
  EXPECT_EQ(Poll(RankId(1), &receiver, 1), 1);
}

TEST_P(TransportConformance, CountsPayloadTokensAndCredits) {
  Connect(2, 8);
  ASSERT_EQ(Put(0, 0, "12345678"), absl::OkStatus());
  ASSERT_EQ(Put(1, 1, "123"), absl::OkStatus());
  RecordingReceiver receiver;
  Poll(RankId(1), &receiver, 2);
  ASSERT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, 0), absl::OkStatus());
  EXPECT_EQ(fixture_->endpoint(RankId(0))->Traffic(out_).payload_bytes, 11);
  EXPECT_EQ(fixture_->endpoint(RankId(0))->Traffic(out_).tokens, 2);
  EXPECT_EQ(fixture_->endpoint(RankId(1))->Traffic(in_).credits, 1);
}

TEST_P(TransportConformance, RefusesWhatIsNotOfTheEdge) {
  Connect(2, 8);
  MessageHeader header;
  header.edge = kEdge;
  const auto put = [&](EdgeHandle edge) {
    return fixture_->endpoint(RankId(0))->Put(edge, header, "12345678").code();
  };
  EXPECT_EQ(put(EdgeHandle()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(put(EdgeHandle(99)), absl::StatusCode::kInvalidArgument);
  header.slot = 2;
  EXPECT_EQ(put(out_), absl::StatusCode::kInvalidArgument);
  header.slot = -1;
  EXPECT_EQ(put(out_), absl::StatusCode::kInvalidArgument);
  header.slot = 0;
  header.payload_bytes = 9;
  EXPECT_EQ(put(out_), absl::StatusCode::kInvalidArgument);
  header.payload_bytes = -1;
  EXPECT_EQ(put(out_), absl::StatusCode::kInvalidArgument);
  header.payload_bytes = 0;
  header.edge = kOtherEdge;
  EXPECT_EQ(put(out_), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fixture_->endpoint(RankId(1))->ReturnCredit(in_, 2).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fixture_->endpoint(RankId(0))->ReturnCredit(out_, 0).code(),
            absl::StatusCode::kInvalidArgument)
      << "credits go from consumer to producer";
  EXPECT_EQ(fixture_->endpoint(RankId(0))->TryMap(out_, 7), nullptr);
}

TEST_P(TransportConformance, SidesThatDisagreeDoNotConnect) {
  for (int what = 0; what < 5; ++what) {
    fixture_ = GetParam()(3);
    TransportEdge edge;
    edge.edge = kEdge;
    edge.slots = 2;
    edge.bytes = 8;
    edge.peer = RankId(1);
    ASSERT_TRUE(fixture_->endpoint(RankId(0))->AddEdge(edge).ok());
    edge.direction = TransportEdge::Direction::kIncoming;
    edge.peer = RankId(what == 0 ? 2 : 0);
    edge.slots = what == 1 ? 3 : 2;
    edge.bytes = what == 2 ? 16 : 8;
    edge.edge = what == 3 ? kOtherEdge : kEdge;
    edge.statement = what == 4 ? 7 : 0;
    ASSERT_TRUE(fixture_->endpoint(RankId(1))->AddEdge(edge).ok());
    EXPECT_EQ(fixture_->ConnectAll()[0].code(), absl::StatusCode::kInvalidArgument) << what;
  }
}

TEST_P(TransportConformance, EdgesThatCannotBeAreRefused) {
  fixture_ = GetParam()(2);
  TransportEdge good;
  good.peer = RankId(1);
  const auto add = [&](auto change) {
    TransportEdge edge = good;
    change(edge);
    return fixture_->endpoint(RankId(0))->AddEdge(edge).ok();
  };
  EXPECT_TRUE(add([](TransportEdge&) {}));
  EXPECT_FALSE(add([](TransportEdge& e) { e.peer = RankId(0); }));
  EXPECT_FALSE(add([](TransportEdge& e) { e.peer = RankId(2); }));
  EXPECT_FALSE(add([](TransportEdge& e) { e.peer = RankId(-1); }));
  EXPECT_FALSE(add([](TransportEdge& e) { e.slots = 0; }));
  EXPECT_FALSE(add([](TransportEdge& e) { e.bytes = -1; }));
  EXPECT_FALSE(add([](TransportEdge& e) { e.initial_tokens = 2; }));
}

TEST_P(TransportConformance, AParkedRankIsWokenOnceByAMessage) {
  Connect(3, 4);
  std::atomic<int> wakes{0};
  fixture_->endpoint(RankId(1))->SetWakeHook([&wakes] { ++wakes; });
  ASSERT_EQ(fixture_->endpoint(RankId(1))->Park(), TransportEndpoint::ParkResult::kParked);
  EXPECT_EQ(wakes, 0);
  ASSERT_EQ(Put(0, 0, "a"), absl::OkStatus());
  ASSERT_EQ(Put(1, 1, "b"), absl::OkStatus());
  EXPECT_TRUE(fixture_->Await([&wakes] { return wakes == 1; }));
  EXPECT_EQ(fixture_->endpoint(RankId(1))->Park(), TransportEndpoint::ParkResult::kMessagesWait);
  RecordingReceiver receiver;
  EXPECT_EQ(Poll(RankId(1), &receiver, 2), 2);
  ASSERT_EQ(fixture_->endpoint(RankId(1))->Park(), TransportEndpoint::ParkResult::kParked);
  fixture_->endpoint(RankId(1))->Unpark();
  ASSERT_EQ(Put(2, 2, "c"), absl::OkStatus());
  fixture_->MoveAll();
  EXPECT_EQ(wakes, 1) << "awake already";
  fixture_->endpoint(RankId(1))->SetWakeHook(nullptr);
}

TEST_P(TransportConformance, AReceiversErrorEndsThePollAndIsReturned) {
  Connect(2, 4);
  ASSERT_EQ(Put(0, 0, "a"), absl::OkStatus());
  ASSERT_EQ(Put(1, 1, "b"), absl::OkStatus());
  fixture_->MoveAll();
  RecordingReceiver receiver;
  receiver.error_at = 1;
  EXPECT_EQ(fixture_->endpoint(RankId(1))->Poll(&receiver).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(receiver.log.size(), 1u);
}

TEST_P(TransportConformance, APeerThatLeavesIsGoneAfterItsLastMessage) {
  Connect(2, 4);
  ASSERT_EQ(Put(0, 0, "last"), absl::OkStatus());
  fixture_->MoveAll();
  RecordingReceiver receiver;
  ASSERT_EQ(Put(1, 1, "more"), absl::OkStatus());
  fixture_->endpoint(RankId(0))->Close();
  fixture_->endpoint(RankId(0))->Close();
  EXPECT_EQ(Poll(RankId(1), &receiver, 2), 2) << "what was sent before still arrives";
  EXPECT_EQ(Landed(1, 4), "more");
  fixture_->MoveAll();
  EXPECT_EQ(fixture_->endpoint(RankId(1))->Poll(&receiver).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, APeerThatLeavesWakesAParkedRankAndRefusesPuts) {
  Connect(2, 4);
  std::atomic<int> wakes{0};
  fixture_->endpoint(RankId(0))->SetWakeHook([&wakes] { ++wakes; });
  ASSERT_EQ(fixture_->endpoint(RankId(0))->Park(), TransportEndpoint::ParkResult::kParked);
  fixture_->endpoint(RankId(1))->Close();
  EXPECT_TRUE(fixture_->Await([&wakes] { return wakes == 1; }));
  EXPECT_EQ(fixture_->endpoint(RankId(0))->Park(), TransportEndpoint::ParkResult::kMessagesWait);
  EXPECT_EQ(Put(0, 0, "x").code(), absl::StatusCode::kUnavailable);
  fixture_->endpoint(RankId(0))->SetWakeHook(nullptr);
}

}  // namespace weir::transport
