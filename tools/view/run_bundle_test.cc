// The bundle of a record whose times are known, read as the page reads it.
#include "tools/view/run_bundle.h"

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/trace/relay_testing.h"

namespace weir::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trace::kMicrosecond;

constexpr size_t kHeaderBytes = 16;

class Bundle {
 public:
  explicit Bundle(std::string bytes) : bytes_(std::move(bytes)) {
    uint32_t size = 0;
    std::memcpy(&size, bytes_.data() + 8, sizeof(size));
    columns_at_ = kHeaderBytes + size;
    object_ = nlohmann::json::parse(bytes_.substr(kHeaderBytes, size));
  }
  const nlohmann::json& object() const { return object_; }
  template <typename Number>
  std::vector<Number> Column(const std::string& name) const {
    for (const nlohmann::json& column : object_["columns"]) {
      if (column["name"] != name) continue;
      const size_t offset = columns_at_ + column["offset"].get<size_t>();
      EXPECT_EQ(offset % 8, 0u) << name;
      std::vector<Number> numbers(column["count"].get<size_t>());
      std::memcpy(numbers.data(), bytes_.data() + offset, numbers.size() * sizeof(Number));
      return numbers;
    }
    ADD_FAILURE() << "no column " << name;
    return {};
  }

 private:
  const std::string bytes_;
  size_t columns_at_ = 0;
  nlohmann::json object_;
};

Bundle BundleOf(const trace::Relay& relay) {
  absl::StatusOr<std::string> bundle = MakeRunBundle(trace::Read(relay.File({0, 1})), "the relay");
  EXPECT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(bundle->substr(0, 8), "WEIRVIEW");
  return Bundle(*std::move(bundle));
}

TEST(RunBundleTest, ThatOfAPlanHasThePlanAndItsSimulatedRunOrTheReasonForNone) {
  const nlohmann::ordered_json plan = {{"plan_id", "p"}, {"boxings", {{{"bytes", 3.5}}}}};
  const trace::Relay relay(4);
  const absl::StatusOr<std::string> whole =
      MakePlanBundle(plan, trace::Read(relay.File({0, 1})), "a job");
  ASSERT_TRUE(whole.ok()) << whole.status();
  const Bundle run = BundleOf(relay), with_plan(*whole);
  EXPECT_EQ(with_plan.object()["title"], "a job");
  EXPECT_EQ(with_plan.object()["plan"], nlohmann::json(plan));
  EXPECT_EQ(with_plan.object()["report"], run.object()["report"]);
  EXPECT_EQ(with_plan.Column<double>("act_begin"), run.Column<double>("act_begin"));
  const Bundle alone(MakePlanBundle(plan, "the mesh is large", "a job"));
  EXPECT_EQ(alone.object()["plan"], nlohmann::json(plan));
  EXPECT_EQ(alone.object()["no_run"], "the mesh is large");
  EXPECT_FALSE(alone.object().contains("report"));
  EXPECT_TRUE(alone.object()["columns"].empty());
}

TEST(RunBundleTest, ItsTwoPartsHaveWhatTheWholeHas) {
  const trace::TraceReader reader = trace::Read(trace::Relay(4).File({0, 1}));
  std::string first;
  std::vector<std::string> told;
  const BundleTaker taker = {
      [&first](std::string bundle) { first = std::move(bundle); },
      [&](const std::string& doing) { told.push_back(first.empty() ? "" : doing); }};
  const absl::StatusOr<std::string> second =
      MakeRunBundleInParts(reader, "the relay", nullptr, "", taker);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(told, ::testing::Contains("replays the run")) << "once the run is there";
  const Bundle whole = BundleOf(trace::Relay(4)), run(first), analysis(*second);
  EXPECT_TRUE(run.object()["pending"].get<bool>());
  EXPECT_FALSE(whole.object().contains("pending"));
  EXPECT_EQ(run.object()["report"]["ranks"], whole.object()["report"]["ranks"]);
  for (const char* field : {"title", "ranks", "queues", "steps", "strings"})
    EXPECT_EQ(run.object()[field], whole.object()[field]) << field;
  EXPECT_EQ(analysis.object()["report"], whole.object()["report"]);
  EXPECT_EQ(run.object()["columns"].size() + analysis.object()["columns"].size(),
            whole.object()["columns"].size());
  EXPECT_EQ(run.Column<double>("act_begin"), whole.Column<double>("act_begin"));
  EXPECT_EQ(analysis.Column<double>("segment_begin"), whole.Column<double>("segment_begin"));
}

TEST(RunBundleTest, TheActsOfAPipelineStandAsPlannedFromTheFirstOn) {
  const trace::Relay relay(4);
  trace::TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  for (trace::TracedRank& rank : job.ranks) rank.actors[ActorId(0)].planned_ns = 3000;
  std::stringstream out;
  ASSERT_EQ(trace::WriteTrace(job, 0, out), absl::OkStatus());
  const absl::StatusOr<std::string> bytes = MakeRunBundle(trace::Read(out.str()), "the relay");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Bundle bundle(*bytes);
  // The way of the token is not planned, so the way is that of the record.
  EXPECT_THAT(bundle.Column<double>("planned_begin"), ElementsAre(0, 3000 + 5 * kMicrosecond));
  EXPECT_THAT(bundle.Column<double>("planned_ns"), ElementsAre(3000, 3000));
  EXPECT_THAT(bundle.Column<uint32_t>("planned_actor"), ElementsAre(0, 1));
  EXPECT_THAT(bundle.Column<int32_t>("planned_micro_batch"), ElementsAre(0, 0));
  EXPECT_TRUE(BundleOf(relay).Column<double>("planned_begin").empty());
}

TEST(RunBundleTest, ThatOfTwoRunsInPartsHasTheirDifferenceInTheSecond) {
  const trace::TraceReader a = trace::Read(trace::Relay(4).File({0, 1}));
  const trace::TraceReader b = trace::Read(trace::Relay(5).File({0, 1}));
  const BundleTaker taker = {[](const std::string&) {}, [](const std::string&) {}};
  const absl::StatusOr<std::string> second = MakeRunBundleInParts(a, "a", &b, "b", taker);
  ASSERT_TRUE(second.ok()) << second.status();
  const absl::StatusOr<std::string> whole = MakeRunBundle(a, "a", b, "b");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(Bundle(*second).object()["diff"], Bundle(*whole).object()["diff"]);
}

TEST(RunBundleTest, HoldsEachActWithItsTimeItsWaitAndWhatEndedTheWait) {
  const Bundle bundle = BundleOf(trace::Relay(2));
  EXPECT_EQ(bundle.object()["title"], "the relay");
  EXPECT_THAT(bundle.Column<uint32_t>("queue_first_act"), ElementsAre(0, 2, 4));
  // Rank 0 makes x at 0 and 35 us, for 10 us; rank 1 reads it from 15 and 50 us on, for 20 us.
  EXPECT_THAT(bundle.Column<double>("act_begin"), ElementsAre(0, 35e3, 15e3, 50e3));
  EXPECT_THAT(bundle.Column<float>("act_ns"), ElementsAre(10e3, 10e3, 20e3, 20e3));
  EXPECT_THAT(bundle.Column<int32_t>("act_step"), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(bundle.Column<uint8_t>("act_wait"), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(bundle.Column<float>("act_wait_ns"), ElementsAre(0, 25e3, 15e3, 15e3));
  // The second x waits for the slot that the first read gives up; each read waits for its x.
  EXPECT_THAT(bundle.Column<int32_t>("act_cause"), ElementsAre(-1, 2, 0, 1));
  EXPECT_THAT(bundle.Column<double>("register_waited_credit_ns"), ElementsAre(25e3));
  EXPECT_THAT(bundle.Column<double>("register_waited_input_ns"), ElementsAre(30e3));
  EXPECT_THAT(bundle.Column<int32_t>("register_most"), ElementsAre(1));
  EXPECT_THAT(bundle.Column<double>("change_at"), ElementsAre(0, 70e3));
  EXPECT_EQ(bundle.object()["steps"][1]["step"], 2);
  EXPECT_EQ(bundle.object()["steps"][1]["begin_ns"], 35 * kMicrosecond);
  EXPECT_EQ(bundle.object()["report"]["why_slow"]["parts"].size(), 9u);
}

TEST(RunBundleTest, TwoRunsAreTheFirstWithItsDifferenceToTheSecond) {
  const trace::Relay first(4), second(4, -1, 64, /*read_takes_us=*/30);
  const trace::TraceReader a = trace::Read(first.File({0, 1})),
                           b = trace::Read(second.File({0, 1}));
  absl::StatusOr<std::string> bytes = MakeRunBundle(a, "one", b, "two");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Bundle bundle(*std::move(bytes));
  EXPECT_EQ(bundle.object()["title"], "one");
  EXPECT_EQ(bundle.object()["report"]["step_ns"], 35 * kMicrosecond);
  EXPECT_EQ(bundle.object()["diff"]["b"]["name"], "two");
  EXPECT_EQ(bundle.object()["diff"]["path"][0]["more_ns"], 10 * kMicrosecond);
  EXPECT_FALSE(BundleOf(first).object().contains("diff"));
}

// Each group of a path leads to the longest of its segments.
TEST(RunBundleTest, GroupsOfAPathLeadToTheirSegmentsAndTheseToTheirActs) {
  const Bundle bundle = BundleOf(trace::Relay(2));
  EXPECT_THAT(bundle.Column<uint32_t>("path_first_segment"), ElementsAre(0, 3, 6));
  EXPECT_THAT(bundle.Column<uint32_t>("path_first_group"), ElementsAre(0, 3, 6));
  // The groups of a step: rank 1 reads x, rank 0 makes it, x is under way.
  EXPECT_THAT(bundle.Column<uint32_t>("group_longest_segment"), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_THAT(bundle.Column<double>("segment_begin"), ElementsAre(0, 10e3, 15e3, 35e3, 45e3, 50e3));
  EXPECT_THAT(bundle.Column<int32_t>("segment_act"), ElementsAre(0, 2, 2, 1, 3, 3));
  EXPECT_THAT(bundle.Column<int32_t>("segment_sender"), ElementsAre(-1, 0, -1, -1, 0, -1));
}

TEST(RunBundleTest, ATraceThatLacksARankShowsTheOthersAndSaysWhatIsUnknown) {
  trace::Relay relay(2);
  relay.BeginStep();
  absl::StatusOr<std::string> bytes = MakeRunBundle(trace::Read(relay.File({1, 2})), "a part");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Bundle bundle(*std::move(bytes));
  const nlohmann::json& object = bundle.object();
  EXPECT_THAT(object["report"]["why_slow_error"].get<std::string>(),
              HasSubstr("is on a rank that the trace lacks"));
  EXPECT_EQ(object["report"]["last_state"]["missing_ranks"], nlohmann::json({0}));
  // The row of the missing rank comes last and is empty.
  ASSERT_EQ(object["queues"].size(), 3u);
  EXPECT_EQ(object["queues"][2]["missing"], true);
  EXPECT_EQ(object["ranks"][2]["rank"], 0);
  EXPECT_THAT(bundle.Column<uint32_t>("queue_first_act"), ElementsAre(0, 2, 5, 5));
  EXPECT_THAT(object["open_acts"][0]["text"].get<std::string>(),
              HasSubstr("needs a token of move x rank 0 to 1 from rank 0"));
  EXPECT_EQ(object["open_acts"][0]["since_ns"], 70 * kMicrosecond);
  EXPECT_EQ(object["open_acts"][0]["waits"], true);
}

TEST(RunBundleTest, AFailureThatTheTraceMarksHasItsTimeAndItsRow) {
  trace::Relay relay(2);
  relay.BeginStep();
  std::ostringstream marks;
  ASSERT_EQ(trace::WriteFailures({{trace::kBegin + 90 * kMicrosecond, {RankId(1)}, "killed"},
                                  {trace::kBegin + 95 * kMicrosecond, {}, "stuck"}},
                                 marks),
            absl::OkStatus());
  absl::StatusOr<std::string> bytes =
      MakeRunBundle(trace::Read(relay.File({0, 1}) + marks.str()), "failed");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Bundle bundle(*std::move(bytes));
  EXPECT_EQ(bundle.object()["failures"], nlohmann::json::parse(R"([
      {"at_ns": 90000, "text": "killed", "queue": 1}, {"at_ns": 95000, "text": "stuck"}])"));
  EXPECT_EQ(bundle.object()["report"]["last_state"]["failures"][0]["rank"], 1);
}

TEST(RunBundleTest, ATraceOfNoWholeStepShowsTheActsThatItHas) {
  trace::Relay relay(0);
  relay.BeginStep();
  absl::StatusOr<std::string> bytes = MakeRunBundle(trace::Read(relay.File({0, 1})), "a begin");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Bundle bundle(*std::move(bytes));
  EXPECT_TRUE(bundle.object()["steps"].empty());
  EXPECT_THAT(bundle.Column<double>("act_begin"), ElementsAre(0));
  EXPECT_THAT(bundle.object()["report"]["why_slow_error"].get<std::string>(),
              HasSubstr("no step is complete"));
  EXPECT_EQ(bundle.object()["open_acts"].size(), 2u);
}

}  // namespace
}  // namespace weir::view
