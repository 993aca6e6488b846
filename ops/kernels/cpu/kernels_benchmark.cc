// Compares matmul kernels with one bare oneDNN call on one thread, in alternation: `ratio` is the
// bare call's median processor time over the kernel's (1: nothing lost). For other kernels the
// benchmark shows the bytes per second that they must read and write.
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/kernels/kernel.h"

namespace weir::kernels {
namespace {

using dnnl::memory;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

// Returns ones, so that no arithmetic is denormal.
Memory Ones(DType dtype, int64_t n) {
  Memory data(std::aligned_alloc(64, (n * SizeOf(dtype) + 64) / 64 * 64));
  for (int64_t i = 0; i < n; ++i) {
    if (dtype == DType::kF32) static_cast<float*>(data.get())[i] = 1;
    if (dtype == DType::kBF16) static_cast<BFloat16*>(data.get())[i] = ToBFloat16(1);
    if (dtype == DType::kI32) static_cast<int32_t*>(data.get())[i] = static_cast<int32_t>(i % 97);
  }
  return data;
}

// A Runner is a kernel with operands of its own.
class Runner {
 public:
  Runner(KernelSpec spec, int num_threads) : team_(num_threads) {
    spec.num_threads = num_threads;
    auto kernel = KernelRegistry::Create("cpu", spec);
    if (!kernel.ok()) std::abort();
    kernel_ = std::move(*kernel);
    for (const auto& input : spec.inputs) inputs_.push_back(Add(*input));
    for (const auto& output : spec.outputs) outputs_.push_back(Add(*output));
    owned_.push_back(Ones(DType::kF32, kernel_->workspace_bytes() / 4 + 16));
    args_.inputs = inputs_;
    args_.outputs = outputs_;
    launch_ = {&team_, owned_.back().get()};
  }
  void Run() {
    if (!kernel_->Run(args_, launch_).ok()) std::abort();
  }
  int64_t bytes() const { return bytes_; }

 private:
  void* Add(const TensorSlice& slice) {
    bytes_ += slice.bytes();
    owned_.push_back(Ones(slice.dtype, slice.num_elements()));
    return owned_.back().get();
  }

  device::ThreadTeam team_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Memory> owned_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  int64_t bytes_ = 0;
  KernelArgs args_;
  LaunchContext launch_;
};

// Returns the time of this thread's own work, so that a busy machine affects neither side.
double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Computes c[m, n] = a[m, k] b[k, n] as one oneDNN primitive.
class BareMatmul {
 public:
  BareMatmul(int64_t m, int64_t k, int64_t n, memory::dims a_strides, memory::dims b_strides,
             DType in, DType out)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    omp_set_num_threads(1);
    auto type = [](DType dtype) {
      return dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
    };
    memory::desc a({m, k}, type(in), a_strides), b({k, n}, type(in), b_strides);
    memory::desc c({m, n}, type(out), memory::dims{n, 1});
    dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), engine_);
    primitive_ = dnnl::matmul(desc);
    owned_.push_back(Ones(in, m * k));
    owned_.push_back(Ones(in, n * k));
    owned_.push_back(Ones(out, m * n));
    args_ = {{DNNL_ARG_SRC, memory(a, engine_, owned_[0].get())},
             {DNNL_ARG_WEIGHTS, memory(b, engine_, owned_[1].get())},
             {DNNL_ARG_DST, memory(c, engine_, owned_[2].get())}};
  }
  void Run() { primitive_.execute(stream_, args_); }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::vector<Memory> owned_;
  std::unordered_map<int, memory> args_;
};

void Compare(benchmark::State& state, BareMatmul bare, Runner runner, double flops) {
  std::vector<double> bare_seconds, kernel_seconds;
  bare.Run();
  runner.Run();
  for (auto _ : state) {
    double start = Seconds();
    bare.Run();
    double middle = Seconds();
    runner.Run();
    bare_seconds.push_back(middle - start);
    kernel_seconds.push_back(Seconds() - middle);
  }
  state.counters["ratio"] = Median(bare_seconds) / Median(kernel_seconds);
  state.counters["gflops"] = flops / Median(kernel_seconds) * 1e-9;
  state.counters["bare_gflops"] = flops / Median(bare_seconds) * 1e-9;
}

enum Form { kForward, kTransposed, kGradWeight };

// Arguments: tokens, inner, outer, form, bf16.
void BM_Matmul(benchmark::State& state) {
  const int64_t tokens = state.range(0), k = state.range(1), n = state.range(2);
  const DType dtype = state.range(4) ? DType::kBF16 : DType::kF32;
  const double flops =
      2.0 * static_cast<double>(tokens) * static_cast<double>(k) * static_cast<double>(n);
  auto slice = [](DType type, int64_t rows, int64_t cols) {
    return TensorSlice::Whole(type, {rows, cols});
  };
  if (state.range(3) == kGradWeight) {
    KernelSpec spec{"matmul_grad_w",
                    {},
                    {slice(dtype, tokens, k), slice(dtype, tokens, n)},
                    {slice(DType::kF32, k, n)}};
    return Compare(state, BareMatmul(k, tokens, n, {1, k}, {n, 1}, dtype, DType::kF32),
                   Runner(spec, 1), flops);
  }
  const bool transposed = state.range(3) == kTransposed;
  KernelSpec spec{"matmul",
                  {{"transpose_w", transposed}},
                  {slice(dtype, tokens, k), transposed ? slice(dtype, n, k) : slice(dtype, k, n)},
                  {slice(dtype, tokens, n)}};
  memory::dims b_strides = transposed ? memory::dims{1, k} : memory::dims{n, 1};
  Compare(state, BareMatmul(tokens, k, n, {k, 1}, b_strides, dtype, dtype), Runner(spec, 1), flops);
}
void MatmulShapes(benchmark::internal::Benchmark* benchmark) {
  for (int64_t bf16 : {0, 1}) {
    for (int64_t form : {kForward, kTransposed, kGradWeight}) {
      benchmark->Args({512, 256, 1024, form, bf16})
          ->Args({512, 1024, 256, form, bf16})
          ->Args({512, 256, 256, form, bf16});
      benchmark->Args({2048, 512, 2048, form, bf16})
          ->Args({4096, 256, 768, form, bf16})
          ->Args({1024, 256, 8192, form, bf16});
    }
  }
  benchmark->ArgNames({"tokens", "k", "n", "form", "bf16"});
}
BENCHMARK(BM_Matmul)->Apply(MatmulShapes);

void RunBytes(benchmark::State& state, KernelSpec spec, int num_threads) {
  Runner runner(std::move(spec), num_threads);
  for (auto _ : state) runner.Run();
  state.SetBytesProcessed(state.iterations() * runner.bytes());
}

TensorSlice F(Shape shape) { return TensorSlice::Whole(DType::kF32, std::move(shape)); }

void BM_Gelu(benchmark::State& state) {
  RunBytes(state, {"gelu", {}, {F({1024, 1024})}, {F({1024, 1024})}}, 1);
}
void BM_LayerNorm(benchmark::State& state) {
  RunBytes(state,
           {"layer_norm",
            {},
            {F({1024, 256}), F({256}), F({256})},
            {F({1024, 256}), F({1024}), F({1024})}},
           1);
}
void BM_LayerNormGrad(benchmark::State& state) {
  TensorSlice x = F({1024, 256}), row = F({1024}), h = F({256});
  RunBytes(state, {"layer_norm_grad", {}, {x, h, row, row, x}, {x, h, h}}, 1);
}
void BM_CrossEntropy(benchmark::State& state) {
  RunBytes(state,
           {"softmax_cross_entropy",
            {},
            {F({512, 8192}), TensorSlice::Whole(DType::kI32, {512})},
            {F({512})}},
           1);
}
void BM_CrossEntropyGrad(benchmark::State& state) {
  TensorSlice logits = F({512, 8192}), row = F({512}), ids = TensorSlice::Whole(DType::kI32, {512});
  RunBytes(state, {"softmax_cross_entropy_grad", {}, {logits, ids, row, row, row}, {logits}}, 1);
}
void BM_BiasGrad(benchmark::State& state) {
  RunBytes(state,
           {"reduce_sum", {{"axes", std::vector<int64_t>{0}}}, {F({1024, 1024})}, {F({1024})}}, 1);
}
void BM_AdamW(benchmark::State& state) {
  TensorSlice w = F({1 << 20});
  RunBytes(state, {"adamw", {}, {w, F({})}, {w, w, w}}, 1);
}
void BM_Dropout(benchmark::State& state) {
  RunBytes(state, {"dropout", {{"rate", 0.1}}, {F({1024, 256})}, {F({1024, 256})}}, 1);
}
void BM_Transpose(benchmark::State& state) {
  RunBytes(
      state,
      {"transpose", {{"perm", std::vector<int64_t>{1, 0}}}, {F({1024, 1024})}, {F({1024, 1024})}},
      1);
}
void BM_FillSum(benchmark::State& state) {
  const int64_t n = 1 << 20;
  const Rect all{{0}, {n}};
  const ExchangeFill fill{n, 1, {{0, Combiner::kSum, all, {{ExchangeSource::kOwn, all}, {0, {}}}}}};
  RunBytes(state, {"exchange_fill", {}, {F({n}), F({n})}, {F({n})}, 1, 1, fill}, 1);
}
void BM_Pack(benchmark::State& state) {
  const int64_t n = 1024;
  const ExchangePack pack{n * n, {{0, 0, {{0, 0}, {n, n / 2}}}}};
  RunBytes(state, {"exchange_pack", {}, {F({n, n})}, {F({n * n})}, 1, 1, pack}, 1);
}
BENCHMARK(BM_Gelu);
BENCHMARK(BM_LayerNorm);
BENCHMARK(BM_LayerNormGrad);
BENCHMARK(BM_CrossEntropy);
BENCHMARK(BM_CrossEntropyGrad);
BENCHMARK(BM_BiasGrad);
BENCHMARK(BM_AdamW);
BENCHMARK(BM_Dropout);
BENCHMARK(BM_Transpose);
BENCHMARK(BM_FillSum);
BENCHMARK(BM_Pack);

void AttentionBenchmark(benchmark::State& state, const std::string& op) {
  const int64_t s = state.range(0), d = state.range(1);
  TensorSlice x = F({4, s, 8, d}), lse = F({4, 8, s});
  KernelSpec spec{op, {}, {x, x, x}, {x, lse}};
  if (op == "attention_grad") spec = {op, {}, {x, x, x, x, lse, x}, {x, x, x}};
  Runner runner(spec, 1);
  for (auto _ : state) runner.Run();
  // Counts products over the scores that causality leaves: 2 forward, 5 backward.
  const double products = op == "attention" ? 2 : 5;
  const double flops = products * 2.0 * 4 * 8 * static_cast<double>(s * (s + 1) / 2 * d);
  state.counters["gflops"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
void BM_Attention(benchmark::State& state) { AttentionBenchmark(state, "attention"); }
void BM_AttentionGrad(benchmark::State& state) { AttentionBenchmark(state, "attention_grad"); }
BENCHMARK(BM_Attention)->Args({128, 32})->Args({256, 64})->Args({1024, 64});
BENCHMARK(BM_AttentionGrad)->Args({128, 32})->Args({256, 64})->Args({1024, 64});

}  // namespace
}  // namespace weir::kernels
