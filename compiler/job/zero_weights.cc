#include "compiler/job/zero_weights.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/unit_text.h"

namespace weir::compiler {
namespace {

constexpr size_t kNamesMax = 3;

}  // namespace

std::string WeightsWithoutInit(const Module& module) {
  std::vector<std::string> names;
  for (const Variable& variable : module.variables) {
    const bool is_matrix = variable.type.dims.size() >= 2;
    const bool has_init = variable.init.kind_case() != proto::Initializer::KIND_NOT_SET;
    if (is_matrix && !has_init) names.push_back(variable.name);
  }
  if (names.size() < 2) return "";
  const size_t more = names.size() > kNamesMax ? names.size() - kNamesMax : 0;
  names.resize(names.size() - more);
  return absl::StrCat(
      absl::StrJoin(names, ", "),
      more > 0 ? absl::StrCat(" and ", Plural(static_cast<int64_t>(more), "more weight")) : "",
      " have no `init` and begin as zeros, from which weights that multiply one another never "
      "change: write init { normal { std: 0.1 } } or name a file (--init); "
      "init { zeros: true } says that zeros are meant");
}

}  // namespace weir::compiler
