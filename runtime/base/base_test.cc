#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "gtest/gtest.h"
#include "runtime/base/attributes.h"
#include "runtime/base/build_id.h"
#include "runtime/base/dtype.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/real.h"
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

TEST(Status, AnErrorCarriesItsProblem) {
  const absl::Status status = Rejected({"W0001", "job:3", "a \n", "\"x\"", "size: 4"});
  const std::optional<Problem> problem = ProblemOf(status);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code, "W0001");
  EXPECT_EQ(problem->where, "job:3");
  EXPECT_EQ(problem->hint, "size: 4");
  EXPECT_EQ(FindingText(*problem), "expected a \\x0a; found \"x\"");
  EXPECT_EQ(HeadText(*problem), "W0001 at job:3: expected a \\x0a; found \"x\"");
  EXPECT_EQ(ProblemText(*problem), status.message());
  EXPECT_EQ(ProblemText(*problem, "\n  "),
            "W0001 at job:3: expected a \\x0a; found \"x\".\n  Try: size: 4.");
  EXPECT_EQ(WithProblems(status.code(), {*problem}), status);
  EXPECT_EQ(ProblemOf(At("node q", status))->where, "node q, job:3");
  EXPECT_EQ(ProblemOf(WithCode(absl::StatusCode::kInternal, status))->hint, "size: 4");
  EXPECT_EQ(WithCode(absl::StatusCode::kInternal, status).code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(ProblemOf(absl::InternalError(status.message())).has_value());
  EXPECT_FALSE(ProblemOf(absl::OkStatus()).has_value());
}

TEST(Status, AnErrorMayHaveSeveralProblems) {
  const Problem first = {"W0003", "job:1", "a", "b", "c"},
                second = {"W0004", "job:2", "d", "e", ""};
  const absl::Status status = ErrorOfAll(absl::StatusCode::kInvalidArgument, {first, second});
  EXPECT_EQ(status.message(),
            "W0003 at job:1: expected a; found b. Try: c.\nW0004 at job:2: expected d; found e.");
  ASSERT_EQ(ProblemsOf(status).size(), 2u);
  EXPECT_EQ(ProblemsOf(status)[1].code, "W0004");
  EXPECT_FALSE(ProblemOf(status).has_value());
}

TEST(Status, AFindingThatExpectsNothingIsASentence) {
  const Problem problem = {"W0514", "feed x", "", "the file ended", ""};
  EXPECT_EQ(Format(problem), "W0514 at feed x: the file ended");
  EXPECT_EQ(Format({"W0514", "feed x", "", "the file ended", "another"}),
            "W0514 at feed x: the file ended. Try: another.");
}

TEST(Status, AProblemMayBeOneSentence) {
  const absl::Status status =
      CodedError(absl::StatusCode::kAborted, "W0516", "no progress, but\n  x");
  EXPECT_EQ(status.message(), "W0516 no progress, but\n  x");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ProblemOf(status)->code, "W0516");
  EXPECT_EQ(At("rank 0", status).message(), "W0516 at rank 0: no progress, but\n  x");
}

TEST(Status, AnErrorKeepsTheAdviceOfItsCause) {
  const absl::Status cause = Missing({"W0006", "a.txt", "a file", "none", "another"});
  EXPECT_EQ(CausedBy(cause, "W0514", "feed x").message(),
            "W0514 at feed x: W0006 at a.txt: expected a file; found none. Try: another.");
  EXPECT_EQ(ProblemOf(CausedBy(cause, "W0514", "feed x"))->hint, "another");
  EXPECT_EQ(CausedBy(cause, "W0514", "feed x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CausedBy(absl::InternalError("it broke"), "W0514", "feed x").message(),
            "W0514 at feed x: it broke");
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

TEST(DType, NamesSizesAndKindsAreConsistent) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool})
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype) << Name(dtype);
  EXPECT_EQ(SizeOf(DType::kBool), 1);
  EXPECT_FALSE(IsReal(DType::kBool));
  EXPECT_FALSE(IsReal(DType::kI32));
  EXPECT_TRUE(IsReal(DType::kBF16));
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(ToFloat(ToBFloat16(1.0f)), 1.0f);
  EXPECT_EQ(ToFloat(ToBFloat16(1.00390625f)), 1.0f);       // tie, to even
  EXPECT_EQ(ToFloat(ToBFloat16(1.01171875f)), 1.015625f);  // tie, to even upwards
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

// Returns the number of the bits by arithmetic, independent of the conversions.
double NumberOfF16(uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 0x1f);
  const double fraction = bits & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(DType, EveryF16IsItsNumber) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float x = ToFloat(half);
    const double expected = NumberOfF16(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_TRUE(std::isnan(ToFloat(ToFloat16(x)))) << bits;
      continue;
    }
    ASSERT_EQ(x, expected) << bits;
    ASSERT_EQ(std::signbit(x), std::signbit(expected)) << bits;
    ASSERT_EQ(ToFloat16(x).bits, bits);
  }
}

// Between two neighbours the nearer one is taken, and half way the one whose last bit is 0.
TEST(DType, F16RoundsToNearestEven) {
  for (uint32_t low = 0; low < 0x7c00; ++low) {
    const uint32_t high = low + 1;
    // The number after the largest one would be 65536, and rounds to infinity.
    const double a = NumberOfF16(low), b = low == 0x7bff ? 65536 : NumberOfF16(high);
    const float half_way = static_cast<float>((a + b) / 2);
    ASSERT_EQ(half_way, (a + b) / 2);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float by = sign == 0 ? 1 : -1;
      ASSERT_EQ(ToFloat16(by * half_way).bits, sign | (low % 2 == 0 ? low : high)) << low;
      ASSERT_EQ(ToFloat16(by * std::nextafter(half_way, 0.0f)).bits, sign | low) << low;
      ASSERT_EQ(ToFloat16(by * std::nextafter(half_way, 1e9f)).bits, sign | high) << low;
    }
  }
  EXPECT_EQ(ToFloat16(1e30f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(ToFloat16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Real, ElementsOfAllRealTypesAreReadAndSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    alignas(8) char bytes[16] = {};
    char* const odd = bytes + 1;  // need not be aligned
    SetRealAt(dtype, odd, 0, 1.5f);
    SetRealAt(dtype, odd, 2, -0.25f);
    EXPECT_EQ(RealAt(dtype, odd, 0), 1.5f) << Name(dtype);
    EXPECT_EQ(RealAt(dtype, odd, 1), 0.0f) << Name(dtype);
    EXPECT_EQ(RealAt(dtype, odd, 2), -0.25f) << Name(dtype);
  }
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
