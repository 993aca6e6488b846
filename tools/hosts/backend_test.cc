#include "tools/hosts/backend.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

GetVariable From(const Variables& variables) {
  return [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

Backend Detect(const Variables& variables, bool lists_hosts = false) {
  return DetectBackend("auto", lists_hosts, From(variables)).backend;
}

const Variables kPmix = {{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "1"}};
const Variables kStep = {{"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_PROCID", "3"}};

TEST(BackendTest, TheEnvironmentShowsTheBackend) {
  EXPECT_EQ(Detect({}), Backend::kLocal);
  EXPECT_EQ(Detect({}, /*lists_hosts=*/true), Backend::kSsh);
  EXPECT_EQ(Detect(kPmix), Backend::kPmix);
  EXPECT_EQ(Detect({{"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "6"}, {"PMI_RANK", "0"}}), Backend::kPmi);
  EXPECT_EQ(Detect(kStep), Backend::kSlurm);
  EXPECT_EQ(Detect({{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}}), Backend::kSlurm);
  EXPECT_EQ(Detect({{"JOB_COMPLETION_INDEX", "1"}}, /*lists_hosts=*/true), Backend::kIndex);
}

TEST(BackendTest, OneTaskOnOneNodeNeedsNoOthers) {
  Variables alone = kPmix;
  alone["OMPI_COMM_WORLD_SIZE"] = "1";
  EXPECT_EQ(Detect(alone), Backend::kLocal);
  EXPECT_EQ(Detect({{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "1"}}), Backend::kLocal);
  EXPECT_EQ(Detect({{"SLURM_JOB_ID", "7"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_STEP_NUM_TASKS", "1"},
                    {"SLURM_STEP_NUM_NODES", "1"},
                    {"SLURM_NNODES", "2"}}),
            Backend::kLocal);
  EXPECT_EQ(Detect({{"JOB_COMPLETION_INDEX", "1"}}), Backend::kLocal);
}

TEST(BackendTest, TheFlagComesFirstThenListedHostsThenPmixThenSlurm) {
  Variables both = kStep;
  both.insert(kPmix.begin(), kPmix.end());
  EXPECT_EQ(Detect(both), Backend::kPmix);
  EXPECT_EQ(Detect(both, /*lists_hosts=*/true), Backend::kSsh);
  for (size_t i = 0; i < std::size(kBackendNames); ++i) {
    const Detected detected = DetectBackend(kBackendNames[i], true, From(both));
    EXPECT_EQ(detected.backend, static_cast<Backend>(i));
    EXPECT_EQ(detected.why, "--backend");
  }
}

TEST(BackendTest, TasksPerNodeAreReadAsSlurmWritesThem) {
  EXPECT_THAT(ParseTasksPerNode("2(x3),1", 4), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(ParseTasksPerNode("1", 1), ElementsAre(1));
  for (const char* text : {"", "0", "2(x3)", "2(x5)", "2(x3", "2x3)", "2(x0),1(x4)", "a(x4)",
                           "2(x99999999999)", "1,1,1,1,1"})
    EXPECT_THAT(ParseTasksPerNode(text, 4), IsEmpty()) << text;
}

TEST(BackendTest, AnAllocationHasTheNodesOfTheJobWithTheirTasksAsSlots) {
  const Variables allocation = {{"SLURM_JOB_ID", "7"},
                                {"SLURM_JOB_NODELIST", "n[08-09],big"},
                                {"SLURM_TASKS_PER_NODE", "1(x2),2"},
                                {"SLURM_PROCID", "0"}};
  EXPECT_FALSE(IsSlurmStep(From(allocation)));
  EXPECT_TRUE(IsSlurmStep(From(kStep)));
  const HostList nodes = *ReadSlurmNodes(From(allocation));
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[HostId(0)].name, "n08");
  EXPECT_EQ(nodes[HostId(2)].name, "big");
  EXPECT_EQ(nodes[HostId(2)].slots, 2);
}

TEST(BackendTest, VariablesInAnotherFormAreRefusedByName) {
  const Variables broken = {{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "many"}};
  EXPECT_THAT(std::string(ReadSlurmNodes(From(broken)).status().message()),
              ::testing::HasSubstr("W0870 at SLURM_TASKS_PER_NODE: expected the tasks on each "
                                   "of 3 nodes; found 'many'"));
  EXPECT_THAT(std::string(ReadSlurmNodes(From({{"SLURM_JOB_ID", "7"}})).status().message()),
              ::testing::HasSubstr("SLURM_JOB_NODELIST"));
}

TEST(BackendTest, LaterTasksLeaveTheWordsToTheFirst) {
  const auto is_later = [](const Variables& variables) { return IsLaterTask(From(variables)); };
  EXPECT_FALSE(is_later({}));
  EXPECT_FALSE(is_later({{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "0"}}));
  EXPECT_TRUE(is_later({{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "1"}}));
  EXPECT_TRUE(is_later({{"PMI_FD", "5"}, {"PMI_RANK", "3"}}));
  EXPECT_TRUE(is_later({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}));
  EXPECT_FALSE(is_later({{"SLURM_PROCID", "1"}})) << "it is no task of a step";
  EXPECT_FALSE(is_later({{"JOB_COMPLETION_INDEX", "1"}})) << "its output is its own";
}

TEST(BackendTest, TheFirstTaskOnAHostTellsOfTheHost) {
  const auto is_later = [](Variables variables) { return IsLaterTaskOnHost(From(variables)); };
  Variables task = {{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "2"}};
  EXPECT_FALSE(is_later(task)) << "its starter does not tell its place on the host";
  task["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_FALSE(is_later(task));
  task["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  EXPECT_TRUE(is_later(task));
  EXPECT_TRUE(is_later({{"PMI_FD", "5"}, {"PMI_RANK", "3"}, {"MPI_LOCALRANKID", "1"}}));
  EXPECT_TRUE(is_later({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}}));
  EXPECT_FALSE(is_later({{"SLURM_LOCALID", "1"}})) << "it is no task of a step";
}

TEST(BackendTest, TheStarterOfTasksIsNamedAsTheUserTypedIt) {
  EXPECT_EQ(StarterOfTasks(Backend::kPmi, From({})), ListedBy::kMpiexec);
  EXPECT_EQ(StarterOfTasks(Backend::kPmix, From({{"OMPI_COMM_WORLD_SIZE", "2"}})),
            ListedBy::kMpirun);
  EXPECT_EQ(
      StarterOfTasks(Backend::kPmix, From({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_ID", "0"}})),
      ListedBy::kMpirun)
      << "mpirun has started its tasks with srun";
  EXPECT_EQ(StarterOfTasks(Backend::kPmix, From({{"SLURM_STEP_ID", "0"}})), ListedBy::kSrun);
  EXPECT_EQ(StarterOfTasks(Backend::kSlurm, From(kStep)), ListedBy::kSrun);
  EXPECT_FALSE(HasOtherTasks(From({{"PMI_SIZE", "1"}})));
  EXPECT_TRUE(HasOtherTasks(From({{"PMI_SIZE", "2"}})));
}

}  // namespace
}  // namespace weir::hosts
