// Tests boxing against an oracle. Shards of a random tensor are made in one layout, every step is
// run over all ranks by moving pieces as the plan says, and the resulting shards are compared with
// the tensor in the other layout. Each step's messages are also compared with the messages that the
// receivers expect and with the closed form of the bytes.
//
// WEIR_TEST_SEED sets the seed of values and samples.
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"
#include "sbp/boxing.h"
#include "sbp/boxing_over_hosts.h"
#include "sbp/boxing_testing.h"

namespace weir::sbp {
namespace {

uint64_t Seed() {
  const char* text = std::getenv("WEIR_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

using Values = std::vector<double>;
using Shards = std::map<RankId, Values>;

// Small integers, so that sums are exact in any order.
int64_t SmallInt(uint64_t key, uint64_t counter) {
  return static_cast<int64_t>(RandomBits(key, counter)[0] % 41) - 20;
}

// Returns the row-major offsets, within a box of `shape`, of the elements of `rect`.
std::vector<int64_t> OffsetsOf(const Rect& rect, const Shape& shape) {
  std::vector<int64_t> offsets;
  if (rect.volume() == 0) return offsets;
  for (size_t i = 0; i < shape.size(); ++i) {
    EXPECT_GE(rect.begin[i], 0);
    EXPECT_LE(rect.end[i], shape[i]);
  }
  Shape at = rect.begin;
  while (true) {
    int64_t offset = 0;
    for (size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + at[i];
    offsets.push_back(offset);
    int i = static_cast<int>(shape.size()) - 1;
    for (; i >= 0; --i) {
      if (++at[i] < rect.end[i]) break;
      at[i] = rect.begin[i];
    }
    if (i < 0) return offsets;
  }
}

// A PartialGroup holds the index of `coords` among the ranks that differ in partial axes only, and
// the number of those ranks.
struct PartialGroup {
  int64_t index = 0, size = 1;
  Combiner combiner = Combiner::kSum;
};
PartialGroup GroupOf(const Layout& layout, const Mesh& mesh, const Coords& coords) {
  PartialGroup group;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (!layout[axis].is_partial()) continue;
    group.index = group.index * mesh.size(axis) + coords[axis];
    group.size *= mesh.size(axis);
    group.combiner = layout[axis].combiner;
  }
  return group;
}

// Returns the value that one of the partial holders of element `offset` has; all holders' values
// together make `value`.
double Contribution(const PartialGroup& group, uint64_t key, int64_t offset, double value) {
  if (group.size == 1) return value;
  auto random = [&](int64_t index) {
    return SmallInt(key, static_cast<uint64_t>(offset * group.size + index));
  };
  if (group.combiner == Combiner::kMax) {
    int64_t winner = (random(0) + 20) % group.size;
    return group.index == winner ? value : value - 1 - (random(group.index) + 20);
  }
  if (group.index + 1 < group.size) return static_cast<double>(random(group.index));
  for (int64_t i = 0; i + 1 < group.size; ++i) value -= static_cast<double>(random(i));
  return value;
}

Values RandomTensor(const TensorType& type, uint64_t key) {
  Values values(type.num_elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(SmallInt(key, i));
  return values;
}

Shards MakeShards(const TensorType& type, const Placement& place, const Places& places,
                  const Values& tensor, uint64_t key) {
  const Mesh& mesh = places.mesh(place.place);
  Shards shards;
  for (int64_t i = 0; i < mesh.num_ranks(); ++i) {
    const Coords coords = mesh.CoordsOf(i);
    const PartialGroup group = GroupOf(place.layout, mesh, coords);
    Values& shard = shards[places.RankAt(place.place, i)];
    for (int64_t offset : OffsetsOf(ShardRect(type, place.layout, mesh, coords), type.shape())) {
      shard.push_back(Contribution(group, key, offset, tensor[offset]));
    }
  }
  return shards;
}

double Neutral(Combiner combiner) {
  return combiner == Combiner::kSum ? 0 : -std::numeric_limits<double>::infinity();
}
double Merge(Combiner combiner, double a, double b) {
  return combiner == Combiner::kSum ? a + b : std::max(a, b);
}

// Expects that `shards` are the tensor in `place`: parts together make the tensor, and copies are
// equal.
void ExpectShards(const TensorType& type, const Placement& place, const Places& places,
                  const Values& tensor, const Shards& shards) {
  const Mesh& mesh = places.mesh(place.place);
  std::map<Coords, Values> merged;
  for (int64_t i = 0; i < mesh.num_ranks(); ++i) {
    const Coords coords = mesh.CoordsOf(i);
    auto it = shards.find(places.RankAt(place.place, i));
    ASSERT_NE(it, shards.end());
    Coords owner = coords, first_copy = coords;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (place.layout[axis].is_partial()) owner[axis] = 0;
      if (place.layout[axis].is_broadcast()) first_copy[axis] = 0;
    }
    EXPECT_EQ(it->second, shards.at(places.RankAt(place.place, mesh.RankOf(first_copy))))
        << "copies differ";
    auto [entry, is_new] = merged.emplace(owner, it->second);
    if (is_new) continue;
    const Combiner combiner = GroupOf(place.layout, mesh, coords).combiner;
    ASSERT_EQ(entry->second.size(), it->second.size());
    for (size_t e = 0; e < it->second.size(); ++e)
      entry->second[e] = Merge(combiner, entry->second[e], it->second[e]);
  }
  for (const auto& [coords, values] : merged) {
    Values expected;
    for (int64_t offset : OffsetsOf(ShardRect(type, place.layout, mesh, coords), type.shape())) {
      expected.push_back(tensor[offset]);
    }
    EXPECT_EQ(values, expected);
  }
}

// A Message holds elements, with the position at which each is to land.
struct Message {
  Values values;
  std::vector<int64_t> positions;
};

// A Simulator takes a bundle of tensors through one step after the other.
class Simulator {
 public:
  Simulator(std::vector<TensorType> types, const Places& places)
      : types_(std::move(types)), places_(places) {}

  // `before` holds the shards by tensor. Returns the shards after the step.
  std::vector<Shards> Run(const std::vector<BoxingStep>& steps, const std::vector<Shards>& before) {
    steps_ = &steps;
    exchanges_.clear();
    for (RankId rank : places_.all_ranks()) {
      exchanges_.push_back(BuildExchange(types_, steps, places_, rank));
    }
    std::map<std::pair<RankId, RankId>, Message> messages;
    for (RankId rank : places_.all_ranks()) Pack(rank, before, &messages);
    std::vector<Shards> after(types_.size());
    for (RankId rank : places_.all_ranks()) Fill(rank, before, &messages, &after);
    EXPECT_TRUE(messages.empty()) << "a message nobody expects";
    return after;
  }

 private:
  void Pack(RankId rank, const std::vector<Shards>& before,
            std::map<std::pair<RankId, RankId>, Message>* messages) {
    int64_t elements = 0;
    for (const auto& [receiver, pieces] : exchanges_[rank].sends) {
      EXPECT_NE(receiver, rank);
      EXPECT_FALSE(pieces.empty());
      Message& message = (*messages)[{rank, receiver}];
      int64_t last_end = 0;
      for (const Piece& piece : pieces) {
        EXPECT_GE(piece.position, last_end) << "pieces out of order";
        EXPECT_GT(piece.src.volume(), 0);
        last_end = piece.position + piece.src.volume();
        const Shape shape =
            StepInput(types_[piece.tensor], (*steps_)[piece.tensor], places_, rank).shape;
        int64_t position = piece.position;
        for (int64_t offset : OffsetsOf(piece.src, shape)) {
          message.values.push_back(before[piece.tensor].at(rank).at(offset));
          message.positions.push_back(position++);
        }
      }
      EXPECT_LE(last_end, exchanges_[rank].receiver_elements.at(receiver));
      elements += static_cast<int64_t>(message.values.size());
    }
    EXPECT_EQ(exchanges_[rank].sends.size(), exchanges_[rank].receiver_elements.size());
    int64_t bytes = 0, sent = 0;
    for (size_t i = 0; i < types_.size(); ++i)
      bytes += BytesSent(types_[i], (*steps_)[i], places_, rank);
    for (const auto& [receiver, pieces] : exchanges_[rank].sends) {
      for (const Piece& piece : pieces)
        sent += piece.src.volume() * SizeOf(types_[piece.tensor].dtype);
    }
    EXPECT_EQ(sent, bytes) << "closed form of rank " << rank << " against " << elements
                           << " elements";
  }

  void Fill(RankId rank, const std::vector<Shards>& before,
            std::map<std::pair<RankId, RankId>, Message>* messages, std::vector<Shards>* after) {
    const RankExchange& exchange = exchanges_[rank];
    for (const auto& [peer, count] : exchange.receives) {
      auto it = messages->find({peer, rank});
      ASSERT_NE(it, messages->end()) << "rank " << rank << " waits for " << peer << " in vain";
      EXPECT_EQ(static_cast<int64_t>(it->second.values.size()), count);
    }
    std::vector<std::vector<int>> written(types_.size());
    for (size_t i = 0; i < types_.size(); ++i) {
      if (places_.PlaceOf(rank) != (*steps_)[i].to.place) continue;
      int64_t elements = StepOutput(types_[i], (*steps_)[i], places_, rank).num_elements();
      (*after)[i][rank].assign(elements, std::numeric_limits<double>::quiet_NaN());
      written[i].assign(elements, 0);
    }
    std::map<RankId, int64_t> read;  // elements read so far, by peer
    int64_t position = 0;
    for (const Region& region : exchange.regions) {
      const Shape shape =
          StepOutput(types_[region.tensor], (*steps_)[region.tensor], places_, rank).shape;
      const std::vector<int64_t> offsets = OffsetsOf(region.dst, shape);
      EXPECT_FALSE(offsets.empty());
      Values values(offsets.size(), Neutral(region.combiner));
      for (size_t s = 0; s < region.sources.size(); ++s) {
        Values source =
            ReadSource(rank, region, region.sources[s], position, before, *messages, &read);
        ASSERT_EQ(source.size(), values.size());
        for (size_t e = 0; e < values.size(); ++e) {
          values[e] = s == 0 ? source[e] : Merge(region.combiner, values[e], source[e]);
        }
      }
      for (size_t e = 0; e < values.size(); ++e) {
        (*after)[region.tensor][rank][offsets[e]] = values[e];
        ++written[region.tensor][offsets[e]];
      }
      position += static_cast<int64_t>(values.size());
    }
    for (const std::vector<int>& counts : written) EXPECT_THAT(counts, ::testing::Each(1));
    for (const auto& [peer, count] : exchange.receives) {
      EXPECT_EQ(read[peer], count);
      EXPECT_EQ(exchanges_[peer].receiver_elements.at(rank), position);
      messages->erase({peer, rank});
    }
  }

  Values ReadSource(RankId rank, const Region& region, const RegionSource& source, int64_t position,
                    const std::vector<Shards>& before,
                    const std::map<std::pair<RankId, RankId>, Message>& messages,
                    std::map<RankId, int64_t>* read) {
    Values values;
    EXPECT_EQ(source.src.volume(), region.dst.volume());
    if (source.from == rank) {
      const Shape shape =
          StepInput(types_[region.tensor], (*steps_)[region.tensor], places_, rank).shape;
      for (int64_t offset : OffsetsOf(source.src, shape))
        values.push_back(before[region.tensor].at(rank).at(offset));
      return values;
    }
    const Message& message = messages.at({source.from, rank});
    int64_t& next = (*read)[source.from];
    for (int64_t i = 0; i < source.src.volume(); ++i, ++next) {
      EXPECT_EQ(message.positions.at(next), position + i) << "positions do not line up";
      values.push_back(message.values.at(next));
    }
    return values;
  }

  const std::vector<TensorType> types_;
  const Places& places_;
  const std::vector<BoxingStep>* steps_ = nullptr;
  IdVector<RankId, RankExchange> exchanges_;
};

struct Tensor {
  TensorType type;
  Placement from, to;
};

std::string Describe(const Tensor& tensor, const Places& places) {
  const Mesh &before = places.mesh(tensor.from.place), &after = places.mesh(tensor.to.place);
  return absl::StrCat(ToText(tensor.type), " from stage ", tensor.from.place, ", mesh ",
                      before.ToText(), ", ", ToText(tensor.from.layout, before), " to stage ",
                      tensor.to.place, ", mesh ", after.ToText(), ", ",
                      ToText(tensor.to.layout, after), ", seed ", Seed());
}

bool ChangesCombiner(const Layout& from, const Layout& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].is_partial() && to[i].is_partial() && from[i].combiner != to[i].combiner)
      return true;
  }
  return false;
}

// Runs a boxing of `tensor` and checks the result after the last step. Returns false if a check
// failed.
bool RunAndCheck(const Tensor& tensor, const Places& places, const Boxing& boxing) {
  const Values values = RandomTensor(tensor.type, MixKey(Seed(), 1));
  std::vector<Shards> shards = {
      MakeShards(tensor.type, tensor.from, places, values, MixKey(Seed(), 2))};
  Simulator simulator({boxing.type}, boxing.places);
  int64_t bytes = 0;
  for (const BoxingStep& step : boxing.steps) {
    SCOPED_TRACE(ToText(step, boxing.places));
    shards = simulator.Run({step}, shards);
    for (RankId rank : places.all_ranks())
      bytes += BytesSent(boxing.type, step, boxing.places, rank);
    if (::testing::Test::HasFailure()) return false;
  }
  EXPECT_EQ(TotalBytes(boxing.type, boxing.steps, boxing.places), bytes);
  ExpectShards(tensor.type, tensor.to, places, values, shards[0]);
  return !::testing::Test::HasFailure();
}

// Boxes one tensor and checks the result. Returns false if a check failed.
bool BoxAndCheck(const Tensor& tensor, const Places& places) {
  SCOPED_TRACE(Describe(tensor, places));
  absl::StatusOr<std::vector<BoxingStep>> plan =
      PlanBoxing(tensor.type, tensor.from, tensor.to, places);
  if (places.mesh(tensor.from.place) == places.mesh(tensor.to.place) &&
      ChangesCombiner(tensor.from.layout, tensor.to.layout)) {
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return true;
  }
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return false;
  EXPECT_LE(plan->size(), 4u);
  return RunAndCheck(tensor, places, {tensor.type, places, *plan});
}

TensorType TypeOf(std::vector<TensorDim> dims) { return TensorType{DType::kF32, std::move(dims)}; }

std::vector<TensorType> Types() {
  return {TypeOf({{"x", 8, 1}, {"y", 4, 1}}),  TypeOf({{"x", 7, 1}, {"y", 5, 1}}),
          TypeOf({{"x", 12, 4}, {"y", 6, 2}}), TypeOf({{"x", 3, 1}, {"y", 1, 1}}),
          TypeOf({{"x", 0, 1}, {"y", 3, 1}}),  TypeOf({{"x", 5, 1}, {"y", 3, 1}, {"z", 2, 1}})};
}

// Returns a split of axis 0 at odd places, on units, with an empty part.
Sbp OddSplit(const TensorType& type, int64_t parts) {
  const int64_t unit = type.dims[0].unit, units = type.dims[0].size / unit;
  Sbp sbp = Sbp::S(0);
  sbp.offsets = {0};
  while (static_cast<int64_t>(sbp.offsets.size()) < parts)
    sbp.offsets.push_back((units + 1) / 3 * unit);
  sbp.offsets.push_back(units * unit);
  return sbp;
}

// Returns all layouts over `mesh` with entries of {B, S of every axis, an odd split, P}.
std::vector<Layout> AllLayouts(const TensorType& type, const Mesh& mesh, Combiner combiner) {
  std::vector<Layout> layouts = {{}};
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<Sbp> kinds = {Sbp::B(), Sbp::P(combiner)};
    for (size_t i = 0; i < type.dims.size(); ++i) kinds.push_back(Sbp::S(static_cast<int>(i)));
    if (!type.dims.empty()) kinds.push_back(OddSplit(type, mesh.size(axis)));
    std::vector<Layout> longer;
    for (const Layout& layout : layouts) {
      for (const Sbp& kind : kinds) {
        longer.push_back(layout);
        longer.back().push_back(kind);
      }
    }
    layouts = std::move(longer);
  }
  return layouts;
}

// Checks all pairs of layouts, or a seeded sample of `limit` pairs.
void CheckPairs(const TensorType& type, const Places& places, int64_t from_place, int64_t to_place,
                Combiner from_combiner, Combiner to_combiner, size_t limit) {
  const std::vector<Layout> froms = AllLayouts(type, places.mesh(from_place), from_combiner);
  const std::vector<Layout> tos = AllLayouts(type, places.mesh(to_place), to_combiner);
  const size_t pairs = froms.size() * tos.size();
  std::mt19937_64 random(Seed());
  for (size_t i = 0; i < std::min(pairs, limit); ++i) {
    const size_t pair = pairs <= limit ? i : random() % pairs;
    Tensor tensor{type, Placement{froms[pair / tos.size()], from_place},
                  Placement{tos[pair % tos.size()], to_place}};
    if (!BoxAndCheck(tensor, places)) FAIL() << "stopped at the first failing pair";
  }
}

class BoxingOnMesh : public ::testing::TestWithParam<const char*> {};

TEST_P(BoxingOnMesh, AnyLayoutBecomesAnyOtherOnTheSameDevices) {
  const Places places = PipelinePlaces(*Mesh::Parse(GetParam()));
  for (const TensorType& type : Types())
    CheckPairs(type, places, 0, 0, Combiner::kSum, Combiner::kSum, 1300);
}

TEST_P(BoxingOnMesh, MaximaAreMergedLikeSums) {
  const Places places = PipelinePlaces(*Mesh::Parse(GetParam()));
  for (const TensorType& type : Types())
    CheckPairs(type, places, 0, 0, Combiner::kMax, Combiner::kMax, 200);
}

TEST_P(BoxingOnMesh, ACombinerOnlyChangesWhereItIsMergedBetween) {
  const Places places = PipelinePlaces(*Mesh::Parse(GetParam()));
  CheckPairs(Types()[1], places, 0, 0, Combiner::kMax, Combiner::kSum, 300);
  CheckPairs(Types()[1], places, 0, 0, Combiner::kSum, Combiner::kMax, 300);
}

TEST_P(BoxingOnMesh, ScalarsToo) {
  const Places places = PipelinePlaces(*Mesh::Parse(GetParam()));
  CheckPairs(TypeOf({}), places, 0, 0, Combiner::kSum, Combiner::kSum, 1000);
  CheckPairs(TypeOf({}), places, 0, 0, Combiner::kSum, Combiner::kMax, 1000);
}

INSTANTIATE_TEST_SUITE_P(Meshes, BoxingOnMesh,
                         ::testing::Values("", "dp=1", "dp=2", "dp=3", "dp=4", "dp=2,tp=2",
                                           "dp=2,tp=3", "dp=1,tp=3", "dp=2,sp=2,tp=2"));

class BoxingAcrossStages : public ::testing::TestWithParam<const char*> {};

TEST_P(BoxingAcrossStages, AnyLayoutBecomesAnyOtherOnOtherDevices) {
  const Places places = PipelinePlaces(*Mesh::Parse(GetParam()));
  const int64_t last = places.size() - 1;
  for (const TensorType& type : Types()) {
    CheckPairs(type, places, 0, last, Combiner::kSum, Combiner::kSum, 400);
    CheckPairs(type, places, last, 0, Combiner::kMax, Combiner::kSum, 100);
    CheckPairs(type, places, last, last, Combiner::kSum, Combiner::kSum, 50);
  }
  CheckPairs(TypeOf({}), places, 0, last, Combiner::kSum, Combiner::kSum, 100);
  CheckPairs(TypeOf({}), places, last, 0, Combiner::kSum, Combiner::kMax, 100);
}

INSTANTIATE_TEST_SUITE_P(Meshes, BoxingAcrossStages,
                         ::testing::Values("pp=2", "pp=2,dp=3", "dp=4,pp=2", "pp=3,dp=2,tp=2",
                                           "dp=2,pp=2,tp=3", "dp=2,tp=2,pp=2"));

Places PlacesWith(const std::vector<const char*>& texts) {
  std::vector<Mesh> meshes;
  for (const char* text : texts) meshes.push_back(*Mesh::Parse(text));
  return PlacesWithMeshes(std::move(meshes));
}

class BoxingBetweenMeshes : public ::testing::TestWithParam<std::vector<const char*>> {};

// The layouts of one axis may mean other parts of the tensor on the two meshes, and partial sums
// may become partial maxima, since nothing partial crosses.
TEST_P(BoxingBetweenMeshes, AnyLayoutBecomesAnyOtherOnDevicesOfAnotherMesh) {
  const Places places = PlacesWith(GetParam());
  for (const TensorType& type : Types()) {
    CheckPairs(type, places, 0, 1, Combiner::kSum, Combiner::kSum, 500);
    CheckPairs(type, places, 1, 0, Combiner::kMax, Combiner::kSum, 150);
  }
  CheckPairs(TypeOf({}), places, 0, 1, Combiner::kSum, Combiner::kSum, 100);
  CheckPairs(TypeOf({}), places, 1, 0, Combiner::kSum, Combiner::kMax, 100);
}

INSTANTIATE_TEST_SUITE_P(Meshes, BoxingBetweenMeshes,
                         ::testing::Values(std::vector<const char*>{"dp=1,tp=1", "dp=2,tp=2"},
                                           std::vector<const char*>{"dp=1,tp=4", "dp=2,tp=2"},
                                           std::vector<const char*>{"dp=2", "dp=3"},
                                           std::vector<const char*>{"dp=4,tp=1", "dp=1,tp=3"},
                                           std::vector<const char*>{"dp=3,tp=2", "dp=2,tp=1"},
                                           std::vector<const char*>{"dp=2,tp=3", "tp=3,dp=2"},
                                           std::vector<const char*>{"", "dp=2,tp=2"},
                                           std::vector<const char*>{"dp=2,sp=1,tp=2",
                                                                    "dp=1,sp=3,tp=2"}));

struct HostsCase {
  const char* mesh;
  int64_t devices_per_host;
  std::vector<int> rank_order = {};
};

// Returns whether the layouts cut all dimensions into equal parts, on cut meshes too.
bool CutsEvenly(const Tensor& tensor) {
  for (const Layout& layout : {tensor.from.layout, tensor.to.layout}) {
    for (const Sbp& sbp : layout) {
      if (!sbp.offsets.empty()) return false;
    }
  }
  return std::all_of(tensor.type.dims.begin(), tensor.type.dims.end(),
                     [](const TensorDim& dim) { return dim.size % 24 == 0; });
}
class BoxingOverHosts : public ::testing::TestWithParam<HostsCase> {};

TEST_P(BoxingOverHosts, AnyLayoutBecomesAnyOtherWithFewerBytesBetweenHosts) {
  const Places places = PipelinePlaces(*Mesh::Parse(GetParam().mesh), GetParam().devices_per_host,
                                       GetParam().rank_order);
  ASSERT_NE(places.host_cut(), nullptr);
  const Mesh& mesh = places.mesh(0);
  std::mt19937_64 random(Seed());
  int num_better = 0;
  std::vector<TensorType> types = Types();
  types.push_back(TypeOf({{"x", 24, 2}, {"y", 24, 1}}));
  types.push_back(TypeOf({{"x", 48, 1}}));
  for (const TensorType& type : types) {
    for (const Combiner combiner : {Combiner::kSum, Combiner::kMax}) {
      const std::vector<Layout> layouts = AllLayouts(type, mesh, combiner);
      for (int i = 0; i < 150; ++i) {
        const Tensor tensor{
            type,
            {layouts[random() % layouts.size()], 0},
            {layouts[random() % layouts.size()], i % 3 == 0 ? places.size() - 1 : 0}};
        SCOPED_TRACE(Describe(tensor, places));
        const absl::StatusOr<std::vector<BoxingStep>> one_level =
            PlanBoxing(type, tensor.from, tensor.to, places);
        const absl::StatusOr<Boxing> boxing =
            PlanBoxingOverHosts(type, tensor.from, tensor.to, places, /*saved_bytes_min=*/0);
        ASSERT_TRUE(boxing.ok()) << boxing.status();
        const int64_t on_one_level = CountBytesBetweenHosts({type, places, *one_level}, places);
        const int64_t closed_form = BytesBetweenHosts(type, *one_level, places, *places.host_cut());
        if (CutsEvenly(tensor) || places.mesh(0) == places.host_cut()->places.mesh(0)) {
          ASSERT_EQ(closed_form, on_one_level);
        }
        if (boxing->steps == *one_level) continue;
        ++num_better;
        ASSERT_LT(CountBytesBetweenHosts(*boxing, places), on_one_level);
        ASSERT_EQ(
            BytesBetweenHosts(boxing->type, boxing->steps, boxing->places, *places.host_cut()),
            CountBytesBetweenHosts(*boxing, places));
        ASSERT_TRUE(RunAndCheck(tensor, places, *boxing));
      }
    }
  }
  EXPECT_GT(num_better, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, BoxingOverHosts,
    ::testing::Values(
        HostsCase{"dp=4", 2}, HostsCase{"dp=6", 2}, HostsCase{"dp=8", 4}, HostsCase{"dp=2,tp=2", 2},
        HostsCase{"dp=4,tp=2", 4}, HostsCase{"dp=2,tp=4", 2}, HostsCase{"dp=2,sp=2,tp=2", 4},
        HostsCase{"pp=2,dp=2,tp=2", 2}, HostsCase{"pp=2,dp=4", 2}, HostsCase{"pp=2,tp=2", 2},
        HostsCase{"dp=2,pp=2,tp=2", 2}, HostsCase{"dp=2,tp=2,pp=2", 4},
        HostsCase{"dp=2,tp=2", 2, {1, 0}}, HostsCase{"dp=4,tp=2", 2, {1, 0}},
        HostsCase{"dp=2,tp=4", 4, {1, 0}}, HostsCase{"dp=2,sp=2,tp=2", 4, {1, 0, 2}},
        HostsCase{"dp=2,sp=2,tp=2", 2, {2, 0, 1}}, HostsCase{"pp=2,dp=2,tp=2", 4, {1, 2, 0}},
        HostsCase{"pp=4,dp=4", 8, {1, 0}}, HostsCase{"dp=2,pp=2,tp=2", 2, {2, 1, 0}}));

struct UnequalHostsCase {
  std::vector<const char*> meshes;
  int64_t devices_per_host;
};

// Returns the bytes that hosts of the destination have to get from others: what some device there
// asks for, and none there has.
int64_t LeastBytesBetweenHosts(const Tensor& tensor, const Places& places) {
  std::map<int64_t, std::set<int64_t>> lacking;  // offsets, by host
  const auto offsets_of = [&](const Placement& placement, RankId rank) {
    const Rect shard = ShardRect(tensor.type, placement.layout, places.mesh(placement.place),
                                 places.CoordsOf(rank));
    return OffsetsOf(shard, tensor.type.shape());
  };
  for (const RankId rank : places.ranks(tensor.to.place)) {
    for (int64_t offset : offsets_of(tensor.to, rank)) lacking[places.HostOf(rank)].insert(offset);
  }
  for (const RankId rank : places.ranks(tensor.from.place)) {
    for (int64_t offset : offsets_of(tensor.from, rank)) lacking[places.HostOf(rank)].erase(offset);
  }
  int64_t elements = 0;
  for (const auto& [host, offsets] : lacking) elements += static_cast<int64_t>(offsets.size());
  return elements * SizeOf(tensor.type.dtype);
}

bool HasPartials(const Layout& layout) {
  return std::any_of(layout.begin(), layout.end(), [](const Sbp& sbp) { return sbp.is_partial(); });
}

// Returns whether the destination leaves a dimension whole, which the devices of a host can share.
bool LeavesADimensionWhole(const Tensor& tensor) {
  for (int t = 0; t < static_cast<int>(tensor.type.dims.size()); ++t) {
    if (std::none_of(tensor.to.layout.begin(), tensor.to.layout.end(),
                     [t](const Sbp& sbp) { return sbp.is_split() && sbp.axis == t; }))
      return true;
  }
  return false;
}

class BoxingBetweenMeshesOverHosts : public ::testing::TestWithParam<UnequalHostsCase> {};

TEST_P(BoxingBetweenMeshesOverHosts, AnyLayoutBecomesAnyOtherWithNoMoreBytesBetweenHosts) {
  std::vector<Mesh> meshes;
  for (const char* text : GetParam().meshes) meshes.push_back(*Mesh::Parse(text));
  const Places places = PlacesWithMeshes(meshes, GetParam().devices_per_host),
               one_host = PlacesWithMeshes(meshes);
  std::mt19937_64 random(Seed());
  int num_better = 0, num_least = 0;
  std::vector<TensorType> types = Types();
  types.push_back(TypeOf({{"x", 24, 2}, {"y", 24, 1}}));
  types.push_back(TypeOf({{"x", 48, 1}, {"y", 24, 1}}));
  for (const TensorType& type : types) {
    for (int i = 0; i < 150; ++i) {
      const int64_t from_place = static_cast<int64_t>(random() % meshes.size()),
                    to_place = static_cast<int64_t>(random() % meshes.size());
      const std::vector<Layout> froms = AllLayouts(type, meshes[from_place], Combiner::kSum),
                                tos = AllLayouts(type, meshes[to_place], Combiner::kSum);
      const Tensor tensor{type,
                          {froms[random() % froms.size()], from_place},
                          {tos[random() % tos.size()], to_place}};
      SCOPED_TRACE(Describe(tensor, places));
      const absl::StatusOr<std::vector<BoxingStep>> one_level =
          PlanBoxing(type, tensor.from, tensor.to, places);
      ASSERT_TRUE(one_level.ok()) << one_level.status();
      // The devices take turns if nobody knows hosts.
      const int64_t unknown = CountBytesBetweenHosts({type, one_host, *one_level}, places);
      ASSERT_LE(CountBytesBetweenHosts({type, places, *one_level}, places), unknown);
      const absl::StatusOr<Boxing> boxing =
          PlanBoxingOverHosts(type, tensor.from, tensor.to, places, /*saved_bytes_min=*/0);
      ASSERT_TRUE(boxing.ok()) << boxing.status();
      const int64_t bytes = CountBytesBetweenHosts(*boxing, places);
      ASSERT_LE(bytes, unknown);
      ASSERT_EQ(BytesBetweenHosts(boxing->type, boxing->steps, boxing->places), bytes);
      ASSERT_TRUE(RunAndCheck(tensor, places, *boxing));
      num_better += bytes < unknown ? 1 : 0;
      if (from_place == to_place || HasPartials(tensor.from.layout) ||
          HasPartials(tensor.to.layout))
        continue;
      const int64_t least = LeastBytesBetweenHosts(tensor, places);
      ASSERT_GE(bytes, least);
      const HostCut* cut = places.host_cut(to_place);
      if (meshes[from_place] == meshes[to_place] || cut == nullptr || !cut->follows_hosts ||
          !CutsEvenly(tensor) || !LeavesADimensionWhole(tensor))
        continue;
      ASSERT_EQ(bytes, least);
      ++num_least;
    }
  }
  EXPECT_GT(num_better, 100);
  EXPECT_GT(num_least, 10);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, BoxingBetweenMeshesOverHosts,
    ::testing::Values(UnequalHostsCase{{"dp=2", "dp=4"}, 2},
                      UnequalHostsCase{{"dp=1,tp=2", "dp=2,tp=2", "dp=1,tp=2"}, 2},
                      UnequalHostsCase{{"dp=2,tp=2", "dp=2,tp=4"}, 4},
                      UnequalHostsCase{{"dp=2,tp=2", "dp=2,tp=4", "dp=2,tp=4"}, 4},
                      UnequalHostsCase{{"dp=2,tp=1", "dp=3,tp=2", "dp=2,tp=2"}, 4},
                      UnequalHostsCase{{"tp=4", "tp=2", "tp=6"}, 4},
                      UnequalHostsCase{{"dp=3", "dp=6"}, 3}));

// Checks a random bundle of tensors that differ in type and layouts but take the same number of
// steps.
void CheckBundle(const Places& places, int64_t from_place, int64_t to_place,
                 std::mt19937_64* random) {
  std::vector<Tensor> tensors;
  std::vector<std::vector<BoxingStep>> plans;
  const std::vector<TensorType> all_types = Types();
  for (int tries = 0; tries < 200 && tensors.size() < 4; ++tries) {
    TensorType type = all_types[(*random)() % all_types.size()];
    type.dtype = (*random)() % 2 == 0 ? DType::kF32 : DType::kBF16;
    const std::vector<Layout> froms = AllLayouts(type, places.mesh(from_place), Combiner::kSum),
                              tos = AllLayouts(type, places.mesh(to_place), Combiner::kSum);
    Tensor tensor{type, Placement{froms[(*random)() % froms.size()], from_place},
                  Placement{tos[(*random)() % tos.size()], to_place}};
    absl::StatusOr<std::vector<BoxingStep>> plan = PlanBoxing(type, tensor.from, tensor.to, places);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (plan->empty()) continue;
    bool fits = plans.empty() || plans[0].size() == plan->size();
    for (size_t k = 0; fits && !plans.empty() && k < plan->size(); ++k) {
      fits = plans[0][k].to.place == (*plan)[k].to.place;
    }
    if (!fits) continue;
    tensors.push_back(tensor);
    plans.push_back(*std::move(plan));
  }
  std::string description;
  std::vector<TensorType> types;
  std::vector<Values> values;
  std::vector<Shards> shards;
  for (size_t i = 0; i < tensors.size(); ++i) {
    absl::StrAppend(&description, Describe(tensors[i], places), "\n");
    types.push_back(tensors[i].type);
    values.push_back(RandomTensor(types[i], MixKey(Seed(), 10 + i)));
    shards.push_back(
        MakeShards(types[i], tensors[i].from, places, values[i], MixKey(Seed(), 20 + i)));
  }
  SCOPED_TRACE(description);
  Simulator simulator(types, places);
  for (size_t k = 0; !plans.empty() && k < plans[0].size(); ++k) {
    std::vector<BoxingStep> steps;
    for (const std::vector<BoxingStep>& plan : plans) steps.push_back(plan[k]);
    shards = simulator.Run(steps, shards);
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    ExpectShards(types[i], tensors[i].to, places, values[i], shards[i]);
}

TEST(BoxingBundle, TensorsTravelTogetherBetweenMeshes) {
  std::mt19937_64 random(Seed());
  for (const std::vector<const char*>& meshes : std::vector<std::vector<const char*>>{
           {"dp=1,tp=4", "dp=2,tp=2"}, {"dp=1,tp=1", "dp=3,tp=2"}, {"dp=4,tp=1", "dp=2,tp=1"}}) {
    const Places places = PlacesWith(meshes);
    for (int i = 0; i < 100; ++i) {
      CheckBundle(places, i % 2, 1 - i % 2, &random);
      if (HasFailure()) return;
    }
  }
}

TEST(BoxingBundle, TensorsOfDifferentLayoutsTravelTogether) {
  std::mt19937_64 random(Seed());
  for (const char* text : {"dp=3", "dp=2,tp=2", "dp=2,tp=3", "pp=2,dp=2,tp=2"}) {
    const Places places = PipelinePlaces(*Mesh::Parse(text));
    for (int i = 0; i < 100; ++i) {
      CheckBundle(places, 0, i % 2 == 0 ? 0 : places.size() - 1, &random);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weir::sbp
