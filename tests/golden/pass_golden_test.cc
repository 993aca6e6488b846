// Runs every pass of the compiler on jobs made for it: tests/golden/passes/PASS/CASE.textproto is
// the job, and CASE.txt is the module after the pass.
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/compile.h"
#include "compiler/testing/small_model.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"
#include "tools/job/job_file.h"

namespace weir::golden {
namespace {

constexpr char kFolder[] = "tests/golden/passes";
// Together, these jobs run every pass.
constexpr const char* kAllPassJobs[] = {
    "tests/golden/passes/bundle_boxings/gradients_travel_together.textproto",
    "tests/golden/passes/split_backward/zero_bubble.textproto"};

proto::Job ReadJob(const std::string& path) {
  absl::StatusOr<proto::Job> job = job::ParseJob(ReadGoldenInput(path), path);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : proto::Job();
}

// Returns the paths of all jobs, without ".textproto".
std::vector<std::string> Cases() {
  std::vector<std::string> cases;
  for (const std::string& pass : NamesIn(kFolder, "")) {
    for (const std::string& name : NamesIn(absl::StrCat(kFolder, "/", pass), ".textproto")) {
      cases.push_back(absl::StrCat(kFolder, "/", pass, "/", name));
    }
  }
  return cases;
}

std::string PassOf(const std::string& path) {
  size_t begin = sizeof kFolder;
  return absl::StrReplaceAll(path.substr(begin, path.find('/', begin) - begin), {{"_", "-"}});
}

absl::StatusOr<std::string> DumpAfter(const std::string& pass, const proto::Job& job) {
  std::ostringstream dump;
  compiler::CompileOptions options;
  options.dump_after = absl::StrCat("^", pass, "$");
  options.dump_to = &dump;
  absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job, options);
  if (!plan.ok()) return plan.status();
  return dump.str();
}

std::set<std::string> PassNames() {
  std::set<std::string> names;
  for (const char* path : kAllPassJobs) {
    for (compiler::PlanMode mode : {compiler::PlanMode::kTrain, compiler::PlanMode::kEvaluate,
                                    compiler::PlanMode::kGenerate}) {
      compiler::CompileOptions options;
      options.mode = mode;
      auto plan = compiler::CompileJob(ReadJob(path), options);
      EXPECT_TRUE(plan.ok()) << plan.status();
      for (const auto& timing : (*plan)->timings) names.insert(timing.name);
    }
  }
  return names;
}

class PassGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PassGoldenTest, TheModuleAfterThePassIsAsReviewed) {
  proto::Job job = ReadJob(GetParam() + ".textproto");
  absl::StatusOr<std::string> dump = DumpAfter(PassOf(GetParam()), job);
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_NE(*dump, "") << "no pass is called " << PassOf(GetParam());
  ExpectGolden(GetParam() + ".txt", *dump);
}

TEST_P(PassGoldenTest, TheSameJobGivesTheSameBytes) {
  proto::Job job = ReadJob(GetParam() + ".textproto");
  absl::StatusOr<std::string> first = DumpAfter(".*", job), second = DumpAfter(".*", job);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(FirstDifference(*first, *second), "");
}

TEST_P(PassGoldenTest, ASecondRunOfAnyPassChangesNothing) {
  const proto::Job job = ReadJob(GetParam() + ".textproto");
  for (compiler::PlanMode mode : {compiler::PlanMode::kTrain, compiler::PlanMode::kEvaluate}) {
    compiler::CompileOptions options;
    options.mode = mode;
    absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> once =
        compiler::CompileJob(job, options);
    ASSERT_TRUE(once.ok()) << once.status();
    options.text_for_second_run = [&](const compiler::Module& module) {
      return compiler::EverythingOf(module, (*once)->stage_mesh);
    };
    absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> twice =
        compiler::CompileJob(job, options);
    EXPECT_TRUE(twice.ok()) << twice.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, PassGoldenTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) {
                           std::string name = test.param.substr(sizeof kFolder);
                           for (char& c : name) c = c == '/' ? '_' : c;
                           return name;
                         });

TEST(PassRegistryTest, EveryPassHasAGoldenCaseAndEveryFolderAPass) {
  std::set<std::string> with_cases;
  for (const std::string& path : Cases()) with_cases.insert(PassOf(path));
  EXPECT_EQ(with_cases, PassNames())
      << "copy a folder of tests/golden/passes, then tests/golden/update";
}

TEST(PassRegistryTest, EveryGoldenFileHasItsJob) {
  for (const std::string& pass : NamesIn(kFolder, "")) {
    std::string folder = absl::StrCat(kFolder, "/", pass);
    EXPECT_EQ(NamesIn(folder, ".txt"), NamesIn(folder, ".textproto")) << folder;
  }
}

TEST(PassRegistryTest, AnOptionalPassCanBeLeftOutAndARequiredOneSaysSo) {
  std::set<std::string> left_out;
  for (const std::string& pass : PassNames()) {
    for (const std::string& path : Cases()) {
      compiler::CompileOptions options;
      options.disabled.insert(pass);
      auto plan = compiler::CompileJob(ReadJob(path + ".textproto"), options);
      if (!plan.ok()) {
        if (absl::StrContains(plan.status().message(), "W0490")) continue;  // not for this job
        EXPECT_TRUE(absl::StrContains(plan.status().message(), "W0491"))
            << pass << ": " << plan.status();
        break;
      }
      for (RankId rank : (*plan)->places.all_ranks()) {
        absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(**plan, rank);
        EXPECT_TRUE(lowered.ok()) << path << " without " << pass << ": " << lowered.status();
      }
      for (const auto& timing : (*plan)->timings) EXPECT_NE(timing.name, pass);
      left_out.insert(pass);
    }
  }
  EXPECT_EQ(left_out,
            (std::set<std::string>{"bundle-boxings", "expand-cross-entropy", "recompute-values",
                                   "remove-dead-nodes", "split-backward"}));
}

TEST(PassRegistryTest, AnUnknownPassIsNamedWithTheNearest) {
  compiler::CompileOptions options;
  options.disabled.insert("remove-dead-node");
  auto plan = compiler::CompileJob(ReadJob(kAllPassJobs[0]), options);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("Try: remove-dead-nodes"), absl::string_view::npos)
      << plan.status();
}

}  // namespace
}  // namespace weir::golden
