// BuildExchange and the shards of a step: the regions that one rank fills, receives and sends.
#include <optional>

#include "sbp/boxing.h"
#include "sbp/exchange_view.h"

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
      : types_(types), steps_(steps), places_(places), rank_(rank), coords_(places.CoordsOf(rank)) {
    for (size_t i = 0; i < types_.size(); ++i)
      views_.emplace_back(types_[i], steps_[i], places_.mesh(places_.PlaceOf(rank)), coords_);
  }

  RankExchange Build() && {
    if (types_.empty()) return {};
    const int64_t place = places_.PlaceOf(rank_);
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
      const ExchangeView& view = views_[i];
      const Rect shard = view.NewRect(coords_);
      bool last_is_neutral = false;
      view.ForEachCell(coords_, [&](const Cell& cell) {
        Region region{static_cast<int>(i), LocalTo(shard, cell.rect), {}, view.merge_combiner()};
        if (!cell.held) {
          region.combiner = view.neutral_combiner();
          if (last_is_neutral && JoinNeighbours(&exchange_.regions.back().dst, region.dst)) return;
        }
        last_is_neutral = !cell.held;
        for (const Coords& source : view.SourcesOf(cell)) {
          const int64_t from_place = steps_[i].from.place;
          const RankId from = places_.RankAt(from_place, places_.mesh(from_place).RankOf(source));
          if (from != rank_) exchange_.receives[from] += cell.rect.volume();
          region.sources.push_back(RegionSource{from, LocalTo(view.OldRect(source), cell.rect)});
        }
        exchange_.regions.push_back(std::move(region));
      });
    }
  }

  void SendTo(RankId receiver) {
    if (receiver == rank_) return;
    const Coords coords = places_.CoordsOf(receiver);
    bool may_serve = false;
    for (const ExchangeView& view : views_) may_serve = may_serve || view.MayServe(coords_, coords);
    if (!may_serve) return;
    std::vector<Share> shares;
    for (size_t i = 0; i < views_.size(); ++i) {
      if (views_[i].MayServe(coords_, coords)) {
        shares.push_back(Share{views_[i].NewRect(coords), 0});
      } else {
        shares.push_back(Share{std::nullopt,
                               StepOutput(types_[i], steps_[i], places_, receiver).num_elements()});
      }
    }
    if (shares != last_shares_) {
      PackFor(coords, shares);
      last_shares_ = std::move(shares);
    }
    if (pieces_.empty()) return;
    exchange_.sends[receiver] = pieces_;
    exchange_.receiver_elements[receiver] = elements_;
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
  void PackFor(const Coords& receiver, const std::vector<Share>& shares) {
    pieces_.clear();
    elements_ = 0;
    for (size_t i = 0; i < views_.size(); ++i) {
      if (!shares[i].shard.has_value()) {
        elements_ += shares[i].elements;
        continue;
      }
      const Rect shard = views_[i].OldRect(coords_);
      views_[i].ForEachCell(receiver, [&](const Cell& cell) {
        if (views_[i].IsSource(coords_, cell)) {
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
  const Coords coords_;
  std::vector<ExchangeView> views_;
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
  ExchangeView view(type, step, places.mesh(step.from.place), coords);
  return SliceOf(view, view.OldRect(coords));
}

TensorSlice StepOutput(const TensorType& type, const BoxingStep& step, const Places& places,
                       RankId rank) {
  if (places.PlaceOf(rank) != step.to.place) return NoSlice(type);
  const Coords coords = places.CoordsOf(rank);
  ExchangeView view(type, step, places.mesh(step.to.place), coords);
  return SliceOf(view, view.NewRect(coords));
}

RankExchange BuildExchange(const std::vector<TensorType>& types,
                           const std::vector<BoxingStep>& steps, const Places& places,
                           RankId rank) {
  return ExchangeBuilder(types, steps, places, rank).Build();
}

}  // namespace weir::sbp
