#include "compiler/transfer/largest_shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir::compiler {
namespace {

int64_t LookAtRanks(const std::vector<sbp::TensorType>& types,
                    const std::vector<sbp::BoxingStep>& steps, const sbp::Places& places) {
  if (steps.empty()) return 0;
  const int64_t to = steps[0].to.place;  // one place for all tensors of a bundle
  std::vector<char> splits(places.mesh(to).axes().size(), 0);
  for (const sbp::BoxingStep& step : steps) {
    for (size_t axis = 0; axis < splits.size(); ++axis)
      splits[axis] |= step.to.layout[axis].is_split() ? 1 : 0;
    for (int axis : step.flat_axes) splits[axis] = 1;
  }
  int64_t most = 0;
  const int64_t num_devices = places.mesh(to).num_ranks();
  for (int64_t device = 0; device < num_devices; ++device) {
    const RankId rank = places.RankAt(to, device);
    // Ranks that differ only along axes that split nothing hold the same amount.
    const sbp::Coords coords = places.CoordsOf(rank);
    bool like_another = false;
    for (size_t axis = 0; axis < splits.size(); ++axis)
      like_another |= splits[axis] == 0 && coords[axis] > 0;
    if (like_another) continue;
    int64_t here = 0;
    for (size_t i = 0; i < types.size(); ++i) {
      here += sbp::StepOutput(types[i], steps[i], places, rank).num_elements();
    }
    most = std::max(most, here);
  }
  return most;
}

}  // namespace

int64_t LargestShard::Elements(const std::vector<sbp::TensorType>& types,
                               const std::vector<sbp::BoxingStep>& steps, const sbp::Places& places,
                               int64_t enough) {
  double whole = 0;  // a double, because fantastic sizes could overflow an integer
  for (const sbp::TensorType& type : types) whole += static_cast<double>(type.num_elements());
  if (whole <= static_cast<double>(enough)) return static_cast<int64_t>(whole);
  std::string key;
  for (size_t i = 0; i < types.size(); ++i) {
    // Shards are alike on all places of one mesh.
    sbp::BoxingStep step = steps[i];
    const sbp::Mesh& mesh = places.mesh(step.to.place);
    if (places.mesh(step.from.place) == mesh && places.mesh(0) == mesh)
      step.from.place = step.to.place = 0;
    absl::StrAppend(&key, ToText(types[i]), ToText(step, places), ";");
  }
  auto known = known_.find(key);
  if (known == known_.end()) known = known_.emplace(key, LookAtRanks(types, steps, places)).first;
  return known->second;
}

}  // namespace weir::compiler
