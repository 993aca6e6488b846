#include <algorithm>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

class MoveKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, MoveKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kI32),
                         [](const auto& test) { return Name(test.param); });

TEST_P(MoveKernelTest, ReshapeKeepsTheOrderOfElements) {
  TestTensor x = RandomTensor(GetParam(), {30, 100, 24}, 1);
  auto y = RunKernel("reshape", {}, {x}, {TensorSlice::Whole(GetParam(), {3000, 4, 6})});
  ExpectEqualValues(y[0], x.values);
}

TEST_P(MoveKernelTest, TransposePermutesTheAxes) {
  struct Case {
    Shape shape;
    std::vector<int64_t> perm;
  };
  const Case cases[] = {{{5, 7}, {1, 0}},
                        {{300, 517}, {1, 0}},
                        {{2, 3, 4, 5}, {0, 2, 1, 3}},
                        {{2, 3, 4, 5}, {3, 2, 1, 0}},
                        {{2, 30, 4, 50}, {0, 2, 3, 1}},
                        {{6, 1, 9}, {2, 1, 0}},
                        {{0, 4}, {1, 0}},
                        {{}, {}},
                        {{40, 50, 60}, {2, 0, 1}},
                        {{40, 50, 60}, {1, 2, 0}},
                        {{7, 8}, {0, 1}},
                        {{3, 33, 2}, {1, 0, 2}},
                        {{1, 1}, {1, 0}},
                        {{17, 16, 15}, {1, 0, 2}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(ToText(c.shape));
    TestTensor x = RandomTensor(GetParam(), c.shape, 1);
    Shape shape;
    for (int64_t axis : c.perm) shape.push_back(c.shape[axis]);
    std::vector<double> expected(x.size());
    for (int64_t i = 0; i < x.size(); ++i) {
      Shape index(c.shape.size());
      int64_t rest = i;
      for (size_t axis = c.shape.size(); axis-- > 0;) {
        index[axis] = rest % c.shape[axis];
        rest /= c.shape[axis];
      }
      int64_t to = 0;
      for (int64_t axis : c.perm) to = to * c.shape[axis] + index[axis];
      expected[to] = x[i];
    }
    auto y =
        RunKernel("transpose", {{"perm", c.perm}}, {x}, {TensorSlice::Whole(GetParam(), shape)});
    ExpectEqualValues(y[0], expected);
  }
}

TEST_P(MoveKernelTest, SliceAndPadAndConcatUndoEachOther) {
  for (const Shape& shape :
       {Shape{9}, Shape{4, 9}, Shape{4, 9, 5}, Shape{300, 90, 7}, Shape{0, 9, 2}}) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
      TestTensor x = RandomTensor(GetParam(), shape, 1);
      const int64_t n = shape[axis];
      int64_t below = 1;
      for (size_t i = axis + 1; i < shape.size(); ++i) below *= shape[i];
      TestInputs parts;
      for (auto [begin, end] :
           {std::pair<int64_t, int64_t>{0, n / 3}, {n / 3, n / 2}, {n / 2, n}}) {
        Shape small = shape;
        small[axis] = end - begin;
        TensorSlice part_slice = TensorSlice::Whole(GetParam(), small);
        auto part = RunKernel("slice", {{"axis", axis}, {"begin", begin}, {"size", end - begin}},
                              {x}, {part_slice});
        std::vector<double> expected, padded;
        for (int64_t i = 0; i < x.size(); ++i) {
          const int64_t at = i / below % n;
          const bool inside = begin <= at && at < end;
          if (inside) expected.push_back(x[i]);
          padded.push_back(inside ? x[i] : 0);
        }
        ExpectEqualValues(part[0], expected);
        auto whole =
            RunKernel("pad", {{"axis", axis}, {"begin", begin}, {"size", n}}, {part[0]}, {x.slice});
        ExpectEqualValues(whole[0], padded);
        parts.push_back(part[0]);
      }
      ExpectEqualValues(RunKernel("concat", {{"axis", axis}}, parts, {x.slice})[0], x.values);
    }
  }
}

TEST(MoveTest, WhatDoesNotFitIsRefused) {
  TensorSlice x = TensorSlice::Whole(DType::kF32, {4, 6}),
              wrong = TensorSlice::Whole(DType::kF32, {4, 5});
  TensorSlice split{DType::kF32, {4, 6}, {0, 6}, {4, 12}};
  auto refused = [](const std::string& op, Attributes attrs, TensorSlice in, TensorSlice out) {
    KernelSpec spec{.op = op, .attrs = attrs, .inputs = {in}, .outputs = {out}};
    return KernelRegistry::Create(DeviceOfTests(), spec).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused("reshape", {}, x, wrong));
  EXPECT_TRUE(refused("transpose", {{"perm", std::vector<int64_t>{0, 0}}}, x, x));
  EXPECT_TRUE(refused("transpose", {{"perm", std::vector<int64_t>{1, 0}}}, x, x));
  EXPECT_TRUE(refused("slice", {{"axis", int64_t{1}}, {"begin", int64_t{2}}}, x, wrong));
  EXPECT_TRUE(refused("slice", {{"axis", int64_t{1}}, {"begin", int64_t{0}}}, split, wrong));
  EXPECT_TRUE(refused("pad", {{"axis", int64_t{2}}}, wrong, x));
  EXPECT_TRUE(refused("concat", {{"axis", int64_t{1}}}, wrong, x));
}

}  // namespace
}  // namespace weir::kernels
