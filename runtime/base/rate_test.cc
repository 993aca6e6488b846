#include "runtime/base/rate.h"

#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/rate_codec.h"

namespace weir {
namespace {

TEST(RateTest, CountsTheActsOfSteps) {
  for (int64_t every : {1, 2, 3, 5}) {
    for (int64_t phase = 0; phase < every; ++phase) {
      const Rate rate{6, 3, every, phase};
      EXPECT_EQ(rate.micro_batches_per_step(), 2);
      EXPECT_EQ(rate.ActsIn(4 * every), 24);
      int64_t act = 0;
      for (int64_t step = 0; step < 20; ++step) {
        EXPECT_EQ(rate.ActsBefore(step), act) << step;
        EXPECT_EQ(rate.ActsInStep(step), step % every == phase);
        if (!rate.ActsInStep(step)) continue;
        for (int64_t k = 0; k < 6; ++k, ++act) {
          EXPECT_EQ(rate.StepOf(act), step);
          EXPECT_EQ(rate.ActInStep(act), k);
          EXPECT_EQ(rate.MicroBatchOf(act), k / 3);
        }
      }
    }
  }
}

TEST(RateTest, NoActIsBeforeTheFirstStep) {
  EXPECT_EQ((Rate{4, 1, 3, 2}).ActsBefore(0), 0);
  EXPECT_EQ((Rate{4, 1, 3, 2}).ActsBefore(2), 0);
  EXPECT_EQ((Rate{4, 1, 3, 0}).ActsBefore(1), 4);
}

// Goes over the acts one by one and compares every count with one made by hand.
TEST(SpanTest, CountsSpansAndTokens) {
  for (int64_t period : {1, 2, 3, 5}) {
    for (int64_t phase = 0; phase < period; ++phase) {
      const Span span{period, 2, phase};
      int64_t begun = 0, ended = 0, left = 0;
      for (int64_t act = 0; act < 30; ++act) {
        EXPECT_EQ(span.Begun(act), begun) << act;
        EXPECT_EQ(span.Ended(act), ended) << act;
        EXPECT_EQ(span.TokensTaken(act), 2 * begun);
        EXPECT_EQ(span.TokensGivenUp(act), 2 * ended);
        EXPECT_EQ(span.Begins(act), left == 0);
        if (left == 0) {
          left = begun == 0 ? period - phase : period;
          EXPECT_EQ(span.FirstAct(begun), act);
          EXPECT_EQ(span.LastAct(begun), act + left - 1);
          ++begun;
        }
        EXPECT_EQ(span.SpanOf(act), begun - 1);
        EXPECT_EQ(span.Ends(act), left == 1);
        if (--left == 0) ++ended;
      }
    }
  }
}

TEST(TimingTest, ActsAreAStrideApart) {
  const Timing timing{7, 100, 10, 5};
  std::vector<int64_t> offsets;
  for (int64_t act = 0; act < 6; ++act) offsets.push_back(timing.OffsetOf(act, 3));
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 10, 20, 100, 110, 120}));
  EXPECT_EQ(timing.OffsetOf(4, 1), 400);
}

TEST(PrecedenceTest, GrowsInsideAGroupAndFromGroupToGroup) {
  const Precedence precedence{-3, 2, 40, 1};
  std::vector<int64_t> at;
  for (int64_t k = 0; k < 5; ++k) at.push_back(precedence.At(k));
  EXPECT_EQ(at, (std::vector<int64_t>{-3, -2, 37, 38, 77}));
  EXPECT_FALSE(precedence.always_same());
  EXPECT_TRUE((Precedence{5, 2, 0, 0}).always_same());
  EXPECT_FALSE((Precedence{5, 2, 0, 0}).always_zero());
  EXPECT_TRUE(Precedence{}.always_zero());
  EXPECT_EQ((Precedence{5, 2, 0, 0}).At(9), 5);
}

TEST(RateCodecTest, KeepsEveryNumber) {
  const Rate rate{12, 3, 4, 2};
  const Span span{4, 2, 3};
  const Timing timing{-7, 100, 10, 5};
  const Precedence precedence{-3, 2, 40, 1};
  EXPECT_EQ(FromProto(ToProto(rate)), rate);
  EXPECT_EQ(FromProto(ToProto(span)), span);
  EXPECT_EQ(FromProto(ToProto(timing)), timing);
  EXPECT_EQ(FromProto(ToProto(precedence)), precedence);
}

TEST(RateCodecTest, CountsOfOneAreLeftOut) {
  EXPECT_EQ(ToProto(Span()).ByteSizeLong(), 0u);
  EXPECT_EQ(ToProto(Precedence()).ByteSizeLong(), 0u);
  EXPECT_EQ(ToProto(Rate()).ByteSizeLong(), 2u);  // acts_per_step is always said
  EXPECT_EQ(FromProto(proto::Span()), Span());
  EXPECT_EQ(FromProto(proto::Precedence()), Precedence());
  proto::Rate no_acts;
  EXPECT_EQ(FromProto(no_acts).acts_per_step, 0);
  EXPECT_EQ(FromProto(no_acts).chunks, 1);
}

}  // namespace
}  // namespace weir
