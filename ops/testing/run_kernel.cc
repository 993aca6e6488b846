#include "ops/testing/run_kernel.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::ops {

absl::Status RunKernel(const KernelRun& run, const std::vector<HostTensor>& inputs,
                       std::vector<HostTensor>* outputs) {
  kernels::KernelTrial trial;
  trial.device = run.device;
  trial.thread_order = run.thread_order;
  trial.launches = run.launches;
  trial.spec.op = run.op;
  trial.spec.attrs = run.attrs;
  trial.spec.transfer = run.transfer;
  trial.spec.num_threads = run.num_threads;
  trial.spec.micro_batches = run.micro_batch + 1;
  for (const HostTensor& input : inputs) trial.spec.inputs.push_back(input.slice());
  for (const HostTensor& output : *outputs) trial.spec.outputs.push_back(output.slice());

  std::vector<const void*> input_data;
  std::vector<void*> output_data;
  for (const HostTensor& input : inputs) input_data.push_back(input.data());
  for (HostTensor& output : *outputs) output_data.push_back(output.data());
  trial.args.inputs = input_data;
  trial.args.outputs = absl::MakeSpan(output_data);
  trial.args.step = run.step;
  trial.args.micro_batch = run.micro_batch;
  trial.args.span_act = run.micro_batch;
  trial.args.random_key = run.random_key;
  WEIR_RETURN_IF_ERROR(kernels::Run(trial));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].GuardIntact())
      return absl::InternalError(absl::StrCat(run.op, " writes beyond input ", i));
  }
  for (size_t i = 0; i < outputs->size(); ++i) {
    if (!(*outputs)[i].GuardIntact())
      return absl::InternalError(absl::StrCat(run.op, " writes beyond output ", i));
  }
  return absl::OkStatus();
}

}  // namespace weir::ops
