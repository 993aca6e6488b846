#include <cmath>
#include <limits>
#include <set>

#include "gtest/gtest.h"
#include "runtime/base/attributes.h"
#include "runtime/base/build_id.h"
#include "runtime/base/dtype.h"
#include "runtime/base/random.h"
#include "runtime/base/schedule.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor_slice.h"

namespace weir {
namespace {

TEST(Status, AProblemSaysWhereExpectedFoundAndHint) {
  absl::Status status = Rejected({"W0001", "job:3", "a size", "\"x\"", "size: 4"});
  EXPECT_EQ(status.message(), "W0001 at job:3: expected a size; found \"x\". Try: size: 4.");
  EXPECT_EQ(ExitCode(status), 65);
  EXPECT_EQ(ExitCode(Missing({"W", "", "a", "b", ""})), 66);
  EXPECT_EQ(ExitCode(Damaged({"W", "", "a", "b", ""})), 66);
  EXPECT_EQ(ExitCode(absl::InternalError("x")), 70);
}

TEST(Status, NearestFindsTheMisspeltWordAndNothingElse) {
  std::vector<std::string> words = {"matmul", "gelu", "softmax"};
  EXPECT_EQ(Nearest("matmull", words), "matmul");
  EXPECT_EQ(Nearest("sofmax", words), "softmax");
  EXPECT_EQ(Nearest("convolution", words), "");
  EXPECT_EQ(Nearest("gelu_with_tanh", words), "gelu");
  EXPECT_EQ(Nearest(std::string(100'000'000, 'x'), words), "");
}

TEST(Status, AnOuterPlaceIsAddedBehindTheCode) {
  EXPECT_EQ(At("node q", Rejected({"W0308", "", "a", "b", ""})).message(),
            "W0308 at node q: expected a; found b.");
  EXPECT_EQ(At("node q", Rejected({"W0308", "x", "a", "b", ""})).message(),
            "W0308 at node q, x: expected a; found b.");
  EXPECT_EQ(At("node q", absl::InternalError("x")).message(), "node q: x");
  EXPECT_EQ(At("node q", absl::InternalError("x")).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(At("node q", absl::OkStatus()).ok());
}

TEST(Status, WhatComesFromAFileCannotSpoilTheTerminal) {
  EXPECT_EQ(Rejected({"W0001", "", "a", "\033[2J\n", ""}).message(),
            "W0001: expected a; found \\x1b[2J\\x0a.");
  EXPECT_LT(Rejected({"W0001", "", "a", std::string(1'000'000, 'x'), ""}).message().size(), 2000);
}

TEST(TensorSlice, NumElementsRefusesOverflow) {
  EXPECT_EQ(NumElements({2, 3}), 6);
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({int64_t{1} << 40, int64_t{1} << 40}), -1);
  EXPECT_EQ(NumElements({-1}), -1);
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(ToFloat(ToBFloat16(1.0f)), 1.0f);
  EXPECT_EQ(ToFloat(ToBFloat16(1.00390625f)), 1.0f);       // tie, to even
  EXPECT_EQ(ToFloat(ToBFloat16(1.01171875f)), 1.015625f);  // tie, to even upwards
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

// The values are known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Random, PhiloxMatchesItsPublishedKnownAnswers) {
  std::array<uint32_t, 4> zero = RandomBits(0, 0);
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
}

TEST(Random, NormalsHaveUnitVariance) {
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    double x = NormalAt(7, i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
}

TEST(Schedule, WarmsUpThenDecays) {
  LearningRateSchedule s{1.0, 10, "cosine", 110, 0.1};
  EXPECT_DOUBLE_EQ(s.At(0), 0.1);
  EXPECT_DOUBLE_EQ(s.At(9), 1.0);
  EXPECT_DOUBLE_EQ(s.At(60), 0.1 + 0.9 * 0.5);
  EXPECT_NEAR(s.At(500), 0.1, 1e-12);
  Attributes a;
  s.ToAttributes(&a);
  EXPECT_EQ(LearningRateSchedule::FromAttributes(a).At(37), s.At(37));
}

TEST(BuildIdTest, IsThatOfTheProgramItself) {
  const std::string id = BuildId();
  EXPECT_EQ(id.size(), 40u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

}  // namespace
}  // namespace weir
