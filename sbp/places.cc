#include "sbp/places.h"

#include <utility>

namespace weir::sbp {

Places::Places(std::vector<Place> places) {
  auto table = std::make_shared<Table>();
  size_t num_ranks = 0;
  for (const Place& place : places) num_ranks += place.ranks.size();
  table->devices.resize(num_ranks);
  for (size_t p = 0; p < places.size(); ++p) {
    for (size_t i = 0; i < places[p].ranks.size(); ++i)
      table->devices[places[p].ranks[i]] = {static_cast<int64_t>(p), static_cast<int64_t>(i)};
  }
  table->places = std::move(places);
  table_ = std::move(table);
}

Places PipelinePlaces(const Mesh& mesh) {
  const int pipeline = mesh.AxisIndex(kPipelineAxis);
  std::vector<MeshAxis> axes = mesh.axes();
  if (pipeline >= 0) axes.erase(axes.begin() + pipeline);
  const int64_t num_places = pipeline < 0 ? 1 : mesh.size(pipeline);
  std::vector<Place> places(num_places, Place{Mesh(std::move(axes)), {}});
  // Ranks are numbered row-major with and without the axis, so the devices of a place come in
  // order.
  int64_t inner_size = 1;  // of the axes right of the pipeline
  for (int i = pipeline + 1; pipeline >= 0 && i < mesh.num_axes(); ++i) inner_size *= mesh.size(i);
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank)
    places[pipeline < 0 ? 0 : rank / inner_size % num_places].ranks.push_back(rank);
  return Places(std::move(places));
}

}  // namespace weir::sbp
