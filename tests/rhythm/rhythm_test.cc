// Tests that the rhythm of a job holds on every rank, including ranks that the solve did not look
// at, and that slots and times have their promised effect.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/plan.h"
#include "compiler/compile.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "gtest/gtest.h"
#include "tests/rhythm/rhythm_jobs.h"
#include "tests/rhythm/virtual_step.h"
#include "tests/training/train_run.h"
#include "tools/job/job_file.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::rhythm {
namespace {

using compiler::JobRhythm;
using compiler::PeakCosts;
using compiler::RhythmOptions;
using compiler::SolveRhythm;
using compiler::StationGraph;

std::unique_ptr<compiler::LogicalPlan> Compile(const proto::Job& job) {
  absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

// Calls `look` with the plans of many layouts, with the schedule's counts and with solved counts.
void ForEachLayoutAndCounts(const std::function<void(compiler::LogicalPlan* plan)>& look) {
  for (RhythmJob& entry : JobsOfManyLayouts()) {
    for (proto::Runtime::Registers registers : {proto::Runtime::SCHEDULE, proto::Runtime::SOLVED}) {
      SCOPED_TRACE(absl::StrCat(entry.name, ", ", proto::Runtime::Registers_Name(registers)));
      entry.job.mutable_runtime()->set_registers(registers);
      std::unique_ptr<compiler::LogicalPlan> plan = Compile(entry.job);
      ASSERT_NE(plan, nullptr);
      ASSERT_NO_FATAL_FAILURE(look(plan.get()));
    }
  }
}

TEST(Rhythm, HoldsOnRanksThatWereNotLookedAt) {
  ForEachLayoutAndCounts([](compiler::LogicalPlan* plan) {
    RhythmOptions few;
    few.ranks_of_stage_max = 1;
    absl::StatusOr<JobRhythm> rhythm = SolveRhythm(*plan, PeakCosts(), few);
    ASSERT_TRUE(rhythm.ok()) << rhythm.status();
    plan->rhythm = *std::move(rhythm);
    for (RankId rank : plan->places.all_ranks()) {
      absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(*plan, rank);
      ASSERT_TRUE(lowered.ok()) << "rank " << rank << ": " << lowered.status();
    }
  });
}

// Two heads on four devices and two samples on eight: ranks in the middle do work that neither the
// first nor the last rank does.
TEST(Rhythm, HoldsOnRanksWhoseNeighboursHaveNothingToDo) {
  zoo::TransformerOptions options;
  options.layers = 3;
  options.hidden = 16;
  options.heads = 2;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 4;
  options.training.micro_batches = 2;
  options.sequence_parallel = zoo::SequenceParallel::kUlysses;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  ASSERT_TRUE(job.ok()) << job.status();
  for (const char* mesh : {"sp=2,tp=4", "sp=4,tp=2", "dp=8,sp=2"}) {
    for (proto::Runtime::Registers registers :
         {proto::Runtime::SCHEDULE, proto::Runtime::TWO, proto::Runtime::SOLVED}) {
      SCOPED_TRACE(absl::StrCat(mesh, ", ", proto::Runtime::Registers_Name(registers)));
      ASSERT_TRUE(job::SetMesh(mesh, &*job).ok());
      job->mutable_runtime()->set_registers(registers);
      std::unique_ptr<compiler::LogicalPlan> plan = Compile(*job);
      ASSERT_NE(plan, nullptr);
      for (RankId rank : plan->places.all_ranks()) {
        absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(*plan, rank);
        ASSERT_TRUE(lowered.ok()) << "rank " << rank << ": " << lowered.status();
      }
    }
  }
}

// Returns jobs with more devices than a transfer has data for: three ranks for two samples, three
// for one position.
std::vector<proto::Job> JobsWithEmptyShards() {
  zoo::TransformerOptions options;
  options.layers = 1;
  options.heads = 4;
  options.training.batch = 2;
  options.hidden = 16;
  options.sequence = 6;
  options.sequence_parallel = zoo::SequenceParallel::kUlysses;
  absl::StatusOr<proto::Job> gpt = zoo::GptJob(options);
  options.hidden = 24;
  options.sequence = 1;
  options.sequence_parallel = zoo::SequenceParallel::kMegatron;
  options.training.micro_batches = 2;
  absl::StatusOr<proto::Job> llama = zoo::LlamaJob(options);
  EXPECT_TRUE(gpt.ok() && llama.ok());
  if (!gpt.ok() || !llama.ok()) return {};
  std::vector<proto::Job> jobs = {*std::move(gpt), *std::move(llama)};
  for (proto::Job& job : jobs) EXPECT_TRUE(job::SetMesh("dp=3,sp=3,tp=4", &job).ok());
  return jobs;
}

TEST(Rhythm, HoldsWhereTheRanksBetweenEndTheirCallsElsewhere) {
  for (proto::Job& job : JobsWithEmptyShards()) {
    for (proto::Runtime::Registers registers : {proto::Runtime::SCHEDULE, proto::Runtime::SOLVED}) {
      SCOPED_TRACE(absl::StrCat(job.name(), ", ", proto::Runtime::Registers_Name(registers)));
      job.mutable_runtime()->set_registers(registers);
      std::unique_ptr<compiler::LogicalPlan> plan = Compile(job);
      ASSERT_NE(plan, nullptr);
      for (RankId rank : plan->places.all_ranks()) {
        absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(*plan, rank);
        ASSERT_TRUE(lowered.ok()) << "rank " << rank << ": " << lowered.status();
      }
    }
  }
}

// Rhythms rest on this fact: a rank does a part of what the shape of its stage does, and nothing
// else.
TEST(StageShape, HasWhateverARankDoes) {
  std::vector<proto::Job> jobs = JobsWithEmptyShards();
  for (RhythmJob& entry : JobsOfManyLayouts()) jobs.push_back(std::move(entry.job));
  int64_t less = 0;  // actors of a shape that some rank lacks
  for (const proto::Job& job : jobs) {
    std::unique_ptr<compiler::LogicalPlan> plan = Compile(job);
    ASSERT_NE(plan, nullptr);
    for (RankId rank : plan->places.all_ranks()) {
      SCOPED_TRACE(absl::StrCat(job.name(), " on ", plan->mesh_text, ", rank ", rank));
      const compiler::StageShape& shape = plan->stages[plan->places.PlaceOf(rank)];
      std::map<compiler::Station, const compiler::RankActor*> at;
      for (const compiler::RankActor& actor : shape.graph.actors)
        ASSERT_TRUE(at.emplace(actor.station, &actor).second) << actor.name;
      absl::StatusOr<compiler::RankGraph> graph = compiler::LowerToRankGraph(*plan, rank);
      ASSERT_TRUE(graph.ok()) << graph.status();
      std::set<compiler::Station> here;
      for (const compiler::RankActor& actor : graph->actors) {
        ASSERT_TRUE(at.contains(actor.station)) << actor.name;
        EXPECT_LE(actor.chunks, at[actor.station]->chunks) << actor.name;
        EXPECT_EQ(actor.micro_batches_per_step(),
                  at[actor.station]->acts_per_step / at[actor.station]->chunks)
            << actor.name;
        here.insert(actor.station);
      }
      less += static_cast<int64_t>(at.size() - here.size());
      for (const compiler::RankTensor& tensor : graph->tensors) {
        if (tensor.side != proto::RegisterSpec::LOCAL || !tensor.producer.has_value()) continue;
        for (ActorId consumer : tensor.consumers) {
          const compiler::Station& reader = graph->actors[consumer].station;
          EXPECT_TRUE(std::binary_search(tensor.readers.begin(), tensor.readers.end(), reader))
              << tensor.name << ", read by " << graph->actors[consumer].name;
        }
      }
    }
  }
  EXPECT_GT(less, 0);
}

TEST(Rhythm, BothEndsOfAMessageSayTheSame) {
  for (RhythmJob& entry : JobsOfManyLayouts()) {
    SCOPED_TRACE(entry.name);
    entry.job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
    std::unique_ptr<compiler::LogicalPlan> plan = Compile(entry.job);
    ASSERT_NE(plan, nullptr);
    struct End {
      int slots = 0;
      std::string own, far;  // timing of the actor here, and of the actor at the other end
    };
    std::map<uint64_t, std::vector<End>> edges;
    for (RankId rank : plan->places.all_ranks()) {
      absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(*plan, rank);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      for (const proto::ActorSpec& actor : lowered->actor()) {
        auto look = [&](int id) {
          const proto::RegisterSpec& spec = lowered->registers(id);
          if (spec.side() == proto::RegisterSpec::LOCAL) return;
          ASSERT_EQ(spec.far_size(), 1);
          edges[spec.edge()].push_back(
              {spec.slots(),
               absl::StrCat(actor.name(), actor.timing().ShortDebugString(),
                            actor.rate().acts_per_step()),
               absl::StrCat(spec.far(0).name(), spec.far(0).timing().ShortDebugString(),
                            spec.far(0).rate().acts_per_step())});
        };
        for (const proto::InputPort& port : actor.input()) look(port.register_id());
        for (const proto::OutputPort& port : actor.output()) look(port.register_id());
      }
    }
    for (const auto& [edge, ends] : edges) {
      ASSERT_EQ(ends.size(), 2u);
      EXPECT_EQ(ends[0].slots, ends[1].slots) << ends[0].own;
      EXPECT_EQ(ends[0].own, ends[1].far);
      EXPECT_EQ(ends[1].own, ends[0].far);
    }
  }
}

// The runtime checks the certificate with its own code.
TEST(Rhythm, EveryRankAcceptsItsCertificate) {
  ForEachLayoutAndCounts([](compiler::LogicalPlan* plan) {
    for (RankId rank : plan->places.all_ranks()) {
      absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(*plan, rank);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      absl::StatusOr<actors::Plan> loaded = actors::PlanFromProto(*lowered);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      ASSERT_TRUE(actors::CheckCertificate(*loaded).ok())
          << "rank " << rank << ": " << actors::CheckCertificate(*loaded);
    }
  });
}

TEST(Rhythm, SolvedCountsLetTheBusiestDeviceNeverWait) {
  for (const char* mesh : {"pp=2", "pp=4", "tp=2,pp=2"}) {
    SCOPED_TRACE(mesh);
    proto::Job job = SmallGptJob(mesh, 8, 8);
    job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
    std::unique_ptr<compiler::LogicalPlan> plan = Compile(job);
    ASSERT_NE(plan, nullptr);
    absl::StatusOr<StationGraph> graph = BuildStationGraph(*plan, PeakCosts());
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(plan->rhythm.micro_batch_ns, BoundPeriod(graph->timed).micro_batch_ns);
  }
}

// Returns the time of one step, as the runtime plays the plans, with the times that they were made
// with.
int64_t VirtualStepNs(const proto::Job& job) { return PlayJob(job, 1).all_steps_ns; }

// Stages are uneven. Counts are solved for planned starts, but acts start as soon as they can.
TEST(Rhythm, SolvedCountsAreAsFastAsTheScheduleThoughNobodyWaitsForPlannedStarts) {
  struct Case {
    std::string mesh;
    int layers;
    std::vector<int> cuts;
  };
  const std::vector<Case> cases = {
      {"pp=4", 9, {2, 7, 8}}, {"pp=6", 13, {2, 4, 7, 10, 11}}, {"pp=7", 14, {2, 3, 5, 8, 11, 12}}};
  for (const Case& entry : cases) {
    SCOPED_TRACE(entry.mesh);
    proto::Job job = SmallGptJob(entry.mesh, entry.layers, 16);
    for (int cut : entry.cuts) job.mutable_pipeline()->add_cut(absl::StrCat("layers.", cut));
    const int64_t schedule = VirtualStepNs(job);
    job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
    EXPECT_LE(static_cast<double>(VirtualStepNs(job)), 1.03 * static_cast<double>(schedule));
  }
}

// A value of the first stage waits at the last stage until all stages between are done.
TEST(Rhythm, AValueThatSkipsStagesHoldsNobodyUp) {
  for (const char* mesh : {"pp=4", "pp=6", "pp=8"}) {
    SCOPED_TRACE(mesh);
    proto::Job job = SmallGptJob(mesh, 8, 16);
    const int64_t straight = VirtualStepNs(job);
    proto::Function* main = job.mutable_graph()->mutable_function(job.graph().function_size() - 1);
    ASSERT_EQ(main->name(), "main");
    for (proto::Node& node : *main->mutable_node()) {
      if (node.name() == "final_norm") node.set_input(0, "skipped");
    }
    proto::Node* skipped = main->add_node();
    skipped->set_name("skipped");
    skipped->set_op("add");
    skipped->add_input("encoded");
    skipped->add_input("positioned");
    int at = main->node_size() - 1;  // nodes stand in the order of use
    for (; main->node(at - 1).name() != "layers"; --at)
      main->mutable_node()->SwapElements(at, at - 1);
    EXPECT_LE(static_cast<double>(VirtualStepNs(job)), 1.05 * static_cast<double>(straight));
  }
}

TEST(Rhythm, AMemoryCapIsKeptAndCostsTime) {
  proto::Job job = SmallGptJob("pp=4", 8, 8);
  job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
  std::unique_ptr<compiler::LogicalPlan> free = Compile(job);
  ASSERT_NE(free, nullptr);
  absl::StatusOr<StationGraph> graph = BuildStationGraph(*free, PeakCosts());
  ASSERT_TRUE(graph.ok()) << graph.status();
  absl::StatusOr<compiler::RegisterSolution> best = SolveStations(*free, *graph);
  ASSERT_TRUE(best.ok()) << best.status();
  auto fullest = [&](const IdVector<RegisterId, int64_t>& slots) {
    int64_t most = 0;
    for (const auto& [device, bytes] : RegisterBytes(graph->timed, slots))
      most = std::max(most, bytes);
    return most;
  };
  job.mutable_runtime()->set_register_bytes_max(fullest(best->slots) * 3 / 4);
  std::unique_ptr<compiler::LogicalPlan> capped = Compile(job);
  ASSERT_NE(capped, nullptr);
  EXPECT_GT(capped->rhythm.micro_batch_ns, free->rhythm.micro_batch_ns);
  absl::StatusOr<compiler::RegisterSolution> solved = SolveStations(*capped, *graph);
  ASSERT_TRUE(solved.ok()) << solved.status();
  EXPECT_LE(fullest(solved->slots), job.runtime().register_bytes_max());
}

TEST(Rhythm, ACapThatNothingFitsUnderIsRefused) {
  proto::Job job = SmallGptJob("pp=2", 4, 4);
  job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
  job.mutable_runtime()->set_register_bytes_max(1000);
  absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("W0495"), std::string::npos) << plan.status();
}

TEST(Rhythm, EveryChoiceOfRegistersGivesTheSameBits) {
  training::TrainRunOptions options;
  options.steps = 3;
  std::map<std::string, std::vector<float>> weights;
  for (int choice = proto::Runtime::Registers_MIN; choice <= proto::Runtime::Registers_MAX;
       ++choice) {
    SCOPED_TRACE(proto::Runtime::Registers_Name(static_cast<proto::Runtime::Registers>(choice)));
    proto::Job job = SmallGptJob("dp=2,pp=2", 4, 4);
    job.mutable_runtime()->set_registers(static_cast<proto::Runtime::Registers>(choice));
    absl::StatusOr<training::TrainRun> run = training::Train(job, options);
    ASSERT_TRUE(run.ok()) << run.status();
    if (weights.empty()) weights = run->weights;
    EXPECT_EQ(weights, run->weights);
  }
}

}  // namespace
}  // namespace weir::rhythm
