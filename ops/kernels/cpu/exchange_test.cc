#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/exchange_plan.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir {
namespace {

struct Box {
  Shape begin, end;
  int64_t volume() const {
    int64_t product = 1;
    for (size_t i = 0; i < begin.size(); ++i) product *= end[i] - begin[i];
    return product;
  }
};

// Returns the offsets in the tensor of the box's elements, row-major.
std::vector<int64_t> OffsetsOf(const Shape& shape, const Box& box) {
  std::vector<int64_t> offsets;
  Shape index = box.begin;
  if (box.volume() == 0) return offsets;
  for (;;) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) offset = offset * shape[axis] + index[axis];
    offsets.push_back(offset);
    int axis = static_cast<int>(shape.size()) - 1;
    while (axis >= 0 && ++index[axis] == box.end[axis]) {
      index[axis] = box.begin[axis];
      --axis;
    }
    if (axis < 0) return offsets;
  }
}

Box RandomBox(const Shape& shape, std::mt19937* random) {
  Box box;
  for (int64_t size : shape) {
    int64_t a = (*random)() % (size + 1), b = (*random)() % (size + 1);
    if ((*random)() % 3 == 0) a = 0, b = size;
    box.begin.push_back(std::min(a, b));
    box.end.push_back(std::max(a, b));
  }
  return box;
}

void Append(std::vector<int64_t>* list, const Box& box) {
  list->push_back(static_cast<int64_t>(box.begin.size()));
  list->insert(list->end(), box.begin.begin(), box.begin.end());
  list->insert(list->end(), box.end.begin(), box.end.end());
}

Shape RandomShape(std::mt19937* random) {
  Shape shape(1 + (*random)() % 4);
  for (int64_t& size : shape) size = 1 + (*random)() % 9;
  return shape;
}

const std::array kTypes = {DType::kF32, DType::kBF16, DType::kI32};

TEST(RectTest, WalksTheElementsOfTheBoxInRowMajorOrder) {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 300; ++repeat) {
    Shape shape = RandomShape(&random);
    Box box = RandomBox(shape, &random);
    auto rect = DenseRect::Of(shape, box.begin, box.end);
    ASSERT_TRUE(rect.ok());
    std::vector<int64_t> offsets = OffsetsOf(shape, box);
    ASSERT_EQ(rect->volume(), static_cast<int64_t>(offsets.size()));
    int64_t start = offsets.empty() ? 0 : random() % offsets.size();
    RectCursor cursor(*rect, start);
    for (int64_t at = start; at < rect->volume();) {
      int64_t n = 1 + random() % cursor.contiguous();
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(cursor.offset() + i, offsets[at + i]);
      cursor.Advance(n);
      at += n;
    }
  }
}

TEST(RectTest, ABoxOutsideTheTensorIsRefused) {
  EXPECT_FALSE(DenseRect::Of({4, 4}, {0, 0}, {4, 5}).ok());
  EXPECT_FALSE(DenseRect::Of({4, 4}, {-1, 0}, {4, 4}).ok());
  EXPECT_FALSE(DenseRect::Of({4, 4}, {2, 0}, {1, 4}).ok());
  EXPECT_FALSE(DenseRect::Of({4, 4}, {0}, {4}).ok());
}

TEST(RectTest, NeighboursThatLieContiguouslyJoin) {
  // The rectangle has five axes, but one run: only the first axis is cut.
  auto rect = DenseRect::Of({4, 3, 2, 5, 6}, {1, 0, 0, 0, 0}, {3, 3, 2, 5, 6});
  ASSERT_TRUE(rect.ok());
  EXPECT_EQ(RectCursor(*rect, 0).contiguous(), rect->volume());
}

TEST(ExchangePackTest, GathersThePiecesOfEachChunkInOrder) {
  std::mt19937 random(11);
  for (int repeat = 0; repeat < 60; ++repeat) {
    DType dtype = kTypes[repeat % 3];
    std::vector<TestTensor> tensors;
    for (int i = 0; i < 1 + repeat % 3; ++i)
      tensors.push_back(RandomTensor(dtype, RandomShape(&random), repeat * 10 + i));
    const int64_t chunk_elements = 1 + random() % 200;
    std::vector<int64_t> pieces;
    std::vector<std::vector<double>> messages;
    int64_t position = 0;
    for (int i = 0; i < 5; ++i) {
      int64_t which = random() % tensors.size();
      const TestTensor& tensor = tensors[which];
      Box box = RandomBox(tensor.slice.shape, &random);
      position += random() % 30;  // what other senders fill
      pieces.push_back(which);
      pieces.push_back(position);
      Append(&pieces, box);
      for (int64_t offset : OffsetsOf(tensor.slice.shape, box)) {
        size_t chunk = position++ / chunk_elements;
        if (messages.size() <= chunk) messages.resize(chunk + 1);
        messages[chunk].push_back(tensor[offset]);
      }
    }
    Attributes attrs{{"pieces", pieces}, {"chunk_elements", chunk_elements}};
    TestInputs inputs(tensors.begin(), tensors.end());
    KernelSpec spec{.op = "exchange_pack", .attrs = attrs};
    for (const TestTensor& tensor : tensors) spec.inputs.push_back(tensor.slice);
    spec.outputs = {TensorSlice::Whole(dtype, {chunk_elements})};
    auto kernel = KernelRegistry::Create("cpu", spec);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    for (size_t chunk = 0; chunk < messages.size(); ++chunk) {
      RunOptions options;
      options.chunk = static_cast<int64_t>(chunk);
      auto message = RunKernel("exchange_pack", attrs, inputs, spec.outputs, options)[0];
      message.values.resize(messages[chunk].size());
      ExpectEqualValues(message, messages[chunk]);
      EXPECT_EQ((*kernel)->output_bytes(chunk),
                static_cast<int64_t>(messages[chunk].size()) * SizeOf(dtype));
    }
  }
}

TEST(ExchangePackTest, AnActOnALargeChunkIsTheSameOnAnyTeam) {
  TestTensor tensor = RandomTensor(DType::kF32, {700, 600}, 3);
  std::vector<int64_t> pieces{0, 0};
  Box box{{3, 5}, {690, 505}};
  Append(&pieces, box);
  auto message =
      RunKernel("exchange_pack", {{"pieces", pieces}, {"chunk_elements", int64_t{1} << 20}},
                {tensor}, {TensorSlice::Whole(DType::kF32, {box.volume()})});
  std::vector<double> expected;
  for (int64_t offset : OffsetsOf({700, 600}, box)) expected.push_back(tensor[offset]);
  ExpectEqualValues(message[0], expected);
}

TEST(ExchangePackTest, DamagedAttributesAreRefused) {
  KernelSpec spec{.op = "exchange_pack",
                  .inputs = {TensorSlice::Whole(DType::kF32, {4, 4})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {16})}};
  const std::vector<int64_t> damaged[] = {{1, 0, 2, 0, 0, 4, 4},  {0, -1, 2, 0, 0, 4, 4},
                                          {0, 0, 2, 0, 0, 4, 5},  {0, 0, 2, 0, 0, 4},
                                          {0, 0, -2, 0, 0, 4, 4}, {0, 0, 3, 0, 0, 0, 4, 4, 1}};
  for (const auto& pieces : damaged) {
    spec.attrs = {{"pieces", pieces}, {"chunk_elements", int64_t{16}}};
    EXPECT_EQ(KernelRegistry::Create("cpu", spec).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// A FillCase cuts a tensor into bands of its first axis, each filled from its own sources.
class FillCase {
 public:
  FillCase(DType dtype, uint64_t seed) : dtype_(dtype), random_(seed) {
    out_ = RandomTensor(
        dtype,
        {4 + static_cast<int64_t>(random_() % 6), 1 + static_cast<int64_t>(random_() % 7), 3},
        seed);
    own_ = RandomTensor(dtype, {12, 5, 4}, seed + 1);
    chunk_elements_ = 1 + random_() % 100;
    num_chunks_ = (out_.size() + chunk_elements_ - 1) / chunk_elements_;
    messages_.assign(kMessages, std::vector<std::vector<double>>(num_chunks_));
    int64_t position = 0;
    for (int64_t row = 0; row < out_.slice.shape[0];) {
      int64_t rows = std::min<int64_t>(out_.slice.shape[0] - row, 1 + random_() % 3);
      AddRegion(row, rows, &position);
      row += rows;
    }
  }

  void Check() {
    for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) {
      TestInputs inputs{own_};
      for (auto& message : messages_) {
        if (message[chunk].empty()) {
          inputs.push_back(TensorOf(dtype_, {0}, {}));
        } else {
          inputs.push_back(
              TensorOf(dtype_, {static_cast<int64_t>(message[chunk].size())}, message[chunk]));
        }
      }
      RunOptions options;
      options.chunk = chunk;
      options.initial_outputs = {out_};
      Attributes attrs{
          {"num_own", int64_t{1}}, {"regions", regions_}, {"chunk_elements", chunk_elements_}};
      auto result = RunKernel("exchange_fill", attrs, inputs, {out_.slice}, options);
      ASSERT_EQ(out_.values.size(), expected_.size());
      // Only the chunk's own positions change.
      for (int64_t i = 0; i < out_.size(); ++i) {
        double wanted = i / chunk_elements_ == chunk ? expected_[i] : out_[i];
        ASSERT_EQ(result[0][i], wanted) << "chunk " << chunk << ", element " << i;
      }
      out_ = result[0];
    }
  }

 private:
  static constexpr int kMessages = 3;

  void AddRegion(int64_t row, int64_t rows, int64_t* position) {
    Box target{{row, 0, 0}, {row + rows, out_.slice.shape[1], 3}};
    const int64_t combiner = random_() % 2, num_sources = random_() % 4;
    regions_.insert(regions_.end(), {0, combiner});
    Append(&regions_, target);
    regions_.push_back(num_sources);
    std::vector<double> total(target.volume(), combiner == 0 ? 0.0 : Lowest());
    for (int64_t s = 0; s < num_sources; ++s) {
      std::vector<double> values = s == 0 && random_() % 2
                                       ? OwnSource(target.volume())
                                       : MessageSource(s, *position, target.volume());
      for (size_t i = 0; i < total.size(); ++i) {
        total[i] = s == 0 ? values[i]
                   : combiner == 0
                       ? Stored(dtype_ == DType::kI32 ? dtype_ : DType::kF32, total[i] + values[i])
                       : std::max(total[i], values[i]);
      }
    }
    for (double value : total)
      expected_.push_back(num_sources == 0 ? value : Stored(dtype_, value));
    *position += target.volume();
  }

  double Lowest() const {
    return dtype_ == DType::kI32 ? std::numeric_limits<int32_t>::min()
                                 : -std::numeric_limits<double>::infinity();
  }

  // Returns a box of the own tensor with the same volume; a message if no box has that volume.
  std::vector<double> OwnSource(int64_t volume) {
    regions_.push_back(-1);
    Box box{{0, 0, 0}, {0, 0, 0}};
    for (int64_t a = 1; a <= 12 && box.volume() != volume; ++a) {
      for (int64_t b = 1; b <= 5 && box.volume() != volume; ++b) {
        for (int64_t c = 1; c <= 4 && box.volume() != volume; ++c)
          box = Box{{12 - a, 5 - b, 0}, {12, 5, c}};
      }
    }
    if (box.volume() != volume) {
      regions_.pop_back();
      return MessageSource(0, static_cast<int64_t>(expected_.size()), volume);
    }
    Append(&regions_, box);
    std::vector<double> values;
    for (int64_t offset : OffsetsOf(own_.slice.shape, box)) values.push_back(own_[offset]);
    return values;
  }

  std::vector<double> MessageSource(int64_t s, int64_t position, int64_t volume) {
    int64_t k = s % kMessages;
    regions_.push_back(k);
    std::vector<double> values;
    for (int64_t i = 0; i < volume; ++i) {
      double value = Stored(dtype_, static_cast<double>(random_() % 2000) / 64 - 10);
      values.push_back(value);
      messages_[k][(position + i) / chunk_elements_].push_back(value);
    }
    return values;
  }

  DType dtype_;
  std::mt19937 random_;
  TestTensor out_, own_;
  int64_t chunk_elements_ = 0, num_chunks_ = 0;
  std::vector<int64_t> regions_;
  std::vector<std::vector<std::vector<double>>> messages_;  // per message, per chunk
  std::vector<double> expected_;
};

TEST(ExchangeFillTest, FillsEachChunkFromOwnTensorsAndMessages) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    FillCase(kTypes[seed % 3], seed).Check();
  }
}

TEST(ExchangeFillTest, ALargeSumIsTheSameOnAnyTeam) {
  const int64_t n = 300000;
  TestTensor own = RandomTensor(DType::kF32, {n}, 1), message = RandomTensor(DType::kF32, {n}, 2);
  std::vector<int64_t> regions{0, 0, 1, 0, n, 2, -1, 1, 0, n, 0};
  auto sum = RunKernel("exchange_fill",
                       {{"num_own", int64_t{1}}, {"regions", regions}, {"chunk_elements", n}},
                       {own, message}, {own.slice});
  std::vector<double> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(Stored(DType::kF32, own[i] + message[i]));
  ExpectEqualValues(sum[0], expected);
}

TEST(ExchangeFillTest, ALargeSumOfThreeRunsInTheOrderOfItsSources) {
  const int64_t n = 70001, before = 3;
  TestTensor own = RandomTensor(DType::kF32, {n}, 1), first = RandomTensor(DType::kF32, {n}, 2),
             second = RandomTensor(DType::kF32, {n}, 3);
  std::vector<int64_t> regions{0, 0, 1, before, before + n, 3, 0, -1, 1, 0, n, 1};
  RunOptions options;
  options.initial_outputs = {TensorOf(DType::kF32, {n + 5}, std::vector<double>(n + 5, 7))};
  auto sum = RunKernel("exchange_fill",
                       {{"num_own", int64_t{1}}, {"regions", regions}, {"chunk_elements", n}},
                       {own, first, second}, {TensorSlice::Whole(DType::kF32, {n + 5})}, options);
  std::vector<double> expected(n + 5, 7);
  for (int64_t i = 0; i < n; ++i) {
    expected[before + i] = Stored(DType::kF32, Stored(DType::kF32, first[i] + own[i]) + second[i]);
  }
  ExpectEqualValues(sum[0], expected);
}

TEST(ExchangeFillTest, SourcesMayHaveAnotherShapeOfTheSameVolume) {
  TestTensor own = RandomTensor(DType::kF32, {6, 4}, 1);
  // The regions fill the flat range [2, 10) of a 1-d tensor from rows 1 and 2 of a matrix.
  std::vector<int64_t> regions{0, 0, 1, 2, 10, 1, -1, 2, 1, 0, 3, 4};
  RunOptions options;
  options.initial_outputs = {TensorOf(DType::kF32, {12}, std::vector<double>(12, 7))};
  auto out =
      RunKernel("exchange_fill",
                {{"num_own", int64_t{1}}, {"regions", regions}, {"chunk_elements", int64_t{64}}},
                {own}, {TensorSlice::Whole(DType::kF32, {12})}, options);
  std::vector<double> expected{7, 7};
  for (int64_t i = 4; i < 12; ++i) expected.push_back(own[i]);
  expected.insert(expected.end(), {7, 7});
  ExpectEqualValues(out[0], expected);
}

TEST(ExchangeFillTest, DamagedAttributesAreRefused) {
  KernelSpec spec{
      .op = "exchange_fill",
      .inputs = {TensorSlice::Whole(DType::kF32, {4}), TensorSlice::Whole(DType::kF32, {4})},
      .outputs = {TensorSlice::Whole(DType::kF32, {4})}};
  const std::vector<int64_t> damaged[] = {
      {1, 0, 1, 0, 4, 0},          {0, 2, 1, 0, 4, 0}, {0, 0, 1, 0, 5, 0},
      {0, 0, 1, 0, 4, 1, 1},       {0, 0, 1, 0, 4, 1}, {0, 0, 1, 0, 4, 1, -1, 1, 0, 3},
      {0, 0, 1, 0, 4, 1, -1, 1, 0}};
  for (const auto& regions : damaged) {
    spec.attrs = {{"num_own", int64_t{1}}, {"regions", regions}, {"chunk_elements", int64_t{4}}};
    EXPECT_EQ(KernelRegistry::Create("cpu", spec).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weir
