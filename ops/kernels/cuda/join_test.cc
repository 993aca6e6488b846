// Runs chains of kernels on the emulated device, kernel by kernel and joined, and compares what
// they leave in their outputs. On a machine with a GPU, WEIR_TEST_DEVICE=cuda runs them there,
// where products of different calls of cuBLASLt need not have the same bits.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernels/kernel_chain.h"
#include "runtime/base/dtype.h"
#include "runtime/base/random.h"
#include "runtime/device/device_factory.h"

namespace weir::kernels {
namespace {

using Space = ChainOperand::Space;
using testing::ElementsAre;
using testing::HasSubstr;

// The kind of device.
std::string Kind() {
  const char* const kind = std::getenv("WEIR_TEST_DEVICE");
  return kind != nullptr && *kind != 0 ? kind : "cuda-emulated";
}
// Returns the tolerance for results of products, which the emulation computes in one way alone.
double OfProducts(double tolerance) { return Kind() == "cuda-emulated" ? 0 : tolerance; }

constexpr int64_t kPlaceBytes = 1 << 16;  // of a memory of the chain
constexpr int32_t kIds = 99;  // the input that holds ids below 40, some beyond a table of 32

// A tensor at an offset of a memory.
struct Placed {
  ChainOperand place;
  TensorSlice slice;
};

Placed At(Space space, int32_t index, int64_t offset, DType dtype, Shape shape) {
  Placed placed;
  placed.slice = TensorSlice::Whole(dtype, std::move(shape));
  placed.place = {space, index, 0, offset, placed.slice.bytes()};
  return placed;
}
Placed In(int32_t port, DType dtype, Shape shape) {
  return At(Space::kInput, port, 0, dtype, std::move(shape));
}
Placed Out(int32_t port, DType dtype, Shape shape) {
  return At(Space::kOutput, port, 0, dtype, std::move(shape));
}
Placed Scratch(int64_t offset, DType dtype, Shape shape) {
  return At(Space::kScratch, 0, offset, dtype, std::move(shape));
}

class JoinTest : public testing::Test {
 protected:
  void SetUp() override {
    device::DeviceOptions options;
    options.kind = Kind();
    auto made = device::MakeDevice(options);
    ASSERT_TRUE(made.ok()) << made.status();
    device_ = *std::move(made);
  }

  void Call(const std::string& op, Attributes attrs, const std::vector<Placed>& inputs,
            const std::vector<Placed>& outputs) {
    ChainKernel kernel;
    kernel.spec.op = op;
    kernel.spec.attrs = std::move(attrs);
    for (const Placed& input : inputs) {
      kernel.inputs.push_back(input.place);
      kernel.spec.inputs.push_back(input.slice);
    }
    for (const Placed& output : outputs) {
      kernel.outputs.push_back(output.place);
      kernel.spec.outputs.push_back(output.slice);
    }
    kernel.calls = {calls_.size()};
    calls_.push_back(kernel.spec);
    chain_.push_back(std::move(kernel));
  }

  // Returns the ops of the chain after the joiner has seen it.
  std::vector<std::string> Join() {
    const absl::Status joined = JoinKernels(Kind(), &chain_);
    EXPECT_TRUE(joined.ok()) << joined;
    std::vector<std::string> ops;
    for (const ChainKernel& kernel : chain_) ops.push_back(kernel.spec.op);
    return ops;
  }

  // Runs the chain `acts` times as one span and returns the bytes of output memory `port`.
  std::vector<char> Run(const KernelChain& chain, int32_t port, int acts) {
    // A memory for each (space, index), whose contents depend on nothing else.
    std::map<std::tuple<Space, int32_t>, int64_t> places;
    for (const ChainKernel& kernel : chain) {
      for (const auto* operands : {&kernel.inputs, &kernel.outputs}) {
        for (const ChainOperand& operand : *operands) {
          const int64_t next = static_cast<int64_t>(places.size()) * kPlaceBytes;
          if (operand.space != Space::kNone)
            places.try_emplace({operand.space, operand.index}, next);
        }
      }
    }
    const int64_t workspace = static_cast<int64_t>(places.size()) * kPlaceBytes;
    int64_t bytes = workspace;
    std::vector<std::unique_ptr<Kernel>> plain;
    std::vector<Kernel*> kernels;
    for (const ChainKernel& kernel : chain) {
      kernels.push_back(kernel.joined.get());
      if (kernels.back() == nullptr) {
        auto made = KernelRegistry::Create(Kind(), calls_[kernel.calls[0]]);
        EXPECT_TRUE(made.ok()) << made.status();
        plain.push_back(*std::move(made));
        kernels.back() = plain.back().get();
      }
      bytes = std::max(bytes, workspace + kernels.back()->workspace_bytes());
    }
    device::DeviceMemory& memory = device_->memory();
    auto block = memory.Allocate(bytes, device::DeviceMemory::Reach::kDevice);
    EXPECT_TRUE(block.ok()) << block.status();
    char* const base = block->base();
    for (const auto& [key, offset] : places) {
      const auto [space, index] = key;
      std::vector<char> contents(kPlaceBytes);
      // Two bf16 numbers below 1 are an f32 number about as large as the second. States, of which
      // kernels take roots, are not negative.
      for (int64_t i = 0; i < kPlaceBytes / 2; ++i) {
        const uint64_t bits = MixKey(static_cast<uint64_t>(space) * 16 + index, i);
        const float value = (static_cast<float>(bits % 1024) - 512) / 512;
        const BFloat16 number = ToBFloat16(space == Space::kState ? value * value : value);
        std::memcpy(&contents[2 * i], &number, 2);
        if (space == Space::kInput && index == kIds) {
          const uint16_t half_of_id = i % 2 == 0 ? bits % 40 : 0;
          std::memcpy(&contents[2 * i], &half_of_id, 2);
        }
      }
      memory.CopyIn(base + offset, contents.data(), kPlaceBytes);
    }
    const auto address = [&](const ChainOperand& operand) -> char* {
      if (operand.space == Space::kNone) return nullptr;
      return base + places.at({operand.space, operand.index}) + operand.offset;
    };
    for (int act = 0; act < acts; ++act) {
      for (size_t i = 0; i < chain.size(); ++i) {
        std::vector<const void*> inputs;
        std::vector<void*> outputs;
        for (const ChainOperand& operand : chain[i].inputs) inputs.push_back(address(operand));
        for (const ChainOperand& operand : chain[i].outputs) outputs.push_back(address(operand));
        KernelArgs args;
        args.inputs = inputs;
        args.outputs = absl::MakeConstSpan(outputs);
        args.span_act = act;
        Launch(kernels[i], args, base + workspace);
      }
    }
    std::vector<char> result(kPlaceBytes);
    memory.CopyOut(result.data(), base + places.at({Space::kOutput, port}), kPlaceBytes);
    return result;
  }

  // Expects equal outputs of the chain as it was, and joined, at `ports`. `tolerance`: of numbers
  // of the type; 0: equal bits.
  void ExpectSame(const std::vector<int32_t>& ports, double tolerance, DType dtype = DType::kBF16,
                  int acts = 1) {
    KernelChain plain;
    for (const ChainKernel& kernel : chain_) {
      ChainKernel& copy = plain.emplace_back();
      copy.spec = kernel.spec;
      copy.calls = kernel.calls;
      copy.inputs = kernel.inputs;
      copy.outputs = kernel.outputs;
    }
    Join();
    for (int32_t port : ports) {
      const std::vector<char> expected = Run(plain, port, acts), found = Run(chain_, port, acts);
      ASSERT_NE(expected, Run(plain, port, /*acts=*/0)) << "nobody writes to output " << port;
      if (tolerance == 0) {
        EXPECT_EQ(found, expected) << "output " << port;
        continue;
      }
      for (int64_t i = 0; i < kPlaceBytes; i += SizeOf(dtype)) {
        ASSERT_NEAR(Number(dtype, &found[i]), Number(dtype, &expected[i]), tolerance)
            << "output " << port << ", byte " << i;
      }
    }
  }

  KernelChain chain_;

 private:
  static float Number(DType dtype, const char* at) {
    float number = 0;
    std::memcpy(reinterpret_cast<char*>(&number) + 4 - SizeOf(dtype), at, SizeOf(dtype));
    return number;
  }

  void Launch(Kernel* kernel, const KernelArgs& args, void* workspace) {
    struct Act {
      Kernel* kernel;
      const KernelArgs* args;
      LaunchContext launch;
      absl::Status status;
    } act{kernel, &args, {}, {}};
    const QueueId queue{0};
    act.launch = {device_->team(), workspace, &device_->queue(queue)};
    device::DeviceWork work;
    work.run = [](void* context) {
      auto* of = static_cast<Act*>(context);
      of->status = of->kernel->Run(*of->args, of->launch);
    };
    work.context = &act;
    device_->Launch(work);
    EXPECT_TRUE(act.status.ok()) << act.status;
    EXPECT_TRUE(device_->queue(queue).Finish().ok());
    device_->NumDone(queue);
  }

  std::unique_ptr<device::Device> device_;
  std::vector<KernelSpec> calls_;
};

Attributes Axes(std::vector<int64_t> axes) {
  Attributes attrs;
  attrs.Set("axes", std::move(axes));
  return attrs;
}

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;

TEST_F(JoinTest, AProductTakesTheGradientOfGelu) {
  Call("matmul", {}, {In(0, kBF16, {6, 16}), In(1, kBF16, {16, 24})}, {Scratch(0, kBF16, {6, 24})});
  Call("gelu_grad", {}, {In(2, kBF16, {6, 24}), Scratch(0, kBF16, {6, 24})},
       {Out(0, kBF16, {6, 24})});
  ExpectSame({0}, OfProducts(0.05));
  EXPECT_THAT(chain_, testing::SizeIs(1));
}

TEST_F(JoinTest, AProductAddsWhereItsSumLies) {
  Call("matmul", {}, {In(0, kBF16, {6, 16}), In(1, kBF16, {16, 24}), In(2, kBF16, {24})},
       {Scratch(0, kBF16, {6, 24})});
  Call("add", {}, {In(3, kBF16, {6, 24}), Scratch(0, kBF16, {6, 24})}, {Out(0, kBF16, {6, 24})});
  ExpectSame({0}, 0.05);
  EXPECT_THAT(chain_, testing::SizeIs(1));
}

// The second product's operand is overwritten before its addition, so the sum grows where the
// first product has put its result, and who reads the sum reads it there.
TEST_F(JoinTest, ASumOfProductsGrowsInPlace) {
  const Shape shape = {8, 16};
  Call("cast", {}, {In(0, kF32, shape)}, {Scratch(1024, kBF16, shape)});
  Call("cast", {}, {In(1, kF32, shape)}, {Scratch(2048, kBF16, shape)});
  Call("matmul", {}, {Scratch(1024, kBF16, shape), In(2, kBF16, {16, 16})},
       {Scratch(0, kBF16, shape)});
  Call("matmul", {}, {Scratch(2048, kBF16, shape), In(3, kBF16, {16, 16})},
       {Scratch(4096, kBF16, shape)});
  Call("cast", {}, {In(4, kF32, shape)}, {Scratch(2048, kBF16, shape)});
  Call("add", {}, {Scratch(0, kBF16, shape), Scratch(4096, kBF16, shape)},
       {Scratch(1024, kBF16, shape)});
  Call("mul", {}, {Scratch(1024, kBF16, shape), Scratch(2048, kBF16, shape)},
       {Out(0, kBF16, shape)});
  ExpectSame({0}, 0.05);
  EXPECT_THAT(chain_, testing::SizeIs(5));  // the first two casts are one, and the addition went
}

TEST_F(JoinTest, AnAdditionStaysWhereItsOperandIsReadAgain) {
  const Shape shape = {8, 16};
  Call("matmul", {}, {In(0, kBF16, shape), In(1, kBF16, {16, 16})}, {Scratch(0, kBF16, shape)});
  Call("add", {}, {In(2, kBF16, shape), Scratch(0, kBF16, shape)}, {Out(0, kBF16, shape)});
  Call("mul", {}, {In(2, kBF16, shape), Scratch(0, kBF16, shape)}, {Out(1, kBF16, shape)});
  EXPECT_THAT(Join(), ElementsAre("matmul", "add", "mul"));
}

TEST_F(JoinTest, AnAdditionStaysWhereOperandsAreOverwritten) {
  const Shape shape = {8, 16};
  Call("cast", {}, {In(0, kF32, shape)}, {Scratch(1024, kBF16, shape)});
  Call("matmul", {}, {Scratch(1024, kBF16, shape), In(1, kBF16, {16, 16})},
       {Scratch(0, kBF16, shape)});
  Call("cast", {}, {In(2, kF32, shape)}, {Scratch(1024, kBF16, shape)});  // the product's operand
  Call("add", {}, {Scratch(1024, kBF16, shape), Scratch(0, kBF16, shape)}, {Out(0, kBF16, shape)});
  EXPECT_THAT(Join(), ElementsAre("cast", "matmul", "cast", "add"));
}

TEST_F(JoinTest, AWeightGradientAccumulatesAndSumsItsBias) {
  Call("matmul_grad_w", {}, {In(0, kBF16, {40, 8}), In(1, kBF16, {40, 24})},
       {Scratch(0, kF32, {8, 24})});
  Call("reduce_sum", Axes({0}), {In(1, kBF16, {40, 24})}, {Scratch(4096, kF32, {24})});
  Call("accumulate", {}, {Scratch(0, kF32, {8, 24})}, {At(Space::kOutput, 0, 0, kF32, {8, 24})});
  Call("accumulate", {}, {Scratch(4096, kF32, {24})}, {At(Space::kOutput, 0, 1024, kF32, {24})});
  ExpectSame({0}, OfProducts(1e-3), kF32, /*acts=*/3);
  EXPECT_THAT(chain_, testing::SizeIs(2));
}

TEST_F(JoinTest, AnEmbeddingGradientAddsToItsRows) {
  Call("embedding_grad", {}, {In(kIds, DType::kI32, {12}), In(1, kBF16, {12, 16})},
       {Scratch(0, kF32, {32, 16})});
  Call("accumulate", {}, {Scratch(0, kF32, {32, 16})}, {Out(0, kF32, {32, 16})});
  ExpectSame({0}, 0, kF32, /*acts=*/2);
  EXPECT_THAT(chain_, testing::SizeIs(1));
}

TEST_F(JoinTest, TheGradientOfANormAddsInPlace) {
  const Shape shape = {20, 64};
  Call("cast", {}, {In(5, kF32, shape)}, {Scratch(0, kBF16, shape)});
  Call("layer_norm_grad", {},
       {In(0, kBF16, shape), In(1, kBF16, {64}), In(2, kF32, {20}), In(3, kF32, {20}),
        Scratch(0, kBF16, shape)},
       {Scratch(4096, kBF16, shape), Scratch(8192, kF32, {64}), Scratch(9216, kF32, {64})});
  Call("add", {}, {In(4, kBF16, shape), Scratch(4096, kBF16, shape)}, {Scratch(0, kBF16, shape)});
  Call("mul", {}, {Scratch(0, kBF16, shape), In(4, kBF16, shape)}, {Out(0, kBF16, shape)});
  Call("cast", {}, {Scratch(8192, kF32, {64})}, {Out(1, kBF16, {64})});
  ExpectSame({0, 1}, 0.05);
  EXPECT_THAT(chain_, testing::SizeIs(4));
}

// A row of 64 numbers is whole packs; one of 63 is none. The sum is read again.
TEST_F(JoinTest, ASumAndItsNormHaveTheBitsOfEach) {
  for (const int64_t n : {64, 63}) {
    for (const DType dtype : {kBF16, kF32}) {
      chain_.clear();
      const Shape shape = {20, n};
      Call("add", {}, {In(0, dtype, shape), In(1, dtype, shape)}, {Scratch(0, dtype, shape)});
      Call("layer_norm", {}, {Scratch(0, dtype, shape), In(2, kF32, {n}), In(3, kF32, {n})},
           {Out(0, dtype, shape), Out(1, kF32, {20}), Out(2, kF32, {20})});
      Call("mul", {}, {Scratch(0, dtype, shape), In(4, dtype, shape)}, {Out(3, dtype, shape)});
      ExpectSame({0, 1, 2, 3}, 0);
      EXPECT_THAT(chain_, testing::SizeIs(2));
    }
  }
}

TEST_F(JoinTest, ASumInThePlaceOfAnAddendTakesItsRmsNorm) {
  const Shape shape = {20, 64};
  Call("cast", {}, {In(0, kF32, shape)}, {Scratch(0, kBF16, shape)});
  Call("add", {}, {Scratch(0, kBF16, shape), In(1, kBF16, shape)}, {Scratch(0, kBF16, shape)});
  Call("rms_norm", {}, {Scratch(0, kBF16, shape), In(2, kBF16, {64})},
       {Out(0, kBF16, shape), Out(1, kF32, {20})});
  Call("cast", {}, {Scratch(0, kBF16, shape)}, {Out(2, kF32, shape)});
  ExpectSame({0, 1, 2}, 0);
  EXPECT_THAT(chain_, testing::SizeIs(3));
}

TEST_F(JoinTest, ANormStaysWhereItsResultLiesOverAnAddend) {
  const Shape shape = {20, 64};
  Call("cast", {}, {In(0, kF32, shape)}, {Scratch(0, kBF16, shape)});
  Call("add", {}, {Scratch(0, kBF16, shape), In(1, kBF16, shape)}, {Scratch(4096, kBF16, shape)});
  Call("rms_norm", {}, {Scratch(4096, kBF16, shape), In(2, kBF16, {64})},
       {Scratch(0, kBF16, shape), Out(1, kF32, {20})});
  Call("mul", {}, {Scratch(0, kBF16, shape), Scratch(4096, kBF16, shape)}, {Out(0, kBF16, shape)});
  EXPECT_THAT(Join(), ElementsAre("cast", "add", "rms_norm", "mul"));
}

// 99 numbers are no whole packs. The gradient reads silu(x) later, or nobody does.
TEST_F(JoinTest, SiluAndItsProductHaveTheBitsOfEach) {
  for (const bool is_read_later : {true, false}) {
    for (const DType dtype : {kBF16, kF32}) {
      chain_.clear();
      const Shape shape = {9, 11};
      Call("silu", {}, {In(0, dtype, shape)}, {Scratch(0, dtype, shape)});
      Call("mul", {}, {In(1, dtype, shape), Scratch(0, dtype, shape)}, {Out(0, dtype, shape)});
      if (is_read_later)
        Call("add", {}, {Scratch(0, dtype, shape), In(2, dtype, shape)}, {Out(1, dtype, shape)});
      ExpectSame(is_read_later ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{0}, 0);
      EXPECT_THAT(chain_, testing::SizeIs(is_read_later ? 2 : 1));
      EXPECT_THAT(chain_[0].outputs, testing::SizeIs(is_read_later ? 2 : 1));
    }
  }
}

// SwiGLU, with the value before silu and without.
TEST_F(JoinTest, SwiGluHasTheBitsOfItsKernels) {
  const Shape shape = {6, 24};
  Attributes silu;
  silu.Set("activation", std::string("silu"));
  for (const bool keeps_x : {true, false}) {
    chain_.clear();
    std::vector<Placed> gate = {keeps_x ? Out(1, kBF16, shape) : Scratch(0, kBF16, shape)};
    if (keeps_x) gate.push_back(Out(2, kBF16, shape));
    Call("matmul", silu, {In(0, kBF16, {6, 16}), In(1, kBF16, {16, 24})}, gate);
    Call("matmul", {}, {In(0, kBF16, {6, 16}), In(2, kBF16, {16, 24})},
         {Scratch(1024, kBF16, shape)});
    Call("mul", {}, {gate[0], Scratch(1024, kBF16, shape)}, {Out(0, kBF16, shape)});
    ExpectSame(keeps_x ? std::vector<int32_t>{0, 1, 2} : std::vector<int32_t>{0}, OfProducts(0.05));
    ASSERT_THAT(chain_, testing::SizeIs(3));
    EXPECT_EQ(chain_[0].spec.op, "joined matmul");
    EXPECT_EQ(chain_[1].spec.op, "matmul");
    EXPECT_EQ(chain_[2].spec.op, "joined mul");
  }
}

TEST_F(JoinTest, SiluStaysWhereItsOperandIsOverwritten) {
  const Shape shape = {8, 16};
  Call("cast", {}, {In(0, kF32, shape)}, {Scratch(0, kBF16, shape)});
  Call("silu", {}, {Scratch(0, kBF16, shape)}, {Scratch(1024, kBF16, shape)});
  Call("cast", {}, {In(1, kF32, shape)}, {Scratch(0, kBF16, shape)});
  Call("mul", {}, {Scratch(0, kBF16, shape), Scratch(1024, kBF16, shape)}, {Out(0, kBF16, shape)});
  EXPECT_THAT(Join(), ElementsAre("cast", "silu", "cast", "mul"));
}

TEST_F(JoinTest, UpdatesOfManyWeightsHaveTheBitsOfEach) {
  Attributes attrs;
  attrs.Set("learning_rate", 0.01);
  for (int32_t i = 0; i < 35; ++i) {
    const Shape shape = {i % 3 == 0 ? 7 : 1024 + i};
    Attributes own = attrs;
    own.Set("weight_decay", i % 2 == 0 ? 0.1 : 0.0);
    Call("adamw", own,
         {At(Space::kInput, 0, (i % 8) * 8192, kF32, shape), At(Space::kState, 99, 0, kF32, {})},
         {At(Space::kOutput, 100 + i, 0, kF32, shape), At(Space::kState, 2 * i, 0, kF32, shape),
          At(Space::kState, 2 * i + 1, 0, kF32, shape)});
  }
  ExpectSame({100, 101, 102, 131, 132, 134}, 0);
  EXPECT_THAT(chain_, testing::SizeIs(2));  // of 32 and of 3
}

TEST_F(JoinTest, SquareSumsOfManyGradientsHaveTheBitsOfEach) {
  // The results lie in turn in three places, as a plan would have them.
  Call("sum_squares", {}, {In(0, kF32, {9000})}, {Scratch(0, kF32, {})});
  Call("sum_squares", {}, {In(1, kBF16, {30000})}, {Scratch(64, kF32, {})});
  Call("add", {}, {Scratch(0, kF32, {}), Scratch(64, kF32, {})}, {Scratch(128, kF32, {})});
  Call("sum_squares", {}, {In(2, kF32, {5})}, {Scratch(0, kF32, {})});
  Call("add", {}, {Scratch(128, kF32, {}), Scratch(0, kF32, {})}, {Out(0, kF32, {})});
  ExpectSame({0}, 0);
  EXPECT_THAT(chain_, testing::SizeIs(1));
}

TEST_F(JoinTest, AVariableLeavesRulesOut) {
  Call("cast", {}, {In(0, kF32, {4})}, {Out(0, kBF16, {4})});
  Call("cast", {}, {In(1, kF32, {4})}, {Out(1, kBF16, {4})});
  ::setenv("WEIR_CUDA_UNJOINED", "addition,many", 1);
  EXPECT_THAT(Join(), ElementsAre("cast", "cast"));
  ::setenv("WEIR_CUDA_UNJOINED", "much", 1);
  EXPECT_THAT(std::string(JoinKernels(Kind(), &chain_).message()),
              HasSubstr("names \"much\", which is no rule"));
  ::unsetenv("WEIR_CUDA_UNJOINED");
  EXPECT_THAT(Join(), ElementsAre("joined cast"));
}

}  // namespace
}  // namespace weir::kernels
