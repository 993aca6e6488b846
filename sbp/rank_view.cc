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
      view_(ViewOf(type, step, places, rank, joint_.get())) {
  if (!is_joint()) return;
  for (const RankId source : places.ranks(from_place_)) {
    const auto part = static_cast<size_t>(PartOf(places.CoordsOf(source)));
    if (part >= holders_.size()) holders_.resize(part + 1);
    holders_[part].push_back(source);
  }
  for (std::vector<RankId>& holders : holders_) std::sort(holders.begin(), holders.end());
}

int64_t RankView::PartOf(const Coords& source) const {
  const Mesh& before = places_->mesh(from_place_);
  int64_t part = 0;
  for (int axis = 0; axis < before.num_axes(); ++axis) {
    if (view_.source_rule(axis) == SourceRule::kHolder)
      part = part * before.size(axis) + source[axis];
  }
  return part;
}

Coords RankView::HolderFor(RankId receiver, const Coords& source) const {
  const std::vector<RankId>& all = holders_[static_cast<size_t>(PartOf(source))];
  const int64_t host = places_->HostOf(receiver);
  const auto first =
      std::lower_bound(all.begin(), all.end(), host,
                       [this](RankId holder, int64_t of) { return places_->HostOf(holder) < of; });
  const auto end = std::upper_bound(first, all.end(), host, [this](int64_t of, RankId holder) {
    return of < places_->HostOf(holder);
  });
  const auto begin = first == end ? all.begin() : first;
  const int64_t copies = (first == end ? all.end() : end) - begin;
  return SenderAt(begin[places_->DeviceOf(receiver) % copies], source);
}

Coords RankView::ReceiverAt(RankId receiver) const {
  Coords coords = places_->CoordsOf(receiver);
  if (is_joint()) coords.insert(coords.begin(), places_->mesh(from_place_).num_axes(), 0);
  return coords;
}

Coords RankView::ReceiverFor(RankId receiver, RankId sender) const {
  const Coords coords = ReceiverAt(receiver);
  return is_joint() ? HolderFor(receiver, SenderAt(sender, coords)) : coords;
}

Coords RankView::SenderAt(RankId sender, const Coords& receiver) const {
  Coords coords = places_->CoordsOf(sender);
  if (is_joint())
    coords.insert(coords.end(), receiver.begin() + static_cast<std::ptrdiff_t>(coords.size()),
                  receiver.end());
  return coords;
}

std::vector<Coords> RankView::SourcesOf(RankId receiver, const Cell& cell) const {
  if (!is_joint()) return view_.SourcesOf(cell);
  return {HolderFor(receiver, cell.source)};
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
    const Coords receiver = ReceiverFor(rank, sender), own = SenderAt(sender, receiver);
    if (view_.MayServe(own, receiver))
      elements += Intersect(view_.OldRect(own), view_.NewRect(receiver)).volume();
  }
  return elements;
}

}  // namespace weir::sbp
