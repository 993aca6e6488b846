#include "tools/fleet/worker_outputs.h"

#include <string>
#include <utility>

#include "ops/kernels/cpu/processor_kernels.h"
#include "runtime/base/status.h"
#include "tools/fleet/worker_facts.h"
#include "tools/train/session_states.h"

namespace weir::fleet {

absl::Status OpenOutputs(const proto::OutputsCommand& command, train::JobSessionOptions session,
                         train::OutputRanks* ranks, proto::WorkerAnswer* answer) {
  // The plan depends on the job as it is written. The data lie where this host has them.
  const proto::Data* const data = command.open().has_data() ? &command.open().data() : nullptr;
  const store::DataUse use = command.in_order() ? store::DataUse::kInOrder : store::DataUse::kTrain;
  WEIR_RETURN_IF_ERROR(ranks->Open(command.open().job(), data, use, std::move(session)));
  const train::JobSession& opened = ranks->opened();
  answer->set_plan_id(opened.plan->plan_id);
  answer->set_processor(kernels::ProcessorKernels());
  answer->set_threads_per_device(opened.threads_per_device);
  for (const std::string& output : ranks->Held()) answer->add_held_output(output);
  AddInputFiles(command.open().input_file(), answer);
  AddStates(train::StatesOf(*opened.session, train::StateSet::kWeights), answer);
  return absl::OkStatus();
}

absl::Status DoOutputs(const proto::OutputsCommand& command, train::OutputRanks* ranks,
                       proto::WorkerAnswer* answer) {
  switch (command.act_case()) {
    case proto::OutputsCommand::kStep: return ranks->RunStep();
    case proto::OutputsCommand::kRead: {
      const proto::OutputsCommand::Read& read = command.read();
      if (read.name().empty()) return absl::OkStatus();
      WEIR_ASSIGN_OR_RETURN(*answer->mutable_output(),
                            ranks->Read(read.name(), read.begin(), read.bytes()));
      return absl::OkStatus();
    }
    default: return absl::UnimplementedError("a command of another version");
  }
}

}  // namespace weir::fleet
