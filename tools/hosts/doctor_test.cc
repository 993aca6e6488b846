#include "tools/hosts/doctor.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::hosts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HostFacts FactsOf(const std::string& name) {
  HostFacts facts;
  facts.name = name;
  facts.machine = name;
  facts.build_id = "b1";
  facts.cores = {0, 1};
  facts.memory_bytes = int64_t{8} << 30;
  facts.shared_memory_bytes = int64_t{4} << 30;
  facts.gpus = "no NVIDIA driver, runtime 13.0";
  return facts;
}

Examination Healthy() {
  Examination examination;
  examination.hosts = {"a", "b"};
  examination.facts = {FactsOf("alpha"), FactsOf("beta")};
  examination.clock_offset_ns = {100'000, -2'000'000};
  const HostWay way = {"10.0.0.2:4000", 300, {}, std::nullopt};
  examination.ways = {{HostWay(), way, way}, {way, HostWay(), way}};
  return examination;
}

TEST(DoctorTest, CommandsAreShownAsAShellTakesThem) {
  const HostAgent by_ssh{"n1", {"/usr/bin/ssh", "-T", "--", "n1", "exec /opt/weir agent"}, "", {}};
  EXPECT_EQ(CommandsText({by_ssh, {"localhost", {"/opt/weir", "agent"}, "", {}}}),
            "Commands to the agents:\n"
            "  n1         /usr/bin/ssh -T -- n1 'exec /opt/weir agent'\n"
            "  localhost  /opt/weir agent\n");
  EXPECT_EQ(CommandsText({{"n1", {}, "", {}}}), "") << "a scheduler has started the agent";
}

TEST(DoctorTest, HealthyHostsHaveNoComplaints) {
  EXPECT_THAT(Complaints(Healthy(), "b1"), IsEmpty());
  const std::string text = ExaminationText(Healthy());
  EXPECT_THAT(text,
              HasSubstr("  a     alpha         2      8.0 GiB  4.0 GiB        +0.1 ms  b1\n"));
  EXPECT_THAT(text, HasSubstr("GPUs:\n  a  no NVIDIA driver, runtime 13.0\n  b  no NVIDIA"));
  EXPECT_THAT(text, HasSubstr("  b          10.0.0.2 0.3 ms  -                10.0.0.2 0.3 ms\n"));
}

TEST(DoctorTest, EachFaultIsAComplaintThatSaysWhatToDo) {
  Examination sick = Healthy();
  sick.facts[HostId(1)].build_id = "b2";
  sick.clock_offset_ns[HostId(0)] = 61'000'000'000;
  sick.facts[HostId(0)].shared_memory_bytes = 1 << 20;
  sick.ways[HostId(1)][HostId(0)] = {"", 0, {"10.0.0.1:40001 Connection refused"}};
  sick.ways[HostId(0)][HostId(2)] = {};
  EXPECT_THAT(
      Complaints(sick, "b1"),
      ElementsAre(HasSubstr("a's clock is off (+61.0 s): let NTP set it"),
                  HasSubstr("a has only 1.0 MiB free in /dev/shm"),
                  HasSubstr("a does not reach the starter (it has no address)"),
                  HasSubstr("b runs another build of Weir (b2, here b1): install the same one"),
                  HasSubstr("b does not reach a (10.0.0.1:40001 Connection refused): open")));
  EXPECT_THAT(ExaminationText(sick), HasSubstr("NOT REACHED"));
}

TEST(DoctorTest, AHostWithoutTheNamedInterfaceIsNamedOnceWithThoseThatItHas) {
  Examination sick = Healthy();
  sick.interface = "ib0";
  sick.facts[HostId(0)].interfaces = {{"lo", {"127.0.0.1"}}, {"ib0", {"10.1.0.1"}}};
  sick.facts[HostId(1)].interfaces = {{"lo", {"127.0.0.1"}}, {"eth0", {"10.0.0.2"}}};
  sick.ways[HostId(0)][HostId(1)] = {};
  EXPECT_THAT(
      Complaints(sick, "b1"),
      ElementsAre("b has no interface ib0 that is up (it has lo, eth0): name one that every "
                  "host has with --iface"));
}

TEST(DoctorTest, WaysThatWereMeasuredShowTheirSpeed) {
  Examination examination = Healthy();
  EXPECT_FALSE(MedianSpeed(examination).has_value());
  examination.ways[HostId(0)][HostId(1)].speed = LinkSpeed{"", 250'000, 2.0 * (1 << 30)};
  examination.ways[HostId(1)][HostId(0)].speed = LinkSpeed{"", 50'000, 3.0 * (1 << 30)};
  examination.ways[HostId(0)][HostId(2)].speed = LinkSpeed{"", 1, 1};  // to the starter
  const std::string text = ExaminationText(examination);
  EXPECT_THAT(text, HasSubstr("10.0.0.2 0.2 ms, 2.0 GiB/s"));
  EXPECT_THAT(text, HasSubstr("10.0.0.2 0.050 ms, 3.0 GiB/s"));
  EXPECT_EQ(MedianSpeed(examination)->round_trip_ns, 250'000);
  EXPECT_EQ(MedianSpeed(examination)->bytes_per_second, 3.0 * (1 << 30));
}

TEST(DoctorTest, AHostWithoutAnswersIsSick) {
  Examination sick = Healthy();
  sick.clock_offset_ns[HostId(1)] = std::nullopt;
  sick.facts[HostId(1)].shared_memory_bytes = -1;
  EXPECT_THAT(Complaints(sick, "b1"), ElementsAre(HasSubstr("b's clock is off (no answer)"),
                                                  HasSubstr("b has no /dev/shm")));
}

TEST(DoctorTest, PartsOfOneMachineAreTold) {
  Examination examination = Healthy();
  EXPECT_THAT(ExaminationText(examination), ::testing::Not(HasSubstr("parts of")));
  examination.facts[HostId(1)].machine = examination.facts[HostId(0)].machine;
  EXPECT_THAT(ExaminationText(examination), HasSubstr("These hosts are parts of 1 machine."));
}

}  // namespace
}  // namespace weir::hosts
