#include "runtime/transport/envelope.h"

#include <random>

#include "gtest/gtest.h"
#include "runtime/transport/rank_card.h"

namespace weir::transport {
namespace {

const std::string kKey(32, 'k');

std::string Hex(const std::string& bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

TEST(EnvelopeTest, ComputesHmacSha256AsTheStandardDoes) {
  EXPECT_EQ(Hex(Hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(Hmac("", "")), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(EnvelopeTest, GivesBackWhatWasSealed) {
  for (const std::string& content : {std::string(), std::string("x"), std::string(70'000, '\0')}) {
    EXPECT_EQ(OpenEnvelope(kKey, "rank 3", SealEnvelope(kKey, "rank 3", content)).value(), content);
  }
}

TEST(EnvelopeTest, AnotherKeyOrSubjectDoesNotOpenIt) {
  const std::string envelope = SealEnvelope(kKey, "rank 3", "content");
  EXPECT_EQ(OpenEnvelope(std::string(32, 'x'), "rank 3", envelope).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenEnvelope("", "rank 3", envelope).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenEnvelope(kKey, "rank 4", envelope).status().code(), absl::StatusCode::kDataLoss);
}

TEST(EnvelopeTest, EveryPrefixAndEveryFlippedBitIsRefused) {
  const std::string envelope = SealEnvelope(kKey, "s", "some address, some key");
  for (size_t size = 0; size < envelope.size(); ++size) {
    EXPECT_FALSE(OpenEnvelope(kKey, "s", envelope.substr(0, size)).ok()) << size;
  }
  for (size_t bit = 0; bit < 8 * envelope.size(); ++bit) {
    std::string flipped = envelope;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(OpenEnvelope(kKey, "s", flipped).ok()) << bit;
  }
  EXPECT_FALSE(OpenEnvelope(kKey, "s", envelope + "x").ok());
}

RankCard GoodCard() {
  RankCard card;
  card.rank = RankId(1);
  card.num_ranks = 4;
  card.host = "a host";
  card.address = std::string(100, 'a');
  card.landing_key = "key";
  card.landing_address = 1 << 20;
  card.landing_bytes = 1000;
  CardEdge edge;
  edge.edge = EdgeId(7);
  edge.direction = TransportEdge::Direction::kIncoming;
  edge.peer = RankId(0);
  edge.slots = 3;
  edge.initial_tokens = 1;
  edge.bytes = 200;
  edge.handle = EdgeHandle(0);
  edge.landing_offset = 100;
  edge.stride = 256;
  edge.has_landing = true;
  card.edges.push_back(edge);
  return card;
}

TEST(RankCardTest, GivesBackWhatWasWritten) {
  const std::string bytes = EncodeRankCard(GoodCard());
  absl::StatusOr<RankCard> card = DecodeRankCard(bytes);
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_EQ(EncodeRankCard(*card), bytes);
}

TEST(RankCardTest, NoPrefixIsACardAndNoChangeDoesHarm) {
  const std::string bytes = EncodeRankCard(GoodCard());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(DecodeRankCard(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(DecodeRankCard(bytes + "x").ok());
  std::minstd_rand random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = bytes;
    for (unsigned n = 1 + random() % 4; n > 0; --n)
      changed[random() % changed.size()] = static_cast<char>(random() >> 8);
    absl::StatusOr<RankCard> card = DecodeRankCard(changed);
    if (!card.ok()) continue;
    for (const CardEdge& edge : card->edges) {
      EXPECT_TRUE(edge.landing_offset == -1 ||
                  edge.landing_offset + (edge.slots - 1) * edge.stride + edge.bytes <=
                      card->landing_bytes);
    }
  }
}

TEST(RankCardTest, ImpossibleEdgesAreRefused) {
  const auto refused = [](auto change) {
    RankCard card = GoodCard();
    change(card, card.edges[0]);
    return !DecodeRankCard(EncodeRankCard(card)).ok();
  };
  EXPECT_FALSE(refused([](RankCard&, CardEdge&) {}));
  EXPECT_TRUE(refused([](RankCard& card, CardEdge&) { card.rank = RankId(4); }));
  EXPECT_TRUE(refused([](RankCard& card, CardEdge&) { card.landing_bytes = 811; }))
      << "the last slot ends at 812";
  EXPECT_FALSE(refused([](RankCard& card, CardEdge&) { card.landing_bytes = 812; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.peer = RankId(1); }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.peer = RankId(-1); }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.slots = 0; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.slots = 1 << 30; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.bytes = INT64_MAX; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.stride = INT64_MAX / 2; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.stride = 199; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.landing_offset = -2; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.landing_offset = INT64_MAX - 10; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.initial_tokens = 4; }));
  EXPECT_TRUE(refused([](RankCard&, CardEdge& edge) { edge.has_landing = false; }));
}

TEST(RankCardTest, AnEdgeThatOneSideLacksOrHasTwiceIsNamed) {
  const RankCard theirs = GoodCard();
  RankCard mine = GoodCard();
  mine.rank = RankId(0);
  mine.edges[0].peer = RankId(1);
  mine.edges[0].direction = TransportEdge::Direction::kOutgoing;
  EXPECT_EQ(PairEdges(mine, theirs).value(), std::vector<int>{0});
  const auto text = [&](const RankCard& a, const RankCard& b) {
    return std::string(PairEdges(a, b).status().message());
  };
  RankCard changed = mine;
  changed.edges[0].slots = 2;
  EXPECT_NE(text(changed, theirs).find("edge 7: rank 0 expects 2 slots"), std::string::npos)
      << text(changed, theirs);
  changed = mine;
  changed.edges.clear();
  EXPECT_NE(text(changed, theirs).find("edge 7: rank 1 expects a sender on rank 0"),
            std::string::npos);
  changed = mine;
  changed.edges[0].edge = EdgeId(8);
  EXPECT_NE(text(changed, theirs).find("edge 8: expected a receiver on rank 1"), std::string::npos);
  changed = mine;
  changed.edges.push_back(changed.edges[0]);
  EXPECT_NE(text(changed, theirs).find("edge 7: rank 0 has it twice"), std::string::npos);
}

TEST(RankCardTest, TheNameOfACardSaysWhoseItIs) {
  EXPECT_EQ(RankOfCardSubject(CardSubject(1, 0, RankId(3))), RankId(3));
  EXPECT_EQ(RankOfCardSubject(CardSubject(UINT32_MAX, UINT16_MAX, RankId(INT32_MAX))),
            RankId(INT32_MAX));
  for (const char* other :
       {"", "card 3", "transport/1/0", "transport/1/0/3/4", "transport/1/0/-3", "transport/1/0/+3",
        "transport/1/0/ 3", "transport/1/0/03", "transport/1/65536/3", "transport/4294967296/0/3",
        "transport/1/0/2147483648"}) {
    EXPECT_EQ(RankOfCardSubject(other), RankId()) << other;
  }
}

}  // namespace
}  // namespace weir::transport
