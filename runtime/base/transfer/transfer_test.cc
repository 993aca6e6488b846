#include "runtime/base/transfer/transfer.h"

#include <functional>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/transfer/message_size.h"
#include "runtime/base/transfer/transfer_codec.h"

namespace weir {
namespace {

using plan_limits::kElementsMax;

Transfer SomePack() {
  return ExchangePack{8, {{0, 3, {{1, 0}, {4, 2}}}, {1, 20, {{0}, {5}}}, {2, 40, {{}, {}}}}};
}

Transfer SomeFill() {
  return ExchangeFill{
      16,
      1,
      {{0, Combiner::kSum, {{0}, {4}}, {{ExchangeSource::kOwn, {{2}, {6}}}, {0, {}}, {1, {}}}},
       {1, Combiner::kMax, {{0, 0}, {2, 3}}, {}}}};
}

TEST(TransferCodecTest, WhatIsWrittenIsRead) {
  for (const Transfer& transfer : {Transfer(), SomePack(), SomeFill()}) {
    proto::KernelCall call;
    EncodeTransfer(transfer, &call);
    EXPECT_EQ(call.has_exchange(), transfer.index() != 0);
    Transfer read = SomePack();
    const auto flaw = DecodeTransfer(call, &read);
    EXPECT_FALSE(flaw.has_value()) << flaw->expected << "; " << flaw->found;
    EXPECT_TRUE(read == transfer);
  }
}

// Returns what is wrong with a plan's description of a transfer.
std::string FlawOfText(const std::string& text) {
  proto::KernelCall call;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("exchange {" + text + "}", &call));
  Transfer read;
  const auto flaw = DecodeTransfer(call, &read);
  return flaw.has_value() ? flaw->expected + "; found " + flaw->found : "none";
}

TEST(TransferCodecTest, DamagedDescriptionsAreRefused) {
  EXPECT_EQ(FlawOfText("chunk_elements: 4"), "an exchange that packs or fills; found neither");
  EXPECT_EQ(FlawOfText("pack {}"), "chunk_elements of at least 1; found 0");
  EXPECT_EQ(FlawOfText("chunk_elements: 4 fill { num_own: -1 }"),
            "num_own of at least 0; found -1");
  const auto piece = [](const std::string& text) {
    return FlawOfText("chunk_elements: 4 pack { piece {" + text + "} }");
  };
  EXPECT_EQ(piece("rect { begin: 1 end: 5 } position: 7"), "none");
  EXPECT_EQ(piece(""), "none") << "one element of a scalar";
  EXPECT_EQ(piece("tensor: -1"), "a piece of an input; found input -1");
  EXPECT_EQ(piece("position: -1"),
            "a piece at positions from 0 to 70368744177664; found 1 elements at -1");
  EXPECT_EQ(piece("position: 9223372036854775807"),
            "a piece at positions from 0 to 70368744177664; found 1 elements at "
            "9223372036854775807");
  EXPECT_EQ(piece("rect { begin: 1 }"), "a piece that is a rectangle; found [[1], [])");
  EXPECT_EQ(piece("rect { begin: 3 end: 2 }"), "a piece that is a rectangle; found [[3], [2])");
  EXPECT_EQ(piece("rect { begin: -1 end: 2 }"), "a piece that is a rectangle; found [[-1], [2])");
  const auto region = [](const std::string& text) {
    return FlawOfText("chunk_elements: 4 fill { region {" + text + "} }");
  };
  const std::string target = "target { begin: 0 end: 4 }";
  EXPECT_EQ(region(target + "source { message: 3 }"), "none");
  EXPECT_EQ(region(target + "source { own { begin: 2 end: 6 } }"), "none");
  EXPECT_EQ(region("tensor: 2000000"), "a region of an output; found output 2000000");
  EXPECT_EQ(region("combiner: MAX"), "none");
  EXPECT_EQ(region(target + "source {}"),
            "a source that is the own shard or a message; found neither");
  EXPECT_EQ(region(target + "source { message: -1 }"),
            "a source among the messages; found message -1");
  EXPECT_EQ(region(target + "source { own { begin: 2 end: 5 } }"),
            "a source of 4 elements, as its region has; found [[2], [5])");
}

TEST(TransferCodecTest, AnUnknownCombinerIsRefused) {
  proto::KernelCall call;
  EncodeTransfer(SomeFill(), &call);
  call.mutable_exchange()->mutable_fill()->mutable_region(0)->set_combiner(
      static_cast<proto::ExchangeProto::Combiner>(7));
  Transfer read;
  const auto flaw = DecodeTransfer(call, &read);
  ASSERT_TRUE(flaw.has_value());
  EXPECT_EQ(flaw->found, "7");
}

TEST(TransferTest, SizesThatOverflowAreFlaws) {
  const Rect huge{{0, 0, 0}, {kElementsMax, kElementsMax, kElementsMax}};
  EXPECT_TRUE(FindFlaw(ExchangePack{1, {{0, 0, huge}}}).has_value());
  EXPECT_TRUE(FindFlaw(ExchangeFill{1, 0, {{0, Combiner::kSum, huge, {}}}}).has_value());
  const Rect most{{0}, {kElementsMax}};
  EXPECT_FALSE(FindFlaw(ExchangeFill{1, 0, {{0, Combiner::kSum, most, {}}}}).has_value());
  EXPECT_TRUE(
      FindFlaw(
          ExchangeFill{1, 0, {{0, Combiner::kSum, most, {}}, {0, Combiner::kSum, {{0}, {1}}, {}}}})
          .has_value());
  const Rect many{Shape(plan_limits::kTensorRankMax + 1, 0),
                  Shape(plan_limits::kTensorRankMax + 1, 1)};
  EXPECT_TRUE(FindFlaw(ExchangePack{1, {{0, 0, many}}}).has_value());
}

TEST(TransferTest, DescriptionsMustFitTheirOperands) {
  const ExchangePack pack{8, {{0, 0, {{1}, {4}}}}};
  EXPECT_FALSE(FindFlawWith(pack, {Shape{4}}).has_value());
  EXPECT_TRUE(FindFlawWith(pack, {Shape{3}}).has_value());
  EXPECT_TRUE(FindFlawWith(pack, {Shape{4, 4}}).has_value());
  EXPECT_TRUE(FindFlawWith(pack, {}).has_value());
  const ExchangeFill fill{8, 1, {{0, Combiner::kSum, {{0}, {4}}, {{1, {}}}}}};
  EXPECT_FALSE(FindFlawWith(fill, 3).has_value());
  EXPECT_TRUE(FindFlawWith(fill, 2).has_value());
  EXPECT_TRUE(FindFlawWith(fill, 0).has_value());
}

TEST(TransferCodecTest, ACollectiveComesBackAsItWas) {
  const Collective collective{
      Collective::Kind::kReduceScatter, Combiner::kMax, {RankId(3), RankId(1)}};
  proto::KernelCall call;
  EncodeTransfer(collective, &call);
  Transfer read;
  EXPECT_FALSE(DecodeTransfer(call, &read).has_value());
  EXPECT_EQ(read, Transfer(collective));
  call.mutable_collective()->add_rank(3);
  EXPECT_EQ(DecodeTransfer(call, &read)->expected, "a group of different ranks from 0");
  call.mutable_collective()->clear_rank();
  EXPECT_EQ(DecodeTransfer(call, &read)->expected, "a group of at least 2 ranks");
  call.mutable_collective()->add_rank(-1);
  EXPECT_EQ(DecodeTransfer(call, &read)->found, "rank -1");
}

TEST(TransferTest, ACollectiveMustFitItsOperands) {
  const auto fits = [](Collective::Kind kind, int64_t in, int64_t out) {
    return !FindFlawWith(Collective{kind, Combiner::kSum, {RankId(0), RankId(1), RankId(2)}}, in,
                         out)
                .has_value();
  };
  EXPECT_TRUE(fits(Collective::Kind::kAllReduce, 5, 5));
  EXPECT_FALSE(fits(Collective::Kind::kAllReduce, 5, 4));
  EXPECT_TRUE(fits(Collective::Kind::kReduceScatter, 6, 2));
  EXPECT_FALSE(fits(Collective::Kind::kReduceScatter, 2, 6));
  EXPECT_TRUE(fits(Collective::Kind::kAllGather, 2, 6));
  EXPECT_FALSE(fits(Collective::Kind::kAllGather, kElementsMax, 3 * kElementsMax));
}

TEST(TransferTest, AMessageHasTheElementsOfItsChunk) {
  // Positions 3 to 9, 20 to 25 and 40, in chunks of 8.
  const std::vector<int64_t> expected{5, 1, 4, 1, 0, 1, 0};
  EXPECT_EQ(MessageElements(SomePack(), 7), expected);
  EXPECT_EQ(MessageElements(SomePack(), 2), (std::vector<int64_t>{5, 1}));
  EXPECT_TRUE(MessageElements(SomeFill(), 7).empty());
  EXPECT_TRUE(MessageElements(Transfer(), 7).empty());
}

TEST(TransferTest, TheMeanMessageCountsEmptyOnes) {
  EXPECT_EQ(TotalMessageElements(SomePack()), 5 + 1 + 4 + 1 + 1);
  EXPECT_EQ(MeanMessageElements(SomePack(), 7), 2);
  EXPECT_EQ(MeanMessageElements(SomeFill(), 7), 0);
}

}  // namespace
}  // namespace weir
