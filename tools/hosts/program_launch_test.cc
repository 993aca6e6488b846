#include "tools/hosts/program_launch.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostList HostsOf(const std::vector<std::pair<std::string, int>>& entries) {
  HostList hosts;
  for (const auto& [name, slots] : entries) hosts.push_back({name, slots, "of the test"});
  return hosts;
}

std::string TextOf(const IdVector<RankId, RankPlace>& places) {
  std::string text;
  for (const RankPlace& place : places) {
    absl::StrAppend(&text, text.empty() ? "" : " ", place.agent, ":", place.local_rank, "/",
                    place.num_local, "@", place.group, "/", place.num_hosts);
  }
  return text;
}

TEST(ProgramLaunchTest, ConsecutiveRanksShareAHost) {
  EXPECT_EQ(TextOf(*PlacePrograms(HostsOf({{"a", 2}, {"b", 1}}), 0)),
            "0:0/2@0/2 0:1/2@0/2 1:0/1@1/2");
  EXPECT_EQ(TextOf(*PlacePrograms(HostsOf({{"a", 0}, {"b", 0}}), 3)),
            "0:0/2@0/2 0:1/2@0/2 1:0/1@1/2");
}

TEST(ProgramLaunchTest, HostsWithoutRanksDoNotCount) {
  EXPECT_EQ(TextOf(*PlacePrograms(HostsOf({{"a", 1}, {"b", 1}}), 1)), "0:0/1@0/1");
}

TEST(ProgramLaunchTest, TasksOfOneNodeShareTheHost) {
  EXPECT_EQ(TextOf(*PlacePrograms(HostsOf({{"n1", 1}, {"n1", 1}, {"n2", 1}}), 0)),
            "0:0/2@0/2 1:1/2@0/2 2:0/1@1/2");
}

TEST(ProgramLaunchTest, MoreProcessesThanSlotsAreRefused) {
  EXPECT_THAT(std::string(PlacePrograms(HostsOf({{"a", 1}}), 2).status().message()),
              HasSubstr("W0876"));
}

TEST(ProgramLaunchTest, ARankFindsItsPlaceInItsEnvironment) {
  const IdVector<RankId, RankPlace> places = *PlacePrograms(HostsOf({{"a", 2}, {"b", 2}}), 0);
  EXPECT_THAT(RankVariables(places[RankId(3)], places.size()),
              ElementsAre("RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                          "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"));
}

}  // namespace
}  // namespace weir::hosts
