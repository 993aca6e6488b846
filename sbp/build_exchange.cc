// BuildExchange and the shards of a step: the regions that one rank fills, receives and sends.
#include <optional>

#include "sbp/boxing.h"
#include "sbp/rank_view.h"

namespace weir::sbp {
namespace {

// Returns `rect` in coordinates that count from the first element of `shard`.
Rect LocalTo(const Rect& shard, Rect rect) {
  for (size_t i = 0; i < rect.begin.size(); ++i) {
    rect.begin[i] -= shard.begin[i];
    rect.end[i] -= shard.begin[i];
  }
  return rect;
}

// Grows `a` by `b` if both lie side by side along one axis and are equal in the others.
bool JoinNeighbours(Rect* a, const Rect& b) {
  int along = -1;
  for (size_t i = 0; i < b.begin.size(); ++i) {
    if (a->begin[i] == b.begin[i] && a->end[i] == b.end[i]) continue;
    if (along >= 0 || a->end[i] != b.begin[i]) return false;
    along = static_cast<int>(i);
  }
  if (along < 0) return false;
  a->end[along] = b.end[along];
  return true;
}

TensorSlice SliceOf(const ExchangeView& view, const Rect& rect) {
  return TensorSlice{view.type().dtype, rect.shape(), rect.begin, view.type().shape()};
}

TensorSlice NoSlice(const TensorType& type) { return TensorSlice{type.dtype, {0}, {0}, {0}}; }

// An ExchangeBuilder builds the share that one rank has in the exchange of one bundle.
class ExchangeBuilder {
 public:
  ExchangeBuilder(const std::vector<TensorType>& types, const std::vector<BoxingStep>& steps,
                  const Places& places, RankId rank)
      : types_(types), steps_(steps), places_(places), rank_(rank) {}

  RankExchange Build() && {
    if (types_.empty()) return {};
    const int64_t place = places_.PlaceOf(rank_);
    if (place != steps_[0].to.place && place != steps_[0].from.place) return {};
    for (size_t i = 0; i < types_.size(); ++i)
      views_.emplace_back(types_[i], steps_[i], places_, rank_);
    leaves_.resize(views_.size());
    if (place == steps_[0].to.place) FillOwnRegions();
    if (place == steps_[0].from.place) {
      const int64_t to_place = steps_[0].to.place, num_devices = places_.mesh(to_place).num_ranks();
      for (int64_t device = 0; device < num_devices; ++device)
        SendTo(places_.RankAt(to_place, device));
    }
    return std::move(exchange_);
  }

 private:
  void FillOwnRegions() {
    for (size_t i = 0; i < views_.size(); ++i) {
      const ExchangeView& view = views_[i].view();
      const Coords coords = views_[i].ReceiverAt(rank_);
      const Rect shard = view.NewRect(coords);
      bool last_is_neutral = false;
      view.ForEachCell(coords, [&](const Cell& cell) {
        Region region{static_cast<int>(i), LocalTo(shard, cell.rect), {}, view.merge_combiner()};
        if (!cell.held) {
          region.combiner = view.neutral_combiner();
          if (last_is_neutral && JoinNeighbours(&exchange_.regions.back().dst, region.dst)) return;
        }
        last_is_neutral = !cell.held;
        for (const Coords& source : views_[i].SourcesOf(rank_, cell)) {
          const RankId from = views_[i].SenderOf(source);
          if (from != rank_) exchange_.receives[from] += cell.rect.volume();
          region.sources.push_back(RegionSource{from, LocalTo(view.OldRect(source), cell.rect)});
        }
        exchange_.regions.push_back(std::move(region));
      });
    }
  }

  void SendTo(RankId receiver) {
    if (receiver == rank_) return;
    // On one mesh all views see the same coordinates.
    pairs_.resize(JoinsMeshes(steps_[0], places_) ? views_.size() : 1);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      pairs_[i].receiver = views_[i].ReceiverFor(receiver, rank_);
      pairs_[i].sender = views_[i].SenderAt(rank_, pairs_[i].receiver);
    }
    bool may_serve = false;
    for (size_t i = 0; i < views_.size(); ++i) may_serve = may_serve || MayServe(i);
    if (!may_serve) return;
    std::vector<Share> shares;
    for (size_t i = 0; i < views_.size(); ++i) {
      if (MayServe(i)) {
        shares.push_back(Share{views_[i].view().NewRect(PairOf(i).receiver), 0});
      } else {
        shares.push_back(Share{std::nullopt,
                               StepOutput(types_[i], steps_[i], places_, receiver).num_elements()});
      }
    }
    if (shares != last_shares_) {
      PackFor(shares);
      last_shares_ = std::move(shares);
    }
    if (pieces_.empty()) return;
    exchange_.sends[receiver] = pieces_;
    exchange_.receiver_elements[receiver] = elements_;
  }

  // The coordinates of this rank and of a receiver.
  struct Pair {
    Coords sender, receiver;
  };
  const Pair& PairOf(size_t tensor) const { return pairs_[pairs_.size() == 1 ? 0 : tensor]; }
  bool MayServe(size_t tensor) const {
    return views_[tensor].view().MayServe(PairOf(tensor).sender, PairOf(tensor).receiver);
  }

  // A Share describes the part of one tensor that one receiver gets: the receiver's new shard, or,
  // if nothing can come from this rank, the size of that shard.
  struct Share {
    std::optional<Rect> shard;
    int64_t elements = 0;
    friend bool operator==(const Share&, const Share&) = default;
  };

  // Receivers with equal shares get equal pieces (all receivers of a gather do), so these pieces
  // are made once.
  void PackFor(const std::vector<Share>& shares) {
    pieces_.clear();
    elements_ = 0;
    for (size_t i = 0; i < views_.size(); ++i) {
      if (!shares[i].shard.has_value()) {
        elements_ += shares[i].elements;
        continue;
      }
      const ExchangeView& view = views_[i].view();
      const Rect shard = view.OldRect(PairOf(i).sender);
      view.ForEachCell(PairOf(i).receiver, &leaves_[i], [&](const Cell& cell) {
        if (view.IsSource(PairOf(i).sender, cell)) {
          pieces_.push_back(Piece{static_cast<int>(i), LocalTo(shard, cell.rect), elements_});
        }
        elements_ += cell.rect.volume();
      });
    }
  }

  const std::vector<TensorType>& types_;
  const std::vector<BoxingStep>& steps_;
  const Places& places_;
  const RankId rank_;
  std::vector<RankView> views_;
  std::vector<ExchangeView::Leaves> leaves_;  // by tensor, of the receiver before
  std::vector<Pair> pairs_;                   // with the receiver whose pieces are made now
  RankExchange exchange_;
  std::vector<Share> last_shares_;  // of these are:
  std::vector<Piece> pieces_;
  int64_t elements_ = 0;
};

}  // namespace

TensorSlice StepInput(const TensorType& type, const BoxingStep& step, const Places& places,
                      RankId rank) {
  if (places.PlaceOf(rank) != step.from.place) return NoSlice(type);
  const Coords coords = places.CoordsOf(rank);
  const Mesh& mesh = places.mesh(step.from.place);
  if (JoinsMeshes(step, places)) return LocalSlice(type, step.from.layout, mesh, coords);
  ExchangeView view(type, step, mesh, coords);
  return SliceOf(view, view.OldRect(coords));
}

TensorSlice StepOutput(const TensorType& type, const BoxingStep& step, const Places& places,
                       RankId rank) {
  if (places.PlaceOf(rank) != step.to.place) return NoSlice(type);
  const Coords coords = places.CoordsOf(rank);
  const Mesh& mesh = places.mesh(step.to.place);
  if (JoinsMeshes(step, places)) return LocalSlice(type, step.to.layout, mesh, coords);
  ExchangeView view(type, step, mesh, coords);
  return SliceOf(view, view.NewRect(coords));
}

RankExchange BuildExchange(const std::vector<TensorType>& types,
                           const std::vector<BoxingStep>& steps, const Places& places,
                           RankId rank) {
  return ExchangeBuilder(types, steps, places, rank).Build();
}

}  // namespace weir::sbp
