// Translations of reductions, norms and softmax.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tools/onnx/shapes.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;
using Axes = Translation::Axes;

// Reduces by an operation of Weir over the axes of the node.
ValueId Reduced(Translation& t, const std::string& op, ValueId x) {
  const ReducedAxes axes = AxesOfReduction(t, t.rank(x));
  if (!t.ok() || axes.none || axes.axes.empty()) return x;
  return t.Reduce(op, x, axes.axes, axes.keep ? Axes::kKept : Axes::kDropped);
}

void Finish(Translation& t, ValueId y) {
  if (t.ok() && t.Has(0) && y == t.input(0).value) return t.ResultInput(0, 0);
  t.Result(y);
}

void ReduceSum(Translation& t) { Finish(t, Reduced(t, "reduce_sum", t.X(0))); }
void ReduceMean(Translation& t) { Finish(t, Reduced(t, "reduce_mean", t.X(0))); }
void ReduceMax(Translation& t) { Finish(t, Reduced(t, "reduce_max", t.X(0))); }
void ReduceMin(Translation& t) {
  t.Result(t.Scaled(Reduced(t, "reduce_max", t.Scaled(t.X(0), -1)), -1));
}
void ReduceL1(Translation& t) { t.Result(Reduced(t, "reduce_sum", t.Add("abs", {t.X(0)}))); }
void ReduceSumSquare(Translation& t) {
  t.Result(Reduced(t, "reduce_sum", t.Add("square", {t.X(0)})));
}
void ReduceL2(Translation& t) {
  t.Result(t.Add("sqrt", {Reduced(t, "reduce_sum", t.Add("square", {t.X(0)}))}));
}
void ReduceLogSum(Translation& t) { t.Result(t.Add("log", {Reduced(t, "reduce_sum", t.X(0))})); }

// log(sum(exp(x))) = m + log(sum(exp(x - m))), where m is the largest x.
void ReduceLogSumExp(Translation& t) {
  const ValueId x = t.X(0);
  const ReducedAxes axes = AxesOfReduction(t, t.rank(x));
  if (!t.ok()) return;
  if (axes.none || axes.axes.empty()) return t.ResultInput(0, 0);
  const ValueId largest = t.Reduce("reduce_max", x, axes.axes, Axes::kKept);
  const ValueId sum =
      t.Reduce("reduce_sum", t.Add("exp", {t.Add("sub", {x, largest})}), axes.axes, Axes::kKept);
  const ValueId y = t.Add("add", {largest, t.Add("log", {sum})});
  Sizes to;
  for (int d = 0; t.ok() && d < t.rank(y); ++d) {
    const bool reduced = std::count(axes.axes.begin(), axes.axes.end(), d) > 0;
    if (axes.keep || !reduced) to.push_back(t.shape(y)[d]);
  }
  t.Result(t.Reshape(y, to));
}

// Mean over all places after the channels.
void GlobalAveragePool(Translation& t) {
  const ValueId x = t.X(0);
  if (t.ok() && t.rank(x) < 3) return t.Fail("an operand without places");
  std::vector<int64_t> places(std::max(t.rank(x) - 2, 0));
  std::iota(places.begin(), places.end(), 2);
  const bool max = t.node().op() == "GlobalMaxPool";
  t.Result(t.Reduce(max ? "reduce_max" : "reduce_mean", x, places, Axes::kKept));
}

// x - m - log(sum(exp(x - m))), where m is the largest x.
ValueId LogSoftmax(Translation& t, ValueId x, int axis) {
  const std::vector<int64_t> axes = {axis};
  const ValueId lowered = t.Add("sub", {x, t.Reduce("reduce_max", x, axes, Axes::kKept)});
  const ValueId sum = t.Reduce("reduce_sum", t.Add("exp", {lowered}), axes, Axes::kKept);
  return t.Add("sub", {lowered, t.Add("log", {sum})});
}

// Before version 13, the dimensions from `axis` on count as one.
void Softmax(Translation& t) {
  const ValueId x = t.X(0);
  const bool joins = t.opset() < 13;
  const int axis = t.Axis(t.Int("axis", joins ? 1 : -1), t.rank(x));
  if (!t.ok()) return;
  const bool log = t.node().op() == "LogSoftmax";
  const auto along = [&](ValueId value, int of) {
    return log ? LogSoftmax(t, value, of) : t.FromLast(t.Add("softmax", {t.ToLast(value, of)}), of);
  };
  if (!joins || axis == t.rank(x) - 1) return t.Result(along(x, axis));
  const Sizes shape = t.shape(x);
  const int64_t classes = Count({shape.begin() + axis, shape.end()});
  t.Result(t.Reshape(along(t.Reshape(x, {Count(shape) / classes, classes}), 1), shape));
}

// Over the last dimensions, from `axis` on, as one.
void LayerNormalization(Translation& t) {
  const ValueId x = t.X(0), gamma = t.X(1);
  const ValueId beta = t.Has(2) ? t.X(2) : -1;
  const int axis = t.Axis(t.Int("axis", -1), t.rank(x));
  if (!t.ok()) return;
  const Sizes shape = t.shape(x);
  const int64_t width = Count({shape.begin() + axis, shape.end()});
  Sizes folded(shape.begin(), shape.begin() + axis);
  folded.push_back(width);
  std::vector<ValueId> operands = {t.Reshape(x, folded), t.Reshape(gamma, {width})};
  if (beta >= 0) operands.push_back(t.Reshape(beta, {width}));
  const int results = t.node().output_size() > 1 ? 3 : 1;
  const auto y = t.AddAll("layer_norm", operands, {{"epsilon", t.Real("epsilon", 1e-5)}}, results);
  t.Result(t.Reshape(y[0], shape));
  Sizes statistic = shape;
  std::fill(statistic.begin() + axis, statistic.end(), 1);
  for (int i = 1; t.ok() && i < t.node().output_size(); ++i)
    t.Result(i, t.Reshape(y[i], statistic));
}

void RmsNormalization(Translation& t) {
  const ValueId x = t.X(0), gamma = t.X(1);
  const int axis = t.Axis(t.Int("axis", -1), t.rank(x));
  if (!t.ok()) return;
  const Sizes shape = t.shape(x);
  const int64_t width = Count({shape.begin() + axis, shape.end()});
  Sizes folded(shape.begin(), shape.begin() + axis);
  folded.push_back(width);
  const ValueId y = t.Add("rms_norm", {t.Reshape(x, folded), t.Reshape(gamma, {width})},
                          {{"epsilon", t.Real("epsilon", 1e-5)}});
  t.Result(t.Reshape(y, shape));
}

// (x - mean) / sqrt(variance + epsilon) over axes, which stay.
ValueId Standardized(Translation& t, ValueId x, const std::vector<int64_t>& axes, double epsilon) {
  const ValueId centred = t.Add("sub", {x, t.Reduce("reduce_mean", x, axes, Axes::kKept)});
  const ValueId variance = t.Reduce("reduce_mean", t.Add("square", {centred}), axes, Axes::kKept);
  return t.Add("mul", {centred, t.Add("rsqrt", {t.Plus(variance, epsilon)})});
}

// A number per channel, for a tensor [n, channels, ...].
ValueId PerChannel(Translation& t, int i, int rank) {
  const ValueId x = t.X(i);
  if (!t.ok()) return -1;
  Sizes to(std::max(rank - 1, 1), 1);
  to[0] = Count(t.shape(x));
  return t.Reshape(x, to);
}

void InstanceNormalization(Translation& t) {
  const ValueId x = t.X(0);
  if (t.ok() && t.rank(x) < 3) return t.Fail("an operand without places");
  std::vector<int64_t> places(std::max(t.rank(x) - 2, 0));
  std::iota(places.begin(), places.end(), 2);
  const ValueId y = Standardized(t, x, places, t.Real("epsilon", 1e-5));
  t.Result(
      t.Add("add", {t.Add("mul", {y, PerChannel(t, 1, t.rank(x))}), PerChannel(t, 2, t.rank(x))}));
}

void GroupNormalization(Translation& t) {
  const ValueId x = t.X(0);
  const int64_t groups = t.Int("num_groups", 0);
  if (!t.ok()) return;
  const Sizes shape = t.shape(x);
  if (shape.size() < 2 || groups < 1 || shape[1] % groups != 0)
    return t.Fail("channels in num_groups groups");
  const ValueId cut = t.Reshape(x, {shape[0], groups, Count(shape) / (shape[0] * groups)});
  const ValueId y = t.Reshape(Standardized(t, cut, {2}, t.Real("epsilon", 1e-5)), shape);
  t.Result(
      t.Add("add", {t.Add("mul", {y, PerChannel(t, 1, t.rank(x))}), PerChannel(t, 2, t.rank(x))}));
}

// With the statistics of the file, which training leaves alone (a step of the optimiser would make
// variances negative), or of the batch in a file that is made for training. Training then updates
// those of the file, of which the batch has the share 1 - momentum. The results after the first are
// the statistics for later.
void BatchNormalization(Translation& t) {
  const ValueId x = t.X(0);
  if (t.ok() && t.rank(x) < 2) return t.Fail("an operand without channels");
  if (t.Int("spatial", 1) == 0) return t.Fail("statistics for each place");
  std::vector<int64_t> axes = {0};
  for (int d = 2; d < t.rank(x); ++d) axes.push_back(d);
  const Attributes attrs = {{"axes", axes}, {"epsilon", t.Real("epsilon", 1e-5)}};
  const bool trains = t.opset() < 7 ? t.Int("is_test", 0) == 0 : t.Int("training_mode", 0) != 0;
  if (!trains) {
    return t.Result(t.Add("normalize", {x, t.Untrained(3), t.Untrained(4), t.X(1), t.X(2)}, attrs));
  }
  if (t.opset() < 14) return t.Fail("training in a version before 14 of ONNX's operations");
  const ValueId mean = t.Add("reduce_mean", {x}, {{"axes", axes}});
  const ValueId variance = t.Add("reduce_variance", {x, mean}, {{"axes", axes}});
  ValueId statistics[2] = {mean, variance};
  const double momentum = t.Real("momentum", 0.9);
  for (int i : {0, 1}) {
    const ValueId of_batch = statistics[i], average = t.Average(3 + i);
    if (average >= 0 && momentum >= 0 && momentum < 1)
      statistics[i] = t.Add("moving_average", {of_batch, average}, {{"momentum", 1 - momentum}});
    const ValueId old = average >= 0 ? average : t.Untrained(3 + i);
    if (t.node().output_size() > i + 1) {
      t.Result(i + 1, t.Add("add", {t.Scaled(old, momentum), t.Scaled(of_batch, 1 - momentum)}));
    }
  }
  t.Result(t.Add("normalize", {x, statistics[0], statistics[1], t.X(1), t.X(2)}, attrs));
}

void MeanVarianceNormalization(Translation& t) {
  const ValueId x = t.X(0);
  std::vector<int64_t> axes = t.HasAttr("axes") ? t.Ints("axes") : std::vector<int64_t>{0, 2, 3};
  for (int64_t& axis : axes) axis = t.Axis(axis, t.rank(x));
  t.Result(Standardized(t, x, axes, 1e-9));
}

// The product by halves: n factors take log2(n) multiplications, and no factor is divided out.
void ReduceProd(Translation& t) {
  ValueId x = t.X(0);
  const ReducedAxes axes = AxesOfReduction(t, t.rank(x));
  if (!t.ok()) return;
  if (axes.none) return t.ResultInput(0, 0);
  Sizes to = t.shape(x);
  for (int64_t axis : axes.axes) {
    for (int64_t size = t.ok() ? t.shape(x)[axis] : 1; size > 1; size = size - size / 2) {
      const int64_t half = size / 2;
      const auto part = [&](int64_t begin, int64_t count) {
        return t.Add("slice", {x}, {{"axis", axis}, {"begin", begin}, {"size", count}});
      };
      ValueId product = t.Add("mul", {part(0, half), part(half, half)});
      if (size % 2 == 1) product = t.Add("concat", {product, part(2 * half, 1)}, {{"axis", axis}});
      x = product;
    }
    to[axis] = axes.keep ? 1 : 0;
  }
  if (!axes.keep) {
    for (auto axis = axes.axes.rbegin(); axis != axes.axes.rend(); ++axis)
      to.erase(to.begin() + *axis);
  }
  t.Result(t.Reshape(x, to));
}

// x / (sum of |x|^p)^(1/p) along one axis, and 0 where the sum is 0.
void LpNormalization(Translation& t) {
  const ValueId x = t.X(0);
  const int axis = t.Axis(t.Int("axis", -1), t.rank(x));
  const int64_t p = t.Int("p", 2);
  if (p != 1 && p != 2) return t.Fail(absl::StrCat("p ", p));
  ValueId norm = t.Reduce("reduce_sum", t.Add(p == 1 ? "abs" : "square", {x}), {axis}, Axes::kKept);
  if (p == 2) norm = t.Add("sqrt", {norm});
  const ValueId is_zero = t.Add("equal", {norm}, {{"value", 0.0}});
  norm = t.Add("add", {norm, t.Add("cast", {is_zero}, {{"to", std::string("f32")}})});
  t.Result(t.Add("div", {x, norm}));
}

// x / (bias + alpha / size * sum of squares of the channels around)^beta
void Lrn(Translation& t) {
  const ValueId x = t.X(0);
  const int64_t size = t.Int("size", 0);
  if (!t.ok() || t.rank(x) < 2 || size < 1 || size > 4096)
    return t.Fail("an operand with channels, and a size up to 4096");
  const int64_t channels = t.shape(x)[1], before = (size - 1) / 2;
  if (channels > 4096) return t.Fail("more than 4096 channels");
  std::vector<float> around(channels * channels, 0.0f);
  for (int64_t from = 0; from < channels; ++from) {
    for (int64_t to = 0; to < channels; ++to) {
      if (from >= to - before && from <= to + size - 1 - before)
        around[from * channels + to] = 1.0f;
    }
  }
  const ValueId squares = t.ToLast(t.Add("square", {x}), 1);
  const ValueId sums = t.FromLast(
      t.Add("matmul", {squares, t.Constant(std::move(around), {channels, channels})}), 1);
  const ValueId base =
      t.Plus(t.Scaled(sums, t.Real("alpha", 1e-4) / static_cast<double>(size)), t.Real("bias", 1));
  t.Result(t.Add("mul", {x, t.Add("power", {base}, {{"exponent", -t.Real("beta", 0.75)}})}));
}

}  // namespace

std::vector<Row> ReductionRows() {
  return {
      {"ReduceSum", 1, ReduceSum},
      {"ReduceMean", 1, ReduceMean},
      {"ReduceMax", 1, ReduceMax},
      {"ReduceMin", 1, ReduceMin},
      {"ReduceL1", 1, ReduceL1},
      {"ReduceL2", 1, ReduceL2},
      {"ReduceSumSquare", 1, ReduceSumSquare},
      {"ReduceLogSum", 1, ReduceLogSum},
      {"ReduceLogSumExp", 1, ReduceLogSumExp},
      {"GlobalAveragePool", 1, GlobalAveragePool},
      {"GlobalMaxPool", 1, GlobalAveragePool},
      {"Softmax", 1, Softmax},
      {"LogSoftmax", 1, Softmax},
      {"LayerNormalization", 17, LayerNormalization},
      {"RMSNormalization", 23, RmsNormalization},
      {"InstanceNormalization", 6, InstanceNormalization},
      {"GroupNormalization", 21, GroupNormalization},
      {"BatchNormalization", 1, BatchNormalization},
      {"MeanVarianceNormalization", 9, MeanVarianceNormalization},
      {"ReduceProd", 1, ReduceProd},
      {"LpNormalization", 1, LpNormalization},
      {"LRN", 1, Lrn},
  };
}

}  // namespace weir::onnx
