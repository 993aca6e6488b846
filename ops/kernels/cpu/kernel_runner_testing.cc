#include "ops/kernels/cpu/kernel_runner_testing.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "runtime/base/random.h"
#include "runtime/base/real.h"

namespace weir::kernels {
namespace {

// WEIR_TEST_MACHINE=avx2 or baseline makes this process believe, in Highway's kernels and in
// oneDNN, that the machine has no more than that instruction set.
const bool machine_narrowed = [] {
  const char* machine = std::getenv("WEIR_TEST_MACHINE");
  if (!machine) return false;
  const bool avx2 = std::string(machine) == "avx2";
  hwy::SetSupportedTargetsForTest(avx2 ? HWY_AVX2 : HWY_SCALAR);
  dnnl::set_max_cpu_isa(avx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41);
  return true;
}();

// A Buffer is memory of exactly the requested bytes, with a guard after it.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes) {
    data_ = static_cast<unsigned char*>(std::aligned_alloc(64, (bytes + kGuard + 63) / 64 * 64));
    std::memset(data_, 0xff, bytes);
    std::memset(data_ + bytes, kPattern, kGuard);
  }
  ~Buffer() { std::free(data_); }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Buffer(const Buffer&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool guard_intact() const {
    for (int i = 0; i < kGuard; ++i) {
      if (data_[bytes_ + i] != kPattern) return false;
    }
    return true;
  }

 private:
  static constexpr int kGuard = 64;
  static constexpr unsigned char kPattern = 0xa5;
  unsigned char* data_;
  int64_t bytes_;
};

void Encode(const TestTensor& tensor, void* data) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    switch (tensor.slice.dtype) {
      case DType::kF32:
      case DType::kBF16:
      case DType::kF16:
        SetRealAt(tensor.slice.dtype, data, i, static_cast<float>(tensor[i]));
        break;
      case DType::kI32: static_cast<int32_t*>(data)[i] = static_cast<int32_t>(tensor[i]); break;
      case DType::kBool: static_cast<uint8_t*>(data)[i] = tensor[i] != 0; break;
    }
  }
}

TestTensor Decode(const TensorSlice& slice, const void* data) {
  TestTensor tensor{slice, std::vector<double>(slice.num_elements())};
  for (int64_t i = 0; i < tensor.size(); ++i) {
    switch (slice.dtype) {
      case DType::kF32:
      case DType::kBF16:
      case DType::kF16: tensor.values[i] = RealAt(slice.dtype, data, i); break;
      case DType::kI32: tensor.values[i] = static_cast<const int32_t*>(data)[i]; break;
      case DType::kBool: tensor.values[i] = static_cast<const uint8_t*>(data)[i]; break;
    }
  }
  return tensor;
}

struct RunResult {
  std::vector<Buffer> outputs;
};

// Makes one run.
RunResult RunOnce(KernelTrial trial, const TestInputs& inputs, const RunOptions& options) {
  const KernelSpec& spec = trial.spec;
  RunResult result;
  std::vector<Buffer> in;
  std::vector<const void*> in_pointers;
  std::vector<int64_t> in_bytes;
  for (const auto& input : inputs) {
    in.emplace_back(input ? input->slice.bytes() : 0);
    if (input) Encode(*input, in.back().data());
    in_pointers.push_back(input ? in.back().data() : nullptr);
    in_bytes.push_back(in.back().bytes());
  }
  std::vector<void*> out_pointers;
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    result.outputs.emplace_back(spec.outputs[i] ? spec.outputs[i]->bytes() : 0);
    if (i < options.initial_outputs.size())
      Encode(options.initial_outputs[i], result.outputs.back().data());
    out_pointers.push_back(spec.outputs[i] ? result.outputs.back().data() : nullptr);
  }
  KernelArgs& args = trial.args;
  args.inputs = in_pointers;
  args.outputs = absl::MakeSpan(out_pointers);
  args.step = options.step;
  args.micro_batch = options.micro_batch;
  args.chunk = options.chunk;
  args.span_act = options.span_act;
  args.random_key = options.random_key;
  args.input_bytes = in_bytes;
  EXPECT_EQ(Run(trial), absl::OkStatus());
  for (const Buffer& output : result.outputs)
    EXPECT_TRUE(output.guard_intact()) << spec.op << " wrote past an output";
  return result;
}

// A way to run a kernel that must not change the result.
struct Variant {
  int num_threads = 1;
  uint64_t thread_order = 0;
};

std::vector<Variant> VariantsOf(const std::string& device) {
  std::vector<Variant> variants;
  if (device == "cpu") {
    for (int num_threads = 1; num_threads <= 4; ++num_threads) variants.push_back({num_threads, 0});
  } else {
    for (uint64_t order : ThreadOrdersOf(device)) variants.push_back({1, order});
  }
  return variants;
}

}  // namespace

double Stored(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32: return static_cast<float>(value);
    case DType::kBF16: return ToFloat(ToBFloat16(static_cast<float>(value)));
    case DType::kF16: return ToFloat(ToFloat16(static_cast<float>(value)));
    case DType::kI32: return static_cast<double>(static_cast<int32_t>(value));
    case DType::kBool: return value != 0;
  }
  return value;
}

TestTensor RandomTensor(TensorSlice slice, uint64_t seed) {
  TestTensor tensor{std::move(slice), {}};
  int64_t n = tensor.slice.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    double value =
        tensor.slice.dtype == DType::kI32 ? 1000.0 * UniformAt(seed, i) : NormalAt(seed, i);
    tensor.values.push_back(Stored(tensor.slice.dtype, value));
  }
  return tensor;
}

TestTensor RandomTensor(DType dtype, Shape shape, uint64_t seed) {
  return RandomTensor(TensorSlice::Whole(dtype, std::move(shape)), seed);
}

TestTensor RandomIndices(Shape shape, int64_t low, int64_t high, uint64_t seed) {
  TestTensor tensor{TensorSlice::Whole(DType::kI32, std::move(shape)), {}};
  int64_t n = tensor.slice.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    tensor.values.push_back(static_cast<double>(
        low + static_cast<int64_t>(UniformAt(seed, i) * static_cast<float>(high - low))));
  }
  return tensor;
}

TestTensor TensorOf(DType dtype, Shape shape, std::vector<double> values) {
  return TestTensor{TensorSlice::Whole(dtype, std::move(shape)), std::move(values)};
}

std::vector<TestTensor> RunKernel(const std::string& op, const Attributes& attrs,
                                  const TestInputs& inputs, const TestOutputs& outputs,
                                  const RunOptions& options) {
  KernelTrial trial;
  trial.device = DeviceOfTests();
  KernelSpec& spec = trial.spec;
  spec.op = op;
  spec.attrs = attrs;
  spec.transfer = options.transfer;
  for (const auto& input : inputs)
    spec.inputs.push_back(input ? std::optional(input->slice) : std::nullopt);
  spec.outputs = outputs;
  std::optional<RunResult> first;
  for (const Variant& variant : VariantsOf(trial.device)) {
    trial.spec.num_threads = variant.num_threads;
    trial.thread_order = variant.thread_order;
    RunResult other = RunOnce(trial, inputs, options);
    if (!first) {
      first = std::move(other);
      continue;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(
          std::memcmp(first->outputs[i].data(), other.outputs[i].data(), other.outputs[i].bytes()),
          0)
          << op << ": output " << i << " differs on " << variant.num_threads
          << " threads in thread order " << variant.thread_order;
    }
  }
  std::vector<TestTensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(outputs[i] ? Decode(*outputs[i], first->outputs[i].data()) : TestTensor());
  }
  return results;
}

double Tolerance(DType dtype) {
  if (dtype == DType::kBF16) return 0.006;
  return dtype == DType::kF16 ? 0.0008 : 2e-5;
}

void ExpectClose(const TestTensor& actual, const std::vector<double>& expected, double scale) {
  ASSERT_EQ(actual.values.size(), expected.size());
  const double tolerance = Tolerance(actual.slice.dtype) * scale;
  int reported = 0;
  for (size_t i = 0; i < expected.size() && reported < 4; ++i) {
    double distance = std::abs(actual.values[i] - expected[i]);
    bool same_infinity = std::isinf(expected[i]) && actual.values[i] == expected[i];
    if (!same_infinity && !(distance <= tolerance * std::max(1.0, std::abs(expected[i])))) {
      ADD_FAILURE() << "element " << i << " of " << ToText(actual.slice) << ": " << actual.values[i]
                    << ", expected " << expected[i];
      ++reported;
    }
  }
}

void ExpectEqualValues(const TestTensor& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.values.size(), expected.size());
  int reported = 0;
  for (size_t i = 0; i < expected.size() && reported < 4; ++i) {
    if (actual.values[i] != expected[i]) {
      ADD_FAILURE() << "element " << i << " of " << ToText(actual.slice) << ": " << actual.values[i]
                    << ", expected " << expected[i];
      ++reported;
    }
  }
}

}  // namespace weir::kernels
