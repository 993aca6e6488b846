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

// Returns whether two dimensions of a tensor share samples, as those of x times x transposed do.
bool PairsAny(const std::vector<DimAtoms::Dim>& dims, const std::set<int>& atoms) {
  std::set<int> seen;
  for (const DimAtoms::Dim& dim : dims) {
    for (int atom : dim) {
      if (atoms.count(atom) > 0 && !seen.insert(atom).second) return true;
    }
  }
  return false;
}

bool Mixes(const NodeDims& node, const std::set<int>& samples) {
  if (HasAny(node.whole, samples)) return true;
  for (const std::vector<DimAtoms::Dim>& dims : node.results) {
    if (PairsAny(dims, samples)) return true;
  }
  const bool reads =
      std::any_of(node.operands.begin(), node.operands.end(),
                  [&](const std::vector<DimAtoms::Dim>& dims) { return HasAny(dims, samples); });
  const auto lacks = [&](const std::vector<DimAtoms::Dim>& dims) { return !HasAny(dims, samples); };
  return reads && std::any_of(node.results.begin(), node.results.end(), lacks);
}

// Returns the first dimensions of the inputs of `main`.
std::vector<DimAtoms::Dim> SampleDims(const proto::Job& job, const GraphNodeDims& found) {
  std::vector<DimAtoms::Dim> dims;
  for (const WrittenDim& written : found.dims.written) {
    if (written.place != WrittenDim::Place::kInput || written.axis != 0 ||
        job.graph().function(written.function).name() != job.graph().main())
      continue;
    dims.push_back(written.dim);
  }
  return dims;
}

std::set<int> AtomsOf(const std::vector<DimAtoms::Dim>& dims) {
  std::set<int> atoms;
  for (const DimAtoms::Dim& dim : dims) atoms.insert(dim.begin(), dim.end());
  return atoms;
}

int FunctionNamed(const proto::Graph& graph, const std::string& name) {
  int f = 0;
  while (f < graph.function_size() && graph.function(f).name() != name) ++f;
  return f;
}

// Returns the dimensions of a tensor that a node computes, in `function` or in a function that it
// calls, or of an input that a function returns as it is.
std::vector<DimAtoms::Dim> DimsOf(const proto::Graph& graph, const GraphNodeDims& found,
                                  int function, std::string tensor) {
  int n = 0;
  while (function < graph.function_size() && n < graph.function(function).node_size()) {
    const proto::Node& node = graph.function(function).node(n);
    int result = node.output().empty() && node.name() == tensor ? 0 : -1;
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i) == tensor) result = i;
    }
    if (result < 0) {
      ++n;
    } else if (node.op() == "call") {
      function = FunctionNamed(graph, node.function());
      if (function == graph.function_size() || result >= graph.function(function).output_size())
        return {};
      tensor = graph.function(function).output(result);
      n = 0;
    } else {
      for (const NodeDims& dims : found.nodes) {
        if (dims.function == function && dims.node == n &&
            result < static_cast<int>(dims.results.size()))
          return dims.results[result];
      }
      return {};
    }
  }
  std::vector<DimAtoms::Dim> dims;
  for (const WrittenDim& written : found.dims.written) {
    if (written.place == WrittenDim::Place::kInput && written.function == function &&
        graph.function(function).input(written.index).name() == tensor)
      dims.push_back(written.dim);
  }
  return dims;
}

SamplePlace PlaceIn(const std::vector<DimAtoms::Dim>& dims,
                    const std::vector<DimAtoms::Dim>& of_samples) {
  const std::set<int> samples = AtomsOf(of_samples);
  if (!HasAny(dims, samples)) return SamplePlace::kNowhere;
  const bool is_first =
      std::find(of_samples.begin(), of_samples.end(), dims[0]) != of_samples.end();
  return is_first && !HasAny(std::vector<DimAtoms::Dim>(dims.begin() + 1, dims.end()), samples)
             ? SamplePlace::kFirst
             : SamplePlace::kElsewhere;
}

}  // namespace

absl::StatusOr<std::string> NodeThatMixesSamples(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const GraphNodeDims found, FindNodeDims(job, PlanMode::kEvaluate));
  const std::set<int> samples = AtomsOf(SampleDims(job, found));
  const NeededNodes needed(job.graph());
  for (const NodeDims& node : found.nodes) {
    if (!needed.Has(node.function, node.node) || !Mixes(node, samples)) continue;
    const proto::Function& function = job.graph().function(node.function);
    if (function.node(node.node).op() == kMovingAverageOp) continue;
    return absl::StrCat("function ", function.name(), ", node ", function.node(node.node).name());
  }
  return std::string();
}

absl::StatusOr<std::map<std::string, SamplePlace>> PlacesOfSamples(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const GraphNodeDims found, FindNodeDims(job, PlanMode::kEvaluate));
  const std::vector<DimAtoms::Dim> of_samples = SampleDims(job, found);
  const int main = FunctionNamed(job.graph(), job.graph().main());
  std::map<std::string, SamplePlace> places;
  if (main == job.graph().function_size()) return places;
  for (const std::string& output : job.graph().function(main).output())
    places[output] = PlaceIn(DimsOf(job.graph(), found, main, output), of_samples);
  return places;
}

}  // namespace weir::compiler
