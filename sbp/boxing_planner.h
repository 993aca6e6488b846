// Plans a boxing on one mesh, and counts the elements that the plan sends. PlanBoxing and the plans
// over hosts use this planner; only sbp includes this header.
// Thread rule: values; type and mesh outlive a planner.
#pragma once

#include <cstdint>
#include <vector>

#include "sbp/boxing.h"

namespace weir::sbp {

using BoxingSteps = std::vector<BoxingStep>;

inline bool IsMerged(const Sbp& from, const Sbp& to) {
  return from.is_partial() && !to.is_partial();
}

// Returns whether the partial axes of a layout have several combiners, which no layout may have.
bool MixesCombiners(const Layout& layout);

// Returns the elements that all ranks together send in all steps.
int64_t ElementsSent(const TensorType& type, const BoxingSteps& steps, const Mesh& mesh);
// Returns the part that goes to receivers that agree with the sender on the axes `agreed`, with the
// elements that ranks keep. `agreed` is by mesh axis.
int64_t ElementsSentAmong(const TensorType& type, const BoxingSteps& steps, const Mesh& mesh,
                          const std::vector<bool>& agreed);

// Returns the most elements that one rank sends in a step, summed over steps.
int64_t BusiestElements(const TensorType& type, const BoxingSteps& steps, const Mesh& mesh);

// A BoxingPlanner makes plans between layouts that are B on all mesh axes of size 1.
class BoxingPlanner {
 public:
  BoxingPlanner(const TensorType& type, const Mesh& mesh) : type_(type), mesh_(mesh) {}

  // Returns the cheapest steps, as sbp/boxing.h says.
  BoxingSteps Plan(const Placement& from, const Placement& to) const;
  // Returns one exchange, or none if nothing changes.
  BoxingSteps Direct(const Placement& from, const Placement& to) const;

 private:
  enum class MergeInto { kDestinationSplit, kTensorAxis };

  std::vector<int> MergedToBroadcast(const Layout& from, const Layout& to) const;
  bool HasMerged(const Layout& from, const Layout& to) const;
  bool OnlyMergesInPlace(const Layout& from, const Layout& to) const;
  BoxingSteps Flat(const Placement& from, const std::vector<int>& axes, int64_t to_place) const;
  Layout Merged(const Layout& from, const Layout& to, int tensor_axis, MergeInto into) const;
  void Consider(BoxingSteps steps, std::vector<BoxingSteps>* candidates) const;
  BoxingSteps Cheapest(const std::vector<BoxingSteps>& candidates) const;
  BoxingSteps PlanSamePlace(const Placement& from, const Placement& to) const;
  BoxingSteps PlanAcrossPlaces(const Placement& from, const Placement& to) const;

  const TensorType& type_;
  const Mesh& mesh_;
};

// Returns the steps between places of unequal meshes. Partials are merged on the source's devices
// and made on those of the destination, so that one step crosses, from splits and copies to splits
// and copies.
BoxingSteps PlanBetweenMeshes(const TensorType& type, const Placement& from, const Placement& to,
                              const Mesh& from_mesh, const Mesh& to_mesh);

// Returns the steps of `first`, and then those of `second`.
BoxingSteps Chain(BoxingSteps first, const BoxingSteps& second);

}  // namespace weir::sbp
