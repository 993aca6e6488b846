// The kernels of masks: comparisons, logical_and, logical_or, logical_xor, logical_not and where.
#include <functional>
#include <type_traits>

#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/broadcast_axes.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/real.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Returns an element as a double, which holds every value of every element type.
inline double Number(float x) { return x; }
inline double Number(BFloat16 x) { return ToFloat(x); }
inline double Number(Float16 x) { return ToFloat(x); }
inline double Number(int32_t x) { return x; }
inline double Number(uint8_t x) { return x; }

// Calls f with a null pointer to the type that stores elements of `dtype`.
template <class F>
void WithStored(DType dtype, F&& f) {
  if (dtype == DType::kI32) return f(static_cast<int32_t*>(nullptr));
  if (dtype == DType::kBool) return f(static_cast<uint8_t*>(nullptr));
  WithRealType(dtype, f);
}

enum class Relation : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

template <class F>
void WithRelation(Relation relation, F&& f) {
  switch (relation) {
    case Relation::kEqual: return f(std::equal_to<double>());
    case Relation::kNotEqual: return f(std::not_equal_to<double>());
    case Relation::kLess: return f(std::less<double>());
    case Relation::kLessEqual: return f(std::less_equal<double>());
    case Relation::kGreater: return f(std::greater<double>());
    case Relation::kGreaterEqual: return f(std::greater_equal<double>());
  }
}

// Compares a with b, or with a number. The number beside real operands is rounded to f32, whatever
// type they have.
class CompareKernel final : public Kernel {
 public:
  CompareKernel(Relation relation, double value, const std::vector<Shape>& operands,
                const TensorSlice& a, const TensorSlice& y)
      : relation_(relation),
        dtype_(a.dtype),
        has_b_(operands.size() > 1),
        value_(IsReal(a.dtype) ? static_cast<float>(value) : value),
        axes_(operands, y.shape),
        pieces_{y.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    uint8_t* y = static_cast<uint8_t*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      WithStored(dtype_, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const T* a = static_cast<const T*>(args.inputs[0]);
        const T* b = has_b_ ? static_cast<const T*>(args.inputs[1]) : nullptr;
        WithRelation(relation_, [&](auto holds) {
          axes_.ForEachRun(pieces_.begin(piece), pieces_.end(piece),
                           [&](const BroadcastAxes::Run& run) { CompareRun(run, a, b, holds, y); });
        });
      });
    });
    return absl::OkStatus();
  }

 private:
  template <class T, class F>
  void CompareRun(const BroadcastAxes::Run& run, const T* a, const T* b, F holds,
                  uint8_t* y) const {
    a += run.first[0];
    y += run.at;
    if (b == nullptr || run.repeats[1]) {
      const double other = b == nullptr ? value_ : Number(b[run.first[1]]);
      for (int64_t i = 0; i < run.count; ++i) y[i] = holds(Number(a[i]), other);
      return;
    }
    b += run.first[1];
    const int64_t step = run.repeats[0] ? 0 : 1;
    for (int64_t i = 0; i < run.count; ++i) y[i] = holds(Number(a[i * step]), Number(b[i]));
  }

  const Relation relation_;
  const DType dtype_;
  const bool has_b_;
  const double value_;
  const BroadcastAxes axes_;
  const Pieces pieces_;
};

// Returns the shapes of the operands, which are expected to fit the result. Trailing operands may
// be absent.
std::vector<Shape> FittingShapes(const KernelSpec& spec, SpecCheck* check) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < spec.inputs.size() && check->HasIn(static_cast<int>(i)); ++i)
    shapes.push_back(spec.inputs[i]->shape);
  check->Expect(check->ok() && BroadcastAxes::Fit(shapes, check->out(0).shape),
                "operands as long as the result along each axis, or of size 1, and one as long");
  return shapes;
}

KernelFactory MakeCompare(Relation relation) {
  return [relation](const KernelSpec& spec) -> KernelOr {
    SpecCheck check(spec);
    check.Inputs(1, 2).Outputs(1, 1).Is(check.out(0), DType::kBool, "y");
    if (check.HasIn(1)) check.SameType(check.in(0), check.in(1), "a and b");
    const std::vector<Shape> shapes = FittingShapes(spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<CompareKernel>(relation, spec.attrs.Real("value", 0), shapes,
                                           check.in(0), check.out(0));
  };
}

enum class Connective : uint8_t { kAnd, kOr, kXor, kNot };

class LogicalKernel final : public Kernel {
 public:
  LogicalKernel(Connective connective, const std::vector<Shape>& operands, const TensorSlice& y)
      : connective_(connective), axes_(operands, y.shape), pieces_{y.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const uint8_t* a = static_cast<const uint8_t*>(args.inputs[0]);
    // The negation of a is whether a and true differ.
    static constexpr uint8_t kTrue = 1;
    const bool is_not = connective_ == Connective::kNot;
    const uint8_t* b = is_not ? &kTrue : static_cast<const uint8_t*>(args.inputs[1]);
    uint8_t* y = static_cast<uint8_t*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      axes_.ForEachRun(pieces_.begin(piece), pieces_.end(piece),
                       [&](const BroadcastAxes::Run& run) {
                         const uint8_t *of_a = a + run.first[0], *of_b = b + run.first[1];
                         const int64_t a_step = run.repeats[0] ? 0 : 1;
                         const int64_t b_step = is_not || run.repeats[1] ? 0 : 1;
                         for (int64_t i = 0; i < run.count; ++i)
                           y[run.at + i] = Joined(of_a[i * a_step] != 0, of_b[i * b_step] != 0);
                       });
    });
    return absl::OkStatus();
  }

 private:
  bool Joined(bool a, bool b) const {
    switch (connective_) {
      case Connective::kAnd: return a && b;
      case Connective::kOr: return a || b;
      case Connective::kXor:
      case Connective::kNot: return a != b;
    }
    return false;
  }

  const Connective connective_;
  const BroadcastAxes axes_;
  const Pieces pieces_;
};

KernelFactory MakeLogical(Connective connective) {
  return [connective](const KernelSpec& spec) -> KernelOr {
    const int num_inputs = connective == Connective::kNot ? 1 : 2;
    SpecCheck check(spec);
    check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Is(check.out(0), DType::kBool, "y");
    for (int i = 0; i < num_inputs; ++i) check.Is(check.in(i), DType::kBool, "a and b");
    const std::vector<Shape> shapes = FittingShapes(spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<LogicalKernel>(connective, shapes, check.out(0));
  };
}

class WhereKernel final : public Kernel {
 public:
  WhereKernel(const std::vector<Shape>& operands, float value, const TensorSlice& y)
      : dtype_(y.dtype),
        has_b_(operands.size() > 2),
        value_(value),
        axes_(operands, y.shape),
        pieces_{y.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    WithRealType(dtype_, [&](auto* type) {
      RunTyped(args, launch, RoundTo<std::remove_pointer_t<decltype(type)>>(value_));
    });
    return absl::OkStatus();
  }

 private:
  template <class T>
  void RunTyped(const KernelArgs& args, const LaunchContext& launch, T value) const {
    const uint8_t* condition = static_cast<const uint8_t*>(args.inputs[0]);
    const T* a = static_cast<const T*>(args.inputs[1]);
    const T* b = has_b_ ? static_cast<const T*>(args.inputs[2]) : nullptr;
    T* y = static_cast<T*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      axes_.ForEachRun(
          pieces_.begin(piece), pieces_.end(piece), [&](const BroadcastAxes::Run& run) {
            SelectRun(run, condition, a, b == nullptr ? &value : b + run.first[2], y + run.at);
          });
    });
  }

  // `b` is the first element of the run.
  template <class T>
  void SelectRun(const BroadcastAxes::Run& run, const uint8_t* condition, const T* a, const T* b,
                 T* y) const {
    condition += run.first[0];
    a += run.first[1];
    const int64_t condition_step = run.repeats[0] ? 0 : 1, a_step = run.repeats[1] ? 0 : 1;
    const int64_t b_step = !has_b_ || run.repeats[2] ? 0 : 1;
    for (int64_t i = 0; i < run.count; ++i)
      y[i] = condition[i * condition_step] != 0 ? a[i * a_step] : b[i * b_step];
  }

  const DType dtype_;
  const bool has_b_;
  const float value_;
  const BroadcastAxes axes_;
  const Pieces pieces_;
};

KernelOr MakeWhere(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 3).Outputs(1, 1);
  check.Is(check.in(0), DType::kBool, "condition").Real(check.in(1), "a");
  if (check.HasIn(2)) check.SameType(check.in(1), check.in(2), "a and b");
  check.SameType(check.in(1), check.out(0), "a and y");
  const std::vector<Shape> shapes = FittingShapes(spec, &check);
  if (!check.ok()) return check.status();
  return std::make_unique<WhereKernel>(shapes, static_cast<float>(spec.attrs.Real("value", 0)),
                                       check.out(0));
}

WEIR_REGISTER_KERNEL("cpu", "equal", MakeCompare(Relation::kEqual));
WEIR_REGISTER_KERNEL("cpu", "not_equal", MakeCompare(Relation::kNotEqual));
WEIR_REGISTER_KERNEL("cpu", "less", MakeCompare(Relation::kLess));
WEIR_REGISTER_KERNEL("cpu", "less_equal", MakeCompare(Relation::kLessEqual));
WEIR_REGISTER_KERNEL("cpu", "greater", MakeCompare(Relation::kGreater));
WEIR_REGISTER_KERNEL("cpu", "greater_equal", MakeCompare(Relation::kGreaterEqual));
WEIR_REGISTER_KERNEL("cpu", "logical_and", MakeLogical(Connective::kAnd));
WEIR_REGISTER_KERNEL("cpu", "logical_or", MakeLogical(Connective::kOr));
WEIR_REGISTER_KERNEL("cpu", "logical_xor", MakeLogical(Connective::kXor));
WEIR_REGISTER_KERNEL("cpu", "logical_not", MakeLogical(Connective::kNot));
WEIR_REGISTER_KERNEL("cpu", "where", MakeWhere);

}  // namespace
}  // namespace weir::kernels
