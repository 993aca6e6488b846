// Tests the choice of the axes inside hosts against a brute force over all orders, which counts the
// messages of the plans of all ranks.
#include "tools/plan/place_axes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  std::string mesh;
  int64_t devices_per_host;
  int64_t zero = 0;
  zoo::SequenceParallel sequence = zoo::SequenceParallel::kNone;
  std::string schedule = "1f1b";
};

using MakeJob = absl::StatusOr<proto::Job> (*)(const zoo::TransformerOptions&);

proto::Job JobOf(const Case& on, MakeJob make) {
  zoo::TransformerOptions options;
  options.layers = 4;
  options.hidden = 64;
  options.heads = 8;
  options.sequence = 32;
  options.sequence_parallel = on.sequence;
  options.training.batch = 16;
  options.training.micro_batches = 2;
  options.training.mesh = on.mesh;
  options.training.zero_stage = on.zero;
  options.training.schedule = on.schedule;
  absl::StatusOr<proto::Job> job = make(options);
  EXPECT_TRUE(job.ok()) << job.status();
  job->mutable_mesh()->set_devices_per_host(on.devices_per_host);
  // Messages are then whole, so that the bytes of a register are those of its message.
  job->mutable_runtime()->set_chunk_bytes_max(1 << 30);
  return *job;
}

std::vector<std::string> OrderOf(const proto::Job& job) {
  return {job.mesh().rank_order().begin(), job.mesh().rank_order().end()};
}

// Returns the bytes between hosts that the plans of all ranks send in a step; nullopt if hosts do
// not cut the ranks evenly.
std::optional<double> CountBytes(const proto::Job& job) {
  const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok() || (*plan)->places.host_cut() == nullptr) return std::nullopt;
  double bytes = 0;
  for (RankId rank : (*plan)->places.all_ranks()) {
    const absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(**plan, rank);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    for (const proto::RegisterSpec& spec : lowered->registers()) {
      if (spec.side() != proto::RegisterSpec::OUTBOUND ||
          (*plan)->places.HostOf(RankId(rank)) == (*plan)->places.HostOf(RankId(spec.peer())))
        continue;
      bytes += static_cast<double>(spec.bytes() * spec.tokens_per_step());
    }
  }
  return bytes;
}

// Returns the fewest bytes of all orders.
double FewestBytes(proto::Job job) {
  std::vector<std::string> names;
  for (const proto::MeshAxisSpec& axis : job.mesh().axis()) names.push_back(axis.name());
  std::sort(names.begin(), names.end());
  double fewest = std::numeric_limits<double>::infinity();
  do {
    job.mutable_mesh()->clear_rank_order();
    for (const std::string& name : names) job.mutable_mesh()->add_rank_order(name);
    fewest = std::min(fewest, CountBytes(job).value_or(fewest));
  } while (std::next_permutation(names.begin(), names.end()));
  return fewest;
}

void ExpectChoiceOfBruteForce(const Case& on, MakeJob make) {
  proto::Job job = JobOf(on, make);
  SCOPED_TRACE(absl::StrCat(job.name(), " on ", on.mesh, " over hosts of ", on.devices_per_host,
                            ", ZeRO ", on.zero));
  const double as_written = CountBytes(job).value();
  const double fewest = FewestBytes(job);
  const absl::StatusOr<PlacedAxes> placed = PlaceAxes(kPlaceAuto, &job);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const double chosen = CountBytes(job).value();
  std::printf("%-24s hosts of %d: %9.1f KiB as written, %9.1f with %s\n", on.mesh.c_str(),
              static_cast<int>(on.devices_per_host), as_written / 1024, chosen / 1024,
              OrderOf(job).empty() ? "the same order" : absl::StrJoin(OrderOf(job), ",").c_str());
  if (fewest >= 0.95 * as_written) {
    EXPECT_EQ(placed->by, PlacedAxes::By::kJob);
    EXPECT_THAT(OrderOf(job), IsEmpty());
    return;
  }
  EXPECT_EQ(placed->by, PlacedAxes::By::kChoice);
  EXPECT_EQ(chosen, fewest);
  EXPECT_NEAR(placed->bytes, chosen, 1e-3 * chosen);
  EXPECT_NEAR(placed->bytes_as_written, as_written, 1e-3 * as_written);
}

TEST(PlaceAxesTest, ChoosesTheOrderOfABruteForce) {
  using zoo::SequenceParallel;
  const std::vector<Case> cases = {
      {"dp=2,tp=2", 2},
      {"tp=2,dp=2", 2},
      {"tp=4,dp=2", 4},
      {"tp=2,dp=4", 4},
      {"tp=2,dp=4", 4, 3},
      {"tp=2,dp=2", 2, 1},
      {"dp=2,pp=2", 2},
      {"tp=2,pp=2,dp=2", 2},
      {"tp=2,dp=2,pp=2", 4},
      {"pp=4,dp=2", 4, 2},
      {"tp=2,pp=4", 4, 0, SequenceParallel::kNone, "zero-bubble"},
      {"tp=2,dp=4", 2, 0, SequenceParallel::kMegatron},
      {"sp=2,tp=2,dp=2", 2, 0, SequenceParallel::kUlysses},
      {"sp=2,tp=2,dp=2,pp=2", 4, 1, SequenceParallel::kUlysses},
  };
  for (const Case& on : cases) {
    ExpectChoiceOfBruteForce(on, zoo::GptJob);
    ExpectChoiceOfBruteForce(on, zoo::LlamaJob);
  }
}

TEST(PlaceAxesTest, TheChoiceIsExplained) {
  proto::Job job = JobOf({"tp=2,dp=2", 2}, zoo::GptJob);
  const absl::StatusOr<PlacedAxes> placed = PlaceAxes(kPlaceAuto, &job);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_THAT(OrderOf(job), ElementsAre("dp", "tp"));
  const std::string text = PlacedText(*placed, job);
  EXPECT_THAT(text, HasSubstr("tp inside hosts, dp between them: "));
  EXPECT_THAT(text, HasSubstr(" a step between hosts instead of "));
  EXPECT_THAT(text, HasSubstr("in the order as written; --place as-written keeps that"));
}

TEST(PlaceAxesTest, AUserMayNameTheOrder) {
  proto::Job job = JobOf({"dp=2,pp=2,tp=2", 4}, zoo::GptJob);
  const absl::StatusOr<PlacedAxes> placed = PlaceAxes(" tp, dp,pp", &job);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->by, PlacedAxes::By::kNamed);
  EXPECT_THAT(OrderOf(job), ElementsAre("tp", "dp", "pp"));
  EXPECT_EQ(PlacedText(*placed, job), "dp and pp inside hosts, tp between them (--place)");
  ASSERT_TRUE(PlaceAxes("dp,pp,tp", &job).ok());
  EXPECT_THAT(OrderOf(job), IsEmpty()) << "that is the order as written";
  job.mutable_mesh()->set_devices_per_host(3);
  EXPECT_EQ(PlacedText(*PlaceAxes("tp,dp,pp", &job), job), "") << "hosts do not cut it evenly";
  const absl::Status flaw = PlaceAxes("dp,tp", &job).status();
  EXPECT_THAT(std::string(flaw.message()), HasSubstr("W0106 at --place dp,tp"));
  EXPECT_THAT(std::string(flaw.message()),
              HasSubstr("; or as-written, the order of the job; or auto, which chooses"));
}

TEST(PlaceAxesTest, KeepsAnOrderThatTheUserWrote) {
  const proto::Job written = JobOf({"tp=2,dp=2", 2}, zoo::GptJob);
  proto::Job job = written;
  ASSERT_TRUE(PlaceAxes(kPlaceAsWritten, &job).ok());
  EXPECT_THAT(OrderOf(job), IsEmpty());
  job.mutable_mesh()->add_rank_order("tp");
  job.mutable_mesh()->add_rank_order("dp");
  EXPECT_EQ(PlaceAxes(kPlaceAuto, &job)->by, PlacedAxes::By::kJob);
  EXPECT_THAT(OrderOf(job), ElementsAre("tp", "dp"));
}

TEST(PlaceAxesTest, KeepsTheOrderWhereHostsDoNotCutTheMeshEvenly) {
  for (const Case& on : std::vector<Case>{{"tp=2,dp=3", 2},
                                          {"tp=4,dp=3", 4},
                                          {"tp=2,dp=4", 3},
                                          {"tp=2,dp=4", 1},
                                          {"tp=2,dp=4", 0},
                                          {"tp=2,dp=4", 8},
                                          {"tp=4", 2}}) {
    SCOPED_TRACE(absl::StrCat(on.mesh, " over hosts of ", on.devices_per_host));
    proto::Job job = JobOf(on, zoo::GptJob);
    const absl::StatusOr<PlacedAxes> placed = PlaceAxes(kPlaceAuto, &job);
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_EQ(PlacedText(*placed, job), "");
    EXPECT_THAT(OrderOf(job), IsEmpty());
  }
}

TEST(PlaceAxesTest, DoesNotCompareMoreOrdersThanItHasTimeFor) {
  proto::Job job = JobOf({"dp=2", 128}, zoo::GptJob);
  for (int axis = 0; axis < 13; ++axis) {
    proto::MeshAxisSpec* const spec = job.mutable_mesh()->add_axis();
    spec->set_name(absl::StrCat("x", axis));
    spec->set_size(2);
  }
  const absl::StatusOr<PlacedAxes> placed = PlaceAxes(kPlaceAuto, &job);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_THAT(PlacedText(*placed, job), HasSubstr("orders are too many to compare"));
  EXPECT_THAT(OrderOf(job), IsEmpty());
}

TEST(PlaceAxesTest, LeavesAMeshThatIsWrongToTheCompiler) {
  proto::Job job = JobOf({"dp=4", 2}, zoo::GptJob);
  job.mutable_mesh()->mutable_axis(0)->set_size(1 << 30);
  EXPECT_TRUE(PlaceAxes(kPlaceAuto, &job).ok());
  job.mutable_mesh()->mutable_axis(0)->set_size(-1);
  EXPECT_TRUE(PlaceAxes(kPlaceAuto, &job).ok());
  EXPECT_FALSE(PlaceAxes("dp", &job).ok());
}

}  // namespace
}  // namespace weir::plan
