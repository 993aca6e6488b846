#include "tools/fleet/rank_spread.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/fleet/host_places.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;

FleetOptions OnHosts(hosts::HostList hosts, int processes = 0) {
  FleetOptions options;
  options.listed_hosts = std::move(hosts);
  options.processes = processes;
  return options;
}

proto::Job JobOf(std::vector<int64_t> sizes) {
  proto::Job job;
  for (int64_t size : sizes) job.mutable_mesh()->add_axis()->set_size(size);
  return job;
}

TEST(RankSpreadTest, ConsecutiveRanksShareAProcessAndProcessesAHost) {
  const RankSpread spread = *SpreadRanks(OnHosts({{"a", 2}, {"b", 2}}), 8);
  EXPECT_THAT(spread.ranks_of,
              ElementsAre(ElementsAre(RankId(0), RankId(1)), ElementsAre(RankId(2), RankId(3)),
                          ElementsAre(RankId(4), RankId(5)), ElementsAre(RankId(6), RankId(7))));
  EXPECT_THAT(spread.host_of, ElementsAre(HostId(0), HostId(0), HostId(1), HostId(1)));
  EXPECT_EQ(DevicesPerHost(spread, {}), 4);
}

TEST(RankSpreadTest, OneMachineHasNoHosts) {
  FleetOptions options;
  options.processes = 2;
  const RankSpread spread = *SpreadRanks(options, 4);
  EXPECT_TRUE(spread.host_of.empty());
  EXPECT_EQ(DevicesPerHost(spread, {}), 0);
}

TEST(RankSpreadTest, HostsWithDifferentNumbersOfRanksAreNotTold) {
  EXPECT_EQ(DevicesPerHost(*SpreadRanks(OnHosts({{"a", 2}, {"b", 1}}), 3), {}), 0);
  EXPECT_EQ(DevicesPerHost(*SpreadRanks(OnHosts({{"a", 4}, {"b", 4}}, 1), 3), {}), 0)
      << "one is idle";
}

TEST(RankSpreadTest, WhoeverSpreadsRanksUnevenlyIsTold) {
  proto::Job job = JobOf({4});
  EXPECT_EQ(TellHosts(OnHosts({{"a", 3}, {"b", 1}}), &job),
            "hosts have 1 to 3 devices of the mesh, so transfers do not go within hosts first; "
            "hosts with equally many would send fewer bytes between them");
  EXPECT_EQ(job.mesh().devices_per_host(), 0);
  EXPECT_EQ(TellHosts(OnHosts({{"a", 2}, {"b", 2}}), &job), "");
}

TEST(RankSpreadTest, AJobLearnsWhereHostsEnd) {
  proto::Job job = JobOf({2, 2});
  TellHosts(OnHosts({{"a", 0}, {"b", 0}}), &job);
  EXPECT_EQ(job.mesh().devices_per_host(), 2);
}

// Returns the places of workers that have these hosts, once the lost ones are replaced; empty:
// there is no room.
std::vector<int> Replaced(const hosts::HostList& listed, const std::set<HostId>& lost,
                          const std::vector<int>& host_of) {
  IdVector<WorkerId, HostId> before;
  for (const int host : host_of) before.emplace_back(host);
  std::vector<int> after;
  for (const HostId host :
       ReplaceHosts(listed, lost, before).value_or(IdVector<WorkerId, HostId>()))
    after.push_back(host.value());
  return after;
}

TEST(RankSpreadTest, AHostInReserveTakesThePlaceOfALostOne) {
  const hosts::HostList free = {{"a"}, {"b"}, {"c"}, {"d"}};
  EXPECT_THAT(Replaced(free, {HostId(1)}, {0, 0, 1, 1}), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(Replaced(free, {HostId(0), HostId(1)}, {0, 0, 1, 1}), ElementsAre(2, 2, 3, 3));
  EXPECT_THAT(Replaced(free, {HostId(2)}, {0, 1}), ElementsAre(0, 1)) << "it has no workers";
  EXPECT_TRUE(Replaced({{"a"}, {"b"}}, {HostId(1)}, {0, 0, 1, 1}).empty());
  EXPECT_TRUE(Replaced(free, {HostId(1), HostId(2), HostId(3)}, {0, 1}).empty());
}

TEST(RankSpreadTest, FreeSlotsTakeThePlaceOfALostHost) {
  const hosts::HostList slots = {{"a", 3}, {"b", 2}, {"c", 1}, {"d", 2}};
  EXPECT_THAT(Replaced(slots, {HostId(1)}, {0, 0, 1, 1}), ElementsAre(0, 0, 3, 3))
      << "workers of one host stay together";
  EXPECT_THAT(Replaced(slots, {HostId(1), HostId(3)}, {0, 0, 1, 1}), ElementsAre(0, 0, 2, 0));
  EXPECT_TRUE(Replaced(slots, {HostId(1), HostId(2), HostId(3)}, {0, 0, 1, 1}).empty());
}

IdVector<WorkerId, HostId> HostsOf(const std::vector<int>& host_of) {
  IdVector<WorkerId, HostId> hosts;
  for (const int host : host_of) hosts.emplace_back(host);
  return hosts;
}

TEST(RankSpreadTest, AWorkerThatComesBackTakesNoPlaceThatOthersHaveTaken) {
  const std::vector<WorkerId> all = {WorkerId(0), WorkerId(1), WorkerId(2)};
  const IdVector<WorkerId, HostId> at_start = HostsOf({0, 1, 2});
  const auto places = [&](const hosts::HostList& listed, const std::set<HostId>& lost,
                          const std::vector<int>& now) {
    return PlacesFromNowOn(all, {WorkerId(2)}, listed, lost, {at_start, HostsOf(now)});
  };
  const hosts::HostList three = {{"a"}, {"b"}, {"c"}}, four = {{"a"}, {"b"}, {"c"}, {"d"}};
  EXPECT_EQ(places(three, {}, {0, 1, 2}), HostsOf({0, 1, 2})) << "nobody took its place";
  // Worker 0 went to the host of worker 2 when host a was lost.
  EXPECT_EQ(places(three, {HostId(0)}, {2, 1, 2}), std::nullopt);
  EXPECT_EQ(places(four, {HostId(0)}, {2, 1, 2}), HostsOf({2, 1, 3}));
  EXPECT_EQ(places(three, {}, {2, 1, 2}), HostsOf({2, 1, 0})) << "host a is there again";
  const hosts::HostList slots = {{"a", 1}, {"b", 2}, {"c", 1}};
  EXPECT_EQ(places(slots, {HostId(0)}, {2, 1, 2}), HostsOf({2, 1, 1}));
}

TEST(RankSpreadTest, SparesGetProcessesInThePlaceOfHostsThatAreLostAlone) {
  FleetOptions options = OnHosts({{"a"}, {"b"}, {"c"}});
  options.spares = 1;
  EXPECT_THAT(SpreadRanks(options, 4)->host_of, ElementsAre(HostId(0), HostId(1)));
  options.lost_hosts = {HostId(0)};
  EXPECT_THAT(SpreadRanks(options, 4)->host_of, ElementsAre(HostId(2), HostId(1)));
  options.lost_hosts = {HostId(0), HostId(2)};
  EXPECT_THAT(SpreadRanks(options, 4)->host_of, ElementsAre(HostId(0), HostId(1)))
      << "both must come";
}

// One task with one device on each of these machines.
int64_t OnTasksOf(const std::vector<std::string>& machines) {
  FleetOptions options;
  options.processes = 0;
  for (const std::string& machine : machines) {
    options.listed_hosts.push_back({"n", 1});
    options.hosts.push_back({"n", {}, "", nullptr});
    options.hosts.back().machine = machine;
  }
  proto::Job job = JobOf({static_cast<int64_t>(machines.size())});
  TellHosts(options, &job);
  return job.mesh().devices_per_host();
}

TEST(RankSpreadTest, NeighbouringTasksOfOneMachineAreOneHost) {
  EXPECT_EQ(OnTasksOf({"m", "m", "o", "o"}), 2);
  EXPECT_EQ(OnTasksOf({"m", "m", "m", "m"}), 0) << "one host";
  EXPECT_EQ(OnTasksOf({"m", "o", "m", "o"}), 1) << "no neighbours";
  EXPECT_EQ(OnTasksOf({"m", "m", "o"}), 0) << "hosts with different numbers of ranks";
  EXPECT_EQ(OnTasksOf({"", ""}), 1) << "machines that nobody knows are no neighbours";
}

TEST(RankSpreadTest, WhatAJobSaysItselfStays) {
  proto::Job job = JobOf({4});
  job.mutable_mesh()->set_devices_per_host(1);
  TellHosts(OnHosts({{"a", 0}, {"b", 0}}), &job);
  EXPECT_EQ(job.mesh().devices_per_host(), 1);
}

TEST(RankSpreadTest, AMeshThatNobodyCanSpreadStays) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{0}, {-1}, {int64_t{1} << 62, int64_t{1} << 62}}) {
    proto::Job job = JobOf(sizes);
    TellHosts(OnHosts({{"a", 0}, {"b", 0}}), &job);
    EXPECT_EQ(job.mesh().devices_per_host(), 0);
  }
}

}  // namespace
}  // namespace weir::fleet
