#include "runtime/control/socket_address.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace weir::control {
namespace {

TEST(SocketAddressTest, TextComesBack) {
  for (const char* text : {"10.0.0.7:4000", "[::1]:65535", "127.0.0.1:1", "[fe80::1%lo]:9"}) {
    const std::optional<SocketAddress> address = SocketAddress::ParseWithPort(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(SocketAddress::Parse("[::1]", 7)->host(), "::1");
  EXPECT_EQ(SocketAddress::Parse("::1", 7)->text(), "[::1]:7");
  EXPECT_EQ(SocketAddress::ParseWithPort("[::ffff:10.0.0.7]:80")->text(), "10.0.0.7:80");
}

TEST(SocketAddressTest, TextThatIsNoAddressIsNone) {
  for (const char* text : {"", ":", "10.0.0.7", "10.0.0.7:", "10.0.0.7:0", "10.0.0.7:65536",
                           "10.0.0.300:5", "localhost:5", "[::1:5", "10.0.0.7:5x"})
    EXPECT_FALSE(SocketAddress::ParseWithPort(text).has_value()) << text;
}

TEST(SocketAddressTest, EndsOfASocketAreTold) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const SocketAddress wanted = *SocketAddress::Parse("127.0.0.1", 0);
  ASSERT_EQ(::bind(listener, wanted.any(), wanted.size()), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  const SocketAddress bound = *SocketAddress::LocalOf(listener);
  EXPECT_GT(bound.port(), 0);
  const int dialling = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(dialling, bound.any(), bound.size()), 0);
  EXPECT_EQ(SocketAddress::PeerOf(dialling)->text(), bound.text());
  ::close(dialling);
  ::close(listener);
  EXPECT_FALSE(SocketAddress::PeerOf(0).has_value());
  EXPECT_FALSE(SocketAddress::LocalOf(-1).has_value());
}

TEST(SocketAddressTest, LinkLocalAddressesAreKnown) {
  EXPECT_TRUE(SocketAddress::Parse("fe80::1%lo", 0)->is_link_local());
  EXPECT_FALSE(SocketAddress::Parse("::1", 0)->is_link_local());
  EXPECT_FALSE(SocketAddress::Parse("169.254.0.1", 0)->is_link_local());
}

}  // namespace
}  // namespace weir::control
