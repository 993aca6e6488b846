#include "compiler/job/parameter_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// Returns the names of some weights, for a message.
std::string SomeWeights(const Model& model) {
  constexpr size_t kNamesShown = 6;
  std::string text;
  for (size_t w = 0; w < model.weights.size() && w < kNamesShown; ++w)
    absl::StrAppend(&text, w == 0 ? "" : ", ", model.weights[w].name);
  if (model.weights.size() > kNamesShown)
    absl::StrAppend(&text, " and ", model.weights.size() - kNamesShown, " more");
  return text;
}

bool Fits(const ModelWeight& weight, const std::string& pattern) {
  return FitsPattern(weight.name, pattern, Wildcards::kStarAndQuestionMark);
}

// Refuses a group whose weights all belong to earlier groups: it would have no effect.
absl::Status CheckHasWeight(const std::vector<GroupSettings>& groups, int g,
                            const std::vector<ModelWeight>& weights) {
  const ModelWeight* lost = nullptr;  // a weight that fits and belongs to another group
  for (const ModelWeight& weight : weights) {
    if (weight.group == g) return absl::OkStatus();
    if (lost == nullptr && Fits(weight, groups[g].patterns[0])) lost = &weight;
  }
  return Rejected(
      {"W0085", absl::StrCat("training.group[", g, "]"),
       "a weight that fits no earlier group, as the first group that a weight fits counts",
       absl::StrCat("weights of earlier groups alone: ", lost->name, " belongs to training.group[",
                    lost->group, "]"),
       "the group with the narrower pattern in front of the other"});
}

// A parameter of a function of which every call has a frozen weight needs no gradient.
void FreezeParameters(Module* module) {
  const Model& model = module->model;
  for (size_t f = 0; f < model.functions.size(); ++f) {
    Function& function = module->functions[model.functions[f].forward];
    std::vector<char> is_trained(function.parameters.size(), 0);
    for (const ModelCall& call : model.calls) {
      if (call.model_function != static_cast<int>(f)) continue;
      for (size_t p = 0; p < call.weights.size(); ++p)
        is_trained[p] = is_trained[p] || !model.weights[call.weights[p]].frozen;
    }
    for (size_t p = 0; p < is_trained.size(); ++p) {
      if (!is_trained[p]) function.parameters[p].frozen = true;
    }
  }
}

}  // namespace

absl::Status ApplyGroups(const std::vector<GroupSettings>& groups, Module* module) {
  if (groups.empty()) return absl::OkStatus();
  std::vector<ModelWeight>& weights = module->model.weights;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& pattern : groups[g].patterns) {
      bool fits = false;
      for (ModelWeight& weight : weights) {
        if (!Fits(weight, pattern)) continue;
        fits = true;
        if (weight.group < 0) weight.group = static_cast<int>(g);
      }
      if (fits) continue;
      std::vector<std::string> names;
      for (const ModelWeight& weight : weights) names.push_back(weight.name);
      const std::string near = Nearest(pattern, names);
      return Rejected(
          {"W0082", absl::StrCat("training.group[", g, "].pattern"),
           absl::StrCat("a pattern that a weight of the model fits: ", SomeWeights(module->model)),
           absl::StrCat("\"", pattern, "\", which no weight fits"),
           near.empty() ? "pattern: \"*\" in front of the last part of a name"
                        : absl::StrCat("pattern: \"", near, "\"")});
    }
  }
  for (size_t g = 0; g < groups.size(); ++g)
    WEIR_RETURN_IF_ERROR(CheckHasWeight(groups, static_cast<int>(g), weights));
  for (ModelWeight& weight : weights) {
    if (weight.group >= 0 && groups[weight.group].frozen) weight.frozen = true;
  }
  FreezeParameters(module);
  return absl::OkStatus();
}

}  // namespace weir::compiler
