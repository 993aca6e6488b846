#include "sbp/places.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

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
  return std::make_shared<HostCut>(HostCut{Places::WithoutCut(std::move(places), devices_per_host),
                                           devices_per_host, std::move(within_host),
                                           std::move(axes)});
}

enum class BlockHosts : uint8_t { kOne, kOwn };

// Returns whether each block of neighbouring devices has a host of its own (kOwn), or at least lies
// on one host (kOne).
bool HasBlocks(const Place& place, int64_t block, int64_t devices_per_host, BlockHosts hosts) {
  std::set<int64_t> seen;
  const auto devices = static_cast<int64_t>(place.ranks.size());
  for (int64_t first = 0; first < devices; first += block) {
    const int64_t host = place.ranks[first].value() / devices_per_host;
    if (!seen.insert(host).second && hosts == BlockHosts::kOwn) return false;
    for (int64_t device = first; device < first + block; ++device) {
      if (place.ranks[device].value() / devices_per_host != host) return false;
    }
  }
  return true;
}

// Cuts a mesh where blocks of neighbouring devices end. Returns false if blocks do not end with an
// axis or a part of one.
bool CutByBlocks(const Mesh& mesh, int64_t block, HostCut* cut, Mesh* cut_mesh) {
  std::vector<MeshAxis> parts;
  int64_t stride = mesh.num_ranks();  // from device to device along the axis
  for (const MeshAxis& axis : mesh.axes()) {
    stride /= axis.size;
    cut->axes.emplace_back();
    const auto add = [&](const std::string& name, int64_t size, bool within) {
      cut->axes.back().push_back(static_cast<int>(parts.size()));
      parts.push_back({name, size});
      cut->within_host.push_back(within);
    };
    if (stride >= block || stride * axis.size <= block) {
      add(axis.name, axis.size, stride < block);
      continue;
    }
    if (block % stride != 0 || axis.size % (block / stride) != 0) return false;
    add(absl::StrCat(axis.name, ".hosts"), axis.size / (block / stride), false);
    add(absl::StrCat(axis.name, ".devices"), block / stride, true);
  }
  *cut_mesh = Mesh(std::move(parts));
  return true;
}

// Cuts the places with this mesh, among places of unequal meshes.
std::shared_ptr<const HostCut> CutPlacesOf(const Mesh& mesh, std::vector<Place> places,
                                           int64_t devices_per_host) {
  std::vector<Place*> alike;
  for (Place& place : places) {
    if (place.mesh == mesh) alike.push_back(&place);
  }
  const auto have_blocks = [&](int64_t block, BlockHosts hosts) {
    return std::all_of(alike.begin(), alike.end(), [&](const Place* place) {
      return HasBlocks(*place, block, devices_per_host, hosts);
    });
  };
  for (int64_t block = mesh.num_ranks(); block > 1; --block) {
    HostCut cut;
    Mesh cut_mesh;
    if (mesh.num_ranks() % block != 0 || !have_blocks(block, BlockHosts::kOne) ||
        !CutByBlocks(mesh, block, &cut, &cut_mesh))
      continue;
    cut.follows_hosts = have_blocks(block, BlockHosts::kOwn);
    for (Place* place : alike) place->mesh = cut_mesh;
    cut.places = Places::WithoutCut(std::move(places), devices_per_host);
    cut.devices_per_host = devices_per_host;
    return std::make_shared<HostCut>(std::move(cut));
  }
  return nullptr;
}

std::vector<std::shared_ptr<const HostCut>> CutUnequalMeshes(const std::vector<Place>& places,
                                                             int64_t devices_per_host) {
  std::vector<std::shared_ptr<const HostCut>> cuts(places.size());
  for (size_t p = 0; p < places.size(); ++p) {
    const auto same = [&](const Place& place) { return place.mesh == places[p].mesh; };
    const auto first =
        static_cast<size_t>(std::find_if(places.begin(), places.end(), same) - places.begin());
    cuts[p] = first < p ? cuts[first] : CutPlacesOf(places[p].mesh, places, devices_per_host);
  }
  return cuts;
}

}  // namespace

std::shared_ptr<Places::Table> Places::MakeTable(std::vector<Place> places,
                                                 int64_t devices_per_host) {
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
  table->has_equal_meshes = std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return place.mesh == places[0].mesh;
  });
  table->places = std::move(places);
  return table;
}

Places::Places(std::vector<Place> places, int64_t devices_per_host) {
  std::shared_ptr<Table> table = MakeTable(std::move(places), devices_per_host);
  if (devices_per_host > 0 && static_cast<int64_t>(table->devices.size()) > devices_per_host) {
    if (table->has_equal_meshes) {
      table->host_cut = CutByHosts(table->places, devices_per_host);
    } else {
      table->host_cut_of = CutUnequalMeshes(table->places, devices_per_host);
    }
  }
  table_ = std::move(table);
}

Places Places::WithoutCut(std::vector<Place> places, int64_t devices_per_host) {
  return Places(MakeTable(std::move(places), devices_per_host));
}

bool Places::has_equal_meshes() const { return table_->has_equal_meshes; }

const HostCut* Places::host_cut(int64_t place) const {
  if (table_->has_equal_meshes) return table_->host_cut.get();
  return table_->host_cut_of.empty() ? nullptr : table_->host_cut_of[place].get();
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
