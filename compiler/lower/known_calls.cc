#include "compiler/lower/known_calls.h"

#include <algorithm>
#include <iterator>

#include "compiler/transfer/transfer_lowering.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

using KnownFunction = KnownCalls::KnownFunction;
using KnownChain = KnownCalls::KnownChain;

// Finds the segment that makes each value, and the values that leave their segment.
void FindHomes(const Function& function, KnownFunction* known) {
  const SegmentedFunction& segmented = known->segmented;
  known->home.assign(function.values.size(), -1);
  known->crosses.assign(function.values.size(), 0);
  for (size_t s = 0; s < segmented.segments.size(); ++s) {
    std::vector<ops::ValueId>& outputs = known->outputs.emplace_back();
    for (int node : segmented.segments[s]) {
      for (ops::ValueId output : function.nodes[node].outputs) {
        known->home[output] = static_cast<int>(s);
        outputs.push_back(output);
      }
    }
    std::sort(outputs.begin(), outputs.end());
  }
  for (size_t s = 0; s < segmented.segments.size(); ++s) {
    for (int node : segmented.segments[s]) {
      for (ops::ValueId input : function.nodes[node].inputs) {
        if (input >= 0 && known->home[input] >= 0 && known->home[input] != static_cast<int>(s))
          known->crosses[input] = 1;
      }
    }
  }
  for (const TransferBundle& bundle : segmented.transfers) {
    for (int node : bundle.nodes) {
      const ops::ValueId input = function.nodes[node].inputs[0];
      if (known->home[input] >= 0) known->crosses[input] = 1;
    }
  }
}

std::vector<ops::ValueId> TouchedBy(const Function& function, const std::vector<int>& nodes) {
  std::vector<ops::ValueId> touched;
  std::vector<char> seen(function.values.size(), 0);
  for (int node : nodes) {
    for (const auto* list : {&function.nodes[node].inputs, &function.nodes[node].outputs}) {
      for (ops::ValueId value : *list) {
        if (value < 0 || seen[value]) continue;
        seen[value] = 1;
        touched.push_back(value);
      }
    }
  }
  return touched;
}

// Makes the kernels of one segment.
class ChainMaker {
 public:
  // `operand_of`, by value: the operand that the value is outside the segment; -1: none.
  ChainMaker(const Function& function, const KnownFunction& known, const std::vector<int>& nodes,
             const std::vector<int>& operand_of, const RankBuilder& builder)
      : function_(function),
        known_(known),
        nodes_(nodes),
        operand_of_(operand_of),
        builder_(builder),
        place_(ShareReshapes(function, known.segmented, nodes, operand_of)) {}

  void Run(KnownChain* out) && {
    for (int index : nodes_) AddNode(index);
    out->kernels = MakeChain(std::move(chain_));
    out->states = std::move(states_);
  }

 private:
  void AddNode(int index) {
    const Node& node = function_.nodes[index];
    if (node.op == kBoxingOp && !known_.segmented.local_boxings.at(index).empty()) {
      AppendLocalTransfer(node.name, function_.values[node.inputs[0]].type,
                          known_.segmented.local_boxings.at(index), OperandOf(node.inputs[0]),
                          OperandOf(node.outputs[0]), builder_, &chain_);
      return;
    }
    if (node.op == "reshape" || node.op == kBoxingOp) {
      const RankOperand from = OperandOf(node.inputs[0]), to = OperandOf(node.outputs[0]);
      if (from.kind == to.kind && from.index == to.index) return;
    }
    RankKernel kernel{
        node.op == kBoxingOp ? "reshape" : node.op, node.name, node.attrs, {}, {}, node.rng_key};
    for (ops::ValueId input : node.inputs) kernel.inputs.push_back(OperandOf(input));
    for (ops::ValueId output : node.outputs) kernel.outputs.push_back(OperandOf(output));
    const ops::OpDef* def = ops::OpRegistry::Find(kernel.op);
    const bool variadic = !def->schema.inputs.empty() && def->schema.inputs.back().variadic;
    if (!variadic) kernel.inputs.resize(def->schema.inputs.size());
    const bool variadic_out = !def->schema.outputs.empty() && def->schema.outputs.back().variadic;
    if (!variadic_out) kernel.outputs.resize(def->schema.outputs.size());
    chain_.kernels.push_back(std::move(kernel));
  }

  RankOperand OperandOf(ops::ValueId value) {
    RankOperand out;
    if (value < 0) return out;
    out.slice = known_.slices[value];
    const auto shared = place_.find(value);
    const ops::ValueId at = shared == place_.end() ? value : shared->second;
    if (function_.states.count(at) > 0) {
      out.kind = RankOperand::kState;
      out.index = static_cast<int>(std::find(states_.begin(), states_.end(), at) - states_.begin());
      if (out.index == static_cast<int>(states_.size())) states_.push_back(at);
    } else if (operand_of_[at] >= 0) {
      out.kind = RankOperand::kTensor;
      out.index = operand_of_[at];
    } else {
      out.kind = RankOperand::kScratch;
      const auto [known, is_new] = scratch_.emplace(at, static_cast<int>(chain_.scratch.size()));
      if (is_new) chain_.scratch.push_back(known_.slices[at].bytes());
      out.index = known->second;
    }
    return out;
  }

  const Function& function_;
  const KnownFunction& known_;
  const std::vector<int>& nodes_;
  const std::vector<int>& operand_of_;
  const RankBuilder& builder_;
  const std::map<ops::ValueId, ops::ValueId> place_;
  KernelChain chain_;
  std::vector<ops::ValueId> states_;
  std::map<ops::ValueId, int> scratch_;
};

}  // namespace

absl::StatusOr<const KnownFunction*> KnownCalls::FunctionOf(int function,
                                                            const RankBuilder& builder) {
  const auto found = functions_.find(function);
  if (found != functions_.end()) return &found->second;
  const Function& body = builder.plan().module.functions[function];
  KnownFunction known;
  WEIR_ASSIGN_OR_RETURN(known.segmented, CutSegments(body, builder.places()));
  FindHomes(body, &known);
  known.slices.resize(body.values.size());
  for (const std::vector<int>& nodes : known.segmented.segments) {
    known.touched.push_back(TouchedBy(body, nodes));
    for (ops::ValueId value : known.touched.back())
      known.slices[value] = builder.Local(body.values[value].type, body.values[value].layout);
  }
  return &functions_.emplace(function, std::move(known)).first->second;
}

const KnownChain& KnownCalls::ChainOf(int function, size_t segment,
                                      const std::vector<TensorId>& tensor_of,
                                      const RankBuilder& builder, std::vector<TensorId>* operands) {
  const KnownFunction& known = functions_.at(function);
  std::vector<int> operand_of;
  operand_of.reserve(known.touched[segment].size());
  for (ops::ValueId value : known.touched[segment]) {
    if (!tensor_of[value].has_value()) {
      operand_of.push_back(-1);
      continue;
    }
    const auto at = std::find(operands->begin(), operands->end(), tensor_of[value]);
    operand_of.push_back(static_cast<int>(at - operands->begin()));
    if (at == operands->end()) operands->push_back(tensor_of[value]);
  }
  auto& alike = chains_[{function, segment}];
  for (const auto& chain : alike) {
    if (chain->operand_of == operand_of) return *chain;
  }
  const Function& body = builder.plan().module.functions[function];
  std::vector<int> by_value(body.values.size(), -1);
  for (size_t i = 0; i < operand_of.size(); ++i)
    by_value[known.touched[segment][i]] = operand_of[i];
  auto chain = std::make_unique<KnownChain>();
  ChainMaker(body, known, known.segmented.segments[segment], by_value, builder).Run(chain.get());
  chain->operand_of = std::move(operand_of);
  return *alike.emplace_back(std::move(chain));
}

}  // namespace weir::compiler
