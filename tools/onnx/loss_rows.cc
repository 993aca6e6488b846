// Translations of losses between scores [n, classes, places...] and labels [n, places...].
#include "absl/strings/str_cat.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;
using Axes = Translation::Axes;

// x - m - log(sum(exp(x - m))), where m is the largest x of the classes.
ValueId LogShares(Translation& t, ValueId x) {
  const ValueId lowered = t.Add("sub", {x, t.Reduce("reduce_max", x, {1}, Axes::kKept)});
  const ValueId sum = t.Reduce("reduce_sum", t.Add("exp", {lowered}), {1}, Axes::kKept);
  return t.Add("sub", {lowered, t.Add("log", {sum})});
}

// Returns the share of each class in the label of each place, [n, classes, places...]: the weight
// of the class that the label names, and 0 elsewhere. An ignored label has no class.
ValueId Shares(Translation& t, const Sizes& shape) {
  const int64_t classes = shape[1];
  Sizes apart = t.input(1).shape, along(shape.size() - 1, 1);
  apart.insert(apart.begin() + 1, 1);
  along[0] = classes;
  const bool ignores = t.HasAttr("ignore_index");
  const int64_t ignored = t.Int("ignore_index", 0);
  std::vector<float> numbers, counts;
  for (int64_t label = 0; label < classes; ++label) {
    numbers.push_back(static_cast<float>(label));
    counts.push_back(ignores && label == ignored ? 0.0f : 1.0f);
  }
  const ValueId labels =
      t.Add("cast", {t.Constant(std::move(numbers), along)}, {{"to", std::string("i32")}});
  ValueId shares = t.Add("cast", {t.Add("equal", {t.Reshape(t.Any(1), apart), labels})},
                         {{"to", std::string("f32")}});
  if (t.Has(2)) shares = t.Add("mul", {shares, t.Reshape(t.Untrained(2), along)});
  if (ignores && ignored >= 0 && ignored < classes)
    shares = t.Add("mul", {shares, t.Constant(std::move(counts), along)});
  return shares;
}

// The loss of log shares: -sum of shares * x over the classes, reduced as the node says.
void FromLogShares(Translation& t, ValueId x) {
  if (!t.ok()) return;
  const Sizes shape = t.shape(x);
  Sizes of_labels = shape;
  of_labels.erase(of_labels.begin() + 1);
  if (t.input(1).shape != of_labels) return t.Fail("labels of another shape than the scores");
  const ValueId shares = Shares(t, shape);
  const ValueId losses =
      t.Scaled(t.Reduce("reduce_sum", t.Add("mul", {shares, x}), {1}, Axes::kDropped), -1);
  const std::string reduction = t.Str("reduction", "mean");
  if (reduction == "none") return t.Result(losses);
  const ValueId total = t.Reduce("reduce_sum", losses, {}, Axes::kDropped);
  if (reduction == "sum") return t.Result(total);
  if (reduction != "mean") return t.Fail(absl::StrCat("reduction \"", reduction, "\""));
  if (!t.Has(2) && !t.HasAttr("ignore_index"))
    return t.Result(t.Reduce("reduce_mean", losses, {}, Axes::kDropped));
  // The count of the whole step, so that the loss is the same for each number of micro-batches.
  const ValueId count =
      t.Add("step_mean", {t.Reduce("reduce_sum", shares, {}, Axes::kDropped)}, {});
  t.Result(t.Add("div", {total, count}));
}

bool HasClasses(Translation& t, ValueId x) {
  if (t.ok() && t.rank(x) >= 2 && t.shape(x)[1] <= 1 << 20) return true;
  t.Fail("scores without classes, or with more than 2^20");
  return false;
}

void NegativeLogLikelihoodLoss(Translation& t) {
  const ValueId x = t.X(0);
  t.Any(1);
  if (HasClasses(t, x)) FromLogShares(t, x);
}

void SoftmaxCrossEntropyLoss(Translation& t) {
  const ValueId x = t.X(0), labels = t.Any(1);
  if (!HasClasses(t, x)) return;
  if (t.Has(2)) {
    const ValueId logs = LogShares(t, x);
    FromLogShares(t, logs);
    if (t.node().output_size() > 1) t.Result(1, logs);
    return;
  }
  const bool ignores = t.HasAttr("ignore_index");
  const int64_t ignored = t.Int("ignore_index", 0);
  const Attributes attrs = ignores ? Attributes{{"ignore_index", Sizes{ignored}}} : Attributes{};
  const ValueId losses = t.Add("softmax_cross_entropy", {t.ToLast(x, 1), labels}, attrs);
  const std::string reduction = t.Str("reduction", "mean");
  if (reduction == "none") {
    t.Result(losses);
  } else if (reduction == "mean" && ignores) {
    const ValueId counts = t.Add("not_equal", {labels}, {{"value", static_cast<double>(ignored)}});
    const ValueId ones = t.Add("cast", {counts}, {{"to", std::string("f32")}});
    // The count of the whole step, as in FromLogShares.
    const ValueId count =
        t.Add("step_mean", {t.Reduce("reduce_sum", ones, {}, Axes::kDropped)}, {});
    t.Result(t.Add("div", {t.Reduce("reduce_sum", losses, {}, Axes::kDropped), count}));
  } else if (reduction == "mean" || reduction == "sum") {
    t.Result(t.Reduce(absl::StrCat("reduce_", reduction), losses, {}, Axes::kDropped));
  } else {
    return t.Fail(absl::StrCat("reduction \"", reduction, "\""));
  }
  if (t.node().output_size() > 1) t.Result(1, LogShares(t, x));
}

}  // namespace

std::vector<Row> LossRows() {
  return {
      {"NegativeLogLikelihoodLoss", 12, NegativeLogLikelihoodLoss},
      {"SoftmaxCrossEntropyLoss", 12, SoftmaxCrossEntropyLoss},
  };
}

}  // namespace weir::onnx
