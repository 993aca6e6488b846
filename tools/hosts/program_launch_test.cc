#include "tools/hosts/program_launch.h"

#include <signal.h>

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

// Processes that do not end when they are killed. It notes how long somebody waits for them.
class HeldProcesses final : public launch::Supervisor {
 public:
  explicit HeldProcesses(bool is_seen) : is_seen_(is_seen) {}
  const std::vector<int64_t>& limits_ms() const { return limits_ms_; }

  absl::Status Tell(WorkerId, const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<launch::WorkerExit>> Wait(int64_t) override { return std::nullopt; }
  void Wake() override {}
  int num_running() const override { return 1; }
  int64_t pid(WorkerId) const override { return 1; }
  void Signal(int signal) override { EXPECT_EQ(signal, SIGKILL); }
  void Kill(WorkerId) override {}
  std::vector<launch::WorkerExit> Stop() override { return {}; }
  std::vector<launch::WorkerExit> Reap(int64_t limit_ms) override {
    limits_ms_.push_back(limit_ms);
    return {};
  }
  std::vector<WorkerId> running() const override { return {WorkerId(0)}; }
  std::vector<launch::WorkerLook> Look(const std::vector<WorkerId>& workers) override {
    launch::WorkerLook look;
    look.is_seen = is_seen_;
    return std::vector<launch::WorkerLook>(workers.size(), look);
  }
  std::vector<launch::WorkerLook> Glance(const std::vector<WorkerId>& workers) override {
    return Look(workers);
  }
  std::optional<launch::ProcessorUse> Use(WorkerId) override { return std::nullopt; }
  std::string log_path(WorkerId) const override { return ""; }
  void HideOutput() override {}

 private:
  const bool is_seen_;
  std::vector<int64_t> limits_ms_;
};

TEST(ProgramLaunchTest, AKilledProcessIsWaitedForLongerOnlyWhereItsHostShowsIt) {
  HeldProcesses held(/*is_seen=*/true), hidden(/*is_seen=*/false);
  Kill(&held);
  EXPECT_THAT(held.limits_ms(), ElementsAre(1'000, 10'000));
  Kill(&hidden);
  EXPECT_THAT(hidden.limits_ms(), ElementsAre(1'000));
}

}  // namespace
}  // namespace weir::hosts
