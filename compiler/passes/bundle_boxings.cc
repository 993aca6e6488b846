#include "compiler/passes/bundle_boxings.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "sbp/known_boxings.h"

namespace weir::compiler {

absl::Status BundleBoxings(const sbp::Places& places, Module* module) {
  std::vector<int> producer(module->values.size(), -1);
  std::vector<std::set<int>> readers(module->values.size());
  for (size_t i = 0; i < module->items.size(); ++i) {
    for (int output : module->items[i].outputs) producer[output] = static_cast<int>(i);
    for (int input : module->items[i].inputs) {
      if (input >= 0) readers[input].insert(static_cast<int>(i));
    }
  }
  sbp::KnownBoxings boxings;
  std::map<std::string, size_t> first;  // key -> index in `kept`
  std::vector<ProgramItem> kept;
  std::map<size_t, size_t> joined;  // index in `kept` -> values that joined the bundle
  for (ProgramItem& item : module->items) {
    if (item.kind != ItemKind::kBoxing) {
      kept.push_back(std::move(item));
      continue;
    }
    const ProgramValue& from = module->values[item.inputs[0]];
    const ProgramValue& to = module->values[item.outputs[0]];
    WEIR_ASSIGN_OR_RETURN(
        const sbp::Boxing* boxing,
        boxings.Of(from.type, {from.layout, from.stage}, {to.layout, to.stage}, places));
    std::string key = absl::StrCat(producer[item.inputs[0]], "|", from.stage, "|", to.stage, "|",
                                   static_cast<int>(item.frequency), "|", Name(from.type.dtype),
                                   "|", boxing->steps.size(), "|", static_cast<int>(from.frequency),
                                   "|", boxing->places.mesh(from.stage).ToText(), ">",
                                   boxing->places.mesh(to.stage).ToText(), "|");
    for (const sbp::BoxingStep& step : boxing->steps)
      absl::StrAppend(&key, step.from.place, ">", step.to.place, ",");
    for (int reader : readers[item.outputs[0]]) absl::StrAppend(&key, reader, ",");
    auto known = first.emplace(key, kept.size());
    if (known.second) {
      kept.push_back(std::move(item));
      continue;
    }
    ProgramItem& bundle = kept[known.first->second];
    bundle.inputs.insert(bundle.inputs.end(), item.inputs.begin(), item.inputs.end());
    bundle.outputs.insert(bundle.outputs.end(), item.outputs.begin(), item.outputs.end());
    joined[known.first->second] += item.inputs.size();
  }
  for (const auto& [index, values] : joined) absl::StrAppend(&kept[index].name, " +", values);
  module->items = std::move(kept);
  return absl::OkStatus();
}

}  // namespace weir::compiler
