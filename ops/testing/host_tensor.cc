#include "ops/testing/host_tensor.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/real.h"

namespace weir::ops {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xa5;

// Calls visit(local element, global element) for each element of a shard, row-major.
template <typename F>
void VisitElements(const TensorSlice& slice, F&& visit) {
  int64_t count = slice.num_elements();
  size_t rank = slice.shape.size();
  std::vector<int64_t> at(rank, 0);
  for (int64_t local = 0; local < count; ++local) {
    int64_t global = 0;
    for (size_t d = 0; d < rank; ++d)
      global = global * slice.global_shape[d] + slice.offset[d] + at[d];
    visit(local, global);
    for (size_t d = rank; d-- > 0;) {
      if (++at[d] < slice.shape[d]) break;
      at[d] = 0;
    }
  }
}

// A Part says which of the partial values a rank holds, how many there are, and how they are
// merged.
struct Part {
  int64_t index = 0;
  int64_t count = 1;
  Combiner combiner = Combiner::kSum;
  bool first_copy = true;  // the rank is 0 on all broadcast axes
};

Part PartOf(const sbp::Layout& layout, const sbp::Mesh& mesh, const sbp::Coords& coords) {
  Part part;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (layout[axis].is_broadcast() && coords[axis] > 0) part.first_copy = false;
    if (!layout[axis].is_partial()) continue;
    part.index = part.index * mesh.size(axis) + coords[axis];
    part.count *= mesh.size(axis);
    part.combiner = layout[axis].combiner;
  }
  return part;
}

double PartValue(const Part& part, double value, int64_t element, uint64_t key) {
  if (part.count == 1) return value;
  auto draw = [&](int64_t p) { return static_cast<double>(NormalAt(MixKey(key, p), element)); };
  if (part.combiner == Combiner::kMax) {
    return part.index == element % part.count ? value : value - std::fabs(draw(part.index));
  }
  if (part.index + 1 < part.count) return static_cast<float>(draw(part.index));
  for (int64_t p = 0; p + 1 < part.count; ++p) value -= static_cast<float>(draw(p));
  return value;
}

// Returns the rank that holds the same shard as `coords` and is 0 on all broadcast axes.
int64_t FirstCopy(const sbp::Layout& layout, const sbp::Mesh& mesh, sbp::Coords coords) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (layout[axis].is_broadcast()) coords[axis] = 0;
  }
  return mesh.RankOf(coords);
}

}  // namespace

HostTensor::HostTensor(TensorSlice slice) : slice_(std::move(slice)) { Allocate(); }

HostTensor::HostTensor(const HostTensor& other) : slice_(other.slice_) {
  Allocate();
  std::memcpy(data(), other.data(), slice_.bytes());
}

HostTensor& HostTensor::operator=(const HostTensor& other) {
  if (this == &other) return *this;
  slice_ = other.slice_;
  Allocate();
  std::memcpy(data(), other.data(), slice_.bytes());
  return *this;
}

void HostTensor::Allocate() {
  int64_t bytes = slice_.bytes();
  bytes_.assign(bytes + kAlignment + kGuardBytes, 0xff);
  int64_t misalignment =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes_.data()) % kAlignment);
  offset_ = misalignment == 0 ? 0 : kAlignment - misalignment;
  std::memset(bytes_.data() + offset_ + bytes, kGuard, kGuardBytes);
}

double HostTensor::Get(int64_t i) const {
  switch (slice_.dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: return RealAt(slice_.dtype, data(), i);
    case DType::kI32: return static_cast<const int32_t*>(data())[i];
    case DType::kBool: return static_cast<const uint8_t*>(data())[i];
  }
  return 0;
}

void HostTensor::Set(int64_t i, double value) {
  switch (slice_.dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: SetRealAt(slice_.dtype, data(), i, static_cast<float>(value)); return;
    case DType::kI32: static_cast<int32_t*>(data())[i] = static_cast<int32_t>(value); return;
    case DType::kBool: static_cast<uint8_t*>(data())[i] = value != 0; return;
  }
}

bool HostTensor::GuardIntact() const {
  const uint8_t* guard = bytes_.data() + offset_ + slice_.bytes();
  for (int64_t i = 0; i < kGuardBytes; ++i) {
    if (guard[i] != kGuard) return false;
  }
  return true;
}

bool HostTensor::SameBits(const HostTensor& other) const {
  return slice_.bytes() == other.slice_.bytes() &&
         std::memcmp(data(), other.data(), slice_.bytes()) == 0;
}

std::vector<HostTensor> Cut(const HostTensor& whole, const sbp::TensorType& type,
                            const sbp::Layout& layout, const sbp::Mesh& mesh, uint64_t key) {
  std::vector<HostTensor> shards;
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    sbp::Coords coords = mesh.CoordsOf(rank);
    Part part = PartOf(layout, mesh, coords);
    HostTensor shard(sbp::LocalSlice(type, layout, mesh, coords));
    VisitElements(shard.slice(), [&](int64_t local, int64_t global) {
      shard.Set(local, PartValue(part, whole.Get(global), global, key));
    });
    shards.push_back(shard);
  }
  return shards;
}

absl::StatusOr<HostTensor> Merge(const std::vector<HostTensor>& shards, const sbp::TensorType& type,
                                 const sbp::Layout& layout, const sbp::Mesh& mesh) {
  HostTensor whole(type);
  int64_t parts = PartOf(layout, mesh, mesh.CoordsOf(0)).count;
  std::vector<double> values(whole.size(), 0);
  std::vector<int64_t> covered(whole.size(), 0);
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    sbp::Coords coords = mesh.CoordsOf(rank);
    Part part = PartOf(layout, mesh, coords);
    const HostTensor& shard = shards[rank];
    if (!part.first_copy) {
      int64_t first = FirstCopy(layout, mesh, coords);
      if (shard.SameBits(shards[first])) continue;
      return absl::InternalError(
          absl::StrCat("ranks ", first, " and ", rank,
                       " hold different copies: ", Difference(shard, shards[first], 0)));
    }
    VisitElements(shard.slice(), [&](int64_t local, int64_t global) {
      double value = shard.Get(local);
      bool max = part.combiner == Combiner::kMax;
      if (covered[global] == 0)
        values[global] = value;
      else if (std::isnan(value) || std::isnan(values[global]))
        values[global] = std::nan("");
      else
        values[global] = max ? std::fmax(values[global], value) : values[global] + value;
      ++covered[global];
    });
  }
  for (int64_t i = 0; i < whole.size(); ++i) {
    if (covered[i] != parts) {
      return absl::InternalError(
          absl::StrCat("element ", i, " is covered ", covered[i], " times, not ", parts));
    }
    whole.Set(i, values[i]);
  }
  return whole;
}

std::string Difference(const HostTensor& found, const HostTensor& expected, double tolerance) {
  if (found.slice().shape != expected.slice().shape) {
    return absl::StrCat("shape ", ToText(found.slice().shape), ", expected ",
                        ToText(expected.slice().shape));
  }
  for (int64_t i = 0; i < found.size(); ++i) {
    double a = found.Get(i), b = expected.Get(i);
    bool same = a == b || std::fabs(a - b) <= tolerance * (1 + std::fabs(b));
    if (!same) return absl::StrCat("element ", i, " is ", a, ", expected ", b);
  }
  return "";
}

}  // namespace weir::ops
