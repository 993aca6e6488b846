#include "tools/hosts/host_ways.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostFacts FactsOf(const std::vector<NetworkInterface>& interfaces) {
  HostFacts facts;
  facts.interfaces = interfaces;
  return facts;
}

const std::set<HostId> kAll = {HostId(0), HostId(1), HostId(2)};
const NetworkInterface kLoopback = {"lo", {"127.0.0.1"}};

TEST(HostWaysTest, AnInterfaceHasItsAddressOnEachHost) {
  const HostFacts both = FactsOf({kLoopback, {"wg0", {"fd00::1", "10.9.0.1"}}});
  const HostFacts modern = FactsOf({{"wg0", {"fd00::2"}}});
  const HostFacts bare = FactsOf({{"wg0", {}}});
  EXPECT_THAT(*AddressesOn("wg0", {"a", "b", "c"}, {both, modern, bare}, kAll),
              ElementsAre("10.9.0.1", "fd00::2", ""));
  EXPECT_THAT(*AddressesOn("wg0", {"a", "b"}, {both, FactsOf({kLoopback})}, {HostId(0)}),
              ElementsAre("10.9.0.1", ""))
      << "a host without workers needs no interface";
}

TEST(HostWaysTest, AnInterfaceThatAHostLacksIsNamedOnceWithThoseThatEachHas) {
  const HostFacts plain = FactsOf({kLoopback, {"eth0", {"10.0.0.1"}}});
  const HostFacts rich = FactsOf({kLoopback, {"ib0", {"10.1.0.1"}}});
  const absl::Status refused =
      AddressesOn("ib0", {"a", "b", "c"}, {plain, rich, plain}, kAll).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("W0887 at --iface ib0: expected an interface of that name, which is up, on "
                        "every host of the job; found a, c: lo, eth0; b: lo, ib0. Try: "));
}

TEST(HostWaysTest, OfManyHostsSomeAreNamed) {
  const HostFacts plain = FactsOf({kLoopback});
  const IdVector<HostId, std::string> hosts = {"a", "b", "c", "d", "e", "f"};
  EXPECT_THAT(
      std::string(AddressesOn("ib0", hosts, IdVector<HostId, HostFacts>(6, plain),
                              {HostId(0), HostId(1), HostId(2), HostId(3), HostId(4), HostId(5)})
                      .status()
                      .message()),
      HasSubstr("found a, b, c, d and 2 more: lo. Try: "));
}

}  // namespace
}  // namespace weir::hosts
