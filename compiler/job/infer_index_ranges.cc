#include "compiler/job/infer_index_ranges.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kValues = int64_t{1} << 31;  // of i32 from 0 on

// Adds a reader. Among equal ranges the later call of this function wins. All walks here go
// backward, so a message names the first reader of the graph. A value is ignored if every reader
// ignores the value.
void Narrow(const IndexRange& by, std::optional<IndexRange>* range) {
  const bool rows = by.of_rows || (range->has_value() && (*range)->of_rows);
  std::optional<int64_t> ignored = by.ignored;
  if (range->has_value() && (*range)->ignored != ignored) ignored.reset();
  if (!range->has_value() || by.below <= (*range)->below) *range = by;
  (*range)->of_rows = rows;
  (*range)->ignored = ignored;
}

// Replaces the readers' range by a declared range. `where` is the place of the declaration.
absl::Status Declare(const IndexRange& declared, const std::string& where,
                     std::optional<IndexRange>* range) {
  if (range->has_value() && declared.below > (*range)->below) {
    return Rejected({"W0902", where,
                     absl::StrCat("values below ", (*range)->below, ", ", (*range)->reader),
                     absl::StrCat("a declared range of values below ", declared.below),
                     absl::StrCat("i32<", (*range)->below, ">, or no declared range")});
  }
  const bool rows = range->has_value() && (*range)->of_rows;
  const std::optional<int64_t> ignored = range->has_value() ? (*range)->ignored : std::nullopt;
  if (!range->has_value() || declared.below < (*range)->below) *range = declared;
  (*range)->of_rows = rows;
  (*range)->ignored = ignored;
  return absl::OkStatus();
}

// The known ranges of one value of a function.
struct ValueUse {
  std::optional<IndexRange> range;
  bool needed = false;
};

class FunctionUses {
 public:
  explicit FunctionUses(const Function& function)
      : function_(function), uses_(function.values.size()) {}

  ValueUse& operator[](ops::ValueId value) { return uses_[static_cast<size_t>(value)]; }

  // Walks from the results of the function, which are filled in, to its arguments.
  absl::Status Walk() {
    for (auto node = function_.nodes.rbegin(); node != function_.nodes.rend(); ++node)
      WEIR_RETURN_IF_ERROR(Read(*node));
    for (const Arg& arg : function_.args) {
      if (!arg.declared.has_value()) continue;
      const Value& value = function_.values[arg.value];
      WEIR_RETURN_IF_ERROR(
          Declare(*arg.declared, absl::StrCat("function ", function_.name, ", input ", value.name),
                  &(*this)[arg.value].range));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Read(const Node& node) {
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    if (def == nullptr)
      return absl::InternalError(absl::StrCat("no op \"", node.op, "\" at ", node.where));
    const bool needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [this](ops::ValueId out) { return (*this)[out].needed; });
    for (ops::ValueId input : node.inputs) {
      if (needed && input >= 0) (*this)[input].needed = true;
    }
    WEIR_RETURN_IF_ERROR(PassThrough(node, *def));
    ReadIndices(node, def->schema);
    return absl::OkStatus();
  }

  // Checks the range of an output to which the op writes only indices.
  absl::Status CheckWritten(const Node& node, const ops::IndexedAxis& index, ops::ValueId output,
                            const IndexRange& range) const {
    const sbp::TensorDim dim =
        ops::IndexedDim(index, node.attrs, TypesOf(node.inputs), TypesOf(node.outputs));
    if (dim.size <= range.below) return absl::OkStatus();
    return Rejected({"W0316", node.where,
                     absl::StrCat("\"", function_.values[output].name, "\" below ", range.below,
                                  ", since it is ", range.reader),
                     absl::StrCat(node.op, " along dimension ", dim.name, " of size ", dim.size),
                     absl::StrCat("a slice of the first ", range.below, " of ", dim.name,
                                  ", or a larger dimension for the reader")});
  }

  static bool IsIndex(const ops::OpSchema& schema, size_t input) {
    return input < schema.inputs.size() && schema.inputs[input].index.has_value();
  }

  absl::Status PassThrough(const Node& node, const ops::OpDef& def) {
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ops::ValueId output = node.outputs[o];
      if (output < 0) continue;
      const std::optional<IndexRange> range = (*this)[output].range;
      if (!range.has_value()) continue;
      const auto& schemas = def.schema.outputs;
      if (o < schemas.size() && schemas[o].index.has_value()) {
        WEIR_RETURN_IF_ERROR(CheckWritten(node, *schemas[o].index, output, *range));
        continue;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ops::ValueId input = node.inputs[i];
        // The op looks its elements up by an operand of indices, whose own values do not pass.
        if (input < 0 || IsIndex(def.schema, i)) continue;
        if (!def.schema.moves_elements || function_.values[input].type.dtype != DType::kI32) {
          return Rejected({"W0903", node.where,
                           absl::StrCat("\"", function_.values[output].name,
                                        "\" to come from an input of main as it is, since it is ",
                                        range->reader),
                           absl::StrCat("what ", node.op, " computes from ",
                                        ToText(function_.values[input].type)),
                           "feed the index to main as an input of type i32"});
        }
        Narrow(*range, &(*this)[input].range);
      }
    }
    return absl::OkStatus();
  }

  void ReadIndices(const Node& node, const ops::OpSchema& schema) {
    for (size_t i = 0; i < node.inputs.size() && i < schema.inputs.size(); ++i) {
      const std::optional<ops::IndexedAxis>& index = schema.inputs[i].index;
      if (!index.has_value() || node.inputs[i] < 0) continue;
      const bool of_input = index->side == ops::IndexedAxis::Side::kInput;
      const sbp::TensorDim dim =
          ops::IndexedDim(*index, node.attrs, TypesOf(node.inputs), TypesOf(node.outputs));
      const ops::ValueId indexed = (of_input ? node.inputs : node.outputs)[index->operand];
      IndexRange range;
      range.below = std::min(dim.size, kValues);
      range.of_rows = of_input && index->axis == 0;
      if (!schema.inputs[i].ignored_by.empty()) {
        const std::vector<int64_t> ignored = node.attrs.Ints(schema.inputs[i].ignored_by);
        if (!ignored.empty()) range.ignored = ignored[0];
      }
      range.reader =
          absl::StrCat("an index along dimension ", dim.name, " of \"",
                       function_.values[indexed].name, "\" (", node.where, ", ", node.op, ")");
      Narrow(range, &(*this)[node.inputs[i]].range);
    }
  }

  std::vector<sbp::TensorType> TypesOf(const std::vector<ops::ValueId>& values) const {
    std::vector<sbp::TensorType> types;
    for (ops::ValueId value : values)
      types.push_back(value < 0 ? sbp::TensorType{} : function_.values[value].type);
    return types;
  }

  const Function& function_;
  std::vector<ValueUse> uses_;
};

class ModelUses {
 public:
  ModelUses(const std::string& main, Module* module)
      : main_(main), module_(*module), model_(module->model), uses_(module->model.values.size()) {}

  absl::Status Walk() {
    for (auto call = model_.calls.rbegin(); call != model_.calls.rend(); ++call)
      WEIR_RETURN_IF_ERROR(WalkCall(*call));
    for (size_t v = 0; v < uses_.size(); ++v) {
      ModelValue& value = model_.values[v];
      if (value.call >= 0) continue;
      if (value.use.range.has_value()) {
        const IndexRange declared = *value.use.range;
        WEIR_RETURN_IF_ERROR(Declare(
            declared, absl::StrCat("function ", main_, ", input ", value.name), &uses_[v].range));
      }
      value.use = {uses_[v].range, uses_[v].needed};
    }
    return absl::OkStatus();
  }

 private:
  // Calls of one function with equal keys have one answer.
  using Key = std::pair<int, std::vector<int64_t>>;

  absl::Status WalkCall(const ModelCall& call) {
    Key key{call.model_function, {}};
    for (int result : call.results) {
      const IndexRange range = uses_[result].range.value_or(IndexRange{});
      key.second.push_back(range.below);
      key.second.push_back(range.ignored.has_value() ? 1 : 0);
      key.second.push_back(range.ignored.value_or(0));
    }
    auto known = answers_.find(key);
    if (known == answers_.end()) {
      WEIR_ASSIGN_OR_RETURN(std::vector<ValueUse> answer, WalkFunction(call));
      known = answers_.emplace(std::move(key), std::move(answer)).first;
    }
    for (size_t a = 0; a < call.args.size(); ++a) {
      const ValueUse& arg = known->second[a];
      ValueUse& use = uses_[call.args[a]];
      use.needed = use.needed || arg.needed;
      if (arg.range.has_value()) Narrow(*arg.range, &use.range);
    }
    return absl::OkStatus();
  }

  // Returns the uses of the activation arguments.
  absl::StatusOr<std::vector<ValueUse>> WalkFunction(const ModelCall& call) const {
    const Function& function = module_.functions[model_.functions[call.model_function].forward];
    FunctionUses uses(function);
    for (size_t r = 0; r < call.results.size(); ++r) {
      ValueUse& use = uses[function.results[r].value];
      use.needed = true;  // a plan computes all results of a function, read or not
      const std::optional<IndexRange>& range = uses_[call.results[r]].range;
      if (range.has_value()) Narrow(*range, &use.range);
    }
    WEIR_RETURN_IF_ERROR(uses.Walk());
    std::vector<ValueUse> answer;
    for (const Arg& arg : function.args) {
      if (arg.kind == ArgKind::kActivation) answer.push_back(uses[arg.value]);
    }
    return answer;
  }

  const std::string& main_;
  const Module& module_;
  Model& model_;
  std::vector<ValueUse> uses_;  // by model value
  std::map<Key, std::vector<ValueUse>> answers_;
};

}  // namespace

absl::Status InferIndexRanges(const std::string& main, Module* module) {
  return ModelUses(main, module).Walk();
}

}  // namespace weir::compiler
