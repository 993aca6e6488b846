#include "compiler/transfer/known_exchanges.h"

#include "gtest/gtest.h"
#include "sbp/mesh.h"

namespace weir::compiler {
namespace {

class KnownExchangesTest : public ::testing::Test {
 protected:
  std::vector<sbp::BoxingStep> StepsOf(const sbp::TensorType& type, const sbp::Layout& from,
                                       const sbp::Layout& to) const {
    return *sbp::PlanBoxing(type, {from, 0}, {to, 0}, places_);
  }

  const sbp::Places places_ = sbp::PipelinePlaces(*sbp::Mesh::Parse("dp=3"));
  const sbp::TensorType tall_{DType::kF32, {{"rows", 7, 1}, {"columns", 5, 1}}};
  const sbp::TensorType other_names_{DType::kF32, {{"height", 7, 1}, {"width", 5, 1}}};
  const std::vector<sbp::BoxingStep> gather_ = StepsOf(tall_, {sbp::Sbp::S(0)}, {sbp::Sbp::B()});
  const std::vector<sbp::BoxingStep> across_ = StepsOf(tall_, {sbp::Sbp::S(1)}, {sbp::Sbp::B()});
  KnownExchanges known_;
};

TEST_F(KnownExchangesTest, EqualTensorsInEqualStepsAreBuiltOnce) {
  const KnownExchanges::Known& first = known_.Of({tall_}, gather_, places_, RankId(1));
  const std::vector<sbp::TensorType> equal = {tall_};
  EXPECT_EQ(&known_.Of(equal, gather_, places_, RankId(1)), &first);
}

TEST_F(KnownExchangesTest, WhatDiffersInTensorsStepsOrRankIsBuiltApart) {
  const KnownExchanges::Known& first = known_.Of({tall_}, gather_, places_, RankId(1));
  const KnownExchanges::Known& type = known_.Of({other_names_}, gather_, places_, RankId(1));
  const KnownExchanges::Known& steps = known_.Of({tall_}, across_, places_, RankId(1));
  const KnownExchanges::Known& rank = known_.Of({tall_}, gather_, places_, RankId(2));
  for (const KnownExchanges::Known* other : {&type, &steps, &rank}) EXPECT_NE(other, &first);
  EXPECT_EQ(&known_.Of({tall_}, gather_, places_, RankId(1)), &first) << "and stays where it is";
  EXPECT_EQ(&known_.Of({tall_}, across_, places_, RankId(1)), &steps);
}

TEST_F(KnownExchangesTest, AnExchangeIsTheOneOfItsRank) {
  for (RankId rank : places_.all_ranks()) {
    const sbp::RankExchange built = sbp::BuildExchange({tall_}, across_, places_, rank);
    const sbp::RankExchange& known = known_.Of({tall_}, across_, places_, rank).exchange;
    EXPECT_EQ(known.receives, built.receives);
    EXPECT_EQ(known.receiver_elements, built.receiver_elements);
    EXPECT_EQ(known.regions.size(), built.regions.size());
  }
}

}  // namespace
}  // namespace weir::compiler
