#include "compiler/ir/layout_rules.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::compiler {

absl::StatusOr<LayoutRules> LayoutRules::Create(const proto::Job& job, const sbp::Mesh& stage_mesh,
                                                const std::map<std::string, sbp::TensorDim>& dims) {
  LayoutRules rules;
  rules.stage_mesh_ = stage_mesh;
  std::vector<std::string> names;
  for (const auto& [name, dim] : dims) names.push_back(name);
  for (const proto::Rule& rule : job.rule()) {
    if (dims.count(rule.dim()) == 0) {
      std::string near = Nearest(rule.dim(), names);
      return Rejected({"W0481", absl::StrCat("rule ", rule.dim(), " -> ", rule.axis()),
                       "a dimension of the graph's dim table", absl::StrCat("\"", rule.dim(), "\""),
                       near.empty() ? "" : absl::StrCat("dim: \"", near, "\"")});
    }
    if (rule.axis() == sbp::kPipelineAxis) {
      return Rejected({"W0482", absl::StrCat("rule ", rule.dim(), " -> ", rule.axis()),
                       "an axis that layouts may use", "the pipeline axis \"pp\"",
                       "cut the model with pipeline { cut: ... } instead"});
    }
    if (rule.axis().empty()) {
      return Rejected({"W0485", absl::StrCat("rule ", rule.dim(), " -> "),
                       "the axis that the dimension is split over", "none",
                       "axis: \"dp\"; a rule about an axis that the mesh lacks does nothing"});
    }
    int axis = stage_mesh.AxisIndex(rule.axis());
    if (axis < 0 || stage_mesh.size(axis) == 1) continue;
    rules.entries_.push_back(
        {rule.dim(), axis, rule.scope(), absl::StrCat("rule ", rule.dim(), " -> ", rule.axis())});
  }
  for (const proto::LayoutOverride& entry : job.layout()) {
    absl::StatusOr<sbp::Layout> layout = sbp::ParseLayout(entry.sbp(), stage_mesh);
    const std::string where = absl::StrCat("layout of \"", entry.tensor(), "\"");
    if (!layout.ok()) return At(where, layout.status());
    if (!rules.overrides_.emplace(entry.tensor(), *layout).second) {
      return Rejected({"W0484", where, "one layout for a tensor", "two", "remove one of them"});
    }
  }
  return rules;
}

int LayoutRules::Find(const std::string& dim, int axis, proto::Rule::Scope scope) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.axis == axis && entry.dim == dim &&
        (entry.scope == proto::Rule::ALL || entry.scope == scope)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::string LayoutRules::Describe(int rule) const { return entries_[rule].text; }

std::pair<int, int> LayoutRules::BestFor(const sbp::TensorType& type, int axis,
                                         proto::Rule::Scope scope) const {
  std::pair<int, int> best{-1, -1};
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const int rule = Find(type.dims[d].name, axis, scope);
    if (rule >= 0 && (best.first < 0 || rule < best.first)) best = {rule, static_cast<int>(d)};
  }
  return best;
}

sbp::Layout LayoutRules::LayoutOf(const sbp::TensorType& type, proto::Rule::Scope scope) const {
  sbp::Layout layout = sbp::Broadcast(stage_mesh_);
  for (int axis = 0; axis < stage_mesh_.num_axes(); ++axis) {
    const auto [rule, dim] = BestFor(type, axis, scope);
    if (rule >= 0) layout[axis] = sbp::Sbp::S(dim);
  }
  return layout;
}

std::string LayoutRules::WhyOf(const sbp::TensorType& type, proto::Rule::Scope scope) const {
  std::string why;
  for (int axis = 0; axis < stage_mesh_.num_axes(); ++axis) {
    const int rule = BestFor(type, axis, scope).first;
    if (rule >= 0)
      absl::StrAppend(&why, why.empty() ? "" : ", ", stage_mesh_.axes()[axis].name, ": ",
                      Describe(rule));
  }
  return why;
}

absl::Status LayoutRules::CheckOverrides(const Module& module) const {
  for (const auto& [key, layout] : overrides_) {
    std::vector<std::string> known;
    const Value* found = nullptr;
    for (const Function& function : module.functions) {
      for (const Value& value : function.values) {
        known.push_back(absl::StrCat(function.name, "/", value.name));
        if (known.back() == key) found = &value;
      }
    }
    std::string where = absl::StrCat("layout of \"", key, "\"");
    if (found == nullptr) {
      std::string near = Nearest(key, known);
      return Rejected({"W0483", where, "function/tensor of the graph",
                       absl::StrCat("\"", key, "\""),
                       near.empty() ? "" : absl::StrCat("tensor: \"", near, "\"")});
    }
    absl::Status valid = sbp::ValidateLayout(layout, found->type, stage_mesh_);
    if (!valid.ok()) return At(where, valid);
  }
  return absl::OkStatus();
}

const sbp::Layout* LayoutRules::Override(const std::string& function,
                                         const std::string& tensor) const {
  auto it = overrides_.find(absl::StrCat(function, "/", tensor));
  return it == overrides_.end() ? nullptr : &it->second;
}

}  // namespace weir::compiler
