#include "tests/fuzz/names_trial.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/dims/name_dims.h"
#include "compiler/dims/without_names_testing.h"
#include "compiler/job/import_graph.h"
#include "runtime/base/status.h"
#include "tests/fuzz/compile_check.h"

namespace weir::fuzz {
namespace {

using compiler::Module;

absl::StatusOr<Module> Import(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const auto dims, compiler::ImportDimTable(job));
  return compiler::ImportGraph(job, dims, compiler::PlanMode::kTrain);
}

// Returns the name and the shape of every tensor, a line each.
std::vector<std::string> Shapes(const Module& module) {
  std::vector<std::string> lines;
  for (const compiler::Function& function : module.functions) {
    for (const compiler::Value& value : function.values)
      lines.push_back(absl::StrCat(function.name, ".", value.name, ToText(value.type.shape())));
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::string> FindNamesAgain(const proto::Job& job) {
  const absl::StatusOr<Module> before = Import(job);
  if (!before.ok()) return CodeOf("import", before.status());
  proto::Job found = compiler::WithoutNames(job);
  const absl::StatusOr<compiler::GraphDims> dims = compiler::FindDims(found);
  if (!dims.ok()) return absl::InternalError(absl::StrCat("find: ", dims.status().ToString()));
  compiler::ReplaceProvisional(*dims, compiler::NameDims(*dims), &found);
  const absl::StatusOr<Module> after = Import(found);
  if (!after.ok()) return absl::InternalError(absl::StrCat("import: ", after.status().ToString()));
  const std::vector<std::string> expected = Shapes(*before), shapes = Shapes(*after);
  if (shapes.size() != expected.size())
    return absl::InternalError(absl::StrCat(shapes.size(), " tensors, not ", expected.size()));
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i] != expected[i])
      return absl::InternalError(absl::StrCat(shapes[i], " instead of ", expected[i]));
  }
  return "";
}

}  // namespace weir::fuzz
