#include "compiler/ir/stage_shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::compiler {
namespace {

std::string ToText(const Station& station) {
  return absl::StrCat(station.item, ".", station.index);
}

std::string ToText(const std::vector<Station>& stations) {
  return absl::StrJoin(stations, " ", [](std::string* out, const Station& station) {
    absl::StrAppend(out, ToText(station));
  });
}

}  // namespace

std::string ToText(const std::vector<StageShape>& stages) {
  std::string text;
  for (const StageShape& shape : stages) {
    absl::StrAppend(&text, "stage ", shape.graph.stage, "\n");
    for (const RankActor& actor : shape.graph.actors) {
      absl::StrAppend(&text, "  station ", ToText(actor.station), " '", actor.name, "', ",
                      actor.acts_per_step, " acts a step\n");
    }
    for (const auto& [made_by, tensor] : shape.tensors) {
      absl::StrAppend(&text, "  output ", made_by.second, " of ", ToText(made_by.first),
                      " read by ", ToText(tensor.readers), ", slots ", tensor.slots, "\n");
    }
    for (const MemoryOrder& order : shape.orders) {
      absl::StrAppend(&text, "  ", ToText(order.before), " before ", ToText(order.after), ", lag ",
                      order.lag, "\n");
    }
    if (shape.gate.has_value()) {
      absl::StrAppend(&text, "  gate ", ToText(shape.gate->before), " before ",
                      ToText(shape.gate->after), "\n");
    }
  }
  return text;
}

}  // namespace weir::compiler
