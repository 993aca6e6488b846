// conv, conv_transpose and conv_grad_w, over oneDNN.
//
// The batch is cut into pieces, and oneDNN computes each piece on one thread, in f32; operands of
// bf16 or f16 are widened, and results narrowed. oneDNN's fast kernels want tensors in orders of
// their own, so each piece is copied into that order and its result back, and the weight is copied
// once.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/dnnl_execution.h"
#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/conv_shape.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/status.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using dnnl::memory;

constexpr int64_t kFloat = 4;  // bytes

// Returns the largest divisor of n that is at most `limit`, and at least 1.
int64_t DivisorUpTo(int64_t n, int64_t limit) {
  int64_t divisor = std::clamp<int64_t>(limit, 1, n);
  while (n % divisor != 0) --divisor;
  return divisor;
}

memory::desc Plain(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * dims[d];
  return memory::desc(dims, memory::data_type::f32, strides);
}

memory::desc AnyOrder(const memory::dims& dims) {
  return memory::desc(dims, memory::data_type::f32, memory::format_tag::any);
}

dnnl::primitive_attr UserScratch() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// A Staged operand is stored plain, as f32, bf16 or f16, and the primitive wants it in f32 in some
// order. The stages between lie in a region of the workspace.
class Staged {
 public:
  enum class Role : uint8_t { kRead, kWritten };

  Staged(const dnnl::engine& engine, Role role, const memory::dims& dims,
         const memory::desc& wanted, DType stored, int workers, Region* region)
      : stored_(stored),
        elements_(
            std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>())) {
    const memory::desc plain = Plain(dims);
    if (stored_ != DType::kF32) plain_at_ = region->Take(elements_ * kFloat);
    if (wanted == plain) return;
    wanted_at_ = region->Take(static_cast<int64_t>(wanted.get_size()));
    const bool read = role == Role::kRead;
    const memory::desc &from = read ? plain : wanted, &to = read ? wanted : plain;
    const dnnl::reorder::primitive_desc desc(engine, from, engine, to, UserScratch());
    scratch_at_ = region->Take(static_cast<int64_t>(desc.scratchpad_desc().get_size()));
    for (int i = 0; i < workers; ++i) {
      reorders_.emplace_back(
          engine, dnnl::reorder(desc),
          DnnlExecution::Arguments{{DNNL_ARG_FROM, from},
                                   {DNNL_ARG_TO, to},
                                   {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}});
    }
  }

  // Returns the operand as the primitive wants it.
  const void* Read(const void* data, void* region, int worker) {
    if (stored_ != DType::kF32) {
      ConvertReal(stored_, DType::kF32, data, At(region, plain_at_), elements_);
      data = At(region, plain_at_);
    }
    if (reorders_.empty()) return data;
    reorders_[worker].Run({data, At(region, wanted_at_), At(region, scratch_at_)});
    return At(region, wanted_at_);
  }

  // Returns where the primitive writes.
  void* Target(void* data, void* region) const {
    return reorders_.empty() ? PlainTarget(data, region) : At(region, wanted_at_);
  }
  // Returns the plain result in f32, after the primitive has written.
  float* ReadBack(void* data, void* region, int worker) {
    void* plain = PlainTarget(data, region);
    if (!reorders_.empty())
      reorders_[worker].Run({At(region, wanted_at_), plain, At(region, scratch_at_)});
    return static_cast<float*>(plain);
  }
  // Stores what ReadBack returned.
  void Store(void* data, void* region) const {
    if (stored_ != DType::kF32)
      ConvertReal(DType::kF32, stored_, At(region, plain_at_), data, elements_);
  }

 private:
  void* PlainTarget(void* data, void* region) const {
    return stored_ == DType::kF32 ? data : At(region, plain_at_);
  }

  const DType stored_;
  const int64_t elements_;
  int64_t plain_at_ = 0, wanted_at_ = 0, scratch_at_ = 0;
  std::vector<DnnlExecution> reorders_;  // per worker; empty: the primitive takes the plain order
};

// The descriptions that oneDNN needs for one piece.
struct Descriptions {
  memory::dims wide, narrow, weight, bias, strides, dilates, padding, padding_right;

  Descriptions(const ConvShape& shape, int64_t images) {
    wide = {images, shape.groups * shape.in};
    narrow = {images, shape.groups * shape.out};
    weight = {shape.out, shape.in};
    if (shape.groups > 1) weight.insert(weight.begin(), shape.groups);
    bias = {shape.groups * shape.out};
    for (const WindowAxis& axis : shape.axes) {
      wide.push_back(axis.in);
      narrow.push_back(axis.out);
      weight.push_back(axis.kernel);
      strides.push_back(axis.stride);
      dilates.push_back(axis.dilation - 1);
      padding.push_back(axis.padding);
      padding_right.push_back(axis.padding_right());
    }
  }

  dnnl::convolution_forward::primitive_desc Forward(const dnnl::engine& engine,
                                                    bool with_bias) const {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const memory::desc x = AnyOrder(wide), w = AnyOrder(weight), y = AnyOrder(narrow);
    const auto desc =
        with_bias ? dnnl::convolution_forward::desc(kind, algorithm, x, w, Plain(bias), y, strides,
                                                    dilates, padding, padding_right)
                  : dnnl::convolution_forward::desc(kind, algorithm, x, w, y, strides, dilates,
                                                    padding, padding_right);
    return {desc, UserScratch(), engine};
  }

  dnnl::convolution_backward_data::primitive_desc BackwardData(const dnnl::engine& engine) const {
    const dnnl::convolution_backward_data::desc desc(
        dnnl::algorithm::convolution_direct, AnyOrder(wide), AnyOrder(weight), AnyOrder(narrow),
        strides, dilates, padding, padding_right);
    return {desc, UserScratch(), engine, Forward(engine, false)};
  }

  dnnl::convolution_backward_weights::primitive_desc BackwardWeights(
      const dnnl::engine& engine) const {
    const dnnl::convolution_backward_weights::desc desc(
        dnnl::algorithm::convolution_direct, AnyOrder(wide), AnyOrder(weight), AnyOrder(narrow),
        strides, dilates, padding, padding_right);
    return {desc, UserScratch(), engine, Forward(engine, false)};
  }
};

absl::Status NoPrimitive(const dnnl::error& error) {
  return absl::InternalError(absl::StrCat("oneDNN has no such convolution: ", error.what()));
}

// Multiply-adds of a piece, below which several images make one piece.
constexpr int64_t kProductsPerPiece = int64_t{1} << 23;

// Computes conv (from the wide side to the narrow one) or conv_transpose (back).
class ConvKernel final : public Kernel {
 public:
  enum class Direction : uint8_t { kForward, kTransposed };

  ConvKernel(Direction direction, ConvShape shape, DType dtype, std::optional<DType> bias,
             int num_threads)
      : direction_(direction),
        shape_(std::move(shape)),
        dtype_(dtype),
        bias_(bias),
        num_threads_(num_threads) {}

  absl::Status Prepare() {
    if (bias_.has_value()) bias_at_ = whole_.Take(channels() * kFloat);
    if (shape_.empty()) return absl::OkStatus();
    piece_ =
        DivisorUpTo(shape_.images, kProductsPerPiece / std::max<int64_t>(1, shape_.products()));
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    OneOpenMpThread one_thread;
    const Descriptions of(shape_, piece_);
    try {
      if (direction_ == Direction::kForward) {
        const auto desc = of.Forward(engine, bias_.has_value());
        DnnlExecution::Arguments arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                              {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                              {DNNL_ARG_DST, desc.dst_desc()},
                                              {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}};
        if (bias_.has_value()) arguments.emplace_back(DNNL_ARG_BIAS, desc.bias_desc());
        Stage(engine, of.wide, of.narrow, of.weight, arguments);
        for (int i = 0; i < num_threads_; ++i)
          executions_.emplace_back(engine, dnnl::convolution_forward(desc), arguments);
      } else {
        const auto desc = of.BackwardData(engine);
        const DnnlExecution::Arguments arguments = {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                                                    {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                    {DNNL_ARG_DIFF_SRC, desc.diff_src_desc()},
                                                    {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}};
        Stage(engine, of.narrow, of.wide, of.weight, arguments);
        for (int i = 0; i < num_threads_; ++i)
          executions_.emplace_back(engine, dnnl::convolution_backward_data(desc), arguments);
      }
    } catch (const dnnl::error& error) {
      return NoPrimitive(error);
    }
    return absl::OkStatus();
  }

  int64_t workspace_bytes() const override { return whole_.bytes() + lane_.bytes() * num_threads_; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const void* bias = nullptr;
    if (bias_.has_value()) {
      bias = args.inputs[2];
      if (*bias_ != DType::kF32) {
        ConvertReal(*bias_, DType::kF32, bias, At(launch.workspace, bias_at_), channels());
        bias = At(launch.workspace, bias_at_);
      }
    }
    if (shape_.empty()) return FillWithBias(static_cast<const float*>(bias), args.outputs[0]);
    const void* w = weight_->Read(args.inputs[1], launch.workspace, 0);
    const int64_t x_bytes = piece_ * x_image() * SizeOf(dtype_),
                  y_bytes = piece_ * y_image() * SizeOf(dtype_);
    launch.team->For(shape_.images / piece_, [&](int64_t piece, int worker) {
      char* lane = At(launch.workspace, whole_.bytes() + worker * lane_.bytes());
      char* y = At(args.outputs[0], piece * y_bytes);
      const void* x = x_->Read(At(args.inputs[0], piece * x_bytes), lane, worker);
      void* target = y_->Target(y, lane);
      if (direction_ == Direction::kForward && bias != nullptr) {
        executions_[worker].Run({x, w, target, At(lane, scratch_at_), bias});
      } else {
        executions_[worker].Run({x, w, target, At(lane, scratch_at_)});
      }
      float* plain = y_->ReadBack(y, lane, worker);
      if (direction_ == Direction::kTransposed && bias != nullptr)
        AddBias(static_cast<const float*>(bias), plain);
      y_->Store(y, lane);
    });
    return absl::OkStatus();
  }

 private:
  int64_t x_image() const {
    return direction_ == Direction::kForward ? shape_.wide_image() : shape_.narrow_image();
  }
  int64_t y_image() const {
    return direction_ == Direction::kForward ? shape_.narrow_image() : shape_.wide_image();
  }
  // The channels of y.
  int64_t channels() const {
    return shape_.groups * (direction_ == Direction::kForward ? shape_.out : shape_.in);
  }

  void Stage(const dnnl::engine& engine, const memory::dims& x, const memory::dims& y,
             const memory::dims& w, const DnnlExecution::Arguments& arguments) {
    weight_.emplace(engine, Staged::Role::kRead, w, arguments[1].second, dtype_, 1, &whole_);
    x_.emplace(engine, Staged::Role::kRead, x, arguments[0].second, dtype_, num_threads_, &lane_);
    y_.emplace(engine, Staged::Role::kWritten, y, arguments[2].second, dtype_, num_threads_,
               &lane_);
    scratch_at_ = lane_.Take(static_cast<int64_t>(arguments[3].second.get_size()));
  }

  void AddBias(const float* bias, float* y) const {
    const int64_t plane = y_image() / channels();
    for (int64_t c = 0; c < piece_ * channels(); ++c) {
      const float value = bias[c % channels()];
      float* row = y + c * plane;
      for (int64_t i = 0; i < plane; ++i) row[i] += value;
    }
  }

  // Without elements of x, each element of y is the bias, or zero.
  absl::Status FillWithBias(const float* bias, void* y) const {
    const int64_t elements = shape_.images * y_image();
    if (elements == 0) return absl::OkStatus();
    if (bias == nullptr) {
      std::memset(y, 0, elements * SizeOf(dtype_));
      return absl::OkStatus();
    }
    const int64_t plane = y_image() / channels();
    for (int64_t i = 0; i < elements; ++i)
      ConvertReal(DType::kF32, dtype_, bias + i / plane % channels(), At(y, i * SizeOf(dtype_)), 1);
    return absl::OkStatus();
  }

  const Direction direction_;
  const ConvShape shape_;
  const DType dtype_;
  const std::optional<DType> bias_;
  const int num_threads_;
  int64_t piece_ = 1;  // images
  // The workspace holds the weight and the bias, and then a lane per worker.
  Region whole_, lane_;
  int64_t bias_at_ = 0, scratch_at_ = 0;
  std::optional<Staged> weight_, x_, y_;
  std::vector<DnnlExecution> executions_;  // per worker
};

// Elements of the weight's gradient, over all parts of the batch that have a sum of their own.
constexpr int64_t kPartialElementsMax = int64_t{1} << 24;
constexpr int64_t kPartsMax = 16;

// Computes the gradient of the weight. Each part of the batch has a sum of its own, and these are
// added in order.
class ConvGradWeightKernel final : public Kernel {
 public:
  ConvGradWeightKernel(ConvShape shape, DType dtype, DType result, int num_threads)
      : shape_(std::move(shape)), dtype_(dtype), result_(result), num_threads_(num_threads) {}

  absl::Status Prepare() {
    if (shape_.empty()) return absl::OkStatus();
    parts_ = DivisorUpTo(shape_.images,
                         std::min(kPartsMax, kPartialElementsMax / std::max<int64_t>(1, weight())));
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    OneOpenMpThread one_thread;
    const Descriptions of(shape_, shape_.images / parts_);
    try {
      const auto desc = of.BackwardWeights(engine);
      const DnnlExecution::Arguments arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                  {DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                                                  {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()},
                                                  {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}};
      x_.emplace(engine, Staged::Role::kRead, of.wide, arguments[0].second, dtype_, num_threads_,
                 &lane_);
      dy_.emplace(engine, Staged::Role::kRead, of.narrow, arguments[1].second, dtype_, num_threads_,
                  &lane_);
      dw_.emplace(engine, Staged::Role::kWritten, of.weight, arguments[2].second, DType::kF32,
                  num_threads_, &lane_);
      scratch_at_ = lane_.Take(static_cast<int64_t>(arguments[3].second.get_size()));
      for (int i = 0; i < num_threads_; ++i)
        executions_.emplace_back(engine, dnnl::convolution_backward_weights(desc), arguments);
    } catch (const dnnl::error& error) {
      return NoPrimitive(error);
    }
    part_bytes_ = RoundUp(weight() * kFloat, kCacheLine);
    return absl::OkStatus();
  }

  int64_t workspace_bytes() const override {
    return parts_ * part_bytes_ + lane_.bytes() * num_threads_;
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (shape_.empty()) {
      if (weight() > 0) std::memset(args.outputs[0], 0, weight() * SizeOf(result_));
      return absl::OkStatus();
    }
    const int64_t images = shape_.images / parts_;
    const int64_t x_bytes = images * shape_.wide_image() * SizeOf(dtype_),
                  dy_bytes = images * shape_.narrow_image() * SizeOf(dtype_);
    launch.team->For(parts_, [&](int64_t part, int worker) {
      char* lane = At(launch.workspace, parts_ * part_bytes_ + worker * lane_.bytes());
      void* sum = At(launch.workspace, part * part_bytes_);
      const void* x = x_->Read(At(args.inputs[0], part * x_bytes), lane, worker);
      const void* dy = dy_->Read(At(args.inputs[1], part * dy_bytes), lane, worker);
      executions_[worker].Run({x, dy, dw_->Target(sum, lane), At(lane, scratch_at_)});
      dw_->ReadBack(sum, lane, worker);
    });
    const Pieces pieces{weight(), kLightPiece};
    launch.team->For(pieces.count(), [&](int64_t piece) {
      const int64_t begin = pieces.begin(piece), count = pieces.length(piece);
      float* total = reinterpret_cast<float*>(At(launch.workspace, begin * kFloat));
      for (int64_t part = 1; part < parts_; ++part) {
        const float* sum = reinterpret_cast<const float*>(
            At(launch.workspace, part * part_bytes_ + begin * kFloat));
        for (int64_t i = 0; i < count; ++i) total[i] += sum[i];
      }
      ConvertReal(DType::kF32, result_, total, At(args.outputs[0], begin * SizeOf(result_)), count);
    });
    return absl::OkStatus();
  }

 private:
  int64_t weight() const { return shape_.weight(); }

  const ConvShape shape_;
  const DType dtype_, result_;
  const int num_threads_;
  int64_t parts_ = 0, part_bytes_ = 0;
  // The workspace holds the sums of the parts, and then a lane per worker.
  Region lane_;
  int64_t scratch_at_ = 0;
  std::optional<Staged> x_, dy_, dw_;
  std::vector<DnnlExecution> executions_;  // per worker
};

KernelOr MakeConv(const KernelSpec& spec, ConvKernel::Direction direction) {
  SpecCheck check(spec);
  check.Inputs(2, 3).Outputs(1, 1).Real(check.in(0), "x");
  check.SameType(check.in(0), check.in(1), "x and w")
      .SameType(check.in(0), check.out(0), "x and y");
  const bool forward = direction == ConvKernel::Direction::kForward;
  const TensorSlice &wide = forward ? check.in(0) : check.out(0),
                    &narrow = forward ? check.out(0) : check.in(0);
  ConvShape shape = ConvShapeOf(wide, check.in(1), narrow, spec, &check);
  std::optional<DType> bias;
  if (check.HasIn(2)) {
    check.Real(check.in(2), "bias")
        .Expect(check.in(2).shape == Shape{check.out(0).shape[1]}, "a bias per channel of y");
    bias = check.in(2).dtype;
  }
  if (!check.ok()) return check.status();
  auto kernel = std::make_unique<ConvKernel>(direction, std::move(shape), check.in(0).dtype, bias,
                                             spec.num_threads);
  WEIR_RETURN_IF_ERROR(kernel->Prepare());
  return kernel;
}

KernelOr MakeConvForward(const KernelSpec& spec) {
  return MakeConv(spec, ConvKernel::Direction::kForward);
}

KernelOr MakeConvTranspose(const KernelSpec& spec) {
  return MakeConv(spec, ConvKernel::Direction::kTransposed);
}

KernelOr MakeConvGradWeight(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Real(check.in(0), "x").Real(check.out(0), "dw");
  check.SameType(check.in(0), check.in(1), "x and dy");
  ConvShape shape = ConvShapeOf(check.in(0), check.out(0), check.in(1), spec, &check);
  if (!check.ok()) return check.status();
  auto kernel = std::make_unique<ConvGradWeightKernel>(std::move(shape), check.in(0).dtype,
                                                       check.out(0).dtype, spec.num_threads);
  WEIR_RETURN_IF_ERROR(kernel->Prepare());
  return kernel;
}

WEIR_REGISTER_KERNEL("cpu", "conv", MakeConvForward);
WEIR_REGISTER_KERNEL("cpu", "conv_transpose", MakeConvTranspose);
WEIR_REGISTER_KERNEL("cpu", "conv_grad_w", MakeConvGradWeight);

}  // namespace
}  // namespace weir::kernels
