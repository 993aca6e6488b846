#include "sbp/places.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace weir::sbp {

namespace {

// Returns the number of ranks from one device to the next along an axis, if the place is regular.
int64_t StrideOf(const Place& place, int axis) {
  Coords coords(place.mesh.num_axes(), 0);
  coords[axis] = 1;
  if (place.mesh.size(axis) == 1) return 0;
  return place.ranks[place.mesh.RankOf(coords)].value() - place.ranks.front().value();
}

// Returns whether devices share a host exactly if they agree on all axes that leave the host.
bool AgreesWithHosts(const Place& place, const std::vector<bool>& within_host,
                     int64_t devices_per_host) {
  for (int64_t device = 0; device < place.mesh.num_ranks(); ++device) {
    Coords first = place.mesh.CoordsOf(device);
    for (int axis = 0; axis < place.mesh.num_axes(); ++axis) {
      if (within_host[axis]) first[axis] = 0;
    }
    if (place.ranks[device].value() / devices_per_host !=
        place.ranks[place.mesh.RankOf(first)].value() / devices_per_host)
      return false;
  }
  return true;
}

// Returns the places as one device number sees them: for each, the first that shares its host.
std::vector<size_t> PlacesTogether(const std::vector<Place>& places, int64_t device,
                                   int64_t devices_per_host) {
  std::map<int64_t, size_t> first_on_host;
  std::vector<size_t> together;
  for (size_t p = 0; p < places.size(); ++p)
    together.push_back(
        first_on_host.emplace(places[p].ranks[device].value() / devices_per_host, p).first->second);
  return together;
}

// Returns whether all devices see the same places on their hosts as the first one does.
bool DevicesAgree(const std::vector<Place>& places, const std::vector<size_t>& of_first,
                  int64_t devices_per_host) {
  for (int64_t device = 1; device < places.front().mesh.num_ranks(); ++device) {
    if (PlacesTogether(places, device, devices_per_host) != of_first) return false;
  }
  return true;
}

std::shared_ptr<const HostCut> CutByHosts(std::vector<Place> places, int64_t devices_per_host) {
  const Mesh mesh = places.front().mesh;
  std::vector<MeshAxis> cut;
  std::vector<bool> within_host;
  std::vector<std::vector<int>> axes;
  const auto add = [&](const std::string& name, int64_t size, bool within) {
    axes.back().push_back(static_cast<int>(cut.size()));
    cut.push_back({name, size});
    within_host.push_back(within);
  };
  const std::vector<size_t> together = PlacesTogether(places, 0, devices_per_host);
  bool any_within = std::set<size_t>(together.begin(), together.end()).size() < places.size();
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const MeshAxis& whole = mesh.axes()[axis];
    const int64_t stride = StrideOf(places.front(), axis);
    axes.emplace_back();
    any_within = any_within || (whole.size > 1 && stride < devices_per_host);
    if (stride >= devices_per_host || stride * whole.size <= devices_per_host) {
      add(whole.name, whole.size, stride < devices_per_host);
      continue;
    }
    const int64_t devices = devices_per_host / stride;
    if (devices * stride != devices_per_host || whole.size % devices != 0) return nullptr;
    add(whole.name + ".hosts", whole.size / devices, false);
    add(whole.name + ".devices", devices, true);
  }
  if (!any_within) return nullptr;
  for (Place& place : places) {
    if (place.mesh != mesh) return nullptr;
    place.mesh = Mesh(cut);
    if (!AgreesWithHosts(place, within_host, devices_per_host)) return nullptr;
  }
  if (!DevicesAgree(places, together, devices_per_host)) return nullptr;
  return std::make_shared<HostCut>(HostCut{Places(std::move(places)), devices_per_host,
                                           std::move(within_host), std::move(axes)});
}

}  // namespace

Places::Places(std::vector<Place> places, int64_t devices_per_host) {
  auto table = std::make_shared<Table>();
  size_t num_ranks = 0;
  for (const Place& place : places) num_ranks += place.ranks.size();
  table->devices.resize(num_ranks);
  for (size_t p = 0; p < places.size(); ++p) {
    for (size_t i = 0; i < places[p].ranks.size(); ++i) {
      table->devices[places[p].ranks[i]] = {static_cast<int64_t>(p), static_cast<int64_t>(i)};
    }
  }
  table->devices_per_host = devices_per_host;
  if (devices_per_host > 0 && static_cast<int64_t>(num_ranks) > devices_per_host)
    table->host_cut = CutByHosts(places, devices_per_host);
  table->places = std::move(places);
  table_ = std::move(table);
}

bool Places::has_equal_meshes() const {
  return std::all_of(table_->places.begin(), table_->places.end(),
                     [this](const Place& place) { return place.mesh == mesh(0); });
}

Places PipelinePlaces(const Mesh& mesh, int64_t devices_per_host,
                      const std::vector<int>& rank_order) {
  const int pipeline = mesh.AxisIndex(kPipelineAxis);
  std::vector<MeshAxis> axes = mesh.axes();
  if (pipeline >= 0) axes.erase(axes.begin() + pipeline);
  const int64_t num_places = pipeline < 0 ? 1 : mesh.size(pipeline);
  std::vector<Place> places(num_places, Place{Mesh(std::move(axes)), {}});
  std::vector<int64_t> strides(mesh.num_axes());  // from rank to rank, by axis
  int64_t stride = 1;
  for (int i = mesh.num_axes() - 1; i >= 0; --i) {
    const int axis = rank_order.empty() ? i : rank_order[i];
    strides[axis] = stride;
    stride *= mesh.size(axis);
  }
  // Devices are numbered row-major with and without the pipeline axis, so those of a place come in
  // order.
  for (int64_t device = 0; device < mesh.num_ranks(); ++device) {
    const Coords coords = mesh.CoordsOf(device);
    int64_t rank = 0;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) rank += coords[axis] * strides[axis];
    places[pipeline < 0 ? 0 : coords[pipeline]].ranks.push_back(RankId(static_cast<int32_t>(rank)));
  }
  return Places(std::move(places), devices_per_host);
}

Places PlacesWithMeshes(std::vector<Mesh> meshes, int64_t devices_per_host) {
  std::vector<Place> places;
  int32_t next = 0;
  for (Mesh& mesh : meshes) {
    Place& place = places.emplace_back(Place{std::move(mesh), {}});
    for (int64_t i = 0; i < place.mesh.num_ranks(); ++i) place.ranks.push_back(RankId(next++));
  }
  return Places(std::move(places), devices_per_host);
}

}  // namespace weir::sbp
