// The layout rules of a job. A rule maps the name of a dimension to a mesh axis.
// Thread rule: immutable after construction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "sbp/layout.h"
#include "sbp/mesh.h"

namespace weir::compiler {

// The tensors that a rule is about. A rule for parameters alone leaves activations whole.
enum class RuleScope : uint8_t { kAll, kActivations, kParameters };

class LayoutRules {
 public:
  LayoutRules() = default;
  // `stage_mesh` is the mesh of every place. There are no rules yet.
  explicit LayoutRules(sbp::Mesh stage_mesh) : stage_mesh_(std::move(stage_mesh)) {}
  // Gives each stage a mesh of its own. The meshes have the axes of `stage_mesh`.
  void SetMeshes(std::vector<sbp::Mesh> of_stages) { meshes_ = std::move(of_stages); }

  // Returns the mesh of every place; of rules of a stage (OnStage), that of the stage.
  const sbp::Mesh& stage_mesh() const { return stage_mesh_; }

  // Adds a rule after all others: `axis` of the mesh splits the dimension `dim` on these stages of
  // the pipeline; none: on all.
  void AddRule(const std::string& dim, int axis, RuleScope scope, std::vector<int64_t> stages = {});
  // Gives the tensor "function/tensor" a layout of its own. Returns false if the tensor has one.
  bool AddOverride(const std::string& tensor, sbp::Layout layout);

  // Returns whether some rule is for some stages only, or stages have unequal meshes.
  bool DifferByStage() const;
  // Returns the first stage that has the same rules and the same mesh as `stage`.
  int64_t FirstWithRulesOf(int64_t stage) const;
  // Returns the first stage that has the same mesh as `stage`; -1 if all stages have one mesh.
  int64_t FirstWithMeshOf(int64_t stage) const;
  // Returns the rules of a stage; those of all stages if `stage` is below 0. The explicit layouts
  // of a function are also those of its copy for a stage (NameOnStage). Along an axis that has one
  // device on the stage, nothing is split.
  LayoutRules OnStage(int64_t stage) const;
  // Returns the name of the copy of a function for a stage: "block@2".
  static std::string NameOnStage(const std::string& function, int64_t stage);

  // Returns the position of the first rule that maps `dim` to mesh axis `axis`, or -1. A smaller
  // position is preferred.
  int Find(const std::string& dim, int axis, RuleScope scope) const;
  // Returns the reason that a rule is for a layout on the axis that the rule names.
  LayoutReason ReasonOf(int rule) const;

  // Returns the layout that the rules give a stored tensor of the model, or a tensor that passes
  // between functions.
  sbp::Layout LayoutOf(const sbp::TensorType& type, RuleScope scope) const;

  // Explains the layout of LayoutOf. Empty if no rule splits the tensor.
  LayoutReasons WhyOf(const sbp::TensorType& type, RuleScope scope) const;

  // Explains a boxing of what the model computed from its activations, such as a gradient: for each
  // axis that changes, the first rule that splits activations over the axis.
  LayoutReasons WhyBoxed(const sbp::Layout& from, const sbp::Layout& to) const;

  // Checks that every override names a function and a tensor of that function, and fits the
  // tensor's type.
  absl::Status CheckOverrides(const Module& module) const;

  // Returns the explicit layout of "function/tensor", or nullptr.
  const sbp::Layout* Override(const std::string& function, const std::string& tensor) const;

 private:
  // Returns the rule that decides over an axis of the mesh, and the tensor's dimension that the
  // rule names. -1: none.
  std::pair<int, int> BestFor(const sbp::TensorType& type, int axis, RuleScope scope) const;

  struct Entry {
    std::string dim;
    int axis;
    RuleScope scope;
    std::vector<int64_t> stages;  // empty: all
    std::string text;             // "batch -> dp"
    bool IsFor(int64_t stage) const;
  };
  std::vector<Entry> entries_;
  std::map<std::string, sbp::Layout> overrides_;
  std::string copy_suffix_;  // of the names of functions that are copies for a stage; may be empty
  sbp::Mesh stage_mesh_;
  std::vector<sbp::Mesh> meshes_;  // by stage; empty: all stages have stage_mesh_
};

}  // namespace weir::compiler
