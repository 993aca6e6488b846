#include "tools/hosts/host_list.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TextOf(const absl::StatusOr<HostList>& hosts) {
  if (!hosts.ok()) return std::string(hosts.status().message());
  std::string text;
  for (const ListedHost& host : *hosts) absl::StrAppend(&text, host.name, ":", host.slots, " ");
  return text;
}

TEST(HostListTest, NamesAddressesAndSlotsAreRead) {
  EXPECT_EQ(TextOf(ParseHosts("a,b:2, node-3.example.org ,10.0.0.7:4")),
            "a:0 b:2 node-3.example.org:0 10.0.0.7:4 ");
}

TEST(HostListTest, APatternStandsForSeveralHostsAndKeepsItsZeros) {
  EXPECT_EQ(TextOf(ParseHosts("n[1-3,7]:2")), "n1:2 n2:2 n3:2 n7:2 ");
  EXPECT_EQ(TextOf(ParseHosts("n[08-11]")), "n08:0 n09:0 n10:0 n11:0 ");
  EXPECT_EQ(TextOf(ParseHosts("r[1-2]n[1-2].lan")), "r1n1.lan:0 r1n2.lan:0 r2n1.lan:0 r2n2.lan:0 ");
}

TEST(HostListTest, AnAddressOfVersionSixMayStandInBrackets) {
  EXPECT_EQ(TextOf(ParseHosts("fe80::1,[fe80::2],[fe80::3]:4,fe80::4%eth0")),
            "fe80::1:0 fe80::2:0 fe80::3:4 fe80::4%eth0:0 ");
}

TEST(HostListTest, AFileHasAHostOnEachLineWithCommentsAndSlots) {
  EXPECT_EQ(TextOf(ParseHostFile("# the cluster\n"
                                 "head   # the first\n"
                                 "\n"
                                 "n[1-2] slots=4\r\n"
                                 "\tbig:8\n"
                                 "fe80::1 slots=2",
                                 "hosts.txt")),
            "head:0 n1:4 n2:4 big:8 fe80::1:2 ");
}

TEST(HostListTest, AHostThatIsListedTwiceIsNamedWithBothPlaces) {
  EXPECT_EQ(TextOf(ParseHostFile("a\nn[1-3]\nn2\n", "f")),
            "W0871 at f, line 3: expected each host once; found 'n2' again, which is also f, line "
            "2. Try: one entry with slots for several processes: n2:2.");
  EXPECT_THAT(TextOf(ParseHosts("::1,[::1]")), HasSubstr("Try: one entry with slots for several "
                                                         "processes: [::1]:2."));
  EXPECT_EQ(TextOf(ParseHosts("[::1]:2")), "::1:2 ");
}

TEST(HostListTest, WhatIsNoHostIsNamedWithItsPlace) {
  EXPECT_THAT(TextOf(ParseHosts("")),
              HasSubstr("W0870 at --hosts, entry 1: expected a host; found nothing"));
  EXPECT_THAT(TextOf(ParseHosts("a,,b")), HasSubstr("--hosts, entry 2"));
  EXPECT_THAT(TextOf(ParseHosts("a,,b", "WEIR_HOSTS")), HasSubstr("W0870 at WEIR_HOSTS, entry 2"));
  EXPECT_THAT(TextOf(ParseHosts("a,b c")), HasSubstr("found 'b c'"));
  EXPECT_THAT(TextOf(ParseHosts("-oProxyCommand=x")), HasSubstr("W0870"));
  EXPECT_THAT(TextOf(ParseHosts("a;reboot")), HasSubstr("W0870"));
  EXPECT_THAT(TextOf(ParseHosts("a:0")), HasSubstr("expected slots from 1"));
  EXPECT_THAT(TextOf(ParseHosts("a:many")), HasSubstr("'many'"));
  EXPECT_THAT(TextOf(ParseHosts("n[1-")), HasSubstr("expected ']' after '['"));
  EXPECT_THAT(TextOf(ParseHosts("n[3-1]")), HasSubstr("ascending ranges"));
  EXPECT_THAT(TextOf(ParseHosts("n[a]")), HasSubstr("numbers and ascending ranges"));
  EXPECT_THAT(TextOf(ParseHosts("n[0-99999999]")), HasSubstr("at most 65536 hosts"));
  EXPECT_THAT(TextOf(ParseHosts("n[1-60000],m[1-60000]")), HasSubstr("at most 65536 hosts"));
  EXPECT_THAT(TextOf(ParseHostFile("# nothing\n", "f")), HasSubstr("W0870 at f:"));
  EXPECT_THAT(TextOf(ParseHostFile("a cores=4\n", "f")),
              HasSubstr("f, line 1: expected a host, and perhaps slots=N; found 'cores=4'"));
  EXPECT_THAT(TextOf(ParseHostFile("a\nb,c\n", "f")),
              HasSubstr("f, line 2: expected one host; found 'b,c'"));
  EXPECT_THAT(TextOf(ParseHostFile("a slots=1 slots=2\n", "f")),
              HasSubstr("f, line 1: expected the slots of a host once; found 'slots=2' besides 1"));
  EXPECT_THAT(TextOf(ParseHostFile("a:2 slots=3\n", "f")), HasSubstr("the slots of a host once"));
  EXPECT_THAT(TextOf(ParseHostFile("a slots = 2\n", "f")), HasSubstr("without spaces"));
}

TEST(HostListTest, AFileIsReadWhole) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/hosts");
  std::ofstream(path) << "a\nb slots=3\n";
  EXPECT_EQ(TextOf(ReadHostFile(path)), "a:0 b:3 ");
  EXPECT_THAT(TextOf(ReadHostFile(path + ".absent")), HasSubstr("host file"));
}

TEST(HostListTest, AnEntryIsWrittenAsItIsRead) {
  EXPECT_EQ(EntryText("a", 0), "a");
  EXPECT_EQ(EntryText("a", 2), "a:2");
  EXPECT_EQ(EntryText("fe80::1", 2), "[fe80::1]:2");
}

TEST(HostListTest, PatternsAreSplitOutsideOfBracketsOnly) {
  EXPECT_THAT(SplitPatterns("n[1-2,4],head,r[1,2]x"), ElementsAre("n[1-2,4]", "head", "r[1,2]x"));
}

}  // namespace
}  // namespace weir::hosts
