#include "actors/testing/test_kernels.h"

#include <algorithm>
#include <stdexcept>

#include "ops/kernels/kernel.h"
#include "runtime/base/random.h"

namespace weir::actors {
namespace {

class TestKernel : public kernels::Kernel {
 public:
  explicit TestKernel(const kernels::KernelSpec& spec) : spec_(spec) {}

 protected:
  static int64_t Elements(const std::optional<TensorSlice>& slice) {
    return slice ? slice->num_elements() : 0;
  }
  int64_t num_out() const { return Elements(spec_.outputs[0]); }
  uint32_t MixInputs(const kernels::KernelArgs& args, int64_t i) const {
    uint64_t h = 0;
    for (size_t k = 0; k < args.inputs.size(); ++k) {
      const int64_t n = Elements(spec_.inputs[k]);
      if (n > 0) h = MixKey(h, static_cast<const uint32_t*>(args.inputs[k])[i % n]);
    }
    return static_cast<uint32_t>(h);
  }
  const kernels::KernelSpec spec_;
};

class MixKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  int64_t workspace_bytes() const override { return num_out() * 4; }
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    const uint64_t salt = MixKey(MixKey(args.random_key, args.step), args.micro_batch);
    uint32_t* work = static_cast<uint32_t*>(launch.workspace);
    for (int64_t i = 0; i < num_out(); ++i)
      work[i] = static_cast<uint32_t>(MixKey(salt, MixInputs(args, i)));
    std::copy(work, work + num_out(), static_cast<uint32_t*>(args.outputs[0]));
    return absl::OkStatus();
  }
};

class FoldKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    uint32_t* acc = static_cast<uint32_t*>(args.outputs[0]);
    for (int64_t i = 0; i < num_out(); ++i) acc[i] = acc[i] * 31 + MixInputs(args, i);
    return absl::OkStatus();
  }
};

class AccumulateKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    uint32_t* acc = static_cast<uint32_t*>(args.outputs[0]);
    const uint32_t* in = static_cast<const uint32_t*>(args.inputs[0]);
    for (int64_t i = 0; i < num_out(); ++i)
      acc[i] = args.span_act == 0 ? in[i] : acc[i] * 31 + in[i];
    return absl::OkStatus();
  }
};

// A Chunk is chunk `chunk` of `whole` elements, where each chunk has attr `elements`.
struct Chunk {
  int64_t begin, count;
  Chunk(const kernels::KernelSpec& spec, int64_t whole, int64_t chunk) {
    const int64_t elements = spec.attrs.Int("elements", 1);
    begin = std::min(whole, chunk * elements);
    count = std::min(whole - begin, elements);
  }
};

class PackKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  int64_t output_bytes(int64_t chunk) const override {
    return Chunk(spec_, Elements(spec_.inputs[0]), chunk).count * 4;
  }
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    const Chunk chunk(spec_, Elements(spec_.inputs[0]), args.chunk);
    std::copy_n(static_cast<const uint32_t*>(args.inputs[0]) + chunk.begin, chunk.count,
                static_cast<uint32_t*>(args.outputs[0]));
    return absl::OkStatus();
  }
};

class UnpackKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    const Chunk chunk(spec_, num_out(), args.chunk);
    std::copy_n(static_cast<const uint32_t*>(args.inputs[0]), chunk.count,
                static_cast<uint32_t*>(args.outputs[0]) + chunk.begin);
    return absl::OkStatus();
  }
};

class SizesKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    static_cast<int32_t*>(args.outputs[0])[args.chunk] = static_cast<int32_t>(args.input_bytes[0]);
    return absl::OkStatus();
  }
};

class ToFloatKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    *static_cast<float*>(args.outputs[0]) =
        static_cast<float>(*static_cast<const uint32_t*>(args.inputs[0]) % 1000);
    return absl::OkStatus();
  }
};

class ThrowKernel final : public TestKernel {
 public:
  using TestKernel::TestKernel;
  absl::Status Run(const kernels::KernelArgs& args, const kernels::LaunchContext& launch) override {
    if (args.step >= spec_.attrs.Int("step")) throw std::runtime_error("asked to");
    return absl::OkStatus();
  }
};

template <typename K>
absl::StatusOr<std::unique_ptr<kernels::Kernel>> Make(const kernels::KernelSpec& spec) {
  if (spec.outputs.empty() || !spec.outputs[0].has_value())
    return absl::InvalidArgumentError("one output, please");
  return std::make_unique<K>(spec);
}

WEIR_REGISTER_KERNEL("cpu", "test_mix", Make<MixKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_fold", Make<FoldKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_accumulate", Make<AccumulateKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_pack", Make<PackKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_unpack", Make<UnpackKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_sizes", Make<SizesKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_to_float", Make<ToFloatKernel>);
WEIR_REGISTER_KERNEL("cpu", "test_throw", Make<ThrowKernel>);

}  // namespace

void RegisterTestKernels() {}

}  // namespace weir::actors
