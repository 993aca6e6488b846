#include "tools/plan/trained_text.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/unit_text.h"

namespace weir::plan {

std::string TrainedShare(double trained, double all) {
  const double percent = 100 * trained / all;
  return absl::StrCat(
      CountText(trained), " of ", CountText(all), " parameters train (",
      percent < 10 ? absl::StrFormat("%.2g", percent) : absl::StrFormat("%.0f", percent), " %)");
}

std::string TrainedText(const compiler::LogicalPlan& plan) {
  if (plan.mode != compiler::PlanMode::kTrain) return "";
  std::set<std::string> frozen;
  for (const compiler::ModelWeight& weight : plan.module.model.weights) {
    if (weight.frozen) frozen.insert(weight.name);
  }
  if (frozen.empty()) return "";
  double all = 0, trained = 0;
  for (const compiler::Variable& variable : plan.module.variables) {
    if (!variable.slot_of.empty()) continue;
    const auto elements = static_cast<double>(variable.type.num_elements());
    all += elements;
    if (frozen.count(variable.name) == 0) trained += elements;
  }
  return TrainedShare(trained, all) + ", the others are frozen";
}

}  // namespace weir::plan
