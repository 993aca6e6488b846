// A GPT of the zoo made ready to measure: compiled, lowered, and either run by a Session
// or its kernels called one after another in a plain loop, as a program without a
// runtime would.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/engine/program_binding.h"
#include "actors/session/session.h"
#include "runtime/device/host_memory.h"
#include "tools/zoo/gpt.h"

namespace weir::bench {

// The benches measure these models, unless a bench says otherwise.
zoo::TransformerOptions TinyGpt();    // so little work that the runtime is what is left
zoo::TransformerOptions SmallGpt();   // 8 layers, hidden 256
zoo::TransformerOptions MediumGpt();  // 6 layers, hidden 512

// Exits the program on an error, since a bench has nothing else to do.
std::vector<proto::RankPlan> PlansOf(const zoo::TransformerOptions& options,
                                     const std::string& mesh);

// Token numbers that cost nothing to make.
class CountingFeed final : public actors::DataFeed {
 public:
  explicit CountingFeed(int64_t vocab) : vocab_(vocab) {}
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override;

 private:
  const int64_t vocab_;
};

int64_t ActsPerStep(const actors::Plan& plan);
int64_t KernelCallsPerStep(const actors::Plan& plan);

// The kernels of one step of rank 0 of one, in an order that a step had, on memory of
// their own that starts as a session's.
class KernelLoop {
 public:
  struct Call {
    kernels::Kernel* kernel;
    const actors::PlanCall* plan;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    kernels::KernelArgs args;
    double ns = 0;  // thread time, summed by RunTimed
  };

  // `session` has run a step whose acts its trace still holds; it may go afterwards.
  KernelLoop(const actors::Session& session, actors::DataFeed* feed);
  KernelLoop(const KernelLoop&) = delete;
  KernelLoop& operator=(const KernelLoop&) = delete;

  void Run();
  // The same with a reading of the time around each call, for calls of microseconds and more.
  void RunTimed();
  std::vector<Call>& calls() { return calls_; }

 private:
  void AddAct(const actors::PlanActor& actor, int64_t micro_batch, int64_t chunk);
  char* Address(const actors::PlanActor& actor, const actors::PlanOperand& operand);

  const actors::Plan plan_;
  device::ThreadTeam team_;
  actors::KernelSet kernels_;
  device::HostMemory memory_;
  device::DeviceBlock arena_;
  device::DeviceBlock workspace_;
  std::vector<Call> calls_;
  int64_t step_ = 0;
};

}  // namespace weir::bench
