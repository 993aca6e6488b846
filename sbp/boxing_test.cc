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

Place PlaceOf(const std::string& text, const Mesh& mesh, int64_t stage = 0) {
  absl::StatusOr<Layout> layout = ParseLayout(text, mesh.StageMesh());
  EXPECT_TRUE(layout.ok()) << layout.status();
  return Place{*layout, stage};
}

std::vector<BoxingStep> Plan(const TensorType& type, const Mesh& mesh, const Place& from,
                             const Place& to) {
  absl::StatusOr<std::vector<BoxingStep>> steps = PlanBoxing(type, from, to, mesh);
  EXPECT_TRUE(steps.ok()) << steps.status();
  return *steps;
}

std::vector<std::string> PlanText(const std::string& mesh_text, const std::string& from,
                                  const std::string& to, int64_t from_stage = 0,
                                  int64_t to_stage = 0) {
  Mesh mesh = *Mesh::Parse(mesh_text);
  TensorType type = TypeOf({{"x", 8, 1}, {"y", 4, 1}});
  std::vector<std::string> texts;
  for (const BoxingStep& step :
       Plan(type, mesh, PlaceOf(from, mesh, from_stage), PlaceOf(to, mesh, to_stage))) {
    texts.push_back(ToText(step, mesh));
  }
  return texts;
}

// A Price holds the bytes of a boxing, and the sum of the bytes that BuildExchange says ranks send.
struct Price {
  int64_t closed_form = 0;
  int64_t pieces = 0;
};
Price PriceOf(const TensorType& type, const Mesh& mesh, const Place& from, const Place& to) {
  std::vector<BoxingStep> steps = Plan(type, mesh, from, to);
  Price price{TotalBytes(type, steps, mesh), 0};
  for (const BoxingStep& step : steps) {
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      for (const auto& [receiver, pieces] : BuildExchange({type}, {step}, mesh, rank).sends) {
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

// Returns the same bytes across stages of n ranks each.
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
    Mesh mesh({{"a", n}});
    for (auto [rows, columns] : RowsAndColumns()) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}}, dtype);
        for (char from : std::string(kKinds)) {
          for (char to : std::string(kKinds)) {
            Price price = PriceOf(type, mesh, {{KindOf(from)}, 0}, {{KindOf(to)}, 0});
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
    Price price = PriceOf(type, Mesh({{"a", n}}), {{Sbp::S(0)}, 0}, {{Sbp::S(1)}, 0});
    EXPECT_EQ(price.closed_form, type.bytes() * (n - 1) / n);
  }
}

// Only one of two axes changes, and each of the groups along that axis pays for its own elements. A
// group has all of the tensor where the other axis is B or P, and a part of the tensor where the
// other axis is split.
TEST(BoxingPrice, OneAxisOfTwoCostsTheTextbookInEachGroup) {
  Mesh mesh = *Mesh::Parse("a=2,b=2");
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
            SCOPED_TRACE(
                absl::StrCat(ToText(type), " ", ToText(before, mesh), " to ", ToText(after, mesh)));
            Price price = PriceOf(type, mesh, {before, 0}, {after, 0});
            EXPECT_EQ(price.pieces, price.closed_form);
            EXPECT_EQ(price.closed_form, expected);
          }
        }
      }
    }
  }
}

TEST(BoxingPrice, TwoPartialAxesCostAsOneOfFourRanks) {
  Mesh mesh = *Mesh::Parse("a=2,b=2");
  for (auto [rows, columns] : RowsAndColumns()) {
    TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}});
    Place partial{{Sbp::P(), Sbp::P()}, 0};
    EXPECT_EQ(PriceOf(type, mesh, partial, {{Sbp::B(), Sbp::B()}, 0}).pieces, 6 * type.bytes());
    EXPECT_EQ(PriceOf(type, mesh, partial, {{Sbp::S(0), Sbp::S(0)}, 0}).pieces, 3 * type.bytes());
    EXPECT_EQ(PriceOf(type, mesh, partial, {{Sbp::S(1), Sbp::S(0)}, 0}).pieces, 3 * type.bytes());
    EXPECT_EQ(PriceOf(type, mesh, {{Sbp::S(0), Sbp::S(0)}, 0}, {{Sbp::B(), Sbp::B()}, 0}).pieces,
              3 * type.bytes());
  }
}

// Where no axis is partial, ranks receive exactly the elements that they lack, counted element by
// element.
TEST(BoxingPrice, SplitsAndBroadcastsCostExactlyWhatEachRankLacks) {
  Mesh mesh = *Mesh::Parse("a=2,b=3");
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
        for (int64_t rank = 0; rank < 6; ++rank) {
          Rect have = ShardRect(type, before, mesh, mesh.CoordsOf(rank));
          Rect want = ShardRect(type, after, mesh, mesh.CoordsOf(rank));
          for (int64_t x = want.begin[0]; x < want.end[0]; ++x) {
            for (int64_t y = want.begin[1]; y < want.end[1]; ++y) {
              bool has =
                  x >= have.begin[0] && x < have.end[0] && y >= have.begin[1] && y < have.end[1];
              lacking += has ? 0 : 4;
            }
          }
        }
        EXPECT_EQ(PriceOf(type, mesh, {before, 0}, {after, 0}).pieces, lacking);
      }
    }
  }
}

TEST(BoxingPrice, AcrossStagesEachCopyAskedForCrossesOnce) {
  for (int64_t n : {2, 3, 4}) {
    Mesh mesh({{"pp", 2}, {"a", n}});
    for (auto [rows, columns] : RowsAndColumns()) {
      TensorType type = TypeOf({{"x", rows, 1}, {"y", columns, 1}});
      for (char from : std::string(kKinds)) {
        for (char to : std::string(kKinds)) {
          Price price = PriceOf(type, mesh, {{KindOf(from)}, 0}, {{KindOf(to)}, 1});
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
  Mesh mesh = *Mesh::Parse("pp=3,a=2");
  TensorType type = TypeOf({{"x", 4, 1}});
  std::vector<BoxingStep> steps = Plan(type, mesh, {{Sbp::B()}, 0}, {{Sbp::B()}, 2});
  ASSERT_EQ(steps.size(), 1u);
  for (int64_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(BytesSent(type, steps[0], mesh, rank), mesh.StageOf(rank) == 0 ? 16 : 0);
    EXPECT_EQ(StepInput(type, steps[0], mesh, rank).num_elements(),
              mesh.StageOf(rank) == 0 ? 4 : 0);
    EXPECT_EQ(StepOutput(type, steps[0], mesh, rank).num_elements(),
              mesh.StageOf(rank) == 2 ? 4 : 0);
    RankExchange exchange = BuildExchange({type}, {steps[0]}, mesh, rank);
    EXPECT_EQ(exchange.sends.size(), mesh.StageOf(rank) == 0 ? 1u : 0u);
    EXPECT_EQ(exchange.regions.size(), mesh.StageOf(rank) == 2 ? 1u : 0u);
  }
}

TEST(BoxingPrice, MixedChangesTakeTheCheapestOrder) {
  Mesh mesh = *Mesh::Parse("dp=4,tp=2");
  TensorType type = TypeOf({{"x", 16, 1}, {"y", 16, 1}});
  const int64_t bytes = type.bytes();
  // Two halves, each reduced in a group of four, and four copies that lack a half each of two.
  EXPECT_EQ(
      PriceOf(type, mesh, PlaceOf("[dp: P(sum), tp: S(0)]", mesh), PlaceOf("[dp: B, tp: B]", mesh))
          .pieces,
      2 * 3 * bytes + 4 * bytes);
  // Merge first, on shards: 3 * bytes; then the split moves to the other axis of the tensor.
  EXPECT_LE(PriceOf(type, mesh, PlaceOf("[dp: P(sum), tp: S(0)]", mesh),
                    PlaceOf("[dp: B, tp: S(1)]", mesh))
                .pieces,
            2 * 3 * bytes + bytes / 2);
  EXPECT_EQ(PriceOf(type, mesh, PlaceOf("[dp: P(sum), tp: S(0)]", mesh),
                    PlaceOf("[dp: S(1), tp: B]", mesh))
                .pieces,
            3 * bytes + bytes);
  // A broadcast that becomes partial is wanted once, so the merge need not run in every copy.
  EXPECT_EQ(PriceOf(type, mesh, PlaceOf("[dp: B, tp: P(sum)]", mesh),
                    PlaceOf("[dp: P(sum), tp: S(0)]", mesh))
                .pieces,
            bytes);
  // Each copy merges a part of the tensor, where otherwise each copy would merge all of it.
  Mesh stages = *Mesh::Parse("pp=2,dp=4,tp=2");
  EXPECT_EQ(PriceOf(type, stages, PlaceOf("[dp: B, tp: P(sum)]", stages, 0),
                    PlaceOf("[dp: B, tp: B]", stages, 1))
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
  Mesh mesh = *Mesh::Parse("pp=2,dp=2");
  TensorType type = TypeOf({{"x", 8, 1}});
  auto flaw = [&](const Place& from, const Place& to) {
    absl::StatusOr<std::vector<BoxingStep>> steps = PlanBoxing(type, from, to, mesh);
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

std::vector<int64_t> SourcesOf(const Region& region) {
  std::vector<int64_t> ranks;
  for (const RegionSource& source : region.sources) ranks.push_back(source.from);
  return ranks;
}

TEST(BoxingExchange, SumsRunOverTheGroupInCoordinateOrderWhoeverMakesThem) {
  Mesh mesh = *Mesh::Parse("a=2,b=2,c=2");
  TensorType type = TypeOf({{"x", 8, 1}});
  // Merged over a and c; b stays partial, so each sum stays within one b.
  BoxingStep step = Plan(type, mesh, {{Sbp::P(), Sbp::P(), Sbp::P()}, 0},
                         {{Sbp::S(0), Sbp::P(), Sbp::S(0)}, 0})[0];
  for (int64_t rank = 0; rank < 8; ++rank) {
    RankExchange exchange = BuildExchange({type}, {step}, mesh, rank);
    ASSERT_EQ(exchange.regions.size(), 1u);
    const int64_t b = mesh.CoordsOf(rank)[1];
    EXPECT_THAT(SourcesOf(exchange.regions[0]),
                ElementsAre(2 * b, 2 * b + 1, 4 + 2 * b, 4 + 2 * b + 1));
  }
}

TEST(BoxingExchange, ReadersOfCopiesAreSpreadOverTheHolders) {
  // Each of the four copies serves the two readers with its own dp coordinate.
  Mesh mesh = *Mesh::Parse("pp=2,dp=4,tp=2");
  TensorType type = TypeOf({{"x", 8, 1}});
  BoxingStep step =
      Plan(type, mesh, PlaceOf("[tp: S(0)]", mesh, 0), PlaceOf("[tp: B]", mesh, 1))[0];
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(BytesSent(type, step, mesh, mesh.GlobalRank(0, i)), 2 * 16);
}

TEST(BoxingExchange, ElementsAHolderHasComeFromItself) {
  Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  TensorType type = TypeOf({{"x", 8, 1}, {"y", 8, 1}});
  BoxingStep step = Plan(type, mesh, PlaceOf("[dp: S(0), tp: S(1)]", mesh),
                         PlaceOf("[dp: S(1), tp: B]", mesh))[0];
  for (int64_t rank = 0; rank < 4; ++rank) {
    Rect old = ShardRect(type, step.from.layout, mesh, mesh.CoordsOf(rank));
    Rect now = ShardRect(type, step.to.layout, mesh, mesh.CoordsOf(rank));
    int64_t own = 0;
    for (const Region& region : BuildExchange({type}, {step}, mesh, rank).regions) {
      if (region.sources[0].from == rank) own += region.dst.volume();
    }
    EXPECT_EQ(own, Intersect(old, now).volume());
  }
}

TEST(BoxingExchange, ANewPartialIsHeldOnceAndNeutralElsewhere) {
  Mesh mesh({{"a", 3}});
  TensorType type = TypeOf({{"x", 6, 1}});
  BoxingStep from_copies = Plan(type, mesh, {{Sbp::B()}, 0}, {{Sbp::P(Combiner::kMax)}, 0})[0];
  for (int64_t rank = 0; rank < 3; ++rank) {
    std::vector<Region> regions = BuildExchange({type}, {from_copies}, mesh, rank).regions;
    ASSERT_EQ(regions.size(), 1u);
    EXPECT_EQ(regions[0].sources.size(), rank == 0 ? 1u : 0u);
    if (rank > 0) {
      EXPECT_EQ(regions[0].combiner, Combiner::kMax);
    }
  }
  // Parts stay where they are; the rest is filled in as few regions as there are gaps.
  BoxingStep from_parts = Plan(type, mesh, {{Sbp::S(0)}, 0}, {{Sbp::P()}, 0})[0];
  std::vector<size_t> counts;
  for (int64_t rank = 0; rank < 3; ++rank) {
    counts.push_back(BuildExchange({type}, {from_parts}, mesh, rank).regions.size());
  }
  EXPECT_THAT(counts, ElementsAre(2, 3, 2));
}

TEST(BoxingExchange, FlatStepsSeeShardsAsRows) {
  Mesh mesh = *Mesh::Parse("dp=3,tp=2");
  TensorType type = TypeOf({{"x", 5, 1}, {"y", 5, 1}});  // columns over tp: 3, 2
  std::vector<BoxingStep> steps =
      Plan(type, mesh, PlaceOf("[dp: P(sum), tp: S(1)]", mesh), PlaceOf("[dp: B, tp: S(1)]", mesh));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(ToText(StepInput(type, steps[0], mesh, 0)), "f32[15]");
  EXPECT_EQ(ToText(StepOutput(type, steps[0], mesh, 2)), "f32[5] at [5] of [15]");
  EXPECT_EQ(ToText(StepInput(type, steps[1], mesh, 3)), "f32[3] at [4] of [10]");
  EXPECT_EQ(ToText(StepOutput(type, steps[1], mesh, 5)), "f32[10]");
}

TEST(BoxingExchange, ABundleNumbersElementsTensorAfterTensor) {
  Mesh mesh({{"a", 2}});
  std::vector<TensorType> types = {TypeOf({{"x", 4, 1}}), TypeOf({{"x", 6, 1}})};
  std::vector<BoxingStep> steps;
  for (const TensorType& type : types)
    steps.push_back(Plan(type, mesh, {{Sbp::S(0)}, 0}, {{Sbp::B()}, 0})[0]);
  RankExchange exchange = BuildExchange(types, steps, mesh, 0);
  // Rank 1 numbers 4 elements of the first tensor, then 6: rank 0 has 0..2 and 4..7.
  ASSERT_EQ(exchange.sends.at(1).size(), 2u);
  EXPECT_EQ(exchange.sends.at(1)[0].position, 0);
  EXPECT_EQ(exchange.sends.at(1)[1].position, 4);
  EXPECT_EQ(exchange.receiver_elements.at(1), 10);
  EXPECT_EQ(exchange.receives.at(1), 5);
}

TEST(BoxingExchange, AnEmptyBundleIsNothing) {
  RankExchange exchange = BuildExchange({}, {}, Mesh(), 0);
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
