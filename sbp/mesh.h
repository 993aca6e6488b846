// A Mesh is a box of devices with named axes. Ranks are numbered row-major.
//
// The axis named "pp" (kPipelineAxis) is the pipeline. Layouts never use that axis: sbp/places.h
// cuts the mesh of a job into places, whose meshes lack the axis. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::sbp {

inline constexpr char kPipelineAxis[] = "pp";

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

using Coords = std::vector<int64_t>;  // one per mesh axis

class Mesh {
 public:
  Mesh() = default;
  // Sizes must be >= 1 and names unique; Parse() and Validate() check both.
  explicit Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}

  // "dp=2,tp=2"; "" is the mesh of one device. kInvalidArgument names the flaw.
  static absl::StatusOr<Mesh> Parse(const std::string& text);
  absl::Status Validate() const;

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int num_axes() const { return static_cast<int>(axes_.size()); }
  int64_t size(int axis) const { return axes_[axis].size; }
  int AxisIndex(const std::string& name) const;  // -1: none
  int64_t num_ranks() const;
  Coords CoordsOf(int64_t rank) const;
  int64_t RankOf(const Coords& coords) const;

  // Returns the positions of the axes `names`, which must name each axis once. `where` is the place
  // of the names for errors (W0106), such as "--place".
  absl::StatusOr<std::vector<int>> OrderOf(const std::vector<std::string>& names,
                                           const std::string& where) const;

  std::string ToText() const;  // "dp=2,tp=2"
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
};

}  // namespace weir::sbp
