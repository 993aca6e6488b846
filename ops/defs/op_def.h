// An OpDef says what an op means, apart from how the op computes: schema, shapes, factor rule,
// gradient, cost. A file defines one op (with its gradient ops); ops/defs/relu.cc is the simplest.
// Definitions are registered before main and frozen after.
//
// From the definitions the compiler derives everything else: legal layouts, boxing, backward graph.
// Kernels stand in ops/kernels and share only names and attributes.
// Thread rule: the registry is read-only after main starts; all functions are pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/attributes.h"
#include "runtime/base/transfer/transfer.h"
#include "sbp/factor_rule.h"
#include "sbp/layout.h"

namespace weir::ops {

enum class AttrKind : uint8_t { kInt, kReal, kBool, kString, kInts };
const char* Name(AttrKind kind);  // "int", "real", …

struct AttrSchema {
  std::string name;
  AttrKind kind = AttrKind::kInt;
  std::optional<AttrValue> fallback;  // none: required
  std::string doc;
  // True for a text that gives the dimensions of output 0, as ParseDims (type_text.h) reads it.
  bool lists_dims = false;
};

// An IndexedAxis names the dimension along which the values of an integer operand count: each value
// is from 0 to below the size of the dimension.
struct IndexedAxis {
  // Stands for the axis that the attribute `axis` of the op gives.
  static constexpr int kAttribute = INT32_MIN;

  enum class Side : uint8_t { kInput, kOutput } side = Side::kInput;
  int operand = 0;
  int axis = 0;  // negative: from the end
};

struct OperandSchema {
  std::string name;
  bool optional = false;  // may be absent; only trailing ones
  bool variadic = false;  // one or more; only the last
  std::string doc;
  // Set: the op reads the input, of type i32, as indices, or writes only indices to the output, of
  // type i32.
  std::optional<IndexedAxis> index;
  // The attribute (kInts) with the values that are no index and that the op ignores. Empty: none.
  std::string ignored_by = {};
};

struct OpSchema {
  std::string name;
  std::string doc;  // one sentence, shown by `weir ops NAME`
  std::vector<OperandSchema> inputs;
  std::vector<OperandSchema> outputs;
  std::vector<AttrSchema> attrs;
  // True for gradient ops and optimiser ops, which appear only in compiled graphs and not in a
  // user's graph.
  bool internal = false;
  // The mapping of dimensions to factors, in the notation of ops/defs/rule_builder.h; shown by
  // `weir ops NAME`.
  std::string factors;
  // True if every element of an output is an element of an input, for outputs and inputs of one
  // type. The range of integers then passes through the op.
  bool moves_elements = false;
};

// Returns the dimension of the op's types along which the operand that `index` belongs to counts.
// Precondition: the op infers from these types without error.
sbp::TensorDim IndexedDim(const IndexedAxis& index, const Attributes& attrs,
                          const std::vector<sbp::TensorType>& inputs,
                          const std::vector<sbp::TensorType>& outputs);

// An InferInput is the input of inference. Input types are logical (whole micro-batch tensors).
struct InferInput {
  const Attributes& attrs;
  const std::vector<sbp::TensorType>& inputs;
  // The graph's dimension table, for ops whose attributes name dimensions (reshape).
  const std::map<std::string, sbp::TensorDim>& dims;
  const Transfer* transfer = nullptr;  // of an op of transfers, which appear in plans only
};

// A ValueId is a value in the graph under construction, opaque to ops; -1 = none.
using ValueId = int;

// A gradient function uses a GradientBuilder to read the forward node and to add nodes.
class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;
  virtual const Attributes& attrs() const = 0;
  virtual int num_inputs() const = 0;
  // Returns a forward operand, or -1 if the operand is absent. A call may stash the operand, so
  // call only for operands that are passed to Add.
  virtual ValueId input(int i) const = 0;
  virtual ValueId output(int i) const = 0;
  // Return the types of the operands, for which nothing need be stashed: builders that stash
  // override these functions.
  virtual const sbp::TensorType& input_type(int i) const { return type(input(i)); }
  virtual const sbp::TensorType& output_type(int i) const { return type(output(i)); }
  virtual ValueId output_grad(int i) const = 0;  // -1: no gradient flows to this output
  // False: do not compute the gradient, or no such input exists.
  virtual bool needs_grad(int input) const = 0;
  virtual const sbp::TensorType& type(ValueId value) const = 0;
  virtual uint64_t rng_key() const = 0;  // of the forward op
  // Adds a node and returns its results in order. The node inherits `rng_key` from the forward op.
  virtual std::vector<ValueId> Add(const std::string& op, const std::vector<ValueId>& inputs,
                                   Attributes attrs) = 0;
  // Sets the gradient of forward input i. Called at most once per input.
  virtual void SetInputGrad(int i, ValueId grad) = 0;
};

struct OpDef {
  OpSchema schema;
  // Returns the output types. Errors say what was expected of which operand; the caller adds the
  // place.
  std::function<absl::StatusOr<std::vector<sbp::TensorType>>(const InferInput&)> infer;
  // Returns the factor rule for inferred types. Factor names come from dimension names.
  std::function<sbp::FactorRule(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                                const std::vector<sbp::TensorType>& outputs)>
      rule;
  // Absent: the op has no gradient (integer inputs, optimiser ops). The gradient set for a real
  // input has the input's dimensions; it may be f32 where the input is bf16 (gradients of
  // parameters).
  std::function<absl::Status(GradientBuilder&)> gradient;
  // Returns the floating-point operations of the whole op; elementwise ops count one per element.
  std::function<double(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                       const std::vector<sbp::TensorType>& outputs)>
      flops;
};

class OpRegistry {
 public:
  // Ends the program on a duplicate, which is a bug of Weir itself. Registration wraps `infer` with
  // checks of operand counts and of overflow in any input or output type, so definitions need not
  // check them.
  static void Register(OpDef def);
  // nullptr: unknown.
  static const OpDef* Find(const std::string& name);
  static std::vector<std::string> Names();
  // Returns the op that a graph names. W0301, with the nearest name, if there is no such op or it
  // is internal.
  static absl::StatusOr<const OpDef*> FindForUser(const std::string& name,
                                                  const std::string& where);
};

// Checks attributes and operand counts against the schema and fills in defaults. Errors name the
// nearest attribute. `where` prefixes the message.
absl::Status CheckSchema(const OpSchema& schema, int num_inputs, int num_outputs, Attributes* attrs,
                         const std::string& where);

// Use as WEIR_REGISTER_OP(MatmulDef()); once per op, at namespace scope of its .cc file.
#define WEIR_REGISTER_OP(def) WEIR_REGISTER_OP_INNER(__COUNTER__, def)
#define WEIR_REGISTER_OP_INNER(n, def) WEIR_REGISTER_OP_INNER2(n, def)
#define WEIR_REGISTER_OP_INNER2(n, def)                    \
  [[maybe_unused]] static const bool weir_registered_##n = \
      (::weir::ops::OpRegistry::Register(def), true)

}  // namespace weir::ops
