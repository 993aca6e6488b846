// Measures how long a rank takes to check the proof of its plan before it runs.
//   tools/bench certificate
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/plan.h"
#include "tests/bench/bench_row.h"
#include "tests/bench/hop_plans.h"

namespace weir::bench {
namespace {

constexpr int kActors = 20000;  // also of the smoke run: a plan of this size must be sound
constexpr int kMicroBatches = 64;
constexpr double kBudgetMs = 50;

// Makes a chain, with a register from every actor of the first half to the actor that mirrors it,
// as for values that forward keeps for backward. All actors act in turn.
proto::RankPlan MirroredChain(int actors) {
  proto::RankPlan plan = ChainPlan(actors, 1, kMicroBatches);
  // The registers of 20,000 actors have 10 million slots, of the 16 million that a plan may have.
  const int64_t time = 10, stride = 100;
  for (int i = 0; i < actors; ++i) {
    proto::Timing* timing = plan.mutable_actor(i)->mutable_timing();
    timing->set_start_ns(i * time);
    timing->set_micro_batch_stride_ns(stride);
    timing->set_time_ns(time);
  }
  for (int i = 0; i < actors / 2; ++i) {
    const int mirror = actors - 1 - i;
    proto::RegisterSpec* r = plan.add_registers();
    r->set_id(plan.registers_size() - 1);
    r->set_name(absl::StrCat("kept ", i));
    r->set_slots(static_cast<int>((mirror - i + 1) * time / stride + 1));
    r->set_tokens_per_step(kMicroBatches);
    proto::OutputPort* out = plan.mutable_actor(i)->add_output();
    out->set_register_id(r->id());
    proto::InputPort* in = plan.mutable_actor(mirror)->add_input();
    in->set_register_id(r->id());
  }
  plan.mutable_certificate()->set_iteration_ns(actors * time + kMicroBatches * stride);
  return plan;
}

// Lists the same times act by act, so that no edge is even any more.
void ListStarts(proto::RankPlan* plan) {
  for (proto::ActorSpec& actor : *plan->mutable_actor()) {
    proto::Timing* timing = actor.mutable_timing();
    for (int k = 0; k < kMicroBatches; ++k)
      actor.add_act_start_ns(timing->start_ns() + k * timing->micro_batch_stride_ns());
  }
}

void Measure(const BenchArgs& args, const std::string& what, const proto::RankPlan& proto) {
  const actors::Plan plan = Must(actors::PlanFromProto(proto));
  std::vector<double> ms;
  for (int i = 0; i < args.Repeats(15); ++i) {
    const double begin = ThreadCpuNs();
    Must(actors::CheckCertificate(plan));
    ms.push_back((ThreadCpuNs() - begin) * 1e-6);
  }
  PrintRow({what,
            "ms",
            ms,
            absl::StrCat("budget ", kBudgetMs, " ms"),
            {kBudgetMs},
            BenchRow::Better::kLower,
            1.0,
            absl::StrCat(plan.actors.size(), " actors, ", plan.registers.size(), " registers, ",
                         kMicroBatches, " micro-batches")});
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  weir::proto::RankPlan plan = weir::bench::MirroredChain(weir::bench::kActors);
  weir::bench::Measure(args, "check of a certificate, even", plan);
  weir::bench::ListStarts(&plan);
  weir::bench::Measure(args, "check of a certificate, every act its own time", plan);
}
