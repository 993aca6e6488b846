// What an op means, apart from how it computes: schema, shapes, factor rule,
// gradient, cost. One op (with its gradient ops) per file; see ops/defs/relu.cc for
// the simplest. Registered before main, frozen after.
//
// From these the compiler derives everything else: legal layouts, boxing, backward
// graph. Kernels stand in ops/kernels and share only names and attributes.
// Thread rule: the registry is read-only after main starts; all functions are pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/attributes.h"
#include "sbp/factor_rule.h"
#include "sbp/layout.h"

namespace weir {

enum class AttrKind : uint8_t { kInt, kReal, kBool, kString, kInts };
const char* Name(AttrKind kind);  // "int", "real", …

struct AttrSchema {
  std::string name;
  AttrKind kind = AttrKind::kInt;
  std::optional<AttrValue> fallback;  // none: required
  std::string doc;
};

// The dimension along which the values of an integer operand count: each is from 0 to below its
// size.
struct IndexedAxis {
  enum class Side : uint8_t { kInput, kOutput } side = Side::kInput;
  int operand = 0;
  int axis = 0;  // negative: from the end
};

struct OperandSchema {
  std::string name;
  bool optional = false;  // may be absent; only trailing ones
  bool variadic = false;  // one or more; only the last
  std::string doc;
  std::optional<IndexedAxis> index;  // set: the op reads the operand, of type i32, as indices
};

struct OpSchema {
  std::string name;
  std::string doc;  // one sentence, shown by `weir ops NAME`
  std::vector<OperandSchema> inputs;
  std::vector<OperandSchema> outputs;
  std::vector<AttrSchema> attrs;
  // Not for users: appears only in compiled graphs (gradient ops, optimiser ops).
  bool internal = false;
  // How dimensions map to factors, in words of ops/defs/rule_builder.h; shown by `weir ops NAME`.
  std::string factors;
  // Every element of an output is an element of an input, if both are of one type: the range of
  // integers passes through.
  bool moves_elements = false;
};

// What the operand that `index` belongs to counts along, of the op's types. Precondition: types
// that the op infers.
TensorDim IndexedDim(const IndexedAxis& index, const std::vector<TensorType>& inputs,
                     const std::vector<TensorType>& outputs);

// What inference sees. Input types are logical (whole micro-batch tensors).
struct InferInput {
  const Attributes& attrs;
  const std::vector<TensorType>& inputs;
  // The graph's dimension table, for ops whose attributes name dimensions (reshape).
  const std::map<std::string, TensorDim>& dims;
};

// A value in the graph under construction. Opaque to ops; -1 = none.
using ValueId = int;

// What a gradient function may do: read the forward node, add nodes.
class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;
  virtual const Attributes& attrs() const = 0;
  virtual int num_inputs() const = 0;
  // Forward operands; -1 if absent. Asking for one may stash it: ask only for what Add is given.
  virtual ValueId input(int i) const = 0;
  virtual ValueId output(int i) const = 0;
  // Their types, for which nothing need be stashed: builders that stash override these.
  virtual const TensorType& input_type(int i) const { return type(input(i)); }
  virtual const TensorType& output_type(int i) const { return type(output(i)); }
  virtual ValueId output_grad(int i) const = 0;  // -1: no gradient flows to this output
  virtual bool needs_grad(int input) const = 0;  // false: do not compute it; or no such input
  virtual const TensorType& type(ValueId value) const = 0;
  virtual uint64_t rng_key() const = 0;  // of the forward op
  // Adds a node; the results in order. `rng_key` is inherited from the forward op.
  virtual std::vector<ValueId> Add(const std::string& op, const std::vector<ValueId>& inputs,
                                   Attributes attrs) = 0;
  // The gradient of forward input i. Called at most once per input.
  virtual void SetInputGrad(int i, ValueId grad) = 0;
};

struct OpDef {
  OpSchema schema;
  // Output types. Errors say what was expected of which operand; the caller adds where.
  std::function<absl::StatusOr<std::vector<TensorType>>(const InferInput&)> infer;
  // Given inferred types. Factor names come from dimension names.
  std::function<FactorRule(const Attributes&, const std::vector<TensorType>& inputs,
                           const std::vector<TensorType>& outputs)>
      rule;
  // Absent: no gradient (integer inputs, optimiser ops). The gradient set for a real input
  // has its dimensions; it may be f32 where the input is bf16 (gradients of parameters).
  std::function<absl::Status(GradientBuilder&)> gradient;
  // Floating-point operations of the whole op; elementwise ops count one per element.
  std::function<double(const Attributes&, const std::vector<TensorType>& inputs,
                       const std::vector<TensorType>& outputs)>
      flops;
};

class OpRegistry {
 public:
  // Fatal on a duplicate: that is our own bug. Guards `infer`: operand counts and overflow of
  // any type in or out are checked around it, so definitions need not.
  static void Register(OpDef def);
  // nullptr: unknown.
  static const OpDef* Find(const std::string& name);
  static std::vector<std::string> Names();
  // The op a graph asks for: W0301 with the nearest name if there is none or it is internal.
  static absl::StatusOr<const OpDef*> FindForUser(const std::string& name,
                                                  const std::string& where);
};

// Checks attributes and operand counts against the schema and fills in defaults.
// Errors name the nearest attribute. `where` prefixes the message.
absl::Status CheckSchema(const OpSchema& schema, int num_inputs, int num_outputs, Attributes* attrs,
                         const std::string& where);

// WEIR_REGISTER_OP(MatmulDef()); once per op, at namespace scope of its .cc file.
#define WEIR_REGISTER_OP(def) WEIR_REGISTER_OP_INNER(__COUNTER__, def)
#define WEIR_REGISTER_OP_INNER(n, def) WEIR_REGISTER_OP_INNER2(n, def)
#define WEIR_REGISTER_OP_INNER2(n, def) \
  [[maybe_unused]] static const bool weir_registered_##n = (::weir::OpRegistry::Register(def), true)

}  // namespace weir
