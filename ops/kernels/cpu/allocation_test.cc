// Kernels allocate when they are made, not when they run.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "gtest/gtest.h"
#include "ops/kernels/kernel.h"

namespace {
std::atomic<int64_t> num_allocations{0};

void* Allocate(std::size_t size, std::size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory =
      std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment + alignment);
  if (!memory) std::abort();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t align) {
  return Allocate(size, static_cast<std::size_t>(align));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace weir::kernels {
namespace {

TensorSlice F(Shape shape) { return TensorSlice::Whole(DType::kF32, std::move(shape)); }
TensorSlice I(Shape shape) { return TensorSlice::Whole(DType::kI32, std::move(shape)); }

std::vector<KernelSpec> Specs() {
  const TensorSlice x = F({8, 32, 64}), row = F({8, 32}), ids = I({8, 32}), h = F({64}),
                    one = F({});
  const TensorSlice heads = F({2, 128, 4, 16});
  std::vector<int64_t> perm{2, 0, 1}, axes{0, 1}, two{2};
  const Rect all{{0, 0, 0}, {8, 32, 64}};
  const ExchangePack pack{1 << 20, {{0, 0, all}}};
  const ExchangeFill fill{
      1 << 20, 1, {{0, Combiner::kSum, all, {{ExchangeSource::kOwn, all}, {0, {}}}}}};
  return {
      {"relu", {}, {x}, {x}},
      {"gelu_grad", {}, {x, x}, {x}},
      {"add", {}, {x, h}, {x}},
      {"scale", {{"factor", 2.0}}, {x}, {x}},
      {"accumulate", {}, {x}, {x}},
      {"layer_norm", {}, {x, h, h}, {x, row, row}},
      {"layer_norm_grad", {}, {x, h, row, row, x}, {x, h, h}},
      {"rms_norm", {}, {x, h}, {x, row}},
      {"softmax", {}, {x}, {x}},
      {"softmax_grad", {}, {x, x}, {x}},
      {"softmax_cross_entropy", {}, {x, ids}, {row, row, row}},
      {"softmax_cross_entropy_grad", {}, {x, ids, row, row, row}, {x}},
      {"accuracy", {}, {x, ids}, {row}},
      {"embedding", {}, {F({50, 64}), ids}, {x}},
      {"embedding_grad", {}, {ids, x}, {F({50, 64})}},
      {"reduce_sum", {{"axes", axes}}, {x}, {h}},
      {"reduce_mean", {}, {x}, {one}},
      {"expand", {{"axes", axes}}, {h}, {x}},
      {"transpose", {{"perm", perm}}, {x}, {F({64, 8, 32})}},
      {"slice", {{"axis", int64_t{1}}, {"begin", int64_t{3}}}, {x}, {F({8, 20, 64})}},
      {"concat", {{"axis", int64_t{0}}}, {x, x}, {F({16, 32, 64})}},
      {"max_pool", {{"kernel", two}}, {x}, {F({8, 32, 32})}},
      {"average_pool", {{"kernel", two}}, {x}, {F({8, 32, 32})}},
      {"reduce_variance", {{"axes", axes}}, {x, h}, {h}},
      {"normalize", {{"axes", axes}}, {x, h, h, h, h}, {x}},
      {"normalize_grad", {{"axes", axes}}, {x, h, h, x, h}, {x, h, h, h, h}},
      {"rotary", {}, {heads}, {heads}},
      {"dropout", {{"rate", 0.1}}, {x}, {x}},
      {"sum_squares", {}, {x, h}, {one}},
      {"clip_scale", {{"clip_norm", 1.0}}, {one}, {one, one}},
      {"adamw", {}, {x, one}, {x, x, x}},
      {"sgd", {{"momentum", 0.9}}, {x, one}, {x, x}},
      {"exchange_pack", {}, {x}, {F({8 * 32 * 64})}, 1, 1, pack},
      {"exchange_fill", {}, {x, F({8 * 32 * 64})}, {x}, 1, 1, fill},
      {"attention", {}, {heads, heads, heads}, {heads, F({2, 4, 128})}},
      {"attention_grad",
       {},
       {heads, heads, heads, heads, F({2, 4, 128}), heads},
       {heads, heads, heads}},
  };
}

std::vector<KernelSpec> DnnlSpecs() {
  const std::string gelu = "gelu";
  return {
      {"matmul",
       {{"activation", gelu}},
       {F({256, 64}), F({64, 128}), F({128})},
       {F({256, 128}), F({256, 128})}},
      {"matmul", {{"transpose_w", true}}, {F({8, 64}), F({300, 64})}, {F({8, 300})}},
      {"matmul_grad_w", {}, {F({256, 64}), F({256, 128})}, {F({64, 128})}},
      {"conv", {}, {F({2, 3, 9, 9}), F({20, 3, 3, 3}), F({20})}, {F({2, 20, 7, 7})}},
  };
}

// Operands of zeros for a kernel, and a way to run it.
class Runner {
 public:
  explicit Runner(KernelSpec spec) : team_(2) {
    spec.num_threads = 2;
    auto made = KernelRegistry::Create("cpu", spec);
    if (!made.ok()) {
      ADD_FAILURE() << made.status();
      return;
    }
    kernel_ = std::move(*made);
    for (const auto& input : spec.inputs) inputs_.push_back(Zeros(input->bytes()));
    for (const auto& output : spec.outputs) outputs_.push_back(Zeros(output->bytes()));
    workspace_ = Zeros(kernel_->workspace_bytes());
  }
  ~Runner() {
    for (void* memory : memory_) std::free(memory);
  }

  int64_t AllocationsPerRun() {
    if (!kernel_) return 0;
    KernelArgs args;
    args.inputs = inputs_;
    args.outputs = outputs_;
    const LaunchContext launch{&team_, workspace_};
    EXPECT_EQ(kernel_->Run(args, launch), absl::OkStatus());
    int64_t before = num_allocations.load();
    for (int repeat = 0; repeat < 4; ++repeat) (void)kernel_->Run(args, launch);
    return (num_allocations.load() - before) / 4;
  }

 private:
  void* Zeros(int64_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    std::memset(memory, 0, (bytes + 64) / 64 * 64);
    memory_.push_back(memory);
    return memory;
  }

  device::ThreadTeam team_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_, memory_;
  void* workspace_ = nullptr;
};

TEST(AllocationTest, RunningAllocatesNothing) {
  for (const KernelSpec& spec : Specs()) {
    EXPECT_EQ(Runner(spec).AllocationsPerRun(), 0) << spec.op;
  }
}

TEST(AllocationTest, AProductLeavesOnlyOneDnnsOwnTablesPerBlock) {
  for (const KernelSpec& spec : DnnlSpecs()) {
    // At most 4 blocks here, or a convolution and 3 copies into other orders; oneDNN 2.6 makes a
    // table with a node per argument (5 with the scratchpad).
    int64_t allocations = Runner(spec).AllocationsPerRun();
    EXPECT_LE(allocations, 4 * 8) << spec.op;
    RecordProperty("allocations", static_cast<int>(allocations));
  }
}

}  // namespace
}  // namespace weir::kernels
