#include "compiler/ir/layout_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir::compiler {

void LayoutRules::AddRule(const std::string& dim, int axis, RuleScope scope,
                          std::vector<int64_t> stages) {
  std::string text = absl::StrCat(dim, " -> ", stage_mesh_.axes()[axis].name);
  if (!stages.empty()) {
    absl::StrAppend(&text, stages.size() == 1 ? " on stage " : " on stages ",
                    absl::StrJoin(stages, ", "));
  }
  entries_.push_back({dim, axis, scope, std::move(stages), std::move(text)});
}

bool LayoutRules::Entry::IsFor(int64_t stage) const {
  return stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end();
}

bool LayoutRules::DifferByStage() const {
  return FirstWithMeshOf(0) >= 0 ||
         std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return !entry.stages.empty(); });
}

int64_t LayoutRules::FirstWithMeshOf(int64_t stage) const {
  const auto differs = [this](const sbp::Mesh& mesh) { return !(mesh == meshes_[0]); };
  if (std::none_of(meshes_.begin(), meshes_.end(), differs)) return -1;
  return std::find(meshes_.begin(), meshes_.end(), meshes_[stage]) - meshes_.begin();
}

int64_t LayoutRules::FirstWithRulesOf(int64_t stage) const {
  for (int64_t first = 0; first < stage; ++first) {
    if (!meshes_.empty() && !(meshes_[first] == meshes_[stage])) continue;
    if (std::all_of(entries_.begin(), entries_.end(),
                    [&](const Entry& entry) { return entry.IsFor(first) == entry.IsFor(stage); }))
      return first;
  }
  return stage;
}

LayoutRules LayoutRules::OnStage(int64_t stage) const {
  LayoutRules rules = *this;
  rules.copy_suffix_ = stage < 0 ? "" : NameOnStage("", stage);
  std::erase_if(rules.entries_, [&](const Entry& entry) {
    return stage < 0 ? !entry.stages.empty() : !entry.IsFor(stage);
  });
  if (stage < 0 || meshes_.empty()) return rules;
  rules.stage_mesh_ = meshes_[stage];
  const auto is_idle = [&rules](int axis) { return rules.stage_mesh_.size(axis) == 1; };
  std::erase_if(rules.entries_, [&](const Entry& entry) { return is_idle(entry.axis); });
  for (auto& [tensor, layout] : rules.overrides_) {
    for (int axis = 0; axis < static_cast<int>(layout.size()); ++axis) {
      if (is_idle(axis)) layout[axis] = sbp::Sbp::B();
    }
  }
  return rules;
}

std::string LayoutRules::NameOnStage(const std::string& function, int64_t stage) {
  return absl::StrCat(function, "@", stage);
}

bool LayoutRules::AddOverride(const std::string& tensor, sbp::Layout layout) {
  return overrides_.emplace(tensor, std::move(layout)).second;
}

int LayoutRules::Find(const std::string& dim, int axis, RuleScope scope) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.axis == axis && entry.dim == dim &&
        (entry.scope == RuleScope::kAll || entry.scope == scope)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

LayoutReason LayoutRules::ReasonOf(int rule) const {
  return {LayoutReason::Kind::kRule, entries_[rule].text, entries_[rule].axis};
}

std::pair<int, int> LayoutRules::BestFor(const sbp::TensorType& type, int axis,
                                         RuleScope scope) const {
  std::pair<int, int> best{-1, -1};
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const int rule = Find(type.dims[d].name, axis, scope);
    if (rule >= 0 && (best.first < 0 || rule < best.first)) best = {rule, static_cast<int>(d)};
  }
  return best;
}

sbp::Layout LayoutRules::LayoutOf(const sbp::TensorType& type, RuleScope scope) const {
  sbp::Layout layout = sbp::Broadcast(stage_mesh_);
  for (int axis = 0; axis < stage_mesh_.num_axes(); ++axis) {
    const auto [rule, dim] = BestFor(type, axis, scope);
    if (rule >= 0) layout[axis] = sbp::Sbp::S(dim);
  }
  return layout;
}

LayoutReasons LayoutRules::WhyOf(const sbp::TensorType& type, RuleScope scope) const {
  LayoutReasons why;
  for (int axis = 0; axis < stage_mesh_.num_axes(); ++axis) {
    const int rule = BestFor(type, axis, scope).first;
    if (rule >= 0) why.push_back(ReasonOf(rule));
  }
  return why;
}

LayoutReasons LayoutRules::WhyBoxed(const sbp::Layout& from, const sbp::Layout& to) const {
  LayoutReasons why;
  for (int axis : ChangedAxes(from, to)) {
    for (size_t rule = 0; rule < entries_.size(); ++rule) {
      if (entries_[rule].axis != axis || entries_[rule].scope == RuleScope::kParameters) continue;
      why.push_back(ReasonOf(static_cast<int>(rule)));
      break;
    }
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
  if (it == overrides_.end() && !copy_suffix_.empty()) {
    // The functions made of a copy, such as its backward function, have names that go on after the
    // suffix.
    const size_t at = function.rfind(copy_suffix_);
    if (at != std::string::npos) {
      it = overrides_.find(absl::StrCat(function.substr(0, at),
                                        function.substr(at + copy_suffix_.size()), "/", tensor));
    }
  }
  return it == overrides_.end() ? nullptr : &it->second;
}

}  // namespace weir::compiler
