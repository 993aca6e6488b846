#include "sbp/boxing.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sbp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TensorType TypeOf(std::vector<TensorDim> dims, DType dtype = DType::kF32) {
  return TensorType{dtype, std::move(dims)};
}

Placement PlacementOf(const std::string& text, const Places& places, int64_t stage = 0) {
  absl::StatusOr<Layout> layout = ParseLayout(text, places.mesh(0));
  EXPECT_TRUE(layout.ok()) << layout.status();
  return Placement{*layout, stage};
}

std::vector<BoxingStep> Plan(const TensorType& type, const Places& places, const Placement& from,
                             const Placement& to) {
  absl::StatusOr<std::vector<BoxingStep>> steps = PlanBoxing(type, from, to, places);
  EXPECT_TRUE(steps.ok()) << steps.status();
  return *steps;
}

std::vector<std::string> PlanText(const std::string& mesh_text, const std::string& from,
                                  const std::string& to, int64_t from_place = 0,
                                  int64_t to_place = 0) {
  const Places places = PipelinePlaces(*Mesh::Parse(mesh_text));
  TensorType type = TypeOf({{"x", 8, 1}, {"y", 4, 1}});
  std::vector<std::string> texts;
  for (const BoxingStep& step : Plan(type, places, PlacementOf(from, places, from_place),
                                     PlacementOf(to, places, to_place))) {
    texts.push_back(ToText(step, places));
  }
  return texts;
}

// A Price holds the bytes of a boxing, and the sum of the bytes that BuildExchange says ranks send.
struct Price {
  int64_t closed_form = 0;
  int64_t pieces = 0;
};
Price PriceOf(const TensorType& type, const Places& places, const Placement& from,
              const Placement& to) {
  std::vector<BoxingStep> steps = Plan(type, places, from, to);
  Price price{TotalBytes(type, steps, places), 0};
  for (const BoxingStep& step : steps) {
    for (RankId rank : places.all_ranks()) {
      for (const auto& [receiver, pieces] : BuildExchange({type}, {step}, places, rank).sends) {
        for (const Piece& piece : pieces) price.pieces += piece.src.volume() * SizeOf(type.dtype);
      }
    }
  }
  return price;
}

// ---- The textbook, written without the layout algebra ----

// Sizes of a balanced split of `size` over `parts`.
std::vector<int64_t> Sizes(int64_t size, int64_t parts) {
  std::vector<int64_t> sizes(parts, size / parts);
  for (int64_t i = 0; i < size % parts; ++i) ++sizes[i];
  return sizes;
}

// Returns the bytes of one axis of n ranks that goes from one kind to another, for a tensor of
// `rows` x `columns`; "0" and "1" are splits.
int64_t Textbook(char from, char to, int64_t n, int64_t rows, int64_t columns,
                 int64_t element_bytes) {
  const int64_t bytes = rows * columns * element_bytes;
  if (from == to || from == 'B' || to == 'P') return 0;
  if (from == 'P') return to == 'B' ? 2 * (n - 1) * bytes : (n - 1) * bytes;
  if (to == 'B') return (n - 1) * bytes;
  // S(i)->S(j): every rank receives all but the part it keeps, the crossing of its rows and
  // columns.
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) kept += Sizes(rows, n)[i] * Sizes(columns, n)[i];
  return (rows * columns - kept) * element_bytes;
}

// Returns the same bytes across places of n ranks each.
int64_t TextbookAcrossStages(char from, char to, int64_t n, int64_t bytes) {
  if (from == 'P' && to == 'P') return n * bytes;
  const int64_t merge = from == 'P' ? (n - 1) * bytes : 0;
  return merge + (to == 'B' ? n * bytes : bytes);
}

Sbp KindOf(char kind) {
  if (kind == 'B') return Sbp::B();
  if (kind == 'P') return Sbp::P();
  return Sbp::S(kind - '0');
}

const char kKinds[] = "B01P";

std::vector<std::pair<int64_t, int64_t>> RowsAndColumns() {
  return {{24, 48}, {12, 12}, {7, 5}, {9, 2}, {3, 1}, {1, 1}, {0, 4}};
}

TEST(BoxingPrice, OneAxisCostsWhatTheTextbookSays) {
  for (int64_t n : {2, 3, 4}) {
    const Places places = PipelinePlaces(Mesh({{"a", n}}));
    for (auto [rows, columns] : RowsAndColumns()) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}}, dtype);
        for (char from : std::string(kKinds)) {
          for (char to : std::string(kKinds)) {
            Price price = PriceOf(type, places, {{KindOf(from)}, 0}, {{KindOf(to)}, 0});
            SCOPED_TRACE(absl::StrCat(ToText(type), " over ", n, " from ", std::string(1, from),
                                      " to ", std::string(1, to)));
            EXPECT_EQ(price.closed_form, Textbook(from, to, n, rows, columns, SizeOf(dtype)));
            EXPECT_EQ(price.pieces, price.closed_form);
          }
        }
      }
    }
  }
}

TEST(BoxingPrice, EvenAllToAllIsTheFractionOfTheTextbook) {
  for (int64_t n : {2, 3, 4}) {
    TensorType type = TypeOf({{"x", 24, 1}, {"y", 48, 1}});
    Price price =
        PriceOf(type, PipelinePlaces(Mesh({{"a", n}})), {{Sbp::S(0)}, 0}, {{Sbp::S(1)}, 0});
    EXPECT_EQ(price.closed_form, type.bytes() * (n - 1) / n);
  }
}

// Only one of two axes changes, and each of the groups along that axis pays for its own elements. A
// group has all of the tensor where the other axis is B or P, and a part of the tensor where the
// other axis is split.
TEST(BoxingPrice, OneAxisOfTwoCostsTheTextbookInEachGroup) {
  const Places places = PipelinePlaces(*Mesh::Parse("a=2,b=2"));
  for (auto [rows, columns] : RowsAndColumns()) {
    TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}});
    for (char from : std::string(kKinds)) {
      for (char to : std::string(kKinds)) {
        for (char other : std::string(kKinds)) {
          // Nested splits of one tensor axis would shift each other.
          if (from == other || to == other) continue;
          for (int changing : {0, 1}) {
            Layout before(2, KindOf(other)), after(2, KindOf(other));
            before[changing] = KindOf(from);
            after[changing] = KindOf(to);
            int64_t expected = 0;
            for (int64_t group = 0; group < 2; ++group) {
              int64_t group_rows = other == '0' ? Sizes(rows, 2)[group] : rows;
              int64_t group_columns = other == '1' ? Sizes(columns, 2)[group] : columns;
              expected += Textbook(from, to, 2, group_rows, group_columns, 4);
            }
            SCOPED_TRACE(absl::StrCat(ToText(type), " ", ToText(before, places.mesh(0)), " to ",
                                      ToText(after, places.mesh(0))));
            Price price = PriceOf(type, places, {before, 0}, {after, 0});
            EXPECT_EQ(price.pieces, price.closed_form);
            EXPECT_EQ(price.closed_form, expected);
          }
        }
      }
    }
  }
}

TEST(BoxingPrice, TwoPartialAxesCostAsOneOfFourRanks) {
  const Places places = PipelinePlaces(*Mesh::Parse("a=2,b=2"));
  for (auto [rows, columns] : RowsAndColumns()) {
    TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}});
    Placement partial{{Sbp::P(), Sbp::P()}, 0};
    EXPECT_EQ(PriceOf(type, places, partial, {{Sbp::B(), Sbp::B()}, 0}).pieces, 6 * type.bytes());
    EXPECT_EQ(PriceOf(type, places, partial, {{Sbp::S(0), Sbp::S(0)}, 0}).pieces, 3 * type.bytes());
    EXPECT_EQ(PriceOf(type, places, partial, {{Sbp::S(1), Sbp::S(0)}, 0}).pieces, 3 * type.bytes());
    EXPECT_EQ(PriceOf(type, places, {{Sbp::S(0), Sbp::S(0)}, 0}, {{Sbp::B(), Sbp::B()}, 0}).pieces,
              3 * type.bytes());
  }
}

// Where no axis is partial, ranks receive exactly the elements that they lack, counted element by
// element.
TEST(BoxingPrice, SplitsAndBroadcastsCostExactlyWhatEachRankLacks) {
  const Places places = PipelinePlaces(*Mesh::Parse("a=2,b=3"));
  for (TensorType type :
       {TypeOf({{"x", 12, 1}, {"y", 6, 1}}), TypeOf({{"x", 7, 1}, {"y", 2, 1}})}) {
    std::vector<Sbp> kinds = {Sbp::B(), Sbp::S(0), Sbp::S(1)};
    std::vector<Layout> layouts;
    for (const Sbp& a : kinds) {
      for (const Sbp& b : kinds) layouts.push_back({a, b});
    }
    for (const Layout& before : layouts) {
      for (const Layout& after : layouts) {
        int64_t lacking = 0;
        for (RankId rank : places.all_ranks()) {
          Rect have = ShardRect(type, before, places.mesh(0), places.CoordsOf(rank));
          Rect want = ShardRect(type, after, places.mesh(0), places.CoordsOf(rank));
          for (int64_t x = want.begin[0]; x < want.end[0]; ++x) {
            for (int64_t y = want.begin[1]; y < want.end[1]; ++y) {
              bool has =
                  x >= have.begin[0] && x < have.end[0] && y >= have.begin[1] && y < have.end[1];
              lacking += has ? 0 : 4;
            }
          }
        }
        EXPECT_EQ(PriceOf(type, places, {before, 0}, {after, 0}).pieces, lacking);
      }
    }
  }
}

TEST(BoxingPrice, AcrossStagesEachCopyAskedForCrossesOnce) {
  for (int64_t n : {2, 3, 4}) {
    const Places places = PipelinePlaces(Mesh({{"pp", 2}, {"a", n}}));
    for (auto [rows, columns] : RowsAndColumns()) {
      TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}});
      for (char from : std::string(kKinds)) {
        for (char to : std::string(kKinds)) {
          Price price = PriceOf(type, places, {{KindOf(from)}, 0}, {{KindOf(to)}, 1});
          SCOPED_TRACE(absl::StrCat(ToText(type), " over ", n, " from ", std::string(1, from),
                                    " to ", std::string(1, to)));
          EXPECT_EQ(price.closed_form, TextbookAcrossStages(from, to, n, type.bytes()));
          EXPECT_EQ(price.pieces, price.closed_form);
        }
      }
    }
  }
}

TEST(BoxingPrice, NobodySendsOutsideTheSourceStage) {
  const Places places = PipelinePlaces(*Mesh::Parse("pp=3,a=2"));
  TensorType type = TypeOf({{"x", 4, 1}});
  std::vector<BoxingStep> steps = Plan(type, places, {{Sbp::B()}, 0}, {{Sbp::B()}, 2});
  ASSERT_EQ(steps.size(), 1u);
  for (RankId rank : places.all_ranks()) {
    EXPECT_EQ(BytesSent(type, steps[0], places, rank), places.PlaceOf(rank) == 0 ? 16 : 0);
    EXPECT_EQ(StepInput(type, steps[0], places, rank).num_elements(),
              places.PlaceOf(rank) == 0 ? 4 : 0);
    EXPECT_EQ(StepOutput(type, steps[0], places, rank).num_elements(),
              places.PlaceOf(rank) == 2 ? 4 : 0);
    RankExchange exchange = BuildExchange({type}, {steps[0]}, places, rank);
    EXPECT_EQ(exchange.sends.size(), places.PlaceOf(rank) == 0 ? 1u : 0u);
    EXPECT_EQ(exchange.regions.size(), places.PlaceOf(rank) == 2 ? 1u : 0u);
  }
}

TEST(BoxingPrice, MixedChangesTakeTheCheapestOrder) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=4,tp=2"));
  TensorType type = TypeOf({{"x", 16, 1}, {"y", 16, 1}});
  const int64_t bytes = type.bytes();
  // Two halves, each reduced in a group of four, and four copies that lack a half each of two.
  EXPECT_EQ(PriceOf(type, places, PlacementOf("[dp: P(sum), tp: S(0)]", places),
                    PlacementOf("[dp: B, tp: B]", places))
                .pieces,
            2 * 3 * bytes + 4 * bytes);
  // Merge first, on shards: 3 * bytes; then the split moves to the other axis of the tensor.
  EXPECT_LE(PriceOf(type, places, PlacementOf("[dp: P(sum), tp: S(0)]", places),
                    PlacementOf("[dp: B, tp: S(1)]", places))
                .pieces,
            2 * 3 * bytes + bytes / 2);
  EXPECT_EQ(PriceOf(type, places, PlacementOf("[dp: P(sum), tp: S(0)]", places),
                    PlacementOf("[dp: S(1), tp: B]", places))
                .pieces,
            3 * bytes + bytes);
  // A broadcast that becomes partial is wanted once, so the merge need not run in every copy.
  EXPECT_EQ(PriceOf(type, places, PlacementOf("[dp: B, tp: P(sum)]", places),
                    PlacementOf("[dp: P(sum), tp: S(0)]", places))
                .pieces,
            bytes);
  // Each copy merges a part of the tensor, where otherwise each copy would merge all of it.
  const Places stages = PipelinePlaces(*Mesh::Parse("pp=2,dp=4,tp=2"));
  EXPECT_EQ(PriceOf(type, stages, PlacementOf("[dp: B, tp: P(sum)]", stages, 0),
                    PlacementOf("[dp: B, tp: B]", stages, 1))
                .pieces,
            bytes + 8 * bytes);
}

// ---- Plans as text ----

TEST(BoxingPlan, OneAxisTakesTheTextbookSteps) {
  EXPECT_THAT(PlanText("dp=2", "[dp: S(0)]", "[dp: S(0)]"), IsEmpty());
  EXPECT_THAT(PlanText("dp=2", "[dp: P(sum)]", "[dp: P(sum)]"), IsEmpty());
  EXPECT_THAT(PlanText("dp=2", "[dp: B]", "[dp: S(0)]"),
              ElementsAre("slice: stage 0 [dp: B] -> stage 0 [dp: S(0)]"));
  EXPECT_THAT(PlanText("dp=2", "[dp: B]", "[dp: P(max)]"),
              ElementsAre("to-partial: stage 0 [dp: B] -> stage 0 [dp: P(max)]"));
  EXPECT_THAT(PlanText("dp=2", "[dp: S(0)]", "[dp: P(sum)]"),
              ElementsAre("to-partial: stage 0 [dp: S(0)] -> stage 0 [dp: P(sum)]"));
  EXPECT_THAT(PlanText("dp=2", "[dp: S(1)]", "[dp: B]"),
              ElementsAre("all-gather: stage 0 [dp: S(1)] -> stage 0 [dp: B]"));
  EXPECT_THAT(PlanText("dp=2", "[dp: P(sum)]", "[dp: S(1)]"),
              ElementsAre("reduce-scatter: stage 0 [dp: P(sum)] -> stage 0 [dp: S(1)]"));
  EXPECT_THAT(PlanText("dp=2", "[dp: S(0)]", "[dp: S(0, at=0:3:8)]"),
              ElementsAre("all-to-all: stage 0 [dp: S(0)] -> stage 0 [dp: S(0, at=0:3:8)]"));
  EXPECT_THAT(
      PlanText("dp=3", "[dp: P(sum)]", "[dp: B]"),
      ElementsAre("reduce-scatter: stage 0 [dp: P(sum)] -> stage 0 [dp: S(0)], flat over dp",
                  "all-gather: stage 0 [dp: S(0)] -> stage 0 [dp: B], flat over dp"));
}

TEST(BoxingPlan, TwoRanksReduceInOneExchange) {
  EXPECT_THAT(PlanText("dp=2", "[dp: P(sum)]", "[dp: B]"),
              ElementsAre("all-reduce: stage 0 [dp: P(sum)] -> stage 0 [dp: B]"));
  EXPECT_THAT(
      PlanText("dp=2,tp=3", "[dp: P(max), tp: S(1)]", "[dp: B, tp: S(1)]"),
      ElementsAre("all-reduce: stage 0 [dp: P(max), tp: S(1)] -> stage 0 [dp: B, tp: S(1)]"));
}

TEST(BoxingPlan, SeveralMergedAxesAreOneGroup) {
  EXPECT_THAT(
      PlanText("dp=2,sp=2,tp=2", "[dp: P(sum), sp: S(0), tp: P(sum)]", "[dp: B, sp: S(0), tp: B]"),
      ElementsAre("reduce-scatter: stage 0 [dp: P(sum), sp: S(0), tp: P(sum)] -> "
                  "stage 0 [dp: S(0), sp: S(0), tp: S(0)], flat over dp, tp",
                  "all-gather: stage 0 [dp: S(0), sp: S(0), tp: S(0)] -> "
                  "stage 0 [dp: B, sp: S(0), tp: B], flat over dp, tp"));
}

TEST(BoxingPlan, MixedChangesMergeIntoSplitsAndGatherLast) {
  EXPECT_THAT(PlanText("dp=2,tp=2", "[dp: P(sum), tp: S(0)]", "[dp: B, tp: S(1)]"),
              ElementsAre("mixed: stage 0 [dp: P(sum), tp: S(0)] -> stage 0 [dp: S(0), tp: S(1)]",
                          "all-gather: stage 0 [dp: S(0), tp: S(1)] -> stage 0 [dp: B, tp: S(1)]"));
  EXPECT_THAT(
      PlanText("dp=2,tp=2", "[dp: P(sum), tp: P(sum)]", "[dp: P(sum), tp: S(0)]"),
      ElementsAre(
          "reduce-scatter: stage 0 [dp: P(sum), tp: P(sum)] -> stage 0 [dp: P(sum), tp: S(0)]"));
}

TEST(BoxingPlan, ANewOuterSplitThatShiftsTheInnerOneIsNoSlice) {
  EXPECT_THAT(PlanText("dp=2,tp=2", "[dp: B, tp: S(0)]", "[dp: S(0), tp: S(0)]"),
              ElementsAre("mixed: stage 0 [dp: B, tp: S(0)] -> stage 0 [dp: S(0), tp: S(0)]"));
  EXPECT_THAT(PlanText("dp=2,tp=2", "[dp: S(0), tp: B]", "[dp: S(0), tp: S(0)]"),
              ElementsAre("slice: stage 0 [dp: S(0), tp: B] -> stage 0 [dp: S(0), tp: S(0)]"));
}

TEST(BoxingPlan, AcrossStagesPartialsAreMergedBeforeTheyCross) {
  EXPECT_THAT(PlanText("pp=2,dp=2", "[dp: S(0)]", "[dp: S(1)]", 0, 1),
              ElementsAre("move: stage 0 [dp: S(0)] -> stage 1 [dp: S(1)]"));
  EXPECT_THAT(PlanText("pp=2,dp=2", "[dp: B]", "[dp: B]", 1, 0),
              ElementsAre("move: stage 1 [dp: B] -> stage 0 [dp: B]"));
  EXPECT_THAT(PlanText("pp=2,dp=2", "[dp: P(max)]", "[dp: P(max)]", 0, 1),
              ElementsAre("move: stage 0 [dp: P(max)] -> stage 1 [dp: P(max)]"));
  EXPECT_THAT(PlanText("pp=2,dp=2", "[dp: P(sum)]", "[dp: S(1)]", 0, 1),
              ElementsAre("reduce-scatter: stage 0 [dp: P(sum)] -> stage 0 [dp: S(1)]",
                          "move: stage 0 [dp: S(1)] -> stage 1 [dp: S(1)]"));
  EXPECT_THAT(
      PlanText("pp=2,dp=2", "[dp: P(sum)]", "[dp: B]", 0, 1),
      ElementsAre("reduce-scatter: stage 0 [dp: P(sum)] -> stage 0 [dp: S(0)], flat over dp",
                  "move: stage 0 [dp: S(0)] -> stage 1 [dp: B], flat over dp"));
}

// Between unequal meshes partials are merged on the source's devices and made anew behind.
TEST(BoxingPlan, BetweenMeshesOneStepCrosses) {
  const Places places({{*Mesh::Parse("dp=1,tp=4"), {RankId(0), RankId(1), RankId(2), RankId(3)}},
                       {*Mesh::Parse("dp=2,tp=1"), {RankId(4), RankId(5)}}});
  const TensorType type = TypeOf({{"x", 8, 1}, {"y", 4, 1}});
  const auto plan = [&](const Layout& from, const Layout& to) {
    const std::vector<BoxingStep> steps = *PlanBoxing(type, {from, 0}, {to, 1}, places);
    std::vector<std::string> texts;
    for (const BoxingStep& step : steps) texts.push_back(ToText(step, places));
    return texts;
  };
  const auto bytes = [&](const Layout& from, const Layout& to) {
    return TotalBytes(type, *PlanBoxing(type, {from, 0}, {to, 1}, places), places);
  };
  const Sbp b = Sbp::B(), p = Sbp::P();
  EXPECT_THAT(plan({b, Sbp::S(1)}, {Sbp::S(0), b}),
              ElementsAre("move: stage 0 [dp: B, tp: S(1)] -> stage 1 [dp: S(0), tp: B]"));
  EXPECT_THAT(
      plan({b, p}, {p, b}),
      ElementsAre("reduce-scatter: stage 0 [dp: B, tp: P(sum)] -> stage 0 [dp: B, tp: S(0)]",
                  "move: stage 0 [dp: B, tp: S(0)] -> stage 1 [dp: B, tp: B]",
                  "to-partial: stage 1 [dp: B, tp: B] -> stage 1 [dp: P(sum), tp: B]"));
  const int64_t whole = type.bytes();
  EXPECT_EQ(bytes({b, Sbp::S(1)}, {Sbp::S(0), b}), whole);
  EXPECT_EQ(bytes({b, Sbp::S(1)}, {b, b}), 2 * whole);
  EXPECT_EQ(bytes({b, p}, {p, b}), 3 * whole + 2 * whole);
}

TEST(BoxingPlan, AxesOfOneRankNeedNothing) {
  EXPECT_THAT(PlanText("dp=1", "[dp: P(sum)]", "[dp: B]"), IsEmpty());
  EXPECT_THAT(PlanText("dp=1", "[dp: S(0)]", "[dp: P(sum)]"), IsEmpty());
  EXPECT_THAT(PlanText("dp=1,tp=2", "[dp: P(sum), tp: B]", "[dp: B, tp: S(0)]"),
              ElementsAre("slice: stage 0 [dp: P(sum), tp: B] -> stage 0 [dp: B, tp: S(0)]"));
  EXPECT_THAT(PlanText("", "[]", "[]"), IsEmpty());
}

TEST(BoxingPlan, LayoutsWithTheSameShardsNeedNothing) {
  EXPECT_THAT(PlanText("dp=2", "[dp: S(0)]", "[dp: S(0, at=0:4:8)]"), IsEmpty());
}

TEST(BoxingPlan, NamesWhatItCannotDo) {
  const Places places = PipelinePlaces(*Mesh::Parse("pp=2,dp=2"));
  TensorType type = TypeOf({{"x", 8, 1}});
  auto flaw = [&](const Placement& from, const Placement& to) {
    absl::StatusOr<std::vector<BoxingStep>> steps = PlanBoxing(type, from, to, places);
    EXPECT_EQ(steps.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(steps.status().message());
  };
  EXPECT_THAT(flaw({{Sbp::P(Combiner::kMax)}, 0}, {{Sbp::P(Combiner::kSum)}, 0}),
              AllOf(HasSubstr("W0220"), HasSubstr("axis dp"), HasSubstr("found P(sum)")));
  EXPECT_THAT(flaw({{Sbp::P(Combiner::kMax)}, 0}, {{Sbp::P(Combiner::kSum)}, 1}),
              HasSubstr("W0220"));
  EXPECT_THAT(flaw({{Sbp::B()}, 0}, {{Sbp::B()}, 2}), HasSubstr("W0221"));
  EXPECT_THAT(flaw({{Sbp::B()}, -1}, {{Sbp::B()}, 0}), HasSubstr("W0221"));
  EXPECT_THAT(flaw({{Sbp::S(1)}, 0}, {{Sbp::B()}, 0}), HasSubstr("W0211"));
  EXPECT_THAT(flaw({{Sbp::B()}, 0}, {{}, 0}), HasSubstr("W0210"));
}

// ---- What ranks do ----

// Returns the numbers of the ranks.
std::vector<int64_t> SourcesOf(const Region& region) {
  std::vector<int64_t> ranks;
  for (const RegionSource& source : region.sources) ranks.push_back(source.from.value());
  return ranks;
}

TEST(BoxingExchange, SumsRunOverTheGroupInCoordinateOrderWhoeverMakesThem) {
  const Places places = PipelinePlaces(*Mesh::Parse("a=2,b=2,c=2"));
  TensorType type = TypeOf({{"x", 8, 1}});
  // Merged over a and c; b stays partial, so each sum stays within one b.
  BoxingStep step = Plan(type, places, {{Sbp::P(), Sbp::P(), Sbp::P()}, 0},
                         {{Sbp::S(0), Sbp::P(), Sbp::S(0)}, 0})[0];
  for (RankId rank : places.all_ranks()) {
    RankExchange exchange = BuildExchange({type}, {step}, places, rank);
    ASSERT_EQ(exchange.regions.size(), 1u);
    const int64_t b = places.CoordsOf(rank)[1];
    EXPECT_THAT(SourcesOf(exchange.regions[0]),
                ElementsAre(2 * b, 2 * b + 1, 4 + 2 * b, 4 + 2 * b + 1));
  }
}

TEST(BoxingExchange, ReadersOfCopiesAreSpreadOverTheHolders) {
  // Each of the four copies serves the two readers with its own dp coordinate.
  const Places places = PipelinePlaces(*Mesh::Parse("pp=2,dp=4,tp=2"));
  TensorType type = TypeOf({{"x", 8, 1}});
  BoxingStep step = Plan(type, places, PlacementOf("[tp: S(0)]", places, 0),
                         PlacementOf("[tp: B]", places, 1))[0];
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(BytesSent(type, step, places, places.RankAt(0, i)), 2 * 16);
}

TEST(BoxingExchange, ReceiversOfAnotherMeshTakeTheCopiesInTurn) {
  std::vector<Place> list = {{*Mesh::Parse("dp=1,tp=2"), {RankId(0), RankId(1)}},
                             {*Mesh::Parse("dp=4,tp=1"), {}}};
  for (int32_t i = 2; i < 6; ++i) list[1].ranks.push_back(RankId(i));
  const Places places(std::move(list));
  const TensorType type = TypeOf({{"x", 8, 1}});
  const std::vector<BoxingStep> steps =
      *PlanBoxing(type, {{Sbp::B(), Sbp::B()}, 0}, {{Sbp::S(0), Sbp::B()}, 1}, places);
  ASSERT_EQ(steps.size(), 1u);
  for (int32_t i = 0; i < 4; ++i) {
    const RankExchange exchange = BuildExchange({type}, steps, places, RankId(2 + i));
    ASSERT_EQ(exchange.regions.size(), 1u);
    EXPECT_THAT(SourcesOf(exchange.regions[0]), ElementsAre(i % 2));
  }
}

TEST(BoxingExchange, ElementsAHolderHasComeFromItself) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=2,tp=2"));
  TensorType type = TypeOf({{"x", 8, 1}, {"y", 8, 1}});
  BoxingStep step = Plan(type, places, PlacementOf("[dp: S(0), tp: S(1)]", places),
                         PlacementOf("[dp: S(1), tp: B]", places))[0];
  for (RankId rank : places.all_ranks()) {
    Rect old = ShardRect(type, step.from.layout, places.mesh(0), places.CoordsOf(rank));
    Rect now = ShardRect(type, step.to.layout, places.mesh(0), places.CoordsOf(rank));
    int64_t own = 0;
    for (const Region& region : BuildExchange({type}, {step}, places, rank).regions) {
      if (region.sources[0].from == rank) own += region.dst.volume();
    }
    EXPECT_EQ(own, Intersect(old, now).volume());
  }
}

TEST(BoxingExchange, ANewPartialIsHeldOnceAndNeutralElsewhere) {
  const Places places = PipelinePlaces(Mesh({{"a", 3}}));
  TensorType type = TypeOf({{"x", 6, 1}});
  BoxingStep from_copies = Plan(type, places, {{Sbp::B()}, 0}, {{Sbp::P(Combiner::kMax)}, 0})[0];
  for (RankId rank : places.all_ranks()) {
    std::vector<Region> regions = BuildExchange({type}, {from_copies}, places, rank).regions;
    ASSERT_EQ(regions.size(), 1u);
    EXPECT_EQ(regions[0].sources.size(), rank.value() == 0 ? 1u : 0u);
    if (rank.value() > 0) {
      EXPECT_EQ(regions[0].combiner, Combiner::kMax);
    }
  }
  // Parts stay where they are; the rest is filled in as few regions as there are gaps.
  BoxingStep from_parts = Plan(type, places, {{Sbp::S(0)}, 0}, {{Sbp::P()}, 0})[0];
  std::vector<size_t> counts;
  for (RankId rank : places.all_ranks()) {
    counts.push_back(BuildExchange({type}, {from_parts}, places, rank).regions.size());
  }
  EXPECT_THAT(counts, ElementsAre(2, 3, 2));
}

TEST(BoxingExchange, FlatStepsSeeShardsAsRows) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=3,tp=2"));
  TensorType type = TypeOf({{"x", 5, 1}, {"y", 5, 1}});  // columns over tp: 3, 2
  std::vector<BoxingStep> steps = Plan(type, places, PlacementOf("[dp: P(sum), tp: S(1)]", places),
                                       PlacementOf("[dp: B, tp: S(1)]", places));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(ToText(StepInput(type, steps[0], places, RankId(0))), "f32[15]");
  EXPECT_EQ(ToText(StepOutput(type, steps[0], places, RankId(2))), "f32[5] at [5] of [15]");
  EXPECT_EQ(ToText(StepInput(type, steps[1], places, RankId(3))), "f32[3] at [4] of [10]");
  EXPECT_EQ(ToText(StepOutput(type, steps[1], places, RankId(5))), "f32[10]");
}

TEST(BoxingExchange, ABundleNumbersElementsTensorAfterTensor) {
  const Places places = PipelinePlaces(Mesh({{"a", 2}}));
  std::vector<TensorType> types = {TypeOf({{"x", 4, 1}}), TypeOf({{"x", 6, 1}})};
  std::vector<BoxingStep> steps;
  for (const TensorType& type : types)
    steps.push_back(Plan(type, places, {{Sbp::S(0)}, 0}, {{Sbp::B()}, 0})[0]);
  RankExchange exchange = BuildExchange(types, steps, places, RankId(0));
  const RankId other(1);
  // The other rank numbers 4 elements of the first tensor, then 6: rank 0 has 0..2 and 4..7.
  ASSERT_EQ(exchange.sends.at(other).size(), 2u);
  EXPECT_EQ(exchange.sends.at(other)[0].position, 0);
  EXPECT_EQ(exchange.sends.at(other)[1].position, 4);
  EXPECT_EQ(exchange.receiver_elements.at(other), 10);
  EXPECT_EQ(exchange.receives.at(other), 5);
}

TEST(BoxingExchange, AnEmptyBundleIsNothing) {
  RankExchange exchange = BuildExchange({}, {}, Places(), RankId(0));
  EXPECT_TRUE(exchange.regions.empty() && exchange.sends.empty() && exchange.receives.empty());
}

TEST(BoxingMethod, NamesAreDistinct) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(BoxingMethod::kMixed); ++i)
    names.insert(Name(static_cast<BoxingMethod>(i)));
  EXPECT_EQ(names.size(), 9u);
}

}  // namespace
}  // namespace weir::sbp
