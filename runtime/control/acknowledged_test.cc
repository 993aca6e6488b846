#include "runtime/control/acknowledged.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "runtime/control/socket_address.h"

namespace weir::control {
namespace {

int OptionOf(int descriptor, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(descriptor, level, name, &value, &size), 0);
  return value;
}

TEST(AcknowledgedTest, TheSystemAsksOnAConnectionThatIsLookedAt) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const SocketAddress wanted = *SocketAddress::Parse("127.0.0.1", 0);
  ASSERT_EQ(::bind(listener, wanted.any(), wanted.size()), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  const SocketAddress bound = *SocketAddress::LocalOf(listener);
  EXPECT_FALSE(SinceAcknowledgedMs(bound.text()).has_value());
  const int dialling = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(dialling, bound.any(), bound.size()), 0);
  EXPECT_EQ(OptionOf(dialling, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_TRUE(SinceAcknowledgedMs(bound.text()).has_value());
  EXPECT_EQ(OptionOf(dialling, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(OptionOf(dialling, IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(OptionOf(dialling, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  const std::optional<int64_t> age_ms = SinceAcknowledgedMs(dialling);
  ASSERT_TRUE(age_ms.has_value());
  EXPECT_GE(*age_ms, 0);
  ::close(dialling);
  ::close(listener);
}

TEST(AcknowledgedTest, WhatIsNoTcpConnectionHasNoAge) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(SinceAcknowledgedMs(ends[0]).has_value());
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(SinceAcknowledgedMs(-1).has_value());
}

}  // namespace
}  // namespace weir::control
