// Goes from a simulated run to the trace file and its report. Virtual time makes every number
// exact.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "actors/session/session.h"
#include "actors/session/virtual_run.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/trace.pb.h"
#include "runtime/trace/trace_names.h"
#include "tools/trace/trace_reader.h"
#include "tools/trace/trace_report.h"

namespace weir::trace {
namespace {

using ::testing::HasSubstr;

std::string TracePath() {
  const char* dir = std::getenv("TEST_TMPDIR");
  return std::string(dir != nullptr ? dir : "/tmp") + "/run.pftrace";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::unique_ptr<actors::Session> SimulatedPipeline(const actors::PipelineJob& job,
                                                   int64_t latency_ns) {
  actors::SessionOptions options;
  options.engine = actors::SessionOptions::EngineKind::kSim;
  options.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
  options.compute = actors::RankExecutorOptions::Compute::kSkip;
  options.sim_cost_ns = [](const actors::Plan&, const actors::PlanActor& actor) {
    if (actor.name == "forward") return 10000;
    return actor.name == "backward" ? 20000 : 0;
  };
  options.sim_latency_ns = [latency_ns](int64_t bytes, RankId, RankId) {
    return bytes > 0 ? latency_ns : 0;
  };
  absl::StatusOr<std::unique_ptr<actors::Session>> session =
      actors::Session::Create(actors::Certified(actors::MakePipelineJob(job)), options);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

TEST(TraceTest, ATraceInVirtualTimeReadsAsThatOfARun) {
  actors::PipelineJob job;
  job.num_stages = 4;
  job.micro_batches = 8;
  std::vector<actors::Plan> plans;
  for (const proto::RankPlan& plan : actors::Certified(actors::MakePipelineJob(job)))
    plans.push_back(*actors::PlanFromProto(plan));
  actors::VirtualRunOptions options;
  options.trace_capacity = 1000;
  options.cost_ns = [](const actors::Plan&, const actors::PlanActor& actor) -> int64_t {
    if (actor.phase == actors::ActorPhase::kForward) return 1000;
    return actor.phase == actors::ActorPhase::kBackward ? 2000 : 0;
  };
  options.ways = [](RankId, RankId) {
    return actors::TimeNetwork::Way{.latency_ns = 70, .ns_per_byte = 1};
  };
  absl::StatusOr<std::unique_ptr<actors::VirtualRun>> run =
      actors::VirtualRun::Create(std::move(plans), std::move(options));
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ((*run)->RunSteps(3), absl::OkStatus());
  ASSERT_EQ((*run)->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->devices.size(), 4u);
  EXPECT_GT(report->step_ns, (8 + 4 - 1) * 3000);
  EXPECT_GT(report->bubble, report->bubble_formula - 1e-9);
}

// Returns the report on a step in virtual time of three stages, after `change` of each plan.
TraceReport ReportOf(const std::function<void(proto::RankPlan*)>& change) {
  actors::PipelineJob job;
  job.num_stages = 3;
  job.micro_batches = 4;
  std::vector<actors::Plan> plans;
  for (proto::RankPlan plan : actors::Certified(actors::MakePipelineJob(job))) {
    change(&plan);
    plans.push_back(*actors::PlanFromProto(plan));
  }
  actors::VirtualRunOptions options;
  options.trace_capacity = 1000;
  options.cost_ns = [](const actors::Plan&, const actors::PlanActor&) -> int64_t { return 1000; };
  auto run = actors::VirtualRun::Create(std::move(plans), std::move(options));
  EXPECT_TRUE(run.ok()) << run.status();
  EXPECT_EQ((*run)->RunSteps(3), absl::OkStatus());
  EXPECT_EQ((*run)->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : TraceReport{};
}

TEST(TraceTest, TheFormulaOfTheBubbleIsThatOfTheScheduleAndOfChainsAlone) {
  const TraceReport chain = ReportOf([](proto::RankPlan*) {});
  EXPECT_DOUBLE_EQ(chain.bubble_formula, 2.0 / 6);
  EXPECT_EQ(chain.stages_in_a_row, 3);
  EXPECT_THAT(OverviewText(chain), HasSubstr("by the formula (p-1)/(m+p-1)"));
  const TraceReport parts = ReportOf([](proto::RankPlan* plan) { plan->set_virtual_stages(2); });
  EXPECT_EQ(parts.virtual_stages, 2);
  EXPECT_DOUBLE_EQ(parts.bubble_formula, 2.0 / 10);
  EXPECT_THAT(OverviewText(parts), HasSubstr("by the formula (p-1)/(mv+p-1)"));
  const TraceReport halves =
      ReportOf([](proto::RankPlan* plan) { plan->set_schedule("zero-bubble"); });
  EXPECT_DOUBLE_EQ(halves.bubble_formula, 2.0 / 14);
  const TraceReport towers = ReportOf([](proto::RankPlan* plan) { plan->set_stages_in_a_row(2); });
  EXPECT_EQ(towers.stages_in_a_row, 2);
  EXPECT_EQ(towers.bubble_formula, 0);
  EXPECT_THAT(OverviewText(towers), HasSubstr("no formula for 3 stages, 2 of them in a row"));
}

TEST(TraceTest, AFileThatIsCutOrDamagedSaysWhere) {
  std::unique_ptr<actors::Session> session = SimulatedPipeline({}, 0);
  ASSERT_EQ(session->RunSteps(2), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  const std::string file = ReadFile(TracePath());
  ASSERT_TRUE(ReadTraceReport(file).ok());
  const std::string cut = ReadTraceReport(file.substr(0, file.size() - 1)).status().ToString();
  EXPECT_THAT(cut, HasSubstr(absl::StrCat("the file ends at byte ", file.size() - 1,
                                          ", within the packet that begins at byte ")));
  EXPECT_THAT(cut, HasSubstr("copy the file again"));
  std::string damaged = file + "no packet";
  EXPECT_THAT(ReadTraceReport(damaged).status().ToString(),
              HasSubstr(absl::StrCat("other bytes at byte ", file.size(), " of ", damaged.size(),
                                     ", after ")));
  damaged = file + std::string("\x0a\x02\xff\xff", 4);
  EXPECT_THAT(ReadTraceReport(damaged).status().ToString(),
              HasSubstr(absl::StrCat("a damaged packet at byte ", file.size())));
  EXPECT_THAT(ReadTraceReport("").status().ToString(), HasSubstr("an empty file"));
}

TEST(TraceTest, AOneForwardOneBackwardPipelineShowsTheBubbleOfTheFormula) {
  actors::PipelineJob job;
  job.num_stages = 4;
  job.micro_batches = 8;
  job.message_slots = 4;
  std::unique_ptr<actors::Session> session = SimulatedPipeline(job, 0);
  ASSERT_EQ(session->RunSteps(5), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_stages, 4);
  EXPECT_EQ(report->micro_batches, 8);
  EXPECT_EQ(report->first_step, 1);
  EXPECT_EQ(report->last_step, 4);
  EXPECT_DOUBLE_EQ(report->bubble_formula, 3.0 / 11.0);
  ASSERT_EQ(report->devices.size(), 4u);
  for (const DeviceReport& device : report->devices) {
    EXPECT_NEAR(
        device.busy + device.waits_for_input + device.waits_for_credit + device.between_acts, 1,
        1e-9);
    EXPECT_LE(device.between_acts, 0.1) << device.name;
  }
  // Between a step's first forward act and its last backward act, no act of another step runs.
  EXPECT_NEAR(report->pipeline_bubble, 3.0 / 11.0, 1e-9);
  // Steps overlap a little across the weight update, so the bubble is at most that of the formula.
  EXPECT_LE(report->bubble, report->bubble_formula + 1e-9);
  EXPECT_GE(report->bubble, 0.5 * report->bubble_formula);
}

TEST(TraceTest, CommunicationThatNoWorkHidesIsSummedByBoxing) {
  actors::PipelineJob job;
  job.num_stages = 2;
  job.micro_batches = 2;
  for (const int64_t latency_ns : {0, 500000}) {
    std::unique_ptr<actors::Session> session = SimulatedPipeline(job, latency_ns);
    ASSERT_EQ(session->RunSteps(3), absl::OkStatus());
    ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
    absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_FALSE(report->exposed.empty());
    double waits = 0, share = 0;
    for (const DeviceReport& device : report->devices) waits += device.waits_for_input / 2;
    for (const ExposedReport& exposed : report->exposed) {
      EXPECT_TRUE(exposed.boxing == "activation in" || exposed.boxing == "gradient in")
          << exposed.boxing;
      EXPECT_NEAR(exposed.ns_per_step, exposed.share * report->step_ns, 1);
      share += exposed.share;
      if (latency_ns == 0) {
        EXPECT_EQ(exposed.share_sent, 0);
      } else {
        // While one rank waits for a message under way, the other rank waits for the consequences
        // of that message.
        EXPECT_GT(exposed.share_sent, 0.4);
      }
    }
    // All waits of these ranks are for the other rank.
    EXPECT_NEAR(share, waits, 1e-9);
    EXPECT_THAT(ToText(*report), HasSubstr("exposed communication"));
    EXPECT_THAT(ToText(*report), HasSubstr("(all)"));
    EXPECT_THAT(ToText(*report, 1), HasSubstr("(1 more)"));
  }
}

// A trace in which all waits for tokens are waits for the group of a collective.
TEST(TraceTest, WaitsForAGroupAreExposedByCollective) {
  actors::PipelineJob job;
  job.num_stages = 2;
  job.micro_batches = 2;
  std::unique_ptr<actors::Session> session = SimulatedPipeline(job, 0);
  ASSERT_EQ(session->RunSteps(3), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  // The two names have one length, so the messages around them stay whole.
  static_assert(sizeof(kTraceWaitsForInput) == sizeof(kTraceWaitsForGroup));
  absl::StatusOr<TraceReport> report = ReadTraceReport(
      absl::StrReplaceAll(ReadFile(TracePath()), {{kTraceWaitsForInput, kTraceWaitsForGroup}}));
  ASSERT_TRUE(report.ok()) << report.status();
  double waits = 0, share = 0;
  for (const DeviceReport& device : report->devices) waits += device.waits_for_input / 2;
  for (const ExposedReport& exposed : report->exposed) {
    EXPECT_TRUE(exposed.boxing == "forward" || exposed.boxing == "backward") << exposed.boxing;
    EXPECT_EQ(exposed.share_sent, 0);
    share += exposed.share;
  }
  EXPECT_GT(share, 0);
  EXPECT_NEAR(share, waits, 1e-9);
}

// Returns the part of a trace that does not depend on speed: every act with its numbers and flows.
std::multiset<std::string> ActsAndFlows(const std::string& file) {
  proto::Trace parsed;
  EXPECT_TRUE(parsed.ParseFromString(file));
  using Texts = std::map<uint64_t, std::string>;
  std::map<uint32_t, std::pair<Texts, Texts>>
      texts;  // by sequence: names of events, of annotations
  std::map<uint64_t, std::string> tracks;
  std::multiset<std::string> acts;
  for (const proto::TracePacket& packet : parsed.packet()) {
    auto& [names, annotations] = texts[packet.trusted_packet_sequence_id()];
    if (packet.sequence_flags() & 1) names = annotations = {};
    for (const auto& entry : packet.interned_data().event_names()) names[entry.iid()] = entry.str();
    for (const auto& entry : packet.interned_data().debug_annotation_names())
      annotations[entry.iid()] = entry.str();
    const proto::TrackDescriptor& track = packet.track_descriptor();
    if (packet.has_track_descriptor()) {
      tracks[track.uuid()] =
          tracks[track.parent_uuid()] + "/" + track.name() + track.process().process_name();
    }
    const proto::TrackEvent& event = packet.track_event();
    if (event.type() != proto::TrackEvent::TYPE_SLICE_BEGIN &&
        event.type() != proto::TrackEvent::TYPE_INSTANT)
      continue;
    std::string text = absl::StrCat(tracks[event.track_uuid()], " ", names[event.name_iid()]);
    if (absl::StrContains(text, "/waits ")) continue;
    for (const auto& a : event.debug_annotations()) {
      if (annotations[a.name_iid()] == "cpu_us") continue;
      absl::StrAppend(&text, " ", annotations[a.name_iid()], "=", a.int_value());
    }
    for (uint64_t flow : event.flow_ids()) absl::StrAppend(&text, " sends ", flow);
    for (uint64_t flow : event.terminating_flow_ids()) absl::StrAppend(&text, " takes ", flow);
    acts.insert(text);
  }
  return acts;
}

TEST(TraceTest, PartsOfSeveralSessionsAreTogetherTheTraceOfTheJob) {
  actors::PipelineJob job;
  job.num_stages = 4;
  const std::vector<proto::RankPlan> plans = actors::MakePipelineJob(job);
  actors::TestFeed feed;
  actors::SessionOptions options;
  options.feed = &feed;
  absl::StatusOr<std::unique_ptr<actors::Session>> whole =
      actors::Session::Create(actors::Certified(plans), options);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ((*whole)->RunSteps(3), absl::OkStatus());
  ASSERT_EQ((*whole)->WriteTrace(TracePath()), absl::OkStatus());

  absl::StatusOr<std::unique_ptr<actors::SplitJob>> split = actors::SplitJob::Create(
      actors::Certified(plans), {.parts = {{3, 1}, {0, 2}}, .session = options});
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ((*split)->RunSteps(3), absl::OkStatus());
  actors::Session::TraceClock clock;
  // The begin is earlier by more than the uncertainty of a tick's length, so that no act is left
  // out.
  clock.begin_ns =
      std::min((*split)->session(0).TraceBeginNs(), (*split)->session(1).TraceBeginNs()) - 1000000;
  EXPECT_GT(*clock.begin_ns, 0);
  std::stringstream parts;
  for (int i : {0, 1}) ASSERT_EQ((*split)->session(i).WriteTrace(parts, clock), absl::OkStatus());

  const std::multiset<std::string> acts = ActsAndFlows(parts.str());
  EXPECT_EQ(acts, ActsAndFlows(ReadFile(TracePath())));
  const auto contains = [](const char* part) {
    return [part](const std::string& act) { return absl::StrContains(act, part); };
  };
  EXPECT_EQ(std::count_if(acts.begin(), acts.end(), contains("weir.job")), 1);
  EXPECT_EQ(std::count_if(acts.begin(), acts.end(), contains(" sends ")),
            3 * 2 * 3 * 4);  // steps, ways, neighbours, micro-batches
  EXPECT_EQ(std::count_if(acts.begin(), acts.end(), contains(" takes ")), 3 * 2 * 3 * 4);

  absl::StatusOr<TraceReport> report = ReadTraceReport(parts.str());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->devices.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(report->devices[rank].rank, RankId(rank));
  EXPECT_EQ(report->num_stages, 4);
  EXPECT_EQ(report->last_step, 2);
  for (const WaitReport& wait :
       report->waits) {  // all holders are known, also those of the other session
    EXPECT_THAT(wait.holder, ::testing::StartsWith("actor '"));
  }
}

TEST(TraceTest, StepsCountFromOneInTheFileAndInTheReport) {
  std::unique_ptr<actors::Session> session = SimulatedPipeline({}, 0);
  ASSERT_EQ(session->RunSteps(4), absl::OkStatus());
  std::stringstream file;
  ASSERT_EQ(session->WriteTrace(file, {}), absl::OkStatus());
  TraceReader reader;
  ASSERT_EQ(reader.Read(file.str()), absl::OkStatus());
  EXPECT_EQ(reader.JobNumber("first step"), 1);
  std::set<int64_t> numbers, indices;
  for (const auto& [track, process] : reader.processes) {
    for (const TraceSlice& slice : process.slices) {
      if (slice.category != "act") continue;
      numbers.insert(slice.numbers.find("step")->second);
      indices.insert(reader.StepOf(slice).value_or(-1));
    }
  }
  EXPECT_THAT(numbers, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(indices, ::testing::ElementsAre(0, 1, 2, 3));
  const TraceReport report = MakeTraceReport(reader);
  EXPECT_EQ(report.left_out_step, 0);
  std::string text = OverviewText(report);
  absl::RemoveExtraAsciiWhitespace(&text);  // lines are wrapped
  EXPECT_THAT(text, HasSubstr("steps 2 to 4, "));
  EXPECT_THAT(text, HasSubstr("; step 1, the first whole one, is left out"));
}

TEST(TraceTest, EachNumberOfAStepConvertsBack) {
  EXPECT_EQ(NumberOfStep(0), 1);
  EXPECT_EQ(IndexOfStep(30), 29);
  EXPECT_EQ(IndexOfStep(0), -1);  // of no step
  for (int64_t any : {INT64_MIN, INT64_MIN + 1, int64_t{-1}, int64_t{0}, int64_t{7}, INT64_MAX}) {
    EXPECT_EQ(NumberOfStep(IndexOfStep(any)), any);
    EXPECT_EQ(IndexOfStep(NumberOfStep(any)), any);
  }
}

// Steps of files of earlier versions count from 0, and no annotation of the job says otherwise.
TEST(TraceTest, AFileWhoseStepsCountFromZeroIsReadAsItWasMeant) {
  std::unique_ptr<actors::Session> session = SimulatedPipeline({}, 0);
  ASSERT_EQ(session->RunSteps(4), absl::OkStatus());
  std::stringstream file;
  ASSERT_EQ(session->WriteTrace(file, {}), absl::OkStatus());
  std::string old = file.str();
  const size_t at = old.find("steps count from");
  ASSERT_NE(at, std::string::npos);
  old[at] = 'S';
  const absl::StatusOr<TraceReport> report = ReadTraceReport(old);
  ASSERT_TRUE(report.ok()) << report.status();
  // The numbers 1 to 4 of the file are indices now, and the report shows each as one more.
  EXPECT_EQ(report->left_out_step, 1);
  EXPECT_EQ(report->last_step, 4);
  EXPECT_THAT(OverviewText(*report), HasSubstr("steps 3 to 5, "));
}

TEST(TraceTest, TimesAreThoseOfTheJobsClock) {
  actors::PipelineJob job;
  std::unique_ptr<actors::Session> session = SimulatedPipeline(job, 0);
  ASSERT_EQ(session->RunSteps(2), absl::OkStatus());
  std::stringstream here, there;
  ASSERT_EQ(session->WriteTrace(here, {}), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(there, {.offset_ns = -7000, .begin_ns = 7000}), absl::OkStatus());
  proto::Trace a, b;
  ASSERT_TRUE(a.ParseFromString(here.str()));
  ASSERT_TRUE(b.ParseFromString(there.str()));
  ASSERT_EQ(a.packet_size(), b.packet_size());
  for (int i = 0; i < a.packet_size(); ++i)
    EXPECT_EQ(a.packet(i).timestamp() + 7000, b.packet(i).timestamp());
  // Acts that began before the trace begins are not in the trace.
  std::stringstream late;
  ASSERT_EQ(session->WriteTrace(late, {.begin_ns = 100000}), absl::OkStatus());
  EXPECT_LT(ActsAndFlows(late.str()).size(), ActsAndFlows(here.str()).size());
}

TEST(TraceTest, TheReportNamesWhoIsWaitedForOnWhichRank) {
  actors::PipelineJob job;
  job.num_stages = 2;
  job.micro_batches = 2;
  std::unique_ptr<actors::Session> session = SimulatedPipeline(job, 500000);
  ASSERT_EQ(session->RunSteps(3), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_FALSE(report->waits.empty());
  const std::string text = ToText(*report);
  EXPECT_THAT(text, HasSubstr("rank 0 for gradient in from rank 1\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 for activation in from rank 0\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("rank 0 · stage 0 +[0-9.]+ %"));
  EXPECT_THAT(text, HasSubstr("33.3 % by the formula (p-1)/(m+p-1)"));
}

TEST(TraceTest, RunsOnThreadsAreTracedToo) {
  actors::TestFeed feed;
  actors::SessionOptions options;
  options.feed = &feed;
  options.trace_capacity = 64;
  absl::StatusOr<std::unique_ptr<actors::Session>> session =
      actors::Session::Create(actors::Certified(actors::LoadTestJob("ring")), options);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int run = 0; run < 30; ++run) ASSERT_EQ((*session)->RunSteps(1), absl::OkStatus());
  ASSERT_EQ((*session)->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->devices.size(), 2u);
  EXPECT_GT(report->devices[0].acts_dropped, 0);
  EXPECT_EQ(report->last_step, 29);
  EXPECT_GT(report->devices[0].busy, 0);
}

TEST(TraceTest, AFileThatIsNoTraceIsRefusedAndNeverCrashes) {
  actors::PipelineJob job;
  std::unique_ptr<actors::Session> session = SimulatedPipeline(job, 0);
  ASSERT_EQ(session->RunSteps(2), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  const std::string good = ReadFile(TracePath());
  EXPECT_FALSE(ReadTraceReport("").ok());
  EXPECT_FALSE(ReadTraceReport("not a trace").ok());
  for (size_t length = 0; length < good.size(); length += 7)
    (void)ReadTraceReport(good.substr(0, length));
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    (void)ReadTraceReport(bad);
  }
}

TEST(TraceTest, AnUnwritableFileIsAnError) {
  actors::PipelineJob job;
  std::unique_ptr<actors::Session> session = SimulatedPipeline(job, 0);
  EXPECT_EQ(session->WriteTrace("/no/such/folder/run.pftrace").code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weir::trace
