#include "compiler/transfer/largest_shard.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

sbp::Sbp RandomSbp(size_t kind) {
  return kind == 0   ? sbp::Sbp::B()
         : kind == 1 ? sbp::Sbp::P()
                     : sbp::Sbp::S(static_cast<int>(kind) - 2);
}

// Asks every rank of the job.
TEST(LargestShard, IsTheLargestOverAllRanks) {
  int uneven = 0;
  for (const char* text : {"a=2", "a=3,b=2", "pp=2,a=2,b=3"}) {
    const sbp::Places places = sbp::PipelinePlaces(*sbp::Mesh::Parse(text));
    LargestShard largest;
    for (uint64_t seed = 1; seed <= 150; ++seed) {
      uint64_t n = 0;
      const auto below = [&](size_t limit) {
        return static_cast<size_t>(UniformAt(seed, n++) * static_cast<float>(limit));
      };
      std::vector<sbp::TensorType> types;
      std::vector<std::vector<sbp::BoxingStep>> steps;
      const int64_t stage = places.size() > 1 ? static_cast<int64_t>(below(2)) : 0;
      for (size_t i = 1 + below(2); i > 0; --i) {
        sbp::TensorType type{DType::kF32,
                             {{"x", static_cast<int64_t>(1 + below(7)), 1},
                              {"y", static_cast<int64_t>(1 + below(7)), 1}}};
        sbp::Layout from, to;
        for (int axis = 0; axis < places.mesh(0).num_axes(); ++axis) {
          from.push_back(RandomSbp(below(4)));
          to.push_back(RandomSbp(below(4)));
        }
        absl::StatusOr<std::vector<sbp::BoxingStep>> planned =
            sbp::PlanBoxing(type, {from, 0}, {to, stage}, places);
        ASSERT_TRUE(planned.ok()) << planned.status();
        if (!steps.empty() && planned->size() != steps[0].size()) continue;
        types.push_back(type);
        steps.push_back(*planned);
      }
      for (size_t k = 0; k < steps[0].size(); ++k) {
        std::vector<sbp::BoxingStep> bundle;
        for (const auto& list : steps) bundle.push_back(list[k]);
        int64_t most = 0, least = int64_t{1} << 40;
        for (RankId rank : places.all_ranks()) {
          if (places.PlaceOf(rank) != bundle[0].to.place) continue;
          int64_t here = 0;
          for (size_t i = 0; i < types.size(); ++i)
            here += sbp::StepOutput(types[i], bundle[i], places, rank).num_elements();
          most = std::max(most, here);
          least = std::min(least, here);
        }
        EXPECT_EQ(largest.Elements(types, bundle, places, 0), most) << text << ", seed " << seed;
        uneven += most > least;
      }
    }
  }
  EXPECT_GT(uneven, 50);
}

TEST(LargestShard, WhereNoRankCanHoldMoreThanEnoughAnyNumberUpToEnoughWillDo) {
  const sbp::Places places = sbp::PipelinePlaces(*sbp::Mesh::Parse("a=2"));
  const sbp::TensorType type{DType::kF32, {{"x", 10, 1}}};
  const std::vector<sbp::BoxingStep> step = {
      *sbp::PlanBoxing(type, {{sbp::Sbp::P()}, 0}, {{sbp::Sbp::S(0)}, 0}, places)->begin()};
  LargestShard largest;
  EXPECT_LE(largest.Elements({type}, step, places, 10), 10);
  EXPECT_EQ(largest.Elements({type}, step, places, 9), 5);
}

}  // namespace
}  // namespace weir::compiler
