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

}  // namespace
}  // namespace weir::hosts
