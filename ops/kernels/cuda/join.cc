// The joiner of kernels for CUDA: which neighbours of a chain one kernel does the work of. Each
// rule saves passes over memory or launches:
//
//   gelu-gradient: matmul, gelu_grad. cuBLASLt's epilogue multiplies by the derivative.
//   addition: matmul, add. cuBLASLt adds as it stores.
//   norm-addition: layer_norm_grad or rms_norm_grad, add. So does the kernel of the norm.
//   norm-of-sum: add, layer_norm or rms_norm. The sum stays in registers until its norm is made.
//   silu-product: silu, or a matmul through silu, mul. So does silu(x) until its product is made.
//   accumulate: matmul_grad_w or embedding_grad, accumulate. The sum over micro-batches grows in
//     place.
//   bias-gradient: matmul_grad_w, reduce_sum. cuBLASLt sums an operand that it reads anyway.
//   square-sums: sum_squares, add, ... Three launches serve all weights of a call.
//   many: adamw, adamw, ... One launch serves all; so it is with sgd, cast and accumulate.
//
// WEIR_CUDA_UNJOINED names rules to leave out, with commas between them, or is "all".
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ops/kernels/cuda/joined_kernels.h"
#include "ops/kernels/kernel_chain.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using Space = ChainOperand::Space;
using Operands = std::vector<ChainOperand>;

constexpr char kVariable[] = "WEIR_CUDA_UNJOINED";
const char* const kRules[] = {"gelu-gradient", "addition",     "norm-addition",
                              "norm-of-sum",   "silu-product", "accumulate",
                              "bias-gradient", "square-sums",  "many"};

bool IsPresent(const Operands& operands, size_t i) {
  return i < operands.size() && operands[i].space != Space::kNone;
}
bool IsScratch(const ChainOperand& operand) { return operand.space == Space::kScratch; }

bool OverlapsAny(const ChainOperand& operand, const Operands& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const ChainOperand& other) { return operand.Overlaps(other); });
}

// Returns whether the operand shares bytes with one of the others without being the same operand.
bool CrossesAny(const ChainOperand& operand, const Operands& others) {
  return std::any_of(others.begin(), others.end(), [&](const ChainOperand& other) {
    return operand.Overlaps(other) && operand != other;
  });
}

// Returns whether the kernel is `op`, a binary op, on tensors of one shape.
bool IsPlainBinary(const ChainKernel& kernel, const char* op) {
  return kernel.spec.op == op && kernel.spec.inputs[0]->shape == kernel.spec.outputs[0]->shape &&
         kernel.spec.inputs[1]->shape == kernel.spec.outputs[0]->shape;
}
bool IsPlainAddition(const ChainKernel& add) { return IsPlainBinary(add, "add"); }

bool HasEmptyInput(const ChainKernel& kernel) {
  return std::any_of(kernel.inputs.begin(), kernel.inputs.end(), [](const ChainOperand& input) {
    return input.space != Space::kNone && input.bytes == 0;
  });
}

// A matmul through silu whose result has the type of its operands.
bool IsSiluMatmul(const ChainKernel& matmul) {
  return matmul.spec.op == "matmul" && !HasEmptyInput(matmul) &&
         matmul.spec.attrs.Str("activation", "none") == "silu" &&
         matmul.spec.inputs[0]->dtype == matmul.spec.outputs[0]->dtype;
}

// Returns whether kernel `reduce` sums a bf16 tensor over all axes but the last into f32.
bool SumsRows(const ChainKernel& reduce) {
  if (reduce.spec.op != "reduce_sum") return false;
  const TensorSlice &x = *reduce.spec.inputs[0], &y = *reduce.spec.outputs[0];
  const std::vector<int64_t> axes = reduce.spec.attrs.Ints("axes");
  if (x.dtype != DType::kBF16 || y.dtype != DType::kF32 || axes.size() + 1 != x.shape.size())
    return false;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// A matmul whose result is the product with at most a bias.
bool IsPlainMatmul(const ChainKernel& matmul) {
  return matmul.spec.op == "matmul" && !HasEmptyInput(matmul) && !IsPresent(matmul.outputs, 1) &&
         matmul.spec.attrs.Str("activation", "none") == "none" &&
         matmul.spec.inputs[0]->dtype == matmul.spec.outputs[0]->dtype;
}

class Joiner {
 public:
  Joiner(KernelChain* chain, std::vector<std::string> unjoined)
      : chain_(*chain), unjoined_(std::move(unjoined)) {}

  void Join() {
    if (Has("square-sums")) JoinSquareSums();
    for (size_t i = 0; i < chain_.size(); ++i) {
      if (Has("gelu-gradient")) JoinGeluGrad(i);
      if (Has("addition")) JoinAddition(i);
      if (Has("norm-addition")) JoinNormAddition(i);
      if (Has("norm-of-sum")) JoinNormOfSum(i);
      if (Has("silu-product")) JoinSiluProduct(i);
      JoinGradWeight(i);
      if (Has("accumulate")) JoinEmbeddingGrad(i);
    }
    Compact();
    if (Has("many")) JoinMany();
    Compact();
  }

 private:
  bool Has(const std::string& rule) const {
    return std::find(unjoined_.begin(), unjoined_.end(), rule) == unjoined_.end();
  }

  // Puts `kernel` into place `at`, for the work of the kernels at `from`, which go.
  void Put(size_t at, const std::vector<size_t>& from, std::unique_ptr<Kernel> kernel,
           Operands inputs, Operands outputs) {
    ChainKernel joined;
    joined.spec = chain_[from[0]].spec;
    joined.spec.op = absl::StrCat("joined ", joined.spec.op);
    joined.joined = std::move(kernel);
    joined.inputs = std::move(inputs);
    joined.outputs = std::move(outputs);
    for (size_t i : from) {
      joined.calls.insert(joined.calls.end(), chain_[i].calls.begin(), chain_[i].calls.end());
      chain_[i] = ChainKernel();
    }
    chain_[at] = std::move(joined);
  }

  // Kernels that have gone leave nothing that reads or writes, until Compact.
  void Compact() {
    chain_.erase(std::remove_if(chain_.begin(), chain_.end(),
                                [](const ChainKernel& kernel) { return kernel.calls.empty(); }),
                 chain_.end());
  }

  // Returns the one reader of a result in scratch, if it is an input of that kernel as it is, and
  // nobody reads it later.
  std::optional<size_t> OnlyReader(size_t i, const ChainOperand& result) const {
    if (!IsScratch(result) || result.bytes == 0) return std::nullopt;
    const std::optional<size_t> reader = FirstToTouch(chain_, i, result);
    if (!reader.has_value()) return std::nullopt;
    int reads = 0;
    for (const ChainOperand& input : chain_[*reader].inputs) {
      if (!input.Overlaps(result)) continue;
      if (input != result) return std::nullopt;
      ++reads;
    }
    if (reads != 1 || !IsDeadAfter(chain_, *reader, result)) return std::nullopt;
    return reader;
  }

  void JoinGeluGrad(size_t i) {
    const ChainKernel& matmul = chain_[i];
    if (!IsPlainMatmul(matmul) || IsPresent(matmul.inputs, 2) ||
        matmul.spec.outputs[0]->dtype != DType::kBF16) {
      return;
    }
    const ChainOperand result = matmul.outputs[0];
    const std::optional<size_t> j = OnlyReader(i, result);
    if (!j.has_value() || chain_[*j].spec.op != "gelu_grad" || chain_[*j].inputs[1] != result)
      return;
    const ChainOperand x = chain_[*j].inputs[0], dx = chain_[*j].outputs[0];
    const Operands factors = {matmul.inputs[0], matmul.inputs[1]};
    if (OverlapsAny(dx, factors) || dx.Overlaps(x)) return;
    const bool later = CanMove(chain_, i, *j, factors, {});
    if (!later && !CanMove(chain_, i, *j, {x}, {dx})) return;
    Put(later ? *j : i, {i, *j}, MakeMatmulGeluGrad(matmul.spec), {factors[0], factors[1], x},
        {dx});
  }

  void JoinAddition(size_t i) {
    const ChainKernel& matmul = chain_[i];
    if (!IsPlainMatmul(matmul)) return;
    const ChainOperand result = matmul.outputs[0];
    const std::optional<size_t> j = OnlyReader(i, result);
    if (!j.has_value() || !IsPlainAddition(chain_[*j])) return;
    const ChainOperand addend = chain_[*j].inputs[chain_[*j].inputs[0] == result ? 1 : 0];
    ChainOperand sum = chain_[*j].outputs[0];
    Operands factors = {matmul.inputs[0], matmul.inputs[1], ChainOperand()};
    if (IsPresent(matmul.inputs, 2)) factors[2] = matmul.inputs[2];
    size_t at = *j;
    const bool fits = !OverlapsAny(sum, factors) && !CrossesAny(sum, {addend});
    if (fits && CanMove(chain_, i, *j, factors, {})) {
      // The matmul waits until the addition's turn.
    } else if (fits && CanMove(chain_, i, *j, {addend}, {sum})) {
      at = i;
    } else if (IsScratch(addend) && IsScratch(sum) && !OverlapsAny(addend, factors) &&
               CanMove(chain_, i, *j, {}, {addend}) && IsDeadAfter(chain_, *j, addend) &&
               MoveScratch(&chain_, *j, sum, addend)) {
      // The sum lies where the addend was.
      at = i;
      sum = addend;
    } else {
      return;
    }
    Put(at, {i, *j}, MakeMatmulPlus(matmul.spec), {factors[0], factors[1], factors[2], addend},
        {sum});
  }

  void JoinNormAddition(size_t i) {
    const ChainKernel& grad = chain_[i];
    if (grad.spec.op != "layer_norm_grad" && grad.spec.op != "rms_norm_grad") return;
    const ChainOperand dx = grad.outputs[0];
    const std::optional<size_t> j = OnlyReader(i, dx);
    if (!j.has_value() || !IsPlainAddition(chain_[*j])) return;
    const ChainOperand addend = chain_[*j].inputs[chain_[*j].inputs[0] == dx ? 1 : 0];
    const ChainOperand sum = chain_[*j].outputs[0];
    const Operands sums(grad.outputs.begin() + 1, grad.outputs.end());
    // Input 0 is x, the last one dy; those between are of other shapes.
    const Operands alike = {grad.inputs.front(), grad.inputs.back(), addend};
    const Operands others(grad.inputs.begin() + 1, grad.inputs.end() - 1);
    if (CrossesAny(sum, alike) || OverlapsAny(sum, others) || OverlapsAny(sum, sums)) return;
    if (!CanMove(chain_, i, *j, grad.inputs, sums)) return;
    Operands inputs = grad.inputs, outputs = grad.outputs;
    inputs.push_back(addend);
    outputs[0] = sum;
    Put(*j, {i, *j}, MakeNormGradPlus(grad.spec), std::move(inputs), std::move(outputs));
  }

  // An addition that a product has taken is no longer there.
  void JoinNormOfSum(size_t i) {
    if (!IsPlainAddition(chain_[i])) return;
    const Operands addends = chain_[i].inputs;
    const ChainOperand sum = chain_[i].outputs[0];
    if (sum.bytes == 0) return;
    const std::optional<size_t> j = FirstToTouch(chain_, i, sum);
    if (!j.has_value()) return;
    const ChainKernel& norm = chain_[*j];
    if (norm.spec.op != "layer_norm" && norm.spec.op != "rms_norm") return;
    const Operands others(norm.inputs.begin() + 1, norm.inputs.end());
    if (norm.inputs[0] != sum || OverlapsAny(sum, others) || OverlapsAny(sum, norm.outputs) ||
        CrossesAny(sum, addends)) {
      return;
    }
    for (const ChainOperand& output : norm.outputs) {
      if (OverlapsAny(output, addends)) return;
    }
    const bool later = CanMove(chain_, i, *j, addends, {sum});
    if (!later && !CanMove(chain_, i, *j, others, norm.outputs)) return;
    Operands inputs = norm.inputs, outputs = norm.outputs;
    inputs[0] = addends[0];
    inputs.push_back(addends[1]);
    outputs.push_back(sum);
    Put(later ? *j : i, {i, *j}, MakeNormOfSum(norm.spec), std::move(inputs), std::move(outputs));
  }

  // Where a matmul makes silu(x), the product before silu stays a kernel of its own, since the
  // other factor often comes after it.
  void JoinSiluProduct(size_t i) {
    const ChainKernel& silu = chain_[i];
    const bool is_matmul = IsSiluMatmul(silu);
    if (silu.spec.op != "silu" && !is_matmul) return;
    const ChainOperand y = silu.outputs[0];
    if (y.bytes == 0) return;
    const std::optional<size_t> j = FirstToTouch(chain_, i, y);
    if (!j.has_value() || !IsPlainBinary(chain_[*j], "mul")) return;
    const ChainKernel& mul = chain_[*j];
    const size_t place = mul.inputs[0] == y ? 0 : 1;
    const ChainOperand factor = mul.inputs[1 - place], h = mul.outputs[0];
    if (mul.inputs[place] != y || factor.Overlaps(y)) return;
    const bool keeps_x = is_matmul && IsPresent(silu.outputs, 1);
    const ChainOperand x = keeps_x ? silu.outputs[1] : is_matmul ? y : silu.inputs[0];
    const bool wants_y = !IsScratch(y) || !IsDeadAfter(chain_, *j, y);
    if (CrossesAny(h, {x, factor}) || CrossesAny(y, {x}) || (wants_y && h.Overlaps(y))) return;
    if (!CanMove(chain_, i, *j, {x}, {y})) return;
    Operands outputs = {h};
    if (wants_y) outputs.push_back(y);
    std::unique_ptr<Kernel> product = MakeSiluProduct(mul.spec);
    if (!is_matmul) {
      Put(*j, {i, *j}, std::move(product), {x, factor}, std::move(outputs));
      return;
    }
    Put(*j, {*j}, std::move(product), {x, factor}, std::move(outputs));
    Put(i, {i}, MakeMatmulBeforeActivation(silu.spec), silu.inputs, {x});
  }

  // Returns the accumulate that alone reads the f32 result of kernel i, if kernel i can add to its
  // sum.
  std::optional<size_t> AccumulateOf(size_t i) const {
    const ChainKernel& grad = chain_[i];
    if (grad.spec.outputs[0]->dtype != DType::kF32) return std::nullopt;
    const std::optional<size_t> j = OnlyReader(i, grad.outputs[0]);
    if (!j.has_value() || chain_[*j].spec.op != "accumulate") return std::nullopt;
    const ChainOperand sum = chain_[*j].outputs[0];
    if (OverlapsAny(sum, grad.inputs) || !CanMove(chain_, i, *j, {}, {sum})) return std::nullopt;
    return j;
  }

  // Returns the reduce_sum of dy, input 1 of kernel i, if kernel i can do its work.
  std::optional<size_t> BiasGradOf(size_t i) const {
    const ChainKernel& grad = chain_[i];
    for (size_t j = i + 1; j < chain_.size(); ++j) {
      if (chain_[j].Writes(grad.inputs[1])) return std::nullopt;
      if (!SumsRows(chain_[j]) || chain_[j].inputs[0] != grad.inputs[1]) continue;
      const ChainOperand& sums = chain_[j].outputs[0];
      const bool apart = !OverlapsAny(sums, grad.inputs) && !OverlapsAny(sums, grad.outputs);
      return apart && CanMove(chain_, i, j, {}, {sums}) ? std::optional<size_t>(j) : std::nullopt;
    }
    return std::nullopt;
  }

  void JoinGradWeight(size_t i) {
    const ChainKernel& grad = chain_[i];
    if (grad.spec.op != "matmul_grad_w" || grad.inputs[0].bytes == 0 || grad.outputs[0].bytes == 0)
      return;
    const size_t none = chain_.size();
    const size_t sum = Has("accumulate") ? AccumulateOf(i).value_or(none) : none;
    const size_t bias = Has("bias-gradient") ? BiasGradOf(i).value_or(none) : none;
    if (sum == none && bias == none) return;
    std::vector<size_t> from = {i};
    const Operands inputs = grad.inputs;
    Operands outputs = grad.outputs;
    if (sum != none) {
      from.push_back(sum);
      outputs[0] = chain_[sum].outputs[0];
    }
    if (bias != none) {
      from.push_back(bias);
      outputs.push_back(chain_[bias].outputs[0]);
    }
    Put(i, from,
        MakeMatmulGradWeightWith(grad.spec, sum != none,
                                 bias != none ? &chain_[bias].spec : nullptr),
        inputs, std::move(outputs));
  }

  void JoinEmbeddingGrad(size_t i) {
    if (chain_[i].spec.op != "embedding_grad") return;
    const std::optional<size_t> sum = AccumulateOf(i);
    if (!sum.has_value()) return;
    Put(i, {i, *sum}, MakeEmbeddingGradInto(chain_[i].spec), chain_[i].inputs,
        {chain_[*sum].outputs[0]});
  }

  // A chain of nothing but sum_squares and additions that add up their results in order.
  void JoinSquareSums() {
    // A Value lies in scratch: the sum of the first `count` results, or result `first` alone.
    struct Value {
      ChainOperand place;
      size_t first, count;
    };
    std::vector<Value> values;
    const auto value_at = [&](const ChainOperand& place) -> const Value* {
      const auto found = std::find_if(values.rbegin(), values.rend(), [&](const Value& value) {
        return value.place.Overlaps(place);
      });
      return found != values.rend() && found->place == place ? &*found : nullptr;
    };
    std::vector<size_t> from;
    std::vector<const KernelSpec*> specs;
    Operands inputs;
    for (size_t i = 0; i < chain_.size(); ++i) {
      const ChainKernel& kernel = chain_[i];
      const bool is_last = i + 1 == chain_.size();
      if (kernel.outputs.size() != 1 || (!is_last && !IsScratch(kernel.outputs[0]))) return;
      from.push_back(i);
      if (kernel.spec.op == "sum_squares") {
        if (std::any_of(kernel.inputs.begin(), kernel.inputs.end(), IsScratch)) return;
        values.push_back({kernel.outputs[0], specs.size(), 1});
        specs.push_back(&kernel.spec);
        inputs.insert(inputs.end(), kernel.inputs.begin(), kernel.inputs.end());
        continue;
      }
      if (kernel.spec.op != "add") return;
      const Value* a = value_at(kernel.inputs[0]);
      const Value* b = value_at(kernel.inputs[1]);
      if (a == nullptr || b == nullptr) return;
      if (a->first > b->first) std::swap(a, b);
      if (a->first != 0 || b->count != 1 || b->first != a->count) return;
      values.push_back({kernel.outputs[0], 0, a->count + 1});
    }
    const bool adds_all = !values.empty() && values.back().first == 0 &&
                          values.back().count == specs.size() && specs.size() > 1;
    if (!adds_all || specs.size() > kSumsMax || OverlapsAny(chain_.back().outputs[0], inputs))
      return;
    Put(0, from, MakeSumOfSquareSums(specs), inputs, {values.back().place});
  }

  // The rule of an op whose calls one launch can do.
  struct Many {
    const char* op;
    std::unique_ptr<Kernel> (*make)(absl::Span<const KernelSpec* const> specs);
    bool has_scale;  // input 1 is one for all
    bool in_span;    // the outputs lie in one port, for its span to count acts
  };

  bool GoTogether(const Many& many, const ChainKernel& a, const ChainKernel& b) const {
    const KernelSpec &first = a.spec, &second = b.spec;
    if (second.op != many.op) return false;
    if (many.has_scale) return a.inputs[1] == b.inputs[1];
    if (!IsReal(first.inputs[0]->dtype) || !IsReal(first.outputs[0]->dtype) ||
        first.inputs[0]->dtype != second.inputs[0]->dtype ||
        first.outputs[0]->dtype != second.outputs[0]->dtype) {
      return false;
    }
    return !many.in_span ||
           (a.outputs[0].space == b.outputs[0].space && a.outputs[0].index == b.outputs[0].index);
  }

  // Kernel b shares no bytes that it or kernel a writes with kernel a.
  static bool AreApart(const ChainKernel& a, const ChainKernel& b) {
    return std::none_of(b.outputs.begin(), b.outputs.end(),
                        [&](const ChainOperand& output) { return a.Touches(output); }) &&
           std::none_of(b.inputs.begin(), b.inputs.end(),
                        [&](const ChainOperand& input) { return a.Writes(input); });
  }

  void JoinMany() {
    const Many kManies[] = {{"adamw", &MakeAdamWOfMany, true, false},
                            {"sgd", &MakeSgdOfMany, true, false},
                            {"cast", &MakeCastOfMany, false, false},
                            {"accumulate", &MakeAccumulateOfMany, false, true}};
    for (size_t i = 0; i < chain_.size(); ++i) {
      for (const Many& many : kManies) {
        if (chain_[i].spec.op != many.op) continue;
        size_t end = i + 1;
        while (
            end < chain_.size() && end - i < kManyMax && GoTogether(many, chain_[i], chain_[end]) &&
            std::all_of(chain_.begin() + i, chain_.begin() + end,
                        [&](const ChainKernel& kernel) { return AreApart(kernel, chain_[end]); })) {
          ++end;
        }
        if (end - i > 1) PutMany(many, i, end);
        i = end - 1;
        break;
      }
    }
  }

  void PutMany(const Many& many, size_t begin, size_t end) {
    std::vector<const KernelSpec*> specs;
    std::vector<size_t> from;
    Operands inputs, outputs;
    for (size_t i = begin; i < end; ++i) {
      from.push_back(i);
      specs.push_back(&chain_[i].spec);
      inputs.push_back(chain_[i].inputs[0]);
      for (const ChainOperand& output : chain_[i].outputs) {
        if (output.space != Space::kNone) outputs.push_back(output);
      }
    }
    if (many.has_scale) inputs.push_back(chain_[begin].inputs[1]);
    Put(begin, from, many.make(specs), std::move(inputs), std::move(outputs));
  }

  KernelChain& chain_;
  const std::vector<std::string> unjoined_;
};

absl::Status Join(KernelChain* chain) {
  const char* const named = std::getenv(kVariable);
  const std::vector<std::string> unjoined =
      absl::StrSplit(named == nullptr ? "" : named, ',', absl::SkipEmpty());
  for (const std::string& rule : unjoined) {
    if (rule == "all") return absl::OkStatus();
    if (std::find(std::begin(kRules), std::end(kRules), rule) == std::end(kRules)) {
      return absl::InvalidArgumentError(
          absl::StrCat(kVariable, " names \"", rule, "\", which is no rule by which kernels are ",
                       "joined. Expected \"all\", or some of ", absl::StrJoin(kRules, ","), "."));
    }
  }
  Joiner(chain, unjoined).Join();
  return absl::OkStatus();
}

WEIR_REGISTER_CHAIN_JOINER(WEIR_CUDA_KIND, &Join);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
