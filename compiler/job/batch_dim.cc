#include "compiler/job/batch_dim.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/import_function.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

absl::Status NotInTable(const std::string& where, const std::string& name,
                        const ops::DimTable& dims) {
  std::vector<std::string> names;
  for (const auto& [known, dim] : dims) names.push_back(known);
  return Rejected({"W0436", where,
                   "the dimension that is cut into micro-batches, one of the graph's dim table",
                   absl::StrCat("\"", name, "\""), Nearest(name, names)});
}

// Returns W0436 unless an input of `main` has dimension `name`: without one, micro-batches would be
// of the whole step's samples, and their losses would have the sizes of a part.
absl::Status CheckAnInputHas(const std::string& name, const proto::Function& main,
                             const ops::DimTable& dims) {
  std::vector<std::string> found;
  for (const proto::TensorDecl& input : main.input()) {
    absl::StatusOr<ops::DeclaredType> declared = ops::ParseDeclaredType(input.type(), dims);
    if (!declared.ok())
      return At(absl::StrCat("function ", main.name(), ", input ", input.name()),
                declared.status());
    for (const sbp::TensorDim& dim : declared->type.dims) {
      if (dim.name == name) return absl::OkStatus();
      if (dims.count(dim.name) == 0) continue;
      if (std::find(found.begin(), found.end(), dim.name) == found.end()) found.push_back(dim.name);
    }
  }
  return Rejected(
      {"W0436", "training.batch_dim",
       "the dimension of the inputs of main that counts samples and is cut into micro-batches",
       absl::StrCat("\"", name, "\", which no input of main has"),
       found.empty() ? "give an input of main this dimension"
                     : absl::StrCat("a dimension of the inputs: ", absl::StrJoin(found, ", "))});
}

const proto::Function* MainOf(const proto::Job& job) {
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() == job.graph().main()) return &function;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::string> BatchDim(const proto::Job& job, const ops::DimTable& dims) {
  const std::string& given = job.training().batch_dim();
  if (!given.empty() && dims.count(given) == 0)
    return NotInTable("training.batch_dim", given, dims);
  const proto::Function* main = MainOf(job);
  if (main == nullptr) return NoMain(job);
  if (!given.empty()) {
    WEIR_RETURN_IF_ERROR(CheckAnInputHas(given, *main, dims));
    return given;
  }
  std::string common;
  bool agree = main->input_size() > 0;
  std::vector<std::string> found;
  for (int i = 0; agree && i < main->input_size(); ++i) {
    const proto::TensorDecl& input = main->input(i);
    absl::StatusOr<ops::DeclaredType> declared = ops::ParseDeclaredType(input.type(), dims);
    if (!declared.ok())
      return At(absl::StrCat("function ", main->name(), ", input ", input.name()),
                declared.status());
    const std::string first = declared->type.dims.empty() ? "" : declared->type.dims[0].name;
    found.push_back(
        absl::StrCat(first.empty() ? "no dimension" : first, " (input ", input.name(), ")"));
    if (i == 0) common = first;
    if (first != common || first.empty()) {
      agree = false;
    }
  }
  if (agree)
    return dims.count(common) > 0 ? absl::StatusOr<std::string>(common)
                                  : NotInTable(absl::StrCat("function ", main->name(), ", input ",
                                                            main->input(0).name()),
                                               common, dims);
  return Rejected({"W0904", "training.batch_dim",
                   "one first dimension of all inputs of main, to be cut into micro-batches, or "
                   "the name of the dimension to cut",
                   found.empty() ? "no inputs of main" : absl::StrJoin(found, ", "),
                   "training { batch_dim: \"...\" }"});
}

}  // namespace weir::compiler
