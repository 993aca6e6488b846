// The places of a job. A Place is a set of devices with a mesh of its own, and a layout is written
// over the mesh of a place. A pipeline has one place for each stage.
//
// The types assume neither equal sizes nor equal meshes. PlanBoxing (sbp/boxing.h) moves tensors
// only between places whose meshes are equal.
// Thread rule: values; copies share one immutable table.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sbp/mesh.h"

namespace weir::sbp {

struct Place {
  Mesh mesh;                   // has no pipeline axis
  std::vector<int64_t> ranks;  // ranks[i] is the job's rank of device i of `mesh`
};

class Places {
 public:
  // Makes one place, with one device.
  Places() : Places(std::vector<Place>{{Mesh(), {0}}}) {}
  // Each rank from 0 to the number of ranks, exclusive, belongs to exactly one place. A place has a
  // rank for each device of its mesh.
  explicit Places(std::vector<Place> places);

  int64_t size() const { return static_cast<int64_t>(table_->places.size()); }
  int64_t num_ranks() const { return static_cast<int64_t>(table_->devices.size()); }
  const Mesh& mesh(int64_t place) const { return table_->places[place].mesh; }
  const std::vector<int64_t>& ranks(int64_t place) const { return table_->places[place].ranks; }

  // Return the place of a rank, and the number and the coordinates of the rank's device in the mesh
  // of that place.
  int64_t PlaceOf(int64_t rank) const { return table_->devices[rank].place; }
  int64_t DeviceOf(int64_t rank) const { return table_->devices[rank].number; }
  Coords CoordsOf(int64_t rank) const { return mesh(PlaceOf(rank)).CoordsOf(DeviceOf(rank)); }

 private:
  struct Device {
    int64_t place = 0;
    int64_t number = 0;
  };
  struct Table {
    std::vector<Place> places;
    std::vector<Device> devices;  // by rank
  };
  std::shared_ptr<const Table> table_;
};

// Returns one place for each coordinate of the pipeline axis, in order. The mesh of each place is
// `mesh` without that axis. A mesh without a pipeline axis is one place.
Places PipelinePlaces(const Mesh& mesh);

}  // namespace weir::sbp
