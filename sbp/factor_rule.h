// Factor rules: an op states once how the dimensions of its operands map to
// factors, einsum-like, and everything about its layouts follows.
//
//   matmul    x[m, k], w[k, n] -> y[m, n]        factors m, n, k
//
// A tensor dimension is a list of factors, major to minor (reshape joins and
// parts them); only the major factor of a dimension can be split by a mesh axis. Splitting
// factor f over a mesh axis gives
//   input  with f as the major factor of dimension d   S(d)
//   input  without f                                   B; P(sum) if `additive` and f is summed away
//   output with f as the major factor of dimension d   S(d)
//   output without f                                   P(combiner of f)
// A factor is never split that has `whole`, stands as a minor factor somewhere, stands
// in two dimensions of one operand, or stands nowhere; nor one that an `additive` input
// and some output lack, unless it is summed away from every output. A size below
// the number of parts is no reason: shards may be empty.
// Besides: all B; and for each linear group, P(sum) in gives P(sum) out.
//
// Units. A signature says plain S(d), so every operand cuts its own dimension into
// balanced units. The cuts mean the same factor range everywhere only if all dimensions
// with that major factor have the same number of units, and each unit is a whole number
// of factor units times the product of the minor factors: with q heads [g=4, r=8],
// heads=32 needs unit 8 so that it has 4 units as g has. UnitsAgree() says whether this holds;
// signatures of factors where it does not are not to be used.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sbp/layout.h"

namespace weir {

struct Factor {
  std::string name;  // logical name, for the rules of a job ("heads")
  int64_t size = 0;
  int64_t unit = 1;
  bool whole = false;                  // the op needs all of it at once
  Combiner combiner = Combiner::kSum;  // how outputs without it are merged
};

struct OperandRule {
  // dims[d] = indices into FactorRule::factors, major to minor; may be empty (size 1).
  std::vector<std::vector<int>> dims;
  // An input that is added to the result once (a bias): where a factor is summed away
  // it must be P(sum), not B.
  bool additive = false;
};

// If all `inputs` are P(sum) and the other inputs B, then all `outputs` are P(sum) and the
// other outputs, which must not depend on `inputs`, are B.
struct LinearGroup {
  std::vector<int> inputs;
  std::vector<int> outputs;
};

struct FactorRule {
  std::vector<Factor> factors;
  std::vector<OperandRule> inputs;
  std::vector<OperandRule> outputs;
  std::vector<LinearGroup> linear;
};

// A legal layout of all operands over ONE mesh axis.
struct AxisSignature {
  std::vector<Sbp> inputs;
  std::vector<Sbp> outputs;
  int factor = -1;             // the factor split, or -1
  int linear = -1;             // the linear group used, or -1
  std::string ToText() const;  // "S(0), B -> S(0)"
  friend bool operator==(const AxisSignature&, const AxisSignature&) = default;
};

// All legal signatures, in this order: all B, each splittable factor, each linear group.
std::vector<AxisSignature> LegalSignatures(const FactorRule& rule);

// Whether LegalSignatures() splits this factor.
bool IsSplittable(const FactorRule& rule, int factor);

// The unit a tensor dimension with these factors (major to minor) needs: the unit of the
// major factor times the product of the sizes of the minor ones; 1 without factors.
int64_t DimUnit(const FactorRule& rule, const std::vector<int>& dim_factors);

// Whether splitting `factor` cuts all operands alike (see above). True if no operand has it
// as a major factor. Operands must have the ranks of the rule.
bool UnitsAgree(const FactorRule& rule, int factor, const std::vector<TensorType>& inputs,
                const std::vector<TensorType>& outputs);

// kInvalidArgument names the operand and dimension if operands do not fit the rule: their
// number, ranks, sizes, or, for a splittable factor, units that do not agree.
absl::Status CheckUnits(const FactorRule& rule, const std::vector<TensorType>& inputs,
                        const std::vector<TensorType>& outputs);

// One signature per mesh axis, joined to one layout per operand.
struct Signature {
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
};
// Without mesh axes there are no operands to be seen: both lists are then empty.
Signature Join(const std::vector<AxisSignature>& per_mesh_axis);

}  // namespace weir
