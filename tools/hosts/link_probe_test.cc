#include "tools/hosts/link_probe.h"

#include <sys/socket.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hosts/address_probe.h"

namespace weir::hosts {
namespace {

TEST(LinkProbeTest, AWayHasARoundTripAndASpeed) {
  const std::unique_ptr<ProbeTarget> target = *ProbeTarget::Open("127.0.0.1");
  for (int i = 0; i < 2; ++i) {  // the target serves one prober after the other
    const LinkSpeed speed = MeasureLink(target->address(), 4000);
    EXPECT_EQ(speed.error, "");
    EXPECT_GT(speed.round_trip_ns, 0);
    EXPECT_LT(speed.round_trip_ns, 1'000'000'000);
    EXPECT_GT(speed.bytes_per_second, 1e6);
  }
}

TEST(LinkProbeTest, AWayThatIsNotThereIsSaid) {
  EXPECT_EQ(MeasureLink("127.0.0.1:1", 1000).error, "Connection refused");
  EXPECT_EQ(MeasureLink("nowhere", 1000).error, "it is no address");
}

TEST(LinkProbeTest, OneThatListensAndDoesNotAnswerEndsAtTheLimit) {
  const launch::OwnedDescriptor listener = *ListenAt("127.0.0.1", 0);
  const std::string address = control::SocketAddress::LocalOf(listener.get())->text();
  EXPECT_THAT(MeasureLink(address, 200).error, ::testing::HasSubstr("no answer in time"));
}

TEST(LinkProbeTest, ATargetEndsWhateverAProberDoes) {
  std::unique_ptr<ProbeTarget> target = *ProbeTarget::Open("127.0.0.1");
  launch::OwnedDescriptor silent, mad;
  const auto address = *control::SocketAddress::ParseWithPort(target->address());
  ASSERT_EQ(Connect(address, 1000, &mad), 0);
  ASSERT_EQ(::send(mad.get(), "xyz", 3, 0), 3);
  EXPECT_EQ(MeasureLink(target->address(), 4000).error, "") << "the target has hung up on the mad";
  ASSERT_EQ(Connect(address, 1000, &silent), 0);
  EXPECT_EQ(ProbeAddress(target->address(), 1000).error, "") << "a probe waits for no prober";
  target.reset();
}

}  // namespace
}  // namespace weir::hosts
