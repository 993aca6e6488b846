#include "ops/testing/run_kernel.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/status.h"

namespace weir::ops {

absl::Status RunKernel(const KernelRun& run, const std::vector<HostTensor>& inputs,
                       std::vector<HostTensor>* outputs) {
  kernels::KernelSpec spec;
  spec.op = run.op;
  spec.attrs = run.attrs;
  spec.transfer = run.transfer;
  spec.num_threads = run.num_threads;
  spec.micro_batches = run.micro_batch + 1;
  for (const HostTensor& input : inputs) spec.inputs.push_back(input.slice());
  for (const HostTensor& output : *outputs) spec.outputs.push_back(output.slice());
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Kernel> kernel,
                        kernels::KernelRegistry::Create("cpu", spec));

  std::vector<const void*> input_data;
  std::vector<void*> output_data;
  for (const HostTensor& input : inputs) input_data.push_back(input.data());
  for (HostTensor& output : *outputs) output_data.push_back(output.data());
  // Workspace with a guard of its own; its contents are undefined, here 0xff.
  HostTensor workspace(TensorSlice::Whole(DType::kF32, {(kernel->workspace_bytes() + 3) / 4}));
  device::ThreadTeam team(run.num_threads);
  kernels::KernelArgs args;
  args.inputs = input_data;
  args.outputs = absl::MakeSpan(output_data);
  args.step = run.step;
  args.micro_batch = run.micro_batch;
  args.span_act = run.micro_batch;
  args.random_key = run.random_key;
  WEIR_RETURN_IF_ERROR(kernel->Run(args, {&team, workspace.data()}));
  if (!workspace.GuardIntact())
    return absl::InternalError(absl::StrCat(run.op, " writes beyond its workspace"));
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
