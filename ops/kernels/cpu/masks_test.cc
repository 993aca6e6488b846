#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kB = DType::kBool;

TensorSlice Mask(Shape shape) { return TensorSlice::Whole(kB, std::move(shape)); }

std::vector<double> Compared(const std::string& op, const TestTensor& a, const TestTensor& b) {
  return RunKernel(op, {}, {a, b}, {Mask(a.slice.shape)})[0].values;
}

TEST(CompareTest, RelationsHoldAsNumbersDoAndNotANumberIsUnequalToAll) {
  using Values = std::vector<double>;
  const TestTensor a = TensorOf(DType::kF32, {5}, {1, 2, 3, kNaN, INFINITY});
  const TestTensor b = TensorOf(DType::kF32, {5}, {2, 2, 2, kNaN, INFINITY});
  EXPECT_EQ(Compared("equal", a, b), (Values{0, 1, 0, 0, 1}));
  EXPECT_EQ(Compared("not_equal", a, b), (Values{1, 0, 1, 1, 0}));
  EXPECT_EQ(Compared("less", a, b), (Values{1, 0, 0, 0, 0}));
  EXPECT_EQ(Compared("less_equal", a, b), (Values{1, 1, 0, 0, 1}));
  EXPECT_EQ(Compared("greater", a, b), (Values{0, 0, 1, 0, 0}));
  EXPECT_EQ(Compared("greater_equal", a, b), (Values{0, 1, 1, 0, 1}));
}

TEST(CompareTest, IntegersOfAnySizeAreComparedExactly) {
  const double most = std::numeric_limits<int32_t>::max();
  const TestTensor a = TensorOf(DType::kI32, {3}, {most, most - 1, -most});
  const TestTensor b = TensorOf(DType::kI32, {3}, {most - 1, most, -most});
  EXPECT_EQ(Compared("greater", a, b), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(RunKernel("equal", {{"value", most - 1}}, {a}, {Mask({3})})[0].values,
            (std::vector<double>{0, 1, 0}));
}

TEST(CompareTest, ANumberBesideRealElementsIsRoundedToF32) {
  const TestTensor a = TensorOf(DType::kF32, {1}, {Stored(DType::kF32, 0.1)});
  EXPECT_EQ(RunKernel("equal", {{"value", 0.1}}, {a}, {Mask({1})})[0][0], 1);
}

TEST(WhereTest, WhatIsNotChosenDoesNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TestTensor condition = TensorOf(kB, {4}, {1, 0, 1, 0});
    const TestTensor a = TensorOf(dtype, {4}, {1, kNaN, 3, -INFINITY});
    const TestTensor b = TensorOf(dtype, {4}, {INFINITY, 2, kNaN, 4});
    EXPECT_EQ(RunKernel("where", {}, {condition, a, b}, {a.slice})[0].values,
              (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(RunKernel("where", {{"value", -7.0}}, {condition, a}, {a.slice})[0].values,
              (std::vector<double>{1, -7, 3, -7}));
  }
}

TEST(WhereTest, LongOperandsRepeatAlongAnyAxis) {
  const int64_t rows = 37, columns = 2003;
  const TestTensor condition = TensorOf(kB, {rows, 1}, [&] {
    std::vector<double> values;
    for (int64_t i = 0; i < rows; ++i) values.push_back(i % 3 != 0);
    return values;
  }());
  const TestTensor a = RandomTensor(DType::kF32, {columns}, 1);
  const TestTensor b = RandomTensor(DType::kF32, {rows, columns}, 2);
  const TestTensor y = RunKernel("where", {}, {condition, a, b}, {b.slice})[0];
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      ASSERT_EQ(y[i * columns + j], condition[i] != 0 ? a[j] : b[i * columns + j]);
  }
}

TEST(CastTest, ToIntegersDropsTheFractionAndStaysInRange) {
  const TestTensor x = TensorOf(DType::kF32, {7}, {1.9, -1.9, 0.5, 1e30, -1e30, kNaN, INFINITY});
  const double most = std::numeric_limits<int32_t>::max();
  const double least = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(RunKernel("cast", {}, {x}, {TensorSlice::Whole(DType::kI32, {7})})[0].values,
            (std::vector<double>{1, -1, 0, most, least, 0, most}));
}

TEST(CastTest, MasksAreZerosAndOnesInEveryType) {
  const TestTensor mask = TensorOf(kB, {3}, {0, 1, 1});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32, kB}) {
    const TestTensor numbers = RunKernel("cast", {}, {mask}, {TensorSlice::Whole(dtype, {3})})[0];
    EXPECT_EQ(numbers.values, mask.values) << Name(dtype);
    EXPECT_EQ(RunKernel("cast", {}, {numbers}, {Mask({3})})[0].values, mask.values);
  }
}

TEST(MaskKernels, OperandsThatDoNotFitAreRefused) {
  const TensorSlice real = TensorSlice::Whole(DType::kF32, {2, 3}), mask = Mask({2, 3});
  for (const KernelSpec& spec :
       {KernelSpec{.op = "equal", .inputs = {real, mask}, .outputs = {mask}},
        KernelSpec{.op = "equal", .inputs = {real, real}, .outputs = {real}},
        KernelSpec{.op = "less",
        .inputs = {real, TensorSlice::Whole(DType::kF32, {2})},
        .outputs = {mask}},
        KernelSpec{.op = "logical_and", .inputs = {mask, real}, .outputs = {mask}},
        KernelSpec{.op = "where", .inputs = {real, real, real}, .outputs = {real}},
        KernelSpec{.op = "where", .inputs = {mask, mask}, .outputs = {mask}}}) {
    EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
              absl::StatusCode::kInvalidArgument)
        << spec.op;
  }
}

}  // namespace
}  // namespace weir::kernels
