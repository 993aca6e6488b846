#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"
#include "ops/kernels/shape/exchange_plan.h"

namespace weir::kernels {
namespace {

// Returns the offsets in the tensor of the box's elements, row-major.
std::vector<int64_t> OffsetsOf(const Shape& shape, const Rect& box) {
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

Rect RandomBox(const Shape& shape, std::mt19937* random) {
  Rect box;
  for (int64_t size : shape) {
    int64_t a = (*random)() % (size + 1), b = (*random)() % (size + 1);
    if ((*random)() % 3 == 0) a = 0, b = size;
    box.begin.push_back(std::min(a, b));
    box.end.push_back(std::max(a, b));
  }
  return box;
}

Shape RandomShape(std::mt19937* random) {
  Shape shape(1 + (*random)() % 4);
  for (int64_t& size : shape) size = 1 + (*random)() % 9;
  return shape;
}

const std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kI32};

TEST(RectTest, WalksTheElementsOfTheBoxInRowMajorOrder) {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 300; ++repeat) {
    Shape shape = RandomShape(&random);
    Rect box = RandomBox(shape, &random);
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
    ExchangePack pack{chunk_elements, {}};
    std::vector<std::vector<double>> messages;
    int64_t position = 0;
    for (int i = 0; i < 5; ++i) {
      int64_t which = random() % tensors.size();
      const TestTensor& tensor = tensors[which];
      Rect box = RandomBox(tensor.slice.shape, &random);
      position += random() % 30;  // what other senders fill
      pack.pieces.push_back({static_cast<int>(which), position, box});
      for (int64_t offset : OffsetsOf(tensor.slice.shape, box)) {
        size_t chunk = position++ / chunk_elements;
        if (messages.size() <= chunk) messages.resize(chunk + 1);
        messages[chunk].push_back(tensor[offset]);
      }
    }
    TestInputs inputs(tensors.begin(), tensors.end());
    KernelSpec spec{.op = "exchange_pack", .transfer = pack};
    for (const TestTensor& tensor : tensors) spec.inputs.push_back(tensor.slice);
    spec.outputs = {TensorSlice::Whole(dtype, {chunk_elements})};
    auto kernel = KernelRegistry::Create("cpu", spec);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    for (size_t chunk = 0; chunk < messages.size(); ++chunk) {
      RunOptions options;
      options.chunk = static_cast<int64_t>(chunk);
      options.transfer = pack;
      auto message = RunKernel("exchange_pack", {}, inputs, spec.outputs, options)[0];
      message.values.resize(messages[chunk].size());
      ExpectEqualValues(message, messages[chunk]);
      EXPECT_EQ((*kernel)->output_bytes(chunk),
                static_cast<int64_t>(messages[chunk].size()) * SizeOf(dtype));
    }
    const std::vector<int64_t> elements = MessageElements(pack, messages.size());
    for (size_t chunk = 0; chunk < messages.size(); ++chunk)
      EXPECT_EQ(elements[chunk], static_cast<int64_t>(messages[chunk].size()));
  }
}

TEST(ExchangePackTest, AnActOnALargeChunkIsTheSameOnAnyTeam) {
  TestTensor tensor = RandomTensor(DType::kF32, {700, 600}, 3);
  const Rect box{{3, 5}, {690, 505}};
  RunOptions options;
  options.transfer = ExchangePack{1 << 20, {{0, 0, box}}};
  auto message = RunKernel("exchange_pack", {}, {tensor},
                           {TensorSlice::Whole(DType::kF32, {box.volume()})}, options);
  std::vector<double> expected;
  for (int64_t offset : OffsetsOf({700, 600}, box)) expected.push_back(tensor[offset]);
  ExpectEqualValues(message[0], expected);
}

TEST(ExchangePackTest, ADamagedDescriptionIsRefused) {
  KernelSpec spec{.op = "exchange_pack",
                  .inputs = {TensorSlice::Whole(DType::kF32, {4, 4})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {16})}};
  const Rect whole{{0, 0}, {4, 4}};
  const Transfer damaged[] = {{},
                              ExchangeFill{16, 1, {}},
                              ExchangePack{0, {{0, 0, whole}}},
                              ExchangePack{16, {{1, 0, whole}}},
                              ExchangePack{16, {{-1, 0, whole}}},
                              ExchangePack{16, {{0, -1, whole}}},
                              ExchangePack{16, {{0, INT64_MAX, whole}}},
                              ExchangePack{1, {{0, int64_t{1} << 40, whole}}},  // too many chunks
                              ExchangePack{16, {{0, 0, {{0, 0}, {4, 5}}}}},
                              ExchangePack{16, {{0, 0, {{0, 0}, {4}}}}},
                              ExchangePack{16, {{0, 0, {{0, 0, 0}, {4, 4, 1}}}}},
                              ExchangePack{16, {{0, 0, {{0, -1}, {4, 4}}}}},
                              ExchangePack{16, {{0, 0, {{0, 3}, {4, 2}}}}}};
  for (const Transfer& transfer : damaged) {
    spec.transfer = transfer;
    EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  spec.transfer = ExchangePack{16, {{0, 0, whole}}};
  EXPECT_TRUE(KernelRegistry::Create("cpu", spec).ok());
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
      options.transfer = ExchangeFill{chunk_elements_, 1, regions_};
      auto result = RunKernel("exchange_fill", {}, inputs, {out_.slice}, options);
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
  static constexpr int kMessages = 9;

  void AddRegion(int64_t row, int64_t rows, int64_t* position) {
    const Rect target{{row, 0, 0}, {row + rows, out_.slice.shape[1], 3}};
    const int64_t combiner = random_() % 2, num_sources = random_() % (kMessages + 1);
    regions_.push_back({0, combiner == 0 ? Combiner::kSum : Combiner::kMax, target, {}});
    std::vector<std::vector<double>> sources;
    for (int64_t s = 0; s < num_sources; ++s) {
      sources.push_back(s == 0 && random_() % 2 ? OwnSource(target.volume())
                                                : MessageSource(s, *position, target.volume()));
    }
    for (int64_t i = 0; i < target.volume(); ++i) {
      std::vector<double> values;
      for (const std::vector<double>& source : sources) values.push_back(source[i]);
      expected_.push_back(num_sources == 0 ? (combiner == 0 ? 0.0 : Lowest())
                                           : Stored(dtype_, Combined(combiner == 0, values)));
    }
    *position += target.volume();
  }

  // Combines neighbours in pairs, then the neighbours of what is left, until one value is left.
  double Combined(bool is_sum, std::vector<double> values) const {
    while (values.size() > 1) {
      std::vector<double> halved;
      for (size_t i = 0; i < values.size(); i += 2) {
        halved.push_back(values[i]);
        if (i + 1 == values.size()) break;
        halved.back() =
            is_sum ? Stored(dtype_ == DType::kI32 ? dtype_ : DType::kF32, values[i] + values[i + 1])
                   : std::max(values[i], values[i + 1]);
      }
      values = std::move(halved);
    }
    return values[0];
  }

  double Lowest() const {
    return dtype_ == DType::kI32 ? std::numeric_limits<int32_t>::min()
                                 : -std::numeric_limits<double>::infinity();
  }

  // Returns a box of the own tensor with the same volume; a message if no box has that volume.
  std::vector<double> OwnSource(int64_t volume) {
    Rect box{{0, 0, 0}, {0, 0, 0}};
    for (int64_t a = 1; a <= 12 && box.volume() != volume; ++a) {
      for (int64_t b = 1; b <= 5 && box.volume() != volume; ++b) {
        for (int64_t c = 1; c <= 4 && box.volume() != volume; ++c)
          box = Rect{{12 - a, 5 - b, 0}, {12, 5, c}};
      }
    }
    if (box.volume() != volume)
      return MessageSource(0, static_cast<int64_t>(expected_.size()), volume);
    regions_.back().sources.push_back({ExchangeSource::kOwn, box});
    std::vector<double> values;
    for (int64_t offset : OffsetsOf(own_.slice.shape, box)) values.push_back(own_[offset]);
    return values;
  }

  std::vector<double> MessageSource(int64_t s, int64_t position, int64_t volume) {
    const int k = static_cast<int>(s % kMessages);
    regions_.back().sources.push_back({k, {}});
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
  std::vector<ExchangeRegion> regions_;
  std::vector<std::vector<std::vector<double>>> messages_;  // per message, per chunk
  std::vector<double> expected_;
};

TEST(ExchangeFillTest, FillsEachChunkFromOwnTensorsAndMessages) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    FillCase(kTypes[seed % 3], seed).Check();
  }
}

ExchangeSource Own(Rect rect) { return {ExchangeSource::kOwn, std::move(rect)}; }
ExchangeSource Message(int message) { return {message, {}}; }

TEST(ExchangeFillTest, ALargeSumIsTheSameOnAnyTeam) {
  const int64_t n = 300000;
  TestTensor own = RandomTensor(DType::kF32, {n}, 1), message = RandomTensor(DType::kF32, {n}, 2);
  RunOptions options;
  options.transfer =
      ExchangeFill{n, 1, {{0, Combiner::kSum, {{0}, {n}}, {Own({{0}, {n}}), Message(0)}}}};
  auto sum = RunKernel("exchange_fill", {}, {own, message}, {own.slice}, options);
  std::vector<double> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(Stored(DType::kF32, own[i] + message[i]));
  ExpectEqualValues(sum[0], expected);
}

TEST(ExchangeFillTest, ALargeSumOfThreeRunsInTheOrderOfItsSources) {
  const int64_t n = 70001, before = 3;
  TestTensor own = RandomTensor(DType::kF32, {n}, 1), first = RandomTensor(DType::kF32, {n}, 2),
             second = RandomTensor(DType::kF32, {n}, 3);
  RunOptions options;
  options.transfer = ExchangeFill{
      n,
      1,
      {{0, Combiner::kSum, {{before}, {before + n}}, {Message(0), Own({{0}, {n}}), Message(1)}}}};
  options.initial_outputs = {TensorOf(DType::kF32, {n + 5}, std::vector<double>(n + 5, 7))};
  auto sum = RunKernel("exchange_fill", {}, {own, first, second},
                       {TensorSlice::Whole(DType::kF32, {n + 5})}, options);
  std::vector<double> expected(n + 5, 7);
  for (int64_t i = 0; i < n; ++i) {
    expected[before + i] = Stored(DType::kF32, Stored(DType::kF32, first[i] + own[i]) + second[i]);
  }
  ExpectEqualValues(sum[0], expected);
}

// The bits of a sum do not tell whether aligned runs of 2^k sources were summed before.
TEST(ExchangeFillTest, ASumOfSumsOfFourHasTheBitsOfOneSum) {
  const int64_t n = 5000;
  for (const int64_t num_sources : {5, 8, 12, 15}) {
    SCOPED_TRACE(num_sources);
    const auto sum = [n](const TestInputs& inputs) {
      ExchangeRegion region{0, Combiner::kSum, {{0}, {n}}, {}};
      for (size_t i = 0; i < inputs.size(); ++i)
        region.sources.push_back({static_cast<int>(i), {}});
      RunOptions options;
      options.transfer = ExchangeFill{n, 0, {region}};
      return RunKernel("exchange_fill", {}, inputs, {TensorSlice::Whole(DType::kF32, {n})},
                       options)[0];
    };
    TestInputs all, of_four;
    for (int64_t s = 0; s < num_sources; ++s) {
      all.push_back(RandomTensor(DType::kF32, {n}, s + 1));
      if (s % 4 == 3 || s + 1 == num_sources)
        of_four.push_back(sum(TestInputs(all.begin() + s / 4 * 4, all.end())));
    }
    const TestTensor expected = sum(all);
    ExpectEqualValues(sum(of_four), expected.values);
  }
}

TEST(ExchangeFillTest, SourcesMayHaveAnotherShapeOfTheSameVolume) {
  TestTensor own = RandomTensor(DType::kF32, {6, 4}, 1);
  // The regions fill the flat range [2, 10) of a 1-d tensor from rows 1 and 2 of a matrix.
  RunOptions options;
  options.transfer =
      ExchangeFill{64, 1, {{0, Combiner::kSum, {{2}, {10}}, {Own({{1, 0}, {3, 4}})}}}};
  options.initial_outputs = {TensorOf(DType::kF32, {12}, std::vector<double>(12, 7))};
  auto out =
      RunKernel("exchange_fill", {}, {own}, {TensorSlice::Whole(DType::kF32, {12})}, options);
  std::vector<double> expected{7, 7};
  for (int64_t i = 4; i < 12; ++i) expected.push_back(own[i]);
  expected.insert(expected.end(), {7, 7});
  ExpectEqualValues(out[0], expected);
}

TEST(ExchangeFillTest, ADamagedDescriptionIsRefused) {
  KernelSpec spec{
      .op = "exchange_fill",
      .inputs = {TensorSlice::Whole(DType::kF32, {4}), TensorSlice::Whole(DType::kF32, {4})},
      .outputs = {TensorSlice::Whole(DType::kF32, {4})}};
  const auto fill = [](int tensor, Rect target, std::vector<ExchangeSource> sources) {
    return ExchangeFill{4, 1, {{tensor, Combiner::kSum, std::move(target), std::move(sources)}}};
  };
  const Rect whole{{0}, {4}};
  const Transfer damaged[] = {{},
                              ExchangePack{4, {}},
                              ExchangeFill{0, 1, {}},
                              ExchangeFill{4, -1, {}},
                              ExchangeFill{4, 3, {}},
                              fill(1, whole, {}),
                              fill(-1, whole, {}),
                              fill(0, {{0}, {5}}, {}),
                              fill(0, {{0}, {4, 4}}, {}),
                              fill(0, whole, {Message(1)}),
                              fill(0, whole, {Message(-2)}),
                              fill(0, whole, {Own({{0}, {3}})}),
                              fill(0, whole, {Own({{1}, {5}})})};
  for (const Transfer& transfer : damaged) {
    spec.transfer = transfer;
    EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  spec.transfer = fill(0, whole, {Message(0)});
  EXPECT_TRUE(KernelRegistry::Create("cpu", spec).ok());
}

// Runs a fill of chunk 1, which reads 2 elements of a message of `bytes` bytes.
absl::Status FillFrom(int64_t bytes) {
  KernelSpec spec{.op = "exchange_fill",
                  .inputs = {TensorSlice::Whole(DType::kF32, {4})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {6})},
                  .transfer = ExchangeFill{4, 0, {{0, Combiner::kSum, {{0}, {6}}, {Message(0)}}}}};
  auto kernel = KernelRegistry::Create("cpu", spec);
  if (!kernel.ok()) return kernel.status();
  std::vector<float> message(4, 1), out(6, 0);
  const void* inputs[] = {message.data()};
  void* outputs[] = {out.data()};
  KernelArgs args;
  args.inputs = inputs;
  args.outputs = outputs;
  args.chunk = 1;
  args.input_bytes = absl::MakeConstSpan(&bytes, 1);
  device::ThreadTeam team(1);
  return (*kernel)->Run(args, {&team, nullptr});
}

TEST(ExchangeFillTest, AMessageOfAnotherSizeIsAnError) {
  EXPECT_EQ(FillFrom(8), absl::OkStatus());
  for (int64_t bytes : {0, 4, 12, 16}) {
    const absl::Status status = FillFrom(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(),
              "message 0 of chunk 1 has " + std::to_string(bytes) + " bytes, not 8");
  }
}

}  // namespace
}  // namespace weir::kernels
