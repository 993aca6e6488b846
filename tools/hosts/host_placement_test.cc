#include "tools/hosts/host_placement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostList Hosts(const std::string& text) { return *ParseHosts(text); }

TEST(HostPlacementTest, ProcessesAreAsManyAsSlotsButNotMoreThanRanks) {
  EXPECT_EQ(NumProcesses(Hosts("a,b"), 8), 2);
  EXPECT_EQ(NumProcesses(Hosts("a:4,b:2"), 8), 6);
  EXPECT_EQ(NumProcesses(Hosts("a:4,b:4"), 3), 3);
}

TEST(HostPlacementTest, NeighboursShareAHostAndHostsAreEquallyFull) {
  EXPECT_THAT(*PlaceOnHosts(Hosts("a,b"), 4),
              ElementsAre(HostId(0), HostId(0), HostId(1), HostId(1)));
  EXPECT_THAT(*PlaceOnHosts(Hosts("a,b,c"), 4),
              ElementsAre(HostId(0), HostId(0), HostId(1), HostId(2)));
  EXPECT_THAT(*PlaceOnHosts(Hosts("a,b,c"), 2), ElementsAre(HostId(0), HostId(1)));
}

TEST(HostPlacementTest, SlotsAreKept) {
  EXPECT_THAT(*PlaceOnHosts(Hosts("a:1,b:3"), 4),
              ElementsAre(HostId(0), HostId(1), HostId(1), HostId(1)));
  EXPECT_THAT(*PlaceOnHosts(Hosts("a:1,b"), 4),
              ElementsAre(HostId(0), HostId(1), HostId(1), HostId(1)));
  const absl::Status status = PlaceOnHosts(Hosts("a:1,b:2"), 4).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("W0876 at --hosts: expected slots for 4 processes; found 3 on 2 hosts"));
}

TEST(HostPlacementTest, TheAdviceFitsWhoeverListedTheHosts) {
  const auto refusal = [](HostList hosts, ListedBy by) {
    for (ListedHost& host : hosts) host.by = by;
    return std::string(PlaceOnHosts(hosts, 4).status().message());
  };
  EXPECT_THAT(refusal(Hosts("a:1,b:1"), ListedBy::kFlag), HasSubstr("more slots (host:N), or"));
  EXPECT_THAT(refusal(Hosts("a:1,b:1"), ListedBy::kVariable), HasSubstr("W0876 at WEIR_HOSTS"));
  EXPECT_THAT(
      std::string(PlaceOnHosts(*ParseHostFile("a slots=1", "hosts.txt"), 4).status().message()),
      HasSubstr("W0876 at --hostfile: expected slots for 4 processes; found 1 on 1 host. "
                "Try: more hosts, more slots (`host slots=N`), or"));
  EXPECT_THAT(refusal(Hosts("a:1,b:1"), ListedBy::kMpirun),
              HasSubstr("W0876 at the tasks of mpirun: expected slots for 4 processes; found 2 "
                        "tasks. Try: a task for each process (mpirun -n 4), or"));
  EXPECT_THAT(refusal(Hosts("a:1,b:1"), ListedBy::kMpiexec), HasSubstr("(mpiexec -n 4)"));
  EXPECT_THAT(refusal(Hosts("a:1,b:1"), ListedBy::kSrun), HasSubstr("(srun -n 4)"));
  EXPECT_THAT(refusal(Hosts("a:1,b:1"), ListedBy::kAllocation),
              HasSubstr("found 2 on 2 hosts. Try: a task for each process (sbatch -n 4"));
}

}  // namespace
}  // namespace weir::hosts
