#include "tools/fleet/load_codec.h"

#include <memory>
#include <utility>

#include "runtime/base/status.h"
#include "tools/weights/averages.h"
#include "tools/weights/weight_map.h"

namespace weir::fleet {

void FillLoad(const train::LoadOrder& order,
              const std::function<std::string(const std::string&)>& path_on,
              proto::LoadCommand* load) {
  load->set_path(path_on(order.path));
  load->set_everything(IsEverything(order.set));
  load->set_averages(order.values == weights::Values::kAverages);
  if (order.map == nullptr) return;
  *load->mutable_map() = order.map->message();
  if (!order.constants.empty()) load->set_constants(path_on(order.constants));
}

absl::StatusOr<train::LoadOrder> LoadOrderOf(const proto::LoadCommand& command) {
  train::LoadOrder order{command.path(), StateSetOf(command.everything()), nullptr,
                         command.constants(), weights::ValuesOf(command.averages())};
  if (!command.has_map()) return order;
  WEIR_ASSIGN_OR_RETURN(weights::WeightMap map,
                        weights::WeightMap::Make(command.map(), "of the starter"));
  order.map = std::make_shared<const weights::WeightMap>(std::move(map));
  return order;
}

}  // namespace weir::fleet
