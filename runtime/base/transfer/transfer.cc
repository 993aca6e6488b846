#include "runtime/base/transfer/transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/plan_limits.h"

namespace weir {
namespace {

using plan_limits::kElementsMax;
using plan_limits::kTensorRankMax;

constexpr int kTensorsMax = 1 << 20;  // of one kernel

using Flaw = std::optional<TransferFlaw>;

Flaw Missing(std::string expected, std::string found) {
  return TransferFlaw{std::move(expected), std::move(found)};
}

std::string RectText(const Rect& rect) {
  return absl::StrCat("[", ToText(rect.begin), ", ", ToText(rect.end), ")");
}

// Returns the volume of a rectangle of a tensor, or -1 if there is no such rectangle.
int64_t VolumeOf(const Rect& rect) {
  if (rect.begin.size() != rect.end.size() || rect.begin.size() > kTensorRankMax) return -1;
  for (size_t d = 0; d < rect.begin.size(); ++d) {
    if (rect.begin[d] < 0 || rect.end[d] < rect.begin[d] || rect.end[d] > kElementsMax) return -1;
  }
  const int64_t volume = NumElements(rect.shape());
  return volume > kElementsMax ? -1 : volume;
}

Flaw FlawOfChunk(int64_t chunk_elements) {
  if (chunk_elements >= 1) return std::nullopt;
  return Missing("chunk_elements of at least 1", absl::StrCat(chunk_elements));
}

Flaw FlawOf(const ExchangePack& pack) {
  if (Flaw flaw = FlawOfChunk(pack.chunk_elements)) return flaw;
  for (const ExchangePiece& piece : pack.pieces) {
    if (piece.tensor < 0 || piece.tensor >= kTensorsMax)
      return Missing("a piece of an input", absl::StrCat("input ", piece.tensor));
    const int64_t volume = VolumeOf(piece.rect);
    if (volume < 0) return Missing("a piece that is a rectangle", RectText(piece.rect));
    if (piece.position < 0 || piece.position > kElementsMax - volume) {
      return Missing(absl::StrCat("a piece at positions from 0 to ", kElementsMax),
                     absl::StrCat(volume, " elements at ", piece.position));
    }
  }
  return std::nullopt;
}

Flaw FlawOf(const ExchangeRegion& region, int64_t volume) {
  for (const ExchangeSource& source : region.sources) {
    if (source.message != ExchangeSource::kOwn) {
      if (source.message >= 0 && source.message < kTensorsMax) continue;
      return Missing("a source among the messages", absl::StrCat("message ", source.message));
    }
    if (VolumeOf(source.own) != volume) {
      return Missing(absl::StrCat("a source of ", volume, " elements, as its region has"),
                     RectText(source.own));
    }
  }
  return std::nullopt;
}

Flaw FlawOf(const ExchangeFill& fill) {
  if (Flaw flaw = FlawOfChunk(fill.chunk_elements)) return flaw;
  if (fill.num_own < 0 || fill.num_own > kTensorsMax)
    return Missing("num_own of at least 0", absl::StrCat(fill.num_own));
  int64_t position = 0;
  for (const ExchangeRegion& region : fill.regions) {
    if (region.tensor < 0 || region.tensor >= kTensorsMax)
      return Missing("a region of an output", absl::StrCat("output ", region.tensor));
    const int64_t volume = VolumeOf(region.target);
    if (volume < 0) return Missing("a region that is a rectangle", RectText(region.target));
    if (volume > kElementsMax - position)
      return Missing(absl::StrCat("regions of at most ", kElementsMax, " elements"), "more");
    position += volume;
    if (Flaw flaw = FlawOf(region, volume)) return flaw;
  }
  return std::nullopt;
}

Flaw FlawOf(const Collective& collective) {
  if (collective.ranks.size() < 2)
    return Missing("a group of at least 2 ranks", absl::StrCat(collective.ranks.size()));
  for (size_t i = 0; i < collective.ranks.size(); ++i) {
    const RankId rank = collective.ranks[i];
    const auto end = collective.ranks.begin() + static_cast<std::ptrdiff_t>(i);
    if (!rank.has_value() || std::find(collective.ranks.begin(), end, rank) != end)
      return Missing("a group of different ranks from 0", absl::StrCat("rank ", rank));
  }
  return std::nullopt;
}

bool IsInside(const Rect& rect, const Shape& shape) {
  if (rect.end.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (rect.end[d] > shape[d]) return false;
  }
  return true;
}

}  // namespace

std::optional<TransferFlaw> FindFlaw(const Transfer& transfer) {
  if (const auto* pack = std::get_if<ExchangePack>(&transfer)) return FlawOf(*pack);
  if (const auto* fill = std::get_if<ExchangeFill>(&transfer)) return FlawOf(*fill);
  if (const auto* collective = std::get_if<Collective>(&transfer)) return FlawOf(*collective);
  return std::nullopt;
}

const char* Name(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::kAllReduce: return "all-reduce";
    case Collective::Kind::kReduceScatter: return "reduce-scatter";
    case Collective::Kind::kAllGather: return "all-gather";
    case Collective::Kind::kAllToAll: return "all-to-all";
  }
  return "?";
}

std::optional<TransferFlaw> FindFlawWith(const ExchangePack& pack, absl::Span<const Shape> inputs) {
  for (const ExchangePiece& piece : pack.pieces) {
    if (piece.tensor >= static_cast<int>(inputs.size())) {
      return Missing(absl::StrCat("a piece of one of ", inputs.size(), " inputs"),
                     absl::StrCat("input ", piece.tensor));
    }
    if (!IsInside(piece.rect, inputs[piece.tensor])) {
      return Missing(
          absl::StrCat("a piece inside input ", piece.tensor, " ", ToText(inputs[piece.tensor])),
          RectText(piece.rect));
    }
  }
  return std::nullopt;
}

std::optional<TransferFlaw> FindFlawWith(const ExchangeFill& fill, int64_t num_inputs) {
  if (fill.num_own > num_inputs) {
    return Missing(absl::StrCat("num_own from 0 to ", num_inputs, ", the number of inputs"),
                   absl::StrCat(fill.num_own));
  }
  for (const ExchangeRegion& region : fill.regions) {
    for (const ExchangeSource& source : region.sources) {
      if (source.message >= num_inputs - fill.num_own) {
        return Missing(absl::StrCat("a source among ", num_inputs - fill.num_own, " messages"),
                       absl::StrCat("message ", source.message));
      }
    }
  }
  return std::nullopt;
}

std::optional<TransferFlaw> FindFlawWith(const Collective& collective, int64_t input_elements,
                                         int64_t output_elements) {
  const auto size = static_cast<int64_t>(collective.ranks.size());
  int64_t small = input_elements, large = output_elements, factor = 1;
  if (collective.kind == Collective::Kind::kReduceScatter) std::swap(small, large);
  const bool is_to_all = collective.kind == Collective::Kind::kAllToAll;
  if (collective.kind != Collective::Kind::kAllReduce && !is_to_all) factor = size;
  const bool has_blocks = !is_to_all || input_elements % size == 0;
  if (has_blocks && small >= 0 && small <= kElementsMax / size && large == small * factor)
    return std::nullopt;
  return Missing(
      absl::StrCat("operands that fit an ", Name(collective.kind), " of ", size, " ranks"),
      absl::StrCat(input_elements, " elements in, ", output_elements, " out"));
}

std::vector<int64_t> MessageElements(const Transfer& transfer, int64_t num_chunks) {
  const auto* pack = std::get_if<ExchangePack>(&transfer);
  if (pack == nullptr) return {};
  std::vector<int64_t> elements(num_chunks, 0);
  for (const ExchangePiece& piece : pack->pieces) {
    const int64_t end = piece.position + piece.rect.volume();
    for (int64_t at = piece.position; at < end;) {
      const int64_t chunk = at / pack->chunk_elements;
      if (chunk >= num_chunks) break;
      const int64_t left = (chunk + 1) * pack->chunk_elements - at;
      elements[chunk] += std::min(end - at, left);
      at += std::min(end - at, left);
    }
  }
  return elements;
}

TransferTraffic TransferTrafficOf(const std::string& op) {
  if (op == "exchange_pack") return TransferTraffic::kMessage;
  if (op == "exchange_fill" || op == "collective") return TransferTraffic::kChunk;
  return TransferTraffic::kNone;
}

}  // namespace weir
