#include "compiler/cost/boxing_cost.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"

namespace weir::compiler {
namespace {

// As Runtime::chunk_bytes_max says.
constexpr double kChunkBytesDefault = 1 << 20;
constexpr double kChunkBytesBetweenHosts = 254 << 10;

// Devices whose shards are compared, of a large mesh.
constexpr int64_t kDevicesSampled = 64;
constexpr int64_t kSampleStep = 10007;

// Layouts as numbers: the dimension that an axis splits, or one of these.
constexpr int64_t kWhole = -1, kPartialPart = -2;

int64_t NumberOf(const sbp::Sbp& sbp) {
  return sbp.is_split() ? sbp.axis : sbp.is_broadcast() ? kWhole : kPartialPart;
}

}  // namespace

BoxingCosts::BoxingCosts(const CostModel* costs, sbp::Places places, int64_t chunk_bytes_max)
    : costs_(costs),
      places_(std::move(places)),
      chunk_bytes_max_(static_cast<double>(chunk_bytes_max)),
      over_hosts_(places_.host_cut() != nullptr) {
  for (RankId rank : places_.all_ranks()) {
    if (rank.value() == 0) continue;
    if (costs_->LevelBetween(RankId(0), rank) == LinkLevel::kBetweenHosts) break;
    ++devices_on_host_;
  }
}

double BoxingCosts::LocalBytes(const sbp::TensorType& type, const sbp::Layout& layout) const {
  const sbp::Mesh& mesh = places_.mesh(0);
  return static_cast<double>(
      sbp::LocalSlice(type, layout, mesh, sbp::Coords(mesh.num_axes(), 0)).bytes());
}

const BoxingCosts::Group& BoxingCosts::GroupOf(uint32_t axes) {
  const auto [known, is_new] = groups_.try_emplace(axes);
  Group& group = known->second;
  if (!is_new) return group;
  const sbp::Mesh& mesh = places_.mesh(0);
  const RankId self = places_.RankAt(0, 0);
  sbp::Coords coords(mesh.num_axes(), 0);
  group.size = 0;
  group.within_host = 0;
  while (true) {
    const RankId rank = places_.RankAt(0, mesh.RankOf(coords));
    ++group.size;
    if (rank == self || costs_->LevelBetween(self, rank) == LinkLevel::kWithinHost)
      ++group.within_host;
    int axis = 0;
    for (; axis < mesh.num_axes(); ++axis) {
      if ((axes >> axis & 1) == 0) continue;
      if (++coords[axis] < mesh.size(axis)) break;
      coords[axis] = 0;
    }
    if (axis == mesh.num_axes()) return group;
  }
}

double BoxingCosts::KernelNs(Kernel kernel, double bytes) {
  const int64_t elements = std::max<int64_t>(1, static_cast<int64_t>(bytes / SizeOf(DType::kF32)));
  const auto [known, is_new] = kernels_[static_cast<size_t>(kernel)].try_emplace(elements, 0);
  if (is_new) {
    const std::string name = kernel == Kernel::kPack ? "exchange_pack" : "exchange_fill";
    const Attributes attrs;
    const TensorSlice slice = TensorSlice::Whole(DType::kF32, {elements});
    known->second = static_cast<double>(costs_->KernelNs({name, attrs, {slice}, {slice}}));
  }
  return known->second;
}

void BoxingCosts::AddExchange(LinkLevel level, int64_t peers, const Exchange& exchange,
                              BoxingTime* time) {
  if (peers <= 0) return;
  const bool crosses = level == LinkLevel::kBetweenHosts &&
                       places_.HostOf(RankId(static_cast<int32_t>(places_.num_ranks() - 1))) > 0;
  const double chunk_bytes = exchange.pieces == ExchangePieces::kWhole ? exchange.filled + 1
                             : chunk_bytes_max_ > 0                    ? chunk_bytes_max_
                             : crosses                                 ? kChunkBytesBetweenHosts
                                                                       : kChunkBytesDefault;
  const double chunks = std::max(1.0, std::ceil(exchange.filled / chunk_bytes));
  const double act_ns = static_cast<double>(costs_->ActNs()), p = static_cast<double>(peers);
  // A send acts once for each chunk of the receiver, and all acts together pack the message.
  const double pack_ns = act_ns + KernelNs(Kernel::kPack, exchange.message / chunks);
  // A fill reads what it has and what comes, and writes its part.
  const double fill_ns =
      act_ns + KernelNs(Kernel::kFill, (exchange.own + exchange.filled) / 2 / chunks);
  time->device_ns += chunks * (p * pack_ns + fill_ns);
  double on_link = exchange.message;
  if (costs_->SharingOf(level) != LinkSharing::kPair) on_link *= p;
  if (costs_->SharingOf(level) == LinkSharing::kHost)
    on_link *= static_cast<double>(devices_on_host_);
  time->link_ns +=
      static_cast<double>(costs_->LatencyNs(level, static_cast<int64_t>(std::min(on_link, 1e17))));
  time->sent_bytes += p * exchange.message;
  ++time->exchanges;
}

// Where boxings know no hosts, one exchange has peers on the same host and on others, and both
// kinds of links work at once.
void BoxingCosts::AddOverBothLevels(const Group& group, const Exchange& exchange,
                                    BoxingTime* time) {
  if (group.within_host == group.size)
    return AddExchange(LinkLevel::kWithinHost, group.size - 1, exchange, time);
  BoxingTime within, between;
  AddExchange(LinkLevel::kWithinHost, group.within_host - 1, exchange, &within);
  AddExchange(LinkLevel::kBetweenHosts, group.size - group.within_host, exchange, &between);
  time->device_ns += within.device_ns + between.device_ns;
  time->link_ns += std::max(within.link_ns, between.link_ns);
  time->sent_bytes += within.sent_bytes + between.sent_bytes;
  ++time->exchanges;
}

void BoxingCosts::AddMerge(const Group& group, double before, ExchangePieces pieces,
                           BoxingTime* time) {
  const double size = static_cast<double>(group.size);
  const int64_t hosts = group.size / group.within_host;
  if (!over_hosts_ || hosts == 1 || group.within_host == 1)
    return AddOverBothLevels(group, {before / size, before, before / size, pieces}, time);
  const double part = before / static_cast<double>(group.within_host);
  AddExchange(LinkLevel::kWithinHost, group.within_host - 1, {part, before, part, pieces}, time);
  AddExchange(LinkLevel::kBetweenHosts, hosts - 1, {before / size, part, before / size, pieces},
              time);
}

void BoxingCosts::AddGather(const Group& group, double after, ExchangePieces pieces,
                            BoxingTime* time) {
  const double size = static_cast<double>(group.size);
  const int64_t hosts = group.size / group.within_host;
  if (!over_hosts_ || hosts == 1 || group.within_host == 1)
    return AddOverBothLevels(group, {after / size, after / size, after, pieces}, time);
  const double part = after / static_cast<double>(group.within_host);
  AddExchange(LinkLevel::kBetweenHosts, hosts - 1, {after / size, after / size, part, pieces},
              time);
  AddExchange(LinkLevel::kWithinHost, group.within_host - 1, {part, part, after, pieces}, time);
}

double BoxingCosts::LackingBytes(const sbp::TensorType& type, const sbp::Layout& from,
                                 const sbp::Layout& to) const {
  const sbp::Mesh& mesh = places_.mesh(0);
  const int64_t devices = mesh.num_ranks();
  double elements = 0;
  int64_t sampled = 0;
  for (int64_t i = 0; i < std::min(devices, kDevicesSampled); ++i) {
    // The step is a prime, so samples differ in all coordinates.
    const int64_t device = devices <= kDevicesSampled ? i : i * kSampleStep % devices;
    const sbp::Coords coords = mesh.CoordsOf(device);
    const Rect have = sbp::ShardRect(type, from, mesh, coords),
               want = sbp::ShardRect(type, to, mesh, coords);
    double wanted = 1, held = 1;
    for (size_t d = 0; d < type.dims.size(); ++d) {
      wanted *= static_cast<double>(want.end[d] - want.begin[d]);
      held *= static_cast<double>(std::max<int64_t>(
          0, std::min(have.end[d], want.end[d]) - std::max(have.begin[d], want.begin[d])));
    }
    if (wanted == 0) continue;
    elements += wanted - held;
    ++sampled;
  }
  return elements / static_cast<double>(std::max<int64_t>(1, sampled)) *
         static_cast<double>(SizeOf(type.dtype));
}

BoxingTime BoxingCosts::TimeOf(const sbp::TensorType& type, const sbp::Layout& from,
                               const sbp::Layout& to, ExchangePieces pieces) {
  BoxingTime time;
  if (from == to) return time;
  const sbp::Mesh& mesh = places_.mesh(0);
  uint32_t merged = 0, merged_to_whole = 0, gathered = 0, sliced = 0;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1 || from[axis] == to[axis]) continue;
    const uint32_t bit = uint32_t{1} << axis;
    if (from[axis].is_partial()) {
      merged |= bit;
      if (to[axis].is_broadcast()) merged_to_whole |= bit;
    } else if (from[axis].is_broadcast()) {
      sliced |= bit;
    } else {
      gathered |= bit;
    }
  }
  // Slices come first, and are free.
  sbp::Layout cut = from;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if ((sliced >> axis & 1) != 0) cut[axis] = to[axis];
  }
  const double before = LocalBytes(type, cut), after = LocalBytes(type, to);
  if (merged != 0) {
    const Group& group = GroupOf(merged);
    if (group.size == 2 && merged == merged_to_whole && gathered == 0) {
      AddOverBothLevels(group, {before, before, before, pieces}, &time);
      return time;
    }
    AddMerge(group, before, pieces, &time);
  }
  if (merged == 0) {
    const double lacking = LackingBytes(type, from, to);
    // A slice of a dimension that is already split moves the cuts inside the other axis, too.
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      const bool nests = std::any_of(from.begin(), from.end(), [&](const sbp::Sbp& sbp) {
        return sbp.is_split() && sbp.axis == to[axis].axis;
      });
      if ((sliced >> axis & 1) != 0 && nests) gathered |= uint32_t{1} << axis;
    }
    if (lacking <= 0 || gathered == 0) {
      time.device_ns += KernelNs(Kernel::kFill, after);
      return time;
    }
    const Group& group = GroupOf(gathered);
    const double size = static_cast<double>(group.size);
    if (std::abs(lacking - after * (1 - 1 / size)) < 1) {
      AddGather(group, after, pieces, &time);
    } else {
      AddOverBothLevels(group, {lacking / (size - 1), before, after, pieces}, &time);
    }
  } else if ((gathered | merged_to_whole) != 0) {
    AddGather(GroupOf(gathered | merged_to_whole), after, pieces, &time);
  }
  return time;
}

const BoxingTime& BoxingCosts::Of(const sbp::TensorType& type, const sbp::Layout& from,
                                  const sbp::Layout& to, ExchangePieces pieces) {
  // The lookup takes no memory: a search asks the same again and again.
  absl::InlinedVector<char, 128> key{static_cast<char>(type.dtype), static_cast<char>(pieces)};
  for (const sbp::TensorDim& dim : type.dims) {
    for (const int64_t number : {dim.size, dim.unit}) {
      const auto* const bytes = reinterpret_cast<const char*>(&number);
      key.insert(key.end(), bytes, bytes + sizeof(number));
    }
  }
  for (const sbp::Sbp& sbp : from) key.push_back(static_cast<char>(NumberOf(sbp)));
  for (const sbp::Sbp& sbp : to) key.push_back(static_cast<char>(NumberOf(sbp)));
  const absl::string_view text(key.data(), key.size());
  const auto known = known_.find(text);
  if (known != known_.end()) return known->second;
  return known_.emplace(std::string(text), TimeOf(type, from, to, pieces)).first->second;
}

BoxingTime BoxingCosts::ToNextStage(const sbp::TensorType& type, const sbp::Layout& layout) {
  BoxingTime time;
  if (places_.size() == 1) return time;
  const double bytes = LocalBytes(type, layout);
  AddExchange(costs_->LevelBetween(places_.RankAt(0, 0), places_.RankAt(1, 0)), 1,
              {bytes, bytes, bytes, ExchangePieces::kChunks}, &time);
  return time;
}

}  // namespace weir::compiler
