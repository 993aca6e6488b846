// The rules of a job, which map names of dimensions to mesh axes, ready to be asked.
// Thread rule: immutable after construction.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir.h"
#include "proto/job.pb.h"
#include "sbp/layout.h"
#include "sbp/mesh.h"

namespace weir::compiler {

class LayoutRules {
 public:
  LayoutRules() = default;
  // Rules about axes the mesh does not have are left out (a job keeps its rules when the
  // mesh shrinks); rules about unknown dimensions are an error with the nearest name.
  static absl::StatusOr<LayoutRules> Create(const Job& job, const Mesh& stage_mesh,
                                            const std::map<std::string, TensorDim>& dims);

  // Position of the first rule that maps `dim` to mesh axis `axis`, or -1. Small = preferred.
  int Find(const std::string& dim, int axis, Rule::Scope scope) const;
  std::string Describe(int rule) const;  // "rule batch -> dp"

  // The layout the rules give a tensor of the model that is stored or passed between functions.
  Layout LayoutOf(const TensorType& type, Rule::Scope scope) const;

  // Why it is that one, "dp: rule batch -> dp, tp: rule heads -> tp"; empty if no rule splits the
  // tensor.
  std::string WhyOf(const TensorType& type, Rule::Scope scope) const;

  // Every override names a function and a tensor of it, and fits its type.
  absl::Status CheckOverrides(const Module& module) const;

  // Explicit layouts, by "function/tensor".
  const Layout* Override(const std::string& function, const std::string& tensor) const;

 private:
  // The rule that decides over an axis of the mesh, and the dimension of the tensor that it names;
  // -1: none.
  std::pair<int, int> BestFor(const TensorType& type, int axis, Rule::Scope scope) const;

  struct Entry {
    std::string dim;
    int axis;
    Rule::Scope scope;
    std::string text;
  };
  std::vector<Entry> entries_;
  std::map<std::string, Layout> overrides_;
  Mesh stage_mesh_;
};

}  // namespace weir::compiler
