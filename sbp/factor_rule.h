// A factor rule states once how the dimensions of an op's operands map to factors, as an einsum
// does. Everything about the op's layouts follows from its factor rule.
//
//   matmul    x[m, k], w[k, n] -> y[m, n]        factors m, n, k
//
// A tensor dimension is a list of factors, major to minor (reshape joins and parts dimensions).
// Only the major factor of a dimension can be split by a mesh axis. Splitting factor f over a mesh
// axis gives
//   input  with f as the major factor of dimension d   S(d)
//   input  without f                                   B; P(sum) if `additive` and f is summed away
//   output with f as the major factor of dimension d   S(d)
//   output without f                                   P(combiner of f)
// A factor is never split if it has `whole`, stands as a minor factor somewhere, stands in two
// dimensions of one operand, or stands nowhere. A factor that an `additive` input and some output
// lack is not split either, unless it is summed away from every output. A size below the number of
// parts does not prevent a split: shards may be empty. Two more signatures are legal: all B; and
// for each linear group, P(sum) in gives P(sum) out.
//
// Units: a signature says plain S(d), so every operand cuts its own dimension into balanced units.
// The cuts mean the same factor range everywhere only if all dimensions with that major factor have
// the same number of units, and each unit is a whole number of factor units times the product of
// the minor factors. For example, with q heads [g=4, r=8], heads=32 needs unit 8 so that heads has
// 4 units as g has. UnitsAgree() says whether the cuts agree; a signature must not be used if its
// factor's cuts do not.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sbp/layout.h"

namespace weir::sbp {

struct Factor {
  std::string name;  // logical name, for the rules of a job ("heads")
  int64_t size = 0;
  int64_t unit = 1;
  bool whole = false;                  // the op needs all of the factor at once
  Combiner combiner = Combiner::kSum;  // how outputs without the factor are merged
};

struct OperandRule {
  // dims[d] holds indices into FactorRule::factors, major to minor; may be empty (size 1).
  std::vector<std::vector<int>> dims;
  // True for an input that is added to the result once (a bias). Where a factor is summed away,
  // such an input must be P(sum), not B.
  bool additive = false;
};

// A LinearGroup states: if all `inputs` are P(sum) and the other inputs B, then all `outputs` are
// P(sum) and the other outputs, which must not depend on `inputs`, are B.
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

// An AxisSignature is a legal layout of all operands over ONE mesh axis.
struct AxisSignature {
  std::vector<Sbp> inputs;
  std::vector<Sbp> outputs;
  int factor = -1;             // the factor split, or -1
  int linear = -1;             // the linear group used, or -1
  std::string ToText() const;  // "S(0), B -> S(0)"
  friend bool operator==(const AxisSignature&, const AxisSignature&) = default;
};

// Returns all legal signatures, in this order: all B, each splittable factor, each linear group.
std::vector<AxisSignature> LegalSignatures(const FactorRule& rule);

// Returns whether LegalSignatures() splits this factor.
bool IsSplittable(const FactorRule& rule, int factor);

// Returns the unit that a tensor dimension with these factors (major to minor) needs: the unit of
// the major factor times the product of the sizes of the minor factors; 1 without factors.
int64_t DimUnit(const FactorRule& rule, const std::vector<int>& dim_factors);

// Returns whether splitting `factor` cuts all operands alike (see above). The result is true if no
// operand has `factor` as a major factor. Operands must have the ranks of the rule.
bool UnitsAgree(const FactorRule& rule, int factor, const std::vector<TensorType>& inputs,
                const std::vector<TensorType>& outputs);

// kInvalidArgument names the operand and dimension if the operands do not fit the rule: their
// number, ranks or sizes, or, for a splittable factor, units that do not agree.
absl::Status CheckUnits(const FactorRule& rule, const std::vector<TensorType>& inputs,
                        const std::vector<TensorType>& outputs);

// A Signature is one AxisSignature per mesh axis, joined to one layout per operand.
struct Signature {
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
};
// Without mesh axes the number of operands is unknown, and both lists are empty.
Signature Join(const std::vector<AxisSignature>& per_mesh_axis);

}  // namespace weir::sbp
