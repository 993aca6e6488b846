// Tests that it does not matter to a job where hosts end, and which devices share one: a GPT has
// the same bits on hosts of any size and with ranks in any order, and sends no more bytes between
// hosts than transfers that know no hosts.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

constexpr int kSteps = 3;

struct OverHosts {
  Layout layout;
  int64_t devices_per_host;
  std::string rank_order = "";  // "tp,dp"; empty: that of the mesh
  std::vector<std::string> stage_meshes = {};
};

std::vector<OverHosts> Cases() {
  using zoo::SequenceParallel;
  std::vector<OverHosts> cases;
  for (const auto& [mesh, devices] : {std::pair{"dp=4", 2},
                                      {"dp=6", 2},
                                      {"dp=6", 3},
                                      {"dp=2,tp=2", 2},
                                      {"dp=4,tp=2", 4},
                                      {"dp=2,tp=4", 2},
                                      {"pp=2,dp=2", 2},
                                      {"pp=2,tp=4", 4},
                                      {"pp=2,dp=2,tp=2", 4},
                                      {"dp=2,tp=2,pp=2", 2}}) {
    cases.push_back({{mesh, 0, SequenceParallel::kNone}, devices});
  }
  for (int zero : {1, 2, 3}) {
    cases.push_back({{"dp=4", zero, SequenceParallel::kNone}, 2});
    cases.push_back({{"dp=4,tp=2", zero, SequenceParallel::kNone}, 4});
  }
  cases.push_back({{"tp=4", 0, SequenceParallel::kMegatron}, 2});
  cases.push_back({{"dp=2,tp=4", 1, SequenceParallel::kMegatron}, 4});
  cases.push_back({{"sp=4", 0, SequenceParallel::kUlysses}, 2});
  cases.push_back({{"sp=2,tp=2", 0, SequenceParallel::kUlysses}, 2});
  return cases;
}

// In these, devices share a host that are far from each other in the mesh.
std::vector<OverHosts> CasesInOtherOrders() {
  using zoo::SequenceParallel;
  std::vector<OverHosts> cases;
  for (int zero : {0, 1, 2, 3}) {
    cases.push_back({{"dp=2,tp=2", zero, SequenceParallel::kNone}, 2, "tp,dp"});
    cases.push_back({{"dp=4,tp=2", zero, SequenceParallel::kNone}, 4, "tp,dp"});
    cases.push_back({{"dp=4,tp=2", zero, SequenceParallel::kNone}, 2, "tp,dp"});
  }
  cases.push_back({{"pp=2,dp=2", 0, SequenceParallel::kNone}, 2, "dp,pp"});
  cases.push_back({{"pp=2,dp=2,tp=2", 1, SequenceParallel::kNone}, 2, "pp,tp,dp"});
  cases.push_back({{"pp=2,dp=2,tp=2", 0, SequenceParallel::kNone}, 4, "tp,dp,pp"});
  cases.push_back({{"dp=2,tp=2,pp=2", 3, SequenceParallel::kNone}, 4, "pp,tp,dp"});
  cases.push_back({{"dp=2,tp=4", 1, SequenceParallel::kMegatron}, 4, "tp,dp"});
  cases.push_back({{"sp=2,tp=2", 0, SequenceParallel::kUlysses}, 2, "tp,sp"});
  return cases;
}

// In these, stages have unequal meshes. Some hosts have devices of two stages.
std::vector<OverHosts> CasesOfUnequalStages() {
  std::vector<OverHosts> cases;
  for (const int zero : {0, 1, 3}) {
    const Layout layout{"pp=2,dp=4,tp=4", zero, zoo::SequenceParallel::kNone};
    cases.push_back({layout, 2, "", {"tp=2", "dp=2,tp=2"}});
    cases.push_back({layout, 4, "", {"dp=2,tp=2", "dp=4,tp=2"}});
    cases.push_back({layout, 4, "", {"dp=2,tp=2", "tp=4"}});
    cases.push_back({layout, 4, "", {"tp=2", "dp=3,tp=2"}});
    cases.push_back({layout, 2, "", {"dp=4", ""}});
  }
  const Layout three{"pp=3,dp=4,tp=4", 0, zoo::SequenceParallel::kNone};
  cases.push_back({three, 4, "", {"dp=2", "dp=2,tp=4", "dp=2"}});
  cases.push_back({three, 4, "", {"tp=4", "dp=2,tp=4", "dp=2,tp=4"}});
  return cases;
}

int64_t BytesBetweenHosts(const TrainRun& run, int64_t devices_per_host) {
  int64_t bytes = 0;
  for (const actors::EdgeReport& edge : run.edges) {
    if (edge.from.value() / devices_per_host != edge.to.value() / devices_per_host)
      bytes += edge.payload_bytes;
  }
  return bytes;
}

void Check(const std::vector<OverHosts>& cases, proto::Training::Precision precision,
           int num_better_min, zoo::TransformerOptions options = SmallTransformer()) {
  options.training.steps = kSteps;
  TrainRunOptions run_options;
  run_options.steps = kSteps;
  int num_better = 0;
  for (const OverHosts& over : cases) {
    SCOPED_TRACE(absl::StrCat(NameOf(over.layout), " on hosts of ", over.devices_per_host, " ",
                              over.rank_order, absl::StrJoin(over.stage_meshes, " | ")));
    absl::StatusOr<proto::Job> job = JobOn(over.layout, zoo::GptJob, options);
    ASSERT_TRUE(job.ok()) << job.status();
    job->mutable_training()->set_precision(precision);
    for (const std::string& mesh : over.stage_meshes) {
      proto::Pipeline::StageMesh* entry = job->mutable_pipeline()->add_stage_mesh();
      entry->add_stage(job->pipeline().stage_mesh_size() - 1);
      entry->set_mesh(mesh);
    }
    const absl::StatusOr<TrainRun> one_host = Train(*job, run_options);
    ASSERT_TRUE(one_host.ok()) << one_host.status();
    for (absl::string_view axis : absl::StrSplit(over.rank_order, ',', absl::SkipEmpty()))
      job->mutable_mesh()->add_rank_order(std::string(axis));
    const absl::StatusOr<TrainRun> one_level = Train(*job, run_options);
    ASSERT_TRUE(one_level.ok()) << one_level.status();
    job->mutable_mesh()->set_devices_per_host(over.devices_per_host);
    const absl::StatusOr<TrainRun> hosts = Train(*job, run_options);
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    for (const TrainRun* run : {&*one_level, &*hosts}) {
      EXPECT_EQ(run->losses, one_host->losses);
      EXPECT_EQ(run->grad_norms, one_host->grad_norms);
      EXPECT_EQ(FirstDifferentState(run->weights, one_host->weights), "");
    }
    const int64_t before = BytesBetweenHosts(*one_level, over.devices_per_host);
    const int64_t after = BytesBetweenHosts(*hosts, over.devices_per_host);
    EXPECT_LE(after, before);
    num_better += after < before;
    std::printf("%-28s hosts of %d %-8s: %8.1f KiB between hosts, %8.1f on one level\n",
                NameOf(over.layout).c_str(), static_cast<int>(over.devices_per_host),
                over.rank_order.c_str(), static_cast<double>(after) / 1024,
                static_cast<double>(before) / 1024);
  }
  EXPECT_GE(num_better, num_better_min);
}

TEST(OverHostsTest, TheBitsDoNotDependOnWhereHostsEnd) { Check(Cases(), proto::Training::F32, 10); }

TEST(OverHostsTest, NeitherDoThoseOfBf16) { Check(Cases(), proto::Training::BF16, 5); }

TEST(OverHostsTest, NorOnWhichDevicesShareAHost) {
  Check(CasesInOtherOrders(), proto::Training::F32, 5);
}

// With Megatron's sequence parallelism, the gradients of norms are sums over dp and tp. They are
// large enough here to go over two levels, which must not add devices of a host first that are no
// neighbours in the sum.
TEST(OverHostsTest, SumsOverTwoAxesAreAddedInTheOrderOfTheMesh) {
  zoo::TransformerOptions options = SmallTransformer();
  options.layers = 1;
  options.hidden = 768;
  options.ffn = 32;
  std::vector<OverHosts> cases;
  for (const char* order : {"dp,tp", "tp,dp"})
    cases.push_back({{"dp=4,tp=2", 0, zoo::SequenceParallel::kMegatron}, 2, order});
  Check(cases, proto::Training::F32, 1, options);
}

TEST(OverHostsTest, NorOnWhereHostsEndAmongStagesOfUnequalMeshes) {
  Check(CasesOfUnequalStages(), proto::Training::F32, 10);
}

TEST(OverHostsTest, NorDoThoseOfBf16) { Check(CasesInOtherOrders(), proto::Training::BF16, 1); }

}  // namespace
}  // namespace weir::training
