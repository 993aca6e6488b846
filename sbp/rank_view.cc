#include "sbp/rank_view.h"

#include <algorithm>
#include <utility>

namespace weir::sbp {
namespace {

std::shared_ptr<const Mesh> JointMesh(const BoxingStep& step, const Places& places) {
  if (!JoinsMeshes(step, places)) return nullptr;
  std::vector<MeshAxis> axes = places.mesh(step.from.place).axes();
  const std::vector<MeshAxis>& after = places.mesh(step.to.place).axes();
  axes.insert(axes.end(), after.begin(), after.end());
  return std::make_shared<const Mesh>(std::move(axes));
}

// Returns the layout with B on the axes of one device, where all kinds mean the same.
Layout WithoutIdleAxes(Layout layout, const Mesh& mesh) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) layout[axis] = Sbp::B();
  }
  return layout;
}

ExchangeView ViewOf(const TensorType& type, const BoxingStep& step, const Places& places,
                    RankId rank, const Mesh* joint) {
  if (joint == nullptr)
    return ExchangeView(type, step, places.mesh(places.PlaceOf(rank)), places.CoordsOf(rank));
  const Mesh &before = places.mesh(step.from.place), &after = places.mesh(step.to.place);
  BoxingStep over_joint = step;
  over_joint.from.layout = WithoutIdleAxes(step.from.layout, before);
  over_joint.from.layout.resize(joint->num_axes(), Sbp::B());
  const Layout to = WithoutIdleAxes(step.to.layout, after);
  over_joint.to.layout.assign(before.num_axes(), Sbp::B());
  over_joint.to.layout.insert(over_joint.to.layout.end(), to.begin(), to.end());
  return ExchangeView(type, over_joint, *joint, Coords(joint->num_axes(), 0));
}

}  // namespace

RankView::RankView(const TensorType& type, const BoxingStep& step, const Places& places,
                   RankId rank)
    : places_(&places),
      from_place_(step.from.place),
      to_place_(step.to.place),
      joint_(JointMesh(step, places)),
      view_(ViewOf(type, step, places, rank, joint_.get())) {}

Coords RankView::ReceiverAt(RankId receiver) const {
  const Coords own = places_->CoordsOf(receiver);
  if (!is_joint()) return own;
  const Mesh& before = places_->mesh(from_place_);
  Coords coords(before.num_axes(), 0);
  int64_t copy = places_->DeviceOf(receiver);
  for (int axis = before.num_axes() - 1; axis >= 0; --axis) {
    if (view_.source_rule(axis) != SourceRule::kSame) continue;
    coords[axis] = copy % before.size(axis);
    copy /= before.size(axis);
  }
  coords.insert(coords.end(), own.begin(), own.end());
  return coords;
}

Coords RankView::SenderAt(RankId sender, const Coords& receiver) const {
  Coords coords = places_->CoordsOf(sender);
  if (is_joint())
    coords.insert(coords.end(), receiver.begin() + static_cast<std::ptrdiff_t>(coords.size()),
                  receiver.end());
  return coords;
}

RankId RankView::SenderOf(const Coords& source) const {
  const Mesh& before = places_->mesh(from_place_);
  const Coords own(source.begin(), source.begin() + before.num_axes());
  return places_->RankAt(from_place_, before.RankOf(own));
}

int64_t RankView::ElementsSent(RankId sender) const {
  if (!is_joint()) return view_.ElementsSent(places_->CoordsOf(sender), from_place_ == to_place_);
  int64_t elements = 0;
  for (const RankId rank : places_->ranks(to_place_)) {
    const Coords receiver = ReceiverAt(rank), own = SenderAt(sender, receiver);
    if (view_.MayServe(own, receiver))
      elements += Intersect(view_.OldRect(own), view_.NewRect(receiver)).volume();
  }
  return elements;
}

}  // namespace weir::sbp
