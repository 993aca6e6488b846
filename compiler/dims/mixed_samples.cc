#include "compiler/dims/mixed_samples.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/dims/find_dims.h"
#include "compiler/ir/ir.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// The nodes on the way to the outputs of `main`, by function and place in the function. In a
// function that is called, these are the nodes on the way to any of its outputs.
class NeededNodes {
 public:
  explicit NeededNodes(const proto::Graph& graph) : graph_(graph) {
    for (int f = 0; f < graph.function_size(); ++f) index_[graph.function(f).name()] = f;
    if (const auto main = index_.find(graph.main()); main != index_.end()) Visit(main->second);
  }

  bool Has(int function, int node) const { return needed_.count({function, node}) > 0; }

 private:
  void Visit(int f) {
    if (!visited_.insert(f).second) return;
    const proto::Function& function = graph_.function(f);
    std::set<std::string> wanted(function.output().begin(), function.output().end());
    for (int n = function.node_size() - 1; n >= 0; --n) {
      const proto::Node& node = function.node(n);
      bool is_needed = node.output().empty() && wanted.count(node.name()) > 0;
      for (const std::string& output : node.output())
        is_needed = is_needed || wanted.count(output) > 0;
      if (!is_needed) continue;
      needed_.emplace(f, n);
      for (int i = 0; i < node.input_size(); ++i) {
        // Without training, the result of a moving average is the average.
        if (node.op() != kMovingAverageOp || i == 1) wanted.insert(node.input(i));
      }
      wanted.insert(node.shared().begin(), node.shared().end());
      if (const auto called = index_.find(node.function());
          node.op() == "call" && called != index_.end())
        Visit(called->second);
    }
  }

  const proto::Graph& graph_;
  std::map<std::string, int> index_;
  std::set<int> visited_;
  std::set<std::pair<int, int>> needed_;
};

bool HasAny(const DimAtoms::Dim& dim, const std::set<int>& atoms) {
  return std::any_of(dim.begin(), dim.end(), [&](int atom) { return atoms.count(atom) > 0; });
}

bool HasAny(const std::vector<DimAtoms::Dim>& dims, const std::set<int>& atoms) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const DimAtoms::Dim& dim) { return HasAny(dim, atoms); });
}

bool Mixes(const NodeDims& node, const std::set<int>& samples) {
  if (HasAny(node.whole, samples)) return true;
  const bool reads =
      std::any_of(node.operands.begin(), node.operands.end(),
                  [&](const std::vector<DimAtoms::Dim>& dims) { return HasAny(dims, samples); });
  const auto lacks = [&](const std::vector<DimAtoms::Dim>& dims) { return !HasAny(dims, samples); };
  return reads && std::any_of(node.results.begin(), node.results.end(), lacks);
}

}  // namespace

absl::StatusOr<std::string> NodeThatMixesSamples(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const GraphNodeDims found, FindNodeDims(job, PlanMode::kEvaluate));
  std::set<int> samples;
  for (const WrittenDim& written : found.dims.written) {
    if (written.place != WrittenDim::Place::kInput || written.axis != 0 ||
        job.graph().function(written.function).name() != job.graph().main())
      continue;
    samples.insert(written.dim.begin(), written.dim.end());
  }
  const NeededNodes needed(job.graph());
  for (const NodeDims& node : found.nodes) {
    if (!needed.Has(node.function, node.node) || !Mixes(node, samples)) continue;
    const proto::Function& function = job.graph().function(node.function);
    if (function.node(node.node).op() == kMovingAverageOp) continue;
    return absl::StrCat("function ", function.name(), ", node ", function.node(node.node).name());
  }
  return std::string();
}

}  // namespace weir::compiler
