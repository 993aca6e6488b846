#include "compiler/search/layout_problem.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/op_def.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// A device with other work to do hides this share of the time that the gradients of parameters are
// on links, behind the backward pass.
constexpr double kGradientsHidden = 0.5;
// A node has no more choices than this; a finer mesh keeps the cheapest.
constexpr size_t kChoicesMax = 1024;

bool IsReal(const sbp::TensorType& type) { return type.dtype != DType::kI32; }

// Numbers the layouts that occur at one end of an edge, so that equal layouts share a cost.
class Distinct {
 public:
  int IndexOf(const sbp::Layout& layout) {
    for (size_t i = 0; i < layouts_.size(); ++i) {
      if (layouts_[i] == layout) return static_cast<int>(i);
    }
    layouts_.push_back(layout);
    return static_cast<int>(layouts_.size()) - 1;
  }
  const std::vector<sbp::Layout>& layouts() const { return layouts_; }

 private:
  std::vector<sbp::Layout> layouts_;
};

// An End holds the layout of the value and of its gradient at one end of an edge, by choice of the
// variable there.
struct End {
  int variable = -1;
  std::vector<sbp::Layout> value, gradient;
};

class ProblemMaker {
 public:
  ProblemMaker(const std::vector<FunctionCalls>& functions, const LayoutProblemOptions& options)
      : functions_(functions), options_(options), axes_(options.mesh.num_axes()) {}

  absl::StatusOr<LayoutProblem> Run() {
    for (size_t use = 0; use < functions_.size(); ++use) {
      const Function& function = *functions_[use].function;
      for (size_t n = 0; n < function.nodes.size(); ++n) {
        if (function.nodes[n].op == kBoxingOp) continue;
        WEIR_RETURN_IF_ERROR(AddNode(static_cast<int>(use), static_cast<int>(n)));
      }
    }
    made_.problem.unary = std::move(unary_);
    for (size_t use = 0; use < functions_.size(); ++use) AddValues(static_cast<int>(use));
    AddBorders();
    return std::move(made_);
  }

 private:
  // ---- nodes ----

  absl::Status AddNode(int use, int index) {
    const Function& function = *functions_[use].function;
    const Node& node = function.nodes[index];
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    NodeChoices made;
    made.use = use;
    made.node = index;
    std::vector<sbp::TensorType> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(node.inputs[i] < 0 ? sbp::TensorType()
                                          : function.values[node.inputs[i]].type);
      if (node.inputs[i] >= 0 && IsParameter(function, SourceOf(function, node.inputs[i])))
        made.parameters.push_back(static_cast<int>(i));
    }
    WEIR_ASSIGN_OR_RETURN(const std::vector<sbp::TensorType> outputs,
                          def->infer({node.attrs, inputs, options_.dims}));
    made.rule = def->rule(node.attrs, inputs, outputs);
    made.signatures = sbp::LegalSignatures(made.rule);
    for (const sbp::AxisSignature& signature : made.signatures) {
      const bool partials_may_not_pass = signature.linear >= 0 && !made.parameters.empty();
      made.usable.push_back(
          !partials_may_not_pass &&
          (signature.factor < 0 || sbp::UnitsAgree(made.rule, signature.factor, inputs, outputs)));
    }
    AddChoices(&made);
    std::vector<double> costs;
    for (const std::vector<int>& choice : made.choices)
      costs.push_back(CostOf(node, made, choice, inputs, outputs));
    if (made.choices.size() > kChoicesMax) KeepCheapest(&made, &costs);
    made.weight = *std::max_element(costs.begin(), costs.end());
    unary_.push_back(std::move(costs));
    made_.nodes.push_back(std::move(made));
    return absl::OkStatus();
  }

  static bool IsParameter(const Function& function, ops::ValueId value) {
    const int arg = function.ArgOf(value);
    return arg >= 0 && function.args[arg].kind == ArgKind::kParameter;
  }

  // Returns the value that `value` is a boxing of, or the value itself.
  static ops::ValueId SourceOf(const Function& function, ops::ValueId value) {
    for (int node = function.ProducerOf(value); node >= 0 && function.nodes[node].op == kBoxingOp;
         node = function.ProducerOf(value))
      value = function.nodes[node].inputs[0];
    return value;
  }

  // Lists the signatures over all axes in which no factor is cut into more parts than it has units.
  void AddChoices(NodeChoices* made) const {
    std::vector<int> choice(axes_, 0);
    std::vector<int64_t> parts(made->rule.factors.size(), 1);
    const std::function<void(int)> add = [&](int axis) {
      if (axis == axes_) {
        if (CombinersAgree(*made, choice)) made->choices.push_back(choice);
        return;
      }
      const int64_t size = options_.mesh.size(axis);
      for (size_t s = 0; s < made->signatures.size(); ++s) {
        if (!made->usable[s] || (size == 1 && s > 0)) continue;
        const int factor = made->signatures[s].factor;
        if (factor >= 0) {
          const sbp::Factor& of = made->rule.factors[factor];
          if (parts[factor] * size > of.size / std::max<int64_t>(1, of.unit)) continue;
          parts[factor] *= size;
        }
        choice[axis] = static_cast<int>(s);
        add(axis + 1);
        if (factor >= 0) parts[factor] /= size;
      }
    };
    add(0);
  }

  // Returns whether each operand has partials of one combiner at most.
  bool CombinersAgree(const NodeChoices& node, const std::vector<int>& choice) const {
    for (size_t o = 0; o < node.rule.outputs.size(); ++o) {
      std::optional<Combiner> combiner;
      for (int axis = 0; axis < axes_; ++axis) {
        const sbp::Sbp& sbp = node.signatures[choice[axis]].outputs[o];
        if (!sbp.is_partial()) continue;
        if (combiner.has_value() && *combiner != sbp.combiner) return false;
        combiner = sbp.combiner;
      }
    }
    return true;
  }

  static void KeepCheapest(NodeChoices* made, std::vector<double>* costs) {
    std::vector<size_t> order(costs->size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return (*costs)[a] < (*costs)[b]; });
    order.resize(kChoicesMax);
    std::sort(order.begin(), order.end());
    std::vector<std::vector<int>> choices;
    std::vector<double> kept;
    for (size_t i : order) {
      choices.push_back(made->choices[i]);
      kept.push_back((*costs)[i]);
    }
    made->choices = std::move(choices);
    *costs = std::move(kept);
  }

  enum class Operand : uint8_t { kInput, kOutput };

  sbp::Layout LayoutOf(const NodeChoices& node, const std::vector<int>& choice, Operand operand,
                       size_t index) const {
    sbp::Layout layout;
    for (int axis = 0; axis < axes_; ++axis) {
      const sbp::AxisSignature& signature = node.signatures[choice[axis]];
      layout.push_back(operand == Operand::kInput ? signature.inputs[index]
                                                  : signature.outputs[index]);
    }
    return layout;
  }

  // Returns the layout in which the node gives the gradient of an input, or wants that of an
  // output.
  sbp::Layout GradientOf(const NodeChoices& node, const std::vector<int>& choice, Operand operand,
                         size_t index) const {
    sbp::Layout layout = LayoutOf(node, choice, operand, index);
    for (int axis = 0; axis < axes_; ++axis) {
      if (layout[axis].is_split()) continue;
      const bool partial = operand == Operand::kInput && node.signatures[choice[axis]].factor >= 0;
      layout[axis] = partial ? sbp::Sbp::P() : sbp::Sbp::B();
    }
    return layout;
  }

  TensorSlice Slice(const sbp::TensorType& type, const sbp::Layout& layout) const {
    return sbp::LocalSlice(type, layout, options_.mesh, sbp::Coords(axes_, 0));
  }

  double CostOf(const Node& node, const NodeChoices& made, const std::vector<int>& choice,
                const std::vector<sbp::TensorType>& inputs,
                const std::vector<sbp::TensorType>& outputs) const {
    const double calls = functions_[made.use].calls;
    std::vector<TensorSlice> in, out;
    int with_gradient = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool absent = node.inputs[i] < 0;
      in.push_back(absent ? TensorSlice::Whole(DType::kF32, {0})
                          : Slice(inputs[i], LayoutOf(made, choice, Operand::kInput, i)));
      if (!absent && IsReal(inputs[i])) ++with_gradient;
    }
    double kept_bytes = 0;
    for (size_t o = 0; o < outputs.size(); ++o) {
      out.push_back(Slice(outputs[o], LayoutOf(made, choice, Operand::kOutput, o)));
      kept_bytes += static_cast<double>(out.back().bytes());
    }
    const double kernel_ns =
        static_cast<double>(options_.costs->KernelNs({node.op, node.attrs, in, out}));
    // The backward pass makes one result for each operand with a gradient, at most two of which
    // cost as much as the forward pass.
    double cost = calls * options_.micro_batches * kernel_ns * (1 + std::min(2, with_gradient)) +
                  calls * options_.ns_per_byte * options_.kept / options_.stages * kept_bytes;
    for (int p : made.parameters) {
      if (IsReal(inputs[p]))
        cost += ParameterCost(inputs[p], LayoutOf(made, choice, Operand::kInput, p),
                              GradientOf(made, choice, Operand::kInput, p), calls);
    }
    return cost;
  }

  // Returns the cost of the gradient, the update and the memory of a parameter, in all calls.
  double ParameterCost(const sbp::TensorType& type, const sbp::Layout& compute,
                       const sbp::Layout& gradient, double calls) const {
    sbp::TensorType full = type;
    full.dtype = DType::kF32;
    const sbp::Layout update = UpdateLayout(type, compute);
    const int zero = options_.zero_stage;
    const auto pieces = [](bool whole) {
      return whole ? ExchangePieces::kWhole : ExchangePieces::kChunks;
    };
    const BoxingTime gradients = options_.boxings->Of(full, gradient, update, pieces(zero >= 2));
    const double gradients_ns = gradients.device_ns + (1 - kGradientsHidden) * gradients.link_ns;
    const double gather_ns =
        options_.boxings->Of(type, update, compute, pieces(zero == 3)).AloneNs();
    const double each = options_.micro_batches;
    const TensorSlice at_rest = Slice(full, update);
    double cost = (zero >= 2 ? each : 1) * gradients_ns + (zero == 3 ? 2 * each : 1) * gather_ns;
    // The tensors that an update reads and writes say how long it takes, for every optimiser.
    const std::string op = options_.states > 1 ? "adamw" : "sgd";
    const Attributes attrs;
    const std::vector<TensorSlice> written(1 + std::min(options_.states, 2), at_rest);
    cost += static_cast<double>(options_.costs->KernelNs({op, attrs, {at_rest, at_rest}, written}));
    const double rest_bytes = static_cast<double>(at_rest.bytes());
    const double compute_bytes = options_.boxings->LocalBytes(type, compute);
    const double full_bytes = options_.boxings->LocalBytes(full, compute);
    const double bytes = (1 + options_.states) * rest_bytes +
                         (zero >= 2 ? rest_bytes : full_bytes) + (zero == 3 ? 0 : compute_bytes);
    return calls * (cost + options_.ns_per_byte / options_.stages * bytes);
  }

  // As ProgramBuilder::UpdateLayout: ZeRO splits the first dimension that no axis splits.
  sbp::Layout UpdateLayout(const sbp::TensorType& type, const sbp::Layout& compute) const {
    sbp::Layout layout = compute;
    const int axis = options_.zero_axis;
    if (options_.zero_stage == 0 || axis < 0 || type.dims.empty() ||
        options_.mesh.size(axis) == 1 || !layout[axis].is_broadcast())
      return layout;
    int best = -1;
    for (size_t d = 0; d < type.dims.size(); ++d) {
      const bool taken = std::any_of(layout.begin(), layout.end(), [&](const sbp::Sbp& sbp) {
        return sbp.is_split() && sbp.axis == static_cast<int>(d);
      });
      if (taken) continue;
      if (best < 0) best = static_cast<int>(d);
      if (type.dims[d].size / type.dims[d].unit < options_.mesh.size(axis)) continue;
      best = static_cast<int>(d);
      break;
    }
    layout[axis] = sbp::Sbp::S(std::max(best, 0));
    return layout;
  }

  // ---- values ----

  struct Reader {
    int variable;
    size_t operand;
  };

  void AddValues(int use) {
    const Function& function = *functions_[use].function;
    std::map<ops::ValueId, std::vector<Reader>> readers;
    std::map<ops::ValueId, std::pair<int, size_t>> makers;
    std::map<ops::ValueId, std::vector<Reader>> parameters;
    for (size_t v = 0; v < made_.nodes.size(); ++v) {
      if (made_.nodes[v].use != use) continue;
      const Node& node = function.nodes[made_.nodes[v].node];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] < 0) continue;
        const ops::ValueId source = SourceOf(function, node.inputs[i]);
        (IsParameter(function, source) ? parameters : readers)[source].push_back(
            {static_cast<int>(v), i});
      }
      for (size_t o = 0; o < node.outputs.size(); ++o)
        makers[node.outputs[o]] = {static_cast<int>(v), o};
    }
    HoldParametersTogether(function, parameters);
    std::map<ops::ValueId, int> leaves;
    for (int r = 0; r < functions_[use].num_results; ++r) {
      const Result& result = function.results[r];
      if (result.kind != ResultKind::kNatural) leaves[SourceOf(function, result.value)] = 1;
    }
    const double times = functions_[use].calls * options_.micro_batches;
    for (const auto& [value, made_by] : makers) {
      const sbp::TensorType& type = function.values[value].type;
      const End maker = EndOf(made_by.first, Operand::kOutput, made_by.second);
      std::vector<End> ends;
      for (const Reader& reader : readers[value])
        ends.push_back(EndOf(reader.variable, Operand::kInput, reader.operand));
      const bool leaves_here = leaves.count(value) > 0;
      if (ends.size() + (leaves_here ? 1 : 0) > 1) {
        const End shared = AddShared(type, maker, ends);
        AddEdge(type, maker, shared, times);
        for (const End& end : ends) AddEdge(type, shared, end, times);
        if (leaves_here) border_edges_.push_back({type, shared, times, Side::kLeaves});
        continue;
      }
      if (!ends.empty()) AddEdge(type, maker, ends[0], times);
      if (leaves_here) border_edges_.push_back({type, maker, times, Side::kLeaves});
    }
    for (const Arg& arg : function.args) {
      if (arg.kind != ArgKind::kActivation) continue;
      for (const Reader& reader : readers[arg.value]) {
        border_edges_.push_back({function.values[arg.value].type,
                                 EndOf(reader.variable, Operand::kInput, reader.operand), times,
                                 Side::kEnters});
      }
    }
  }

  // Rules give parameters with the same dimensions one layout. Those of a function are held to that
  // here, if they have several dimensions; a weight that several nodes read, too.
  void HoldParametersTogether(const Function& function,
                              const std::map<ops::ValueId, std::vector<Reader>>& parameters) {
    std::map<std::string, Reader> first;
    for (const auto& [value, readers] : parameters) {
      const std::vector<sbp::TensorDim>& dims = function.values[value].type.dims;
      std::string key = absl::StrCat("value ", value);
      if (dims.size() > 1) key = NamesOf(dims);
      for (const Reader& reader : readers) {
        const auto [known, is_new] = first.emplace(key, reader);
        if (is_new || known->second.variable == reader.variable) continue;
        const NodeChoices &a = made_.nodes[known->second.variable],
                          &b = made_.nodes[reader.variable];
        MinSumProblem::Pair pair{known->second.variable, reader.variable, {}};
        for (const std::vector<int>& of_a : a.choices) {
          const sbp::Layout layout = LayoutOf(a, of_a, Operand::kInput, known->second.operand);
          for (const std::vector<int>& of_b : b.choices) {
            pair.cost.push_back(
                layout == LayoutOf(b, of_b, Operand::kInput, reader.operand) ? 0 : kForbidden);
          }
        }
        made_.problem.pairs.push_back(std::move(pair));
      }
    }
  }

  static std::string NamesOf(const std::vector<sbp::TensorDim>& dims) {
    return absl::StrJoin(
        dims, ",", [](std::string* out, const sbp::TensorDim& dim) { out->append(dim.name); });
  }

  End EndOf(int variable, Operand operand, size_t index) const {
    const NodeChoices& node = made_.nodes[variable];
    End end;
    end.variable = variable;
    for (const std::vector<int>& choice : node.choices) {
      end.value.push_back(LayoutOf(node, choice, operand, index));
      end.gradient.push_back(GradientOf(node, choice, operand, index));
    }
    return end;
  }

  // Adds a variable for a value that several nodes read. On each axis the value is split or whole,
  // as one of the ends has it; the sum of the gradients of a whole value is whole or partial.
  End AddShared(const sbp::TensorType& type, const End& maker, const std::vector<End>& ends) {
    using Pick = std::pair<sbp::Sbp, sbp::Sbp>;  // of value and gradient
    std::vector<std::vector<Pick>> picks(axes_);
    for (int axis = 0; axis < axes_; ++axis) {
      picks[axis] = {{sbp::Sbp::B(), sbp::Sbp::B()}, {sbp::Sbp::B(), sbp::Sbp::P()}};
      const auto add = [&](const End& end) {
        for (const sbp::Layout& layout : end.value) {
          const Pick pick{layout[axis], layout[axis]};
          if (layout[axis].is_split() &&
              std::find(picks[axis].begin(), picks[axis].end(), pick) == picks[axis].end())
            picks[axis].push_back(pick);
        }
      };
      add(maker);
      for (const End& end : ends) add(end);
    }
    End shared;
    shared.variable = static_cast<int>(made_.problem.unary.size());
    sbp::Layout value(axes_), gradient(axes_);
    const std::function<void(int)> add = [&](int axis) {
      if (axis == axes_) {
        if (!FitsUnits(type, value)) return;
        shared.value.push_back(value);
        shared.gradient.push_back(gradient);
        return;
      }
      for (const Pick& pick : picks[axis]) {
        value[axis] = pick.first;
        gradient[axis] = pick.second;
        add(axis + 1);
      }
    };
    add(0);
    made_.problem.unary.emplace_back(shared.value.size(), 0.0);
    return shared;
  }

  bool FitsUnits(const sbp::TensorType& type, const sbp::Layout& layout) const {
    std::vector<int64_t> parts(type.dims.size(), 1);
    for (int axis = 0; axis < axes_; ++axis) {
      if (layout[axis].is_split()) parts[layout[axis].axis] *= options_.mesh.size(axis);
    }
    for (size_t d = 0; d < parts.size(); ++d) {
      if (parts[d] > 1 && parts[d] > type.dims[d].size / std::max<int64_t>(1, type.dims[d].unit))
        return false;
    }
    return true;
  }

  // Returns the time from one layout to another; forbidden: new partials.
  double BoxingNs(const sbp::TensorType& type, const sbp::Layout& from, const sbp::Layout& to) {
    for (int axis = 0; axis < axes_; ++axis) {
      if (options_.mesh.size(axis) > 1 && to[axis].is_partial() && !(from[axis] == to[axis]))
        return kForbidden;
    }
    return options_.boxings->Of(type, from, to).AloneNs();
  }

  // Adds the boxings between the maker of a value and a reader.
  void AddEdge(const sbp::TensorType& type, const End& from, const End& to, double times) {
    Distinct from_values, to_values, from_gradients, to_gradients;
    std::vector<std::pair<int, int>> of_from, of_to;
    for (size_t i = 0; i < from.value.size(); ++i)
      of_from.emplace_back(from_values.IndexOf(from.value[i]),
                           from_gradients.IndexOf(from.gradient[i]));
    for (size_t i = 0; i < to.value.size(); ++i)
      of_to.emplace_back(to_values.IndexOf(to.value[i]), to_gradients.IndexOf(to.gradient[i]));
    const auto table = [&](const Distinct& a, const Distinct& b) {
      std::vector<std::vector<double>> costs;
      for (const sbp::Layout& have : a.layouts()) {
        std::vector<double>& row = costs.emplace_back();
        for (const sbp::Layout& want : b.layouts()) {
          const double ns = BoxingNs(type, have, want);
          row.push_back(ns >= kForbidden ? kForbidden : times * ns);
        }
      }
      return costs;
    };
    const std::vector<std::vector<double>> forward = table(from_values, to_values);
    std::vector<std::vector<double>> backward;
    if (IsReal(type)) backward = table(to_gradients, from_gradients);
    MinSumProblem::Pair pair{from.variable, to.variable, {}};
    pair.cost.reserve(of_from.size() * of_to.size());
    for (const auto& [value, gradient] : of_from) {
      for (const auto& [to_value, to_gradient] : of_to) {
        const double back = backward.empty() ? 0 : backward[to_gradient][gradient];
        pair.cost.push_back(std::min(kForbidden, forward[value][to_value] + back));
      }
    }
    made_.problem.pairs.push_back(std::move(pair));
  }

  // ---- borders ----

  enum class Side : uint8_t { kEnters, kLeaves };
  struct BorderEdge {
    sbp::TensorType type;
    End end;
    double times;
    Side side;
  };

  void AddBorders() {
    made_.first_border = static_cast<int>(made_.problem.unary.size());
    std::map<std::string, size_t> known;
    std::vector<End> ends;
    for (const BorderEdge& edge : border_edges_) {
      const auto [entry, is_new] = known.emplace(NamesOf(edge.type.dims), ends.size());
      if (is_new) ends.push_back(AddBorder(edge.type));
      const End& border = ends[entry->second];
      if (edge.side == Side::kEnters) {
        AddEdge(edge.type, border, edge.end, edge.times);
      } else {
        AddEdge(edge.type, edge.end, border, edge.times);
      }
    }
  }

  End AddBorder(const sbp::TensorType& type) {
    BorderChoices border;
    for (const sbp::TensorDim& dim : type.dims) border.dims.push_back(dim.name);
    End end;
    end.variable = static_cast<int>(made_.problem.unary.size());
    sbp::Layout layout(axes_);
    const std::function<void(int)> add = [&](int axis) {
      if (axis == axes_) {
        if (FitsUnits(type, layout)) end.value.push_back(layout);
        return;
      }
      layout[axis] = sbp::Sbp::B();
      add(axis + 1);
      if (options_.mesh.size(axis) == 1) return;
      for (size_t d = 0; d < type.dims.size(); ++d) {
        layout[axis] = sbp::Sbp::S(static_cast<int>(d));
        add(axis + 1);
      }
    };
    add(0);
    end.gradient = end.value;
    border.choices = end.value;
    made_.borders.push_back(std::move(border));
    made_.problem.unary.emplace_back(end.value.size(), 0.0);
    return end;
  }

  const std::vector<FunctionCalls>& functions_;
  const LayoutProblemOptions& options_;
  const int axes_;
  LayoutProblem made_;
  std::vector<std::vector<double>> unary_;
  std::vector<BorderEdge> border_edges_;
};

}  // namespace

absl::StatusOr<LayoutProblem> MakeLayoutProblem(const std::vector<FunctionCalls>& functions,
                                                const LayoutProblemOptions& options) {
  return ProblemMaker(functions, options).Run();
}

}  // namespace weir::compiler
