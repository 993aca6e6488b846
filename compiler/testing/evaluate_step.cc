#include "compiler/testing/evaluate_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

// The operands and results of one node.
struct NodeUse {
  const Node& node;
  const Function& function;
  std::vector<const Numbers*> in;

  const sbp::TensorType& in_type(int i) const { return function.values[node.inputs[i]].type; }
  const sbp::TensorType& out_type() const { return function.values[node.outputs[0]].type; }
};

Numbers ElementByElement(const Numbers& a, const Numbers& b, double (*op)(double, double)) {
  Numbers y(a.size());
  for (size_t i = 0; i < a.size(); ++i) y[i] = op(a[i], b[i % b.size()]);
  return y;
}

Numbers Matmul(const NodeUse& use) {
  const bool transpose = use.node.attrs.Bool("transpose_w");
  const size_t k = use.in_type(0).dims.back().size, n = use.out_type().dims.back().size;
  const Numbers &x = *use.in[0], &w = *use.in[1];
  Numbers y(x.size() / k * n, 0);
  for (size_t row = 0; row < x.size() / k; ++row) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t i = 0; i < k; ++i)
        y[row * n + j] += x[row * k + i] * (transpose ? w[j * k + i] : w[i * n + j]);
    }
  }
  return y;
}

Numbers MatmulGradW(const NodeUse& use) {
  const size_t k = use.in_type(0).dims.back().size, n = use.in_type(1).dims.back().size;
  const Numbers &x = *use.in[0], &dy = *use.in[1];
  Numbers dw(k * n, 0);
  for (size_t row = 0; row < x.size() / k; ++row) {
    for (size_t i = 0; i < k; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const size_t at = use.node.attrs.Bool("transpose_w") ? j * k + i : i * n + j;
        dw[at] += x[row * k + i] * dy[row * n + j];
      }
    }
  }
  return dw;
}

// Returns for each element of `whole` the element of the tensor without `axes` (empty: a scalar).
std::vector<size_t> WithoutAxes(const sbp::TensorType& whole, const std::vector<int64_t>& axes) {
  std::vector<size_t> to(whole.num_elements(), 0);
  for (size_t element = 0; element < to.size(); ++element) {
    size_t rest = element, stride = 1;
    for (size_t d = whole.dims.size(); d-- > 0;) {
      const size_t size = whole.dims[d].size, at = rest % size;
      rest /= size;
      if (axes.empty() || std::count(axes.begin(), axes.end(), static_cast<int64_t>(d)) > 0)
        continue;
      to[element] += at * stride;
      stride *= size;
    }
  }
  return to;
}

Numbers Reduce(const NodeUse& use) {
  const std::vector<size_t> to = WithoutAxes(use.in_type(0), use.node.attrs.Ints("axes"));
  const bool max = use.node.op == "reduce_max";
  Numbers y(use.out_type().num_elements(), max ? -std::numeric_limits<double>::infinity() : 0);
  for (size_t i = 0; i < to.size(); ++i)
    y[to[i]] = max ? std::max(y[to[i]], (*use.in[0])[i]) : y[to[i]] + (*use.in[0])[i];
  if (use.node.op != "reduce_mean") return y;
  for (double& number : y) number *= static_cast<double>(y.size()) / static_cast<double>(to.size());
  return y;
}

Numbers Expand(const NodeUse& use) {
  Numbers y;
  for (size_t from : WithoutAxes(use.out_type(), use.node.attrs.Ints("axes")))
    y.push_back((*use.in[0])[from]);
  return y;
}

// Returns {loss, max, sum_exp, logit of the target} for each row.
std::vector<Numbers> RowsOfLogits(const Numbers& logits, const Numbers& targets,
                                  const Numbers* max) {
  const size_t rows = targets.size(), n = logits.size() / rows;
  std::vector<Numbers> out(4, Numbers(rows, 0));
  for (size_t row = 0; row < rows; ++row) {
    const double* at = logits.data() + row * n;
    out[1][row] = max != nullptr ? (*max)[row] : *std::max_element(at, at + n);
    for (size_t i = 0; i < n; ++i) out[2][row] += std::exp(at[i] - out[1][row]);
    out[3][row] = at[static_cast<size_t>(targets[row])];
    out[0][row] = std::log(out[2][row]) + out[1][row] - out[3][row];
  }
  return out;
}

Numbers CrossEntropyGrad(const NodeUse& use) {
  const Numbers &logits = *use.in[0], &targets = *use.in[1], &dloss = *use.in[4];
  const std::vector<Numbers> rows = RowsOfLogits(logits, targets, nullptr);
  const size_t n = logits.size() / targets.size();
  Numbers y(logits.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / n;
    const double softmax = std::exp(logits[i] - rows[1][row]) / rows[2][row];
    y[i] = (softmax - (i % n == static_cast<size_t>(targets[row]) ? 1 : 0)) * dloss[row];
  }
  return y;
}

std::vector<Numbers> EvaluateNode(const NodeUse& use) {
  const std::string& op = use.node.op;
  const std::vector<const Numbers*>& in = use.in;
  if (op == kBoxingOp || op == "cast" || op == "reshape" || op == "accumulate") return {*in[0]};
  if (op == "add")
    return {ElementByElement(*in[0], *in[1], [](double a, double b) { return a + b; })};
  if (op == "mul")
    return {ElementByElement(*in[0], *in[1], [](double a, double b) { return a * b; })};
  if (op == "relu")
    return {ElementByElement(*in[0], *in[0], [](double a, double) { return std::max(a, 0.0); })};
  if (op == "relu_grad") {
    return {ElementByElement(*in[0], *in[1], [](double y, double dy) { return y > 0 ? dy : 0.0; })};
  }
  if (op == "scale")
    return {ElementByElement(*in[0], {use.node.attrs.Real("factor")},
                             [](double a, double b) { return a * b; })};
  if (op == "constant")
    return {Numbers(use.out_type().num_elements(), use.node.attrs.Real("value"))};
  if (op == "matmul") return {Matmul(use)};
  if (op == "matmul_grad_w") return {MatmulGradW(use)};
  if (op == "reduce_sum" || op == "reduce_mean" || op == "reduce_max") return {Reduce(use)};
  if (op == "expand") return {Expand(use)};
  if (op == "softmax_cross_entropy") return RowsOfLogits(*in[0], *in[1], nullptr);
  if (op == "softmax_cross_entropy_grad") return {CrossEntropyGrad(use)};
  if (op == "exp_sum_pick") {
    const std::vector<Numbers> rows = RowsOfLogits(*in[0], *in[1], in[2]);
    return {rows[2], rows[3]};
  }
  if (op == "cross_entropy_finish") {
    const auto log_sum = [](double max, double sum) { return std::log(sum) + max; };
    return {ElementByElement(ElementByElement(*in[0], *in[1], log_sum), *in[2],
                             [](double a, double b) { return a - b; })};
  }
  ADD_FAILURE() << "evaluate_step.cc does not know the op " << op;
  return {};
}

}  // namespace

std::vector<Numbers> EvaluateFunction(const Function& function, const std::vector<Numbers>& args) {
  std::vector<Numbers> values(function.values.size());
  for (size_t a = 0; a < args.size(); ++a) values[function.args[a].value] = args[a];
  for (const Node& node : function.nodes) {
    NodeUse use{node, function, {}};
    for (ops::ValueId input : node.inputs) use.in.push_back(&values[input]);
    std::vector<Numbers> results = EvaluateNode(use);
    for (size_t i = 0; i < node.outputs.size() && i < results.size(); ++i)
      values[node.outputs[i]] = std::move(results[i]);
  }
  return values;
}

StepInputs RandomInputs(const Module& module, uint64_t seed) {
  StepInputs inputs;
  uint64_t n = 0;
  const auto numbers = [&](const sbp::TensorType& type) {
    Numbers out(type.num_elements());
    for (double& number : out) {
      number = UniformAt(seed, n++);
      number = IsReal(type.dtype) ? 2 * number - 1 : std::floor(number * 4);
    }
    return out;
  };
  for (const ModelValue& value : module.model.values) {
    if (value.call < 0) inputs.data[value.name] = numbers(value.type);
  }
  for (const ModelCall& call : module.model.calls) {
    const Function& function =
        module.functions[module.model.functions[call.model_function].forward];
    for (size_t p = 0; p < function.parameters.size(); ++p) {
      const std::string& name = module.model.weights[call.weights[p]].name;
      if (inputs.weights.count(name) > 0) continue;
      inputs.weights[name] =
          numbers(function.values[function.args[function.parameters[p].arg].value].type);
    }
  }
  return inputs;
}

namespace {

class StepEvaluation {
 public:
  StepEvaluation(const Module& module, const StepInputs& inputs)
      : module_(module), inputs_(inputs), values_(module.model.values.size()) {}

  StepOutcome Run() {
    const Model& model = module_.model;
    for (size_t v = 0; v < model.values.size(); ++v) {
      if (model.values[v].call < 0) values_[v] = inputs_.data.at(model.values[v].name);
    }
    for (const ModelCall& call : model.calls) RunForward(call);
    for (size_t c = model.calls.size(); c-- > 0;) RunBackward(model.calls[c], forward_[c]);
    outcome_.loss = values_[model.loss].at(0);
    return std::move(outcome_);
  }

 private:
  using BackwardArg = ModelFunction::BackwardArg;

  std::string WeightName(const ModelCall& call, const Function& function, int arg) const {
    for (size_t p = 0; p < function.parameters.size(); ++p) {
      if (function.parameters[p].arg == arg) return module_.model.weights[call.weights[p]].name;
    }
    return "none";
  }

  void RunForward(const ModelCall& call) {
    const ModelFunction& model_function = module_.model.functions[call.model_function];
    const Function& function = module_.functions[model_function.forward];
    std::vector<Numbers> args;
    size_t next = 0;
    for (size_t a = 0; a < function.args.size(); ++a) {
      args.push_back(function.args[a].kind == ArgKind::kParameter
                         ? inputs_.weights.at(WeightName(call, function, static_cast<int>(a)))
                         : values_[call.args[next++]]);
    }
    forward_.push_back(EvaluateFunction(function, args));
    for (size_t r = 0; r < call.results.size(); ++r)
      values_[call.results[r]] = forward_.back()[function.results[r].value];
  }

  void RunBackward(const ModelCall& call, const std::vector<Numbers>& forward) {
    const ModelFunction& model_function = module_.model.functions[call.model_function];
    if (model_function.backward < 0) return;
    const Function& function = module_.functions[model_function.forward];
    const Function& backward = module_.functions[model_function.backward];
    std::vector<Numbers> made;
    const auto run = [&](const Function& gradient, const std::vector<BackwardArg>& sources,
                         const std::vector<int>& results) {
      std::vector<Numbers> args;
      for (const BackwardArg& from : sources) {
        switch (from.kind) {
          case BackwardArg::kForwardArg:
            args.push_back(forward[function.args[from.index].value]);
            break;
          case BackwardArg::kForwardResult:
            args.push_back(forward[function.results[from.index].value]);
            break;
          case BackwardArg::kResultGrad:
            args.push_back(GradientOf(call.results[from.index]));
            break;
          case BackwardArg::kBackwardResult:
            args.push_back(made[backward.results[from.index].value]);
            break;
        }
      }
      std::vector<Numbers> values = EvaluateFunction(gradient, args);
      for (size_t r = 0; r < results.size(); ++r)
        Take(call, function, results[r], values[gradient.results[r].value]);
      return values;
    };
    made = run(backward, model_function.backward_args, model_function.backward_results);
    if (model_function.weight_gradient >= 0) {
      run(module_.functions[model_function.weight_gradient], model_function.weight_gradient_args,
          model_function.weight_gradient_results);
    }
  }

  Numbers GradientOf(int value) {
    Numbers& sum = gradients_[value];
    sum.resize(module_.model.values[value].type.num_elements(), 0);
    return sum;
  }

  // Takes the gradient of argument `arg` of a call.
  void Take(const ModelCall& call, const Function& function, int arg, const Numbers& gradient) {
    if (function.args[arg].kind == ArgKind::kParameter) {
      Numbers& sum = outcome_.gradients[WeightName(call, function, arg)];
      sum.resize(gradient.size(), 0);
      sum = ElementByElement(sum, gradient, [](double a, double b) { return a + b; });
      return;
    }
    int position = 0;
    for (int a = 0; a < arg; ++a) position += function.args[a].kind != ArgKind::kParameter;
    const int value = call.args[position];
    gradients_[value] =
        ElementByElement(GradientOf(value), gradient, [](double a, double b) { return a + b; });
  }

  const Module& module_;
  const StepInputs& inputs_;
  std::vector<Numbers> values_;                // by model value
  std::vector<std::vector<Numbers>> forward_;  // by call and value
  std::map<int, Numbers> gradients_;           // by model value
  StepOutcome outcome_;
};

}  // namespace

StepOutcome EvaluateStep(const Module& module, const StepInputs& inputs) {
  return StepEvaluation(module, inputs).Run();
}

}  // namespace weir::compiler
