#include "compiler/job/mesh_use.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/job.pb.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr size_t kRangesShown = 6;

bool Splits(const sbp::Layout& layout, int axis) {
  return axis < static_cast<int>(layout.size()) && layout[axis].is_split();
}

bool SplitsAnything(const Module& module, int axis) {
  for (const ProgramValue& value : module.values) {
    if (Splits(value.layout, axis)) return true;
  }
  for (const ProgramItem& item : module.items) {
    if (item.kind != ItemKind::kCall) continue;
    for (const Value& value : module.functions[item.function].values) {
      if (Splits(value.layout, axis)) return true;
    }
  }
  return false;
}

// Returns the names of axes that the rules of the job mention and the mesh lacks.
std::vector<std::string> AxesOfRulesAlone(const LogicalPlan& plan) {
  std::set<std::string> names;
  for (const proto::Rule& rule : plan.job->rule()) {
    if (plan.stage_mesh.AxisIndex(rule.axis()) < 0) names.insert(rule.axis());
  }
  return {names.begin(), names.end()};
}

// Returns whether jobs often give an axis this name, so that it is no misspelling of another.
bool IsUsualAxis(const std::string& name) {
  static const auto* const kUsual =
      new std::set<std::string>{"dp", "tp", "pp", "sp", "cp", "ep", "fsdp"};
  return kUsual->count(name) > 0;
}

// Returns the advice if the axis `name` of the mesh and one of `others`, of which rules speak, are
// probably one axis with one of the names misspelt; "" if they are not.
std::string MisspeltAxis(const LogicalPlan& plan, const std::string& name,
                         const std::vector<std::string>& others, int64_t size) {
  std::vector<std::string> candidates;
  for (const std::string& other : others) {
    if (!IsUsualAxis(name) || !IsUsualAxis(other)) candidates.push_back(other);
  }
  const std::string near = Nearest(name, candidates);
  if (near.empty()) return "";
  if (!IsUsualAxis(name))
    return absl::StrCat(near, "=", size, ", as rules of the job name the axis ", near, ", or ");
  for (const proto::Rule& rule : plan.job->rule()) {
    if (rule.axis() == near)
      return absl::StrCat("rule { dim: \"", rule.dim(), "\" axis: \"", name,
                          "\" }, as the mesh has no axis ", near, ", or ");
  }
  return "";
}

// Returns the dimension of the model that a rule for `axis` could name, or "" if there is none.
// Each dimension of an input or of a parameter is split by such a rule. The first dimensions of
// inputs come first, since they are mostly those of a batch, and dimensions that no rule names come
// before all others.
std::string DimToSplit(const LogicalPlan& plan, int axis) {
  std::set<std::string> in_rules;
  for (const proto::Rule& rule : plan.job->rule()) in_rules.insert(rule.dim());
  // A claim says that no rule names the dimension, that it is of an input, that it is the first.
  std::tuple<bool, bool, bool> best_claim;
  std::string best;
  const auto look = [&](const sbp::TensorType& type, bool is_input) {
    for (size_t i = 0; i < type.dims.size(); ++i) {
      const sbp::TensorDim& dim = type.dims[i];
      if (dim.name.empty() || dim.size / dim.unit < plan.stage_mesh.size(axis)) continue;
      const std::tuple claim(in_rules.count(dim.name) == 0, is_input, i == 0);
      if (!best.empty() && claim <= best_claim) continue;
      best_claim = claim;
      best = dim.name;
    }
  };
  for (const ProgramItem& item : plan.module.items) {
    if (item.kind != ItemKind::kSource) continue;
    for (const int output : item.outputs) look(plan.module.values[output].type, true);
  }
  for (const Variable& variable : plan.module.variables) look(variable.type, false);
  return best;
}

// Returns the coordinates along `axis` that hold nothing of a tensor. If other axes split the
// tensor too, the first devices of those axes hold the most.
std::set<int64_t> EmptyCoordinates(const sbp::TensorType& type, const sbp::Layout& layout,
                                   const sbp::Mesh& mesh, int axis) {
  std::set<int64_t> empty;
  const sbp::TensorDim& dim = type.dims[layout[axis].axis];
  int64_t parts = 1;
  bool even = true;
  for (size_t a = 0; a < layout.size(); ++a) {
    if (!layout[a].is_split() || layout[a].axis != layout[axis].axis) continue;
    parts *= mesh.size(static_cast<int>(a));
    even = even && layout[a].offsets.empty();
  }
  if (even && dim.size / dim.unit >= parts) return empty;
  for (int64_t at = 0; at < mesh.size(axis); ++at) {
    sbp::Coords coords(mesh.num_axes(), 0);
    coords[axis] = at;
    if (sbp::ShardRect(type, layout, mesh, coords).volume() == 0) empty.insert(at);
  }
  return empty;
}

// The use of an axis: the dimensions that leave some of its devices without a part, and the devices
// that hold a part of any tensor.
struct AxisUse {
  struct Gap {
    std::set<int64_t> empty;  // coordinates
    std::string tensor;       // the first found, "block/wq"
    int64_t units = 0;
  };
  std::map<std::string, Gap> gaps;  // by dimension
  std::set<int64_t> busy;           // coordinates
};

// Returns how the functions on stages with this mesh use the axis.
AxisUse UseOf(const LogicalPlan& plan, const sbp::Mesh& mesh, int axis) {
  AxisUse use;
  for (const ModelFunction& model_function : plan.module.model.functions) {
    const Function& function = plan.module.functions[model_function.forward];
    if (!(plan.places.mesh(function.stage_of_mesh()) == mesh)) continue;
    for (const Value& value : function.values) {
      if (!Splits(value.layout, axis)) continue;
      const std::set<int64_t> empty = EmptyCoordinates(value.type, value.layout, mesh, axis);
      for (int64_t at = 0; at < mesh.size(axis); ++at) {
        if (empty.count(at) == 0) use.busy.insert(at);
      }
      if (empty.empty()) continue;
      const sbp::TensorDim& dim = value.type.dims[value.layout[axis].axis];
      AxisUse::Gap& gap = use.gaps[dim.name];
      if (gap.empty.size() >= empty.size()) continue;
      gap = {empty, absl::StrCat(function.name, "/", value.name), dim.size / dim.unit};
    }
  }
  return use;
}

// Returns the ranks on stages with this mesh whose coordinate along `axis` is among `at`: "2 to 7,
// 10".
std::string RanksText(const LogicalPlan& plan, const sbp::Mesh& mesh, int axis,
                      const std::set<int64_t>& at) {
  const auto is_meant = [&](RankId rank) {
    return plan.places.mesh(plan.places.PlaceOf(rank)) == mesh &&
           at.count(plan.places.CoordsOf(rank)[axis]) > 0;
  };
  std::vector<std::string> ranges;
  int64_t begin = -1;
  for (int64_t rank = 0; rank <= plan.places.num_ranks(); ++rank) {
    const bool inside =
        rank < plan.places.num_ranks() && is_meant(RankId(static_cast<int32_t>(rank)));
    if (inside && begin < 0) begin = rank;
    if (inside || begin < 0) continue;
    ranges.push_back(rank - begin > 1 ? absl::StrCat(begin, " to ", rank - 1)
                                      : absl::StrCat(begin));
    begin = -1;
  }
  const bool one = ranges.size() == 1 && ranges[0].find(' ') == std::string::npos;
  if (ranges.size() > kRangesShown) {
    ranges.resize(kRangesShown);
    ranges.push_back("…");
  }
  return absl::StrCat(one ? "rank " : "ranks ", absl::StrJoin(ranges, ", "));
}

// Adds the sentences about stages with this mesh.
void AddDevicesWithoutWork(const LogicalPlan& plan, const sbp::Mesh& mesh,
                           std::vector<std::string>* sentences) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const sbp::MeshAxis& of = mesh.axes()[axis];
    if (of.size < 2) continue;
    const AxisUse use = UseOf(plan, mesh, axis);
    for (const auto& [dim, gap] : use.gaps) {
      const bool idle = std::none_of(gap.empty.begin(), gap.empty.end(),
                                     [&](int64_t at) { return use.busy.count(at) > 0; });
      sentences->push_back(
          absl::StrCat("mesh axis ", of.name, " splits dimension ", dim, ", which has ", gap.units,
                       gap.units == 1 ? " unit" : " units", ", over ", of.size,
                       " devices: ", RanksText(plan, mesh, axis, gap.empty),
                       gap.empty.size() == 1 ? " holds" : " hold", " no part of it (", gap.tensor,
                       ")", idle ? ", nor of anything else that the axis splits" : ""));
    }
  }
}

}  // namespace

absl::Status CheckMeshUse(const LogicalPlan& plan) {
  for (int axis = 0; axis < plan.stage_mesh.num_axes(); ++axis) {
    if (plan.stage_mesh.size(axis) < 2 || SplitsAnything(plan.module, axis)) continue;
    const std::string& name = plan.stage_mesh.axes()[axis].name;
    const std::vector<std::string> others = AxesOfRulesAlone(plan);
    std::string hint = "leave out the axis";
    if (const std::string dim = DimToSplit(plan, axis); !dim.empty())
      hint = absl::StrCat("rule { dim: \"", dim, "\" axis: \"", name, "\" }, or ", hint);
    const std::string misspelt = MisspeltAxis(plan, name, others, plan.stage_mesh.size(axis));
    if (!misspelt.empty()) hint = absl::StrCat(misspelt, "leave out the axis");
    return Rejected(
        {"W0920", absl::StrCat("mesh axis ", name), "an axis that splits some tensor of the job",
         absl::StrCat("none that is split over ", name, ", so that its ",
                      plan.stage_mesh.size(axis), " devices would all do the same work"),
         others.empty() ? hint
                        : absl::StrCat(hint, ", or another axis: the rules of the job speak of ",
                                       absl::StrJoin(others, ", "))});
  }
  return absl::OkStatus();
}

std::vector<std::string> DevicesWithoutWork(const LogicalPlan& plan) {
  std::vector<sbp::Mesh> meshes;
  for (int64_t stage = 0; stage < plan.places.size(); ++stage) {
    if (std::find(meshes.begin(), meshes.end(), plan.places.mesh(stage)) == meshes.end())
      meshes.push_back(plan.places.mesh(stage));
  }
  std::vector<std::string> sentences;
  for (const sbp::Mesh& mesh : meshes) AddDevicesWithoutWork(plan, mesh, &sentences);
  return sentences;
}

}  // namespace weir::compiler
