// The places of a job. A Place is a set of devices with a mesh of its own, and a layout is written
// over the mesh of a place. A pipeline has one place for each stage.
//
// The types assume neither equal sizes nor equal meshes, and boxing (sbp/boxing.h) moves tensors
// between places of any meshes.
//
// Places may know which devices share a host. A HostCut is then what boxing needs to prefer the
// links inside hosts (sbp/boxing_over_hosts.h).
// Thread rule: values; copies share one immutable table.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "sbp/mesh.h"

namespace weir::sbp {

struct Place {
  Mesh mesh;                  // has no pipeline axis
  std::vector<RankId> ranks;  // ranks[i] is the rank of device i of `mesh`
};

struct HostCut;

class Places {
 public:
  // Makes one place, with one device.
  Places() : Places(std::vector<Place>{{Mesh(), {RankId(0)}}}) {}
  // Each rank from 0 to the number of ranks, exclusive, belongs to exactly one place. A place has a
  // rank for each device of its mesh. Ranks r with equal r / devices_per_host share a host; 0: all
  // ranks do.
  explicit Places(std::vector<Place> places, int64_t devices_per_host = 0);
  // Returns the same places, which know their hosts, but no cut.
  static Places WithoutCut(std::vector<Place> places, int64_t devices_per_host);

  int64_t size() const { return static_cast<int64_t>(table_->places.size()); }
  int64_t num_ranks() const { return static_cast<int64_t>(table_->devices.size()); }
  const Mesh& mesh(int64_t place) const { return table_->places[place].mesh; }
  bool has_equal_meshes() const;
  // Returns the ranks of a place, by device.
  const std::vector<RankId>& ranks(int64_t place) const { return table_->places[place].ranks; }
  RankId RankAt(int64_t place, int64_t device) const { return table_->places[place].ranks[device]; }
  IdRange<RankId> all_ranks() const { return table_->devices.ids(); }

  // Return the place of a rank, and the number and the coordinates of the rank's device in the mesh
  // of that place.
  int64_t PlaceOf(RankId rank) const { return table_->devices[rank].place; }
  int64_t DeviceOf(RankId rank) const { return table_->devices[rank].number; }
  Coords CoordsOf(RankId rank) const { return mesh(PlaceOf(rank)).CoordsOf(DeviceOf(rank)); }

  // Returns the number of the host of a rank.
  int64_t HostOf(RankId rank) const {
    return table_->devices_per_host == 0 ? 0 : rank.value() / table_->devices_per_host;
  }
  // Returns null if all ranks share a host, if each rank has a host of its own, if the hosts do not
  // cut the meshes evenly, or if meshes are unequal. Even cuts treat all devices of a place alike:
  // two places share the host of one device exactly if they share those of all.
  const HostCut* host_cut() const { return table_->host_cut.get(); }
  // Returns the cut of the mesh that this place has. If all meshes are equal, this is host_cut().
  // Else null if all ranks share a host, or if no equal blocks of several devices lie on one host
  // each in all places of the mesh.
  const HostCut* host_cut(int64_t place) const;

 private:
  struct Device {
    int64_t place = 0;
    int64_t number = 0;
  };
  struct Table {
    std::vector<Place> places;
    IdVector<RankId, Device> devices;
    int64_t devices_per_host = 0;
    std::shared_ptr<const HostCut> host_cut;
    // By place, if meshes are unequal and there are several hosts.
    std::vector<std::shared_ptr<const HostCut>> host_cut_of;
    bool has_equal_meshes = true;
  };
  static std::shared_ptr<Table> MakeTable(std::vector<Place> places, int64_t devices_per_host);
  explicit Places(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
  std::shared_ptr<const Table> table_;
};

// A HostCut shows places with meshes whose axes lie inside hosts or between hosts. A mesh axis that
// does both is cut in two where a host ends: over hosts of 2 devices, "dp" of 6 devices becomes
// "dp.hosts" of 3 and "dp.devices" of 2. The devices and their order stay the same.
//
// If all meshes are equal, all are cut. Else a cut is one of the places of one mesh, whose devices
// are cut into blocks: the largest equal ones that lie on one host each, in all of these places.
//
//   hosts of 4    ranks 0 1 2 3 | 4 5 6 7 | 8 9
//   dp=2          ranks 0 1                        one block: "dp", inside hosts
//   dp=6          ranks     2 3   4 5 6 7          three blocks: "dp.hosts" of 3, "dp.devices" of 2
//
// The last two of these blocks share a host.
struct HostCut {
  Places places;  // with the cut meshes; they know no cut themselves
  int64_t devices_per_host = 0;
  std::vector<bool> within_host;       // by axis of the cut mesh: devices along it share a host
  std::vector<std::vector<int>> axes;  // by axis of the mesh: its one or two axes of the cut mesh
  // True if devices of a cut place share a host only where they agree on all axes between hosts.
  bool follows_hosts = true;
};

// Returns one place for each coordinate of the pipeline axis, in order. The mesh of each place is
// `mesh` without that axis. A mesh without a pipeline axis is one place.
//
// `rank_order` numbers the axes of `mesh` from slowest to fastest: ranks are numbered row-major
// over the axes in that order, so ranks that differ along the last of them are neighbours. Empty:
// in the order of the mesh. Which rank a device has changes nothing but its host: devices, layouts
// and the order of sums follow the mesh. Precondition: `rank_order` is empty or has each axis once.
Places PipelinePlaces(const Mesh& mesh, int64_t devices_per_host = 0,
                      const std::vector<int>& rank_order = {});

// Returns a place for each mesh, in order. Ranks are numbered place after place, and row-major in
// a place.
Places PlacesWithMeshes(std::vector<Mesh> meshes, int64_t devices_per_host = 0);

}  // namespace weir::sbp
