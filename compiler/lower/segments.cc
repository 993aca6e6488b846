#include "compiler/lower/segments.h"

#include <algorithm>

#include "runtime/base/status.h"

namespace weir::compiler {

absl::StatusOr<SegmentedFunction> CutSegments(const Function& function, const sbp::Places& places) {
  SegmentedFunction out;
  std::vector<int> depth(function.values.size(), 0);
  for (size_t i = 0; i < function.nodes.size(); ++i) {
    const Node& node = function.nodes[i];
    int at = 0;
    for (ops::ValueId input : node.inputs) {
      if (input >= 0) at = std::max(at, depth[input]);
    }
    int after = at;
    bool transfer = false;
    if (node.op == kBoxingOp) {
      const Value& from = function.values[node.inputs[0]];
      const Value& to = function.values[node.outputs[0]];
      const int64_t place = function.stage_of_mesh();
      WEIR_ASSIGN_OR_RETURN(
          const sbp::Boxing boxing,
          sbp::PlanBoxingOverHosts(from.type, {from.layout, place}, {to.layout, place}, places));
      if (IsLocal(boxing.steps)) {
        out.local_boxings[static_cast<int>(i)] = boxing.steps;
      } else {
        transfer = true;
        after = at + 1;
        auto same = [&](const TransferBundle& bundle) {
          return bundle.depth == at && bundle.moved.Fits(boxing);
        };
        auto known = std::find_if(out.transfers.begin(), out.transfers.end(), same);
        if (known == out.transfers.end()) {
          out.transfers.push_back({at, {static_cast<int>(i)}, MovedTensors(boxing)});
        } else {
          known->nodes.push_back(static_cast<int>(i));
          known->moved.Add(boxing);
        }
      }
    }
    if (static_cast<int>(out.segments.size()) <= after) out.segments.resize(after + 1);
    if (!transfer) out.segments[at].push_back(static_cast<int>(i));
    for (ops::ValueId output : node.outputs) depth[output] = after;
  }
  // A transfer of early data may stand late in the list of nodes.
  std::stable_sort(
      out.transfers.begin(), out.transfers.end(),
      [](const TransferBundle& a, const TransferBundle& b) { return a.depth < b.depth; });
  return out;
}

std::map<ops::ValueId, ops::ValueId> ShareReshapes(const Function& function,
                                                   const SegmentedFunction& segmented,
                                                   const std::vector<int>& nodes,
                                                   const std::vector<int>& operand_of) {
  std::map<ops::ValueId, ops::ValueId> root;
  auto find = [&](ops::ValueId value) {
    while (root.count(value) > 0 && root[value] != value) value = root[value];
    return value;
  };
  for (int index : nodes) {
    const Node& node = function.nodes[index];
    auto boxing = segmented.local_boxings.find(index);
    bool nothing = boxing != segmented.local_boxings.end() && boxing->second.empty();
    if (node.op != "reshape" && !nothing) continue;
    ops::ValueId a = find(node.inputs[0]), b = find(node.outputs[0]);
    bool a_outside = operand_of[a] >= 0 || function.states.count(a) > 0;
    bool b_outside = operand_of[b] >= 0;
    if (a == b || (a_outside && b_outside)) continue;
    root[b_outside ? a : b] = b_outside ? b : a;
  }
  std::map<ops::ValueId, ops::ValueId> place;
  for (const auto& [value, parent] : root) place[value] = find(value);
  return place;
}

}  // namespace weir::compiler
