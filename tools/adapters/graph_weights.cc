#include "tools/adapters/graph_weights.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/job/import_function.h"
#include "runtime/base/status.h"

namespace weir::adapters {
namespace {

class WeightLister {
 public:
  explicit WeightLister(const proto::Graph& graph) : graph_(graph) {
    for (int f = 0; f < graph.function_size(); ++f) index_.emplace(graph.function(f).name(), f);
  }

  absl::StatusOr<std::vector<GraphWeight>> Run() {
    const auto main = index_.find(graph_.main());
    if (main == index_.end()) return absl::InternalError("a graph that compiles has a main");
    WEIR_RETURN_IF_ERROR(Add(main->second, "", 0));
    return std::move(weights_);
  }

 private:
  static constexpr int kDepthMax = 64;  // more than the compiler takes

  // Adds the weights of function `f`, whose names begin with `prefix`.
  absl::Status Add(int f, const std::string& prefix, int depth) {
    if (depth > kDepthMax) return absl::InternalError("calls within calls have a bound");
    const proto::Function& function = graph_.function(f);
    for (int p = 0; p < function.parameter_size(); ++p)
      weights_.push_back({f, p, absl::StrCat(prefix, function.parameter(p).name())});
    for (const proto::Node& node : function.node()) {
      if (node.op() == "call") WEIR_RETURN_IF_ERROR(AddCall(node, prefix, depth));
    }
    return absl::OkStatus();
  }

  absl::Status AddCall(const proto::Node& node, const std::string& prefix, int depth) {
    const std::string call = node.name().empty() ? node.function() : node.name();
    const auto called = index_.find(node.function());
    if (called == index_.end()) return absl::InternalError("a call names a function");
    WEIR_ASSIGN_OR_RETURN(const int64_t rounds, compiler::RoundsOf(node, call));
    // A call with the weights of another call has none of its own, and one that names itself has
    // one set for all rounds.
    if (!node.weights().empty()) {
      if (node.weights() != call) return absl::OkStatus();
      return Add(called->second, absl::StrCat(prefix, call, "."), depth + 1);
    }
    for (int64_t round = 0; round < rounds; ++round) {
      const std::string name = compiler::RoundName(call, rounds, round);
      WEIR_RETURN_IF_ERROR(Add(called->second, absl::StrCat(prefix, name, "."), depth + 1));
    }
    return absl::OkStatus();
  }

  const proto::Graph& graph_;
  std::map<std::string, int> index_;  // of functions, by name
  std::vector<GraphWeight> weights_;
};

}  // namespace

absl::StatusOr<std::vector<GraphWeight>> WeightsOfGraph(const proto::Graph& graph) {
  return WeightLister(graph).Run();
}

const proto::Attr* AttrOf(const proto::Node& node, const std::string& name) {
  for (const proto::NamedAttr& attr : node.attr()) {
    if (attr.name() == name) return &attr.value();
  }
  return nullptr;
}

bool IsTransposed(const proto::Node& product) {
  const proto::Attr* const attr = AttrOf(product, "transpose_w");
  return attr != nullptr && attr->b();
}

}  // namespace weir::adapters
