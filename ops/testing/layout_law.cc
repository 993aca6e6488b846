#include "ops/testing/layout_law.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"

namespace weir::ops {
namespace {

// shards[rank][tensor]
using Shards = std::vector<std::vector<HostTensor>>;

Shards CutAll(const std::vector<HostTensor>& tensors, const std::vector<sbp::TensorType>& types,
              const std::vector<sbp::Layout>& layouts, const sbp::Mesh& mesh, uint64_t key) {
  Shards shards(mesh.num_ranks());
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<HostTensor> of_tensor = Cut(tensors[i], types[i], layouts[i], mesh, MixKey(key, i));
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) shards[rank].push_back(of_tensor[rank]);
  }
  return shards;
}

// Runs every rank alone on its shards.
absl::StatusOr<Shards> RunShards(const LawSubject& subject, const sbp::Signature& signature,
                                 const sbp::Mesh& mesh) {
  const OpExample& e = subject.example;
  Shards inputs = CutAll(e.inputs, e.input_types, signature.inputs, mesh, subject.run.random_key);
  bool in_place = subject.in_place;
  Shards outputs(mesh.num_ranks());
  if (in_place)
    outputs =
        CutAll(e.outputs, e.output_types, signature.outputs, mesh, subject.run.random_key + 1);
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    for (size_t i = 0; !in_place && i < e.outputs.size(); ++i) {
      outputs[rank].emplace_back(
          sbp::LocalSlice(e.output_types[i], signature.outputs[i], mesh, mesh.CoordsOf(rank)));
    }
    absl::Status status = RunKernel(subject.run, inputs[rank], &outputs[rank]);
    if (!status.ok())
      return absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
  }
  return outputs;
}

bool AnyPartial(const std::vector<sbp::Layout>& layouts) {
  for (const sbp::Layout& layout : layouts) {
    for (const sbp::Sbp& sbp : layout) {
      if (sbp.is_partial()) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<LawSubject> MakeLawSubject(std::string name, OpExample example, KernelRun run) {
  LawSubject subject;
  subject.name = std::move(name);
  subject.example = std::move(example);
  subject.run = std::move(run);
  const OpExample& e = subject.example;
  subject.rule = e.def->rule(e.attrs, e.input_types, e.output_types);
  subject.whole = e.outputs;
  absl::Status status = RunKernel(subject.run, e.inputs, &subject.whole);
  if (!status.ok()) return status;
  return subject;
}

std::vector<sbp::AxisSignature> UsableSignatures(const LawSubject& subject) {
  const OpExample& e = subject.example;
  std::vector<sbp::AxisSignature> usable;
  for (sbp::AxisSignature& signature : sbp::LegalSignatures(subject.rule)) {
    if (signature.factor >= 0 &&
        !sbp::UnitsAgree(subject.rule, signature.factor, e.input_types, e.output_types))
      continue;
    usable.push_back(std::move(signature));
  }
  return usable;
}

std::string LawViolation(const LawSubject& subject, const std::vector<sbp::AxisSignature>& per_axis,
                         const sbp::Mesh& mesh) {
  const OpExample& e = subject.example;
  std::string about = absl::StrCat(subject.name, " on ", mesh.ToText());
  for (const sbp::AxisSignature& signature : per_axis)
    absl::StrAppend(&about, "; ", signature.ToText());
  sbp::Signature signature = Join(per_axis);
  signature.inputs.resize(e.inputs.size(), sbp::Broadcast(mesh));
  auto outputs = RunShards(subject, signature, mesh);
  if (!outputs.ok()) return absl::StrCat(about, ": ", outputs.status().ToString());
  double tolerance = subject.tolerance;
  if (tolerance == 0 && AnyPartial(signature.inputs)) tolerance = 2e-5;
  for (size_t i = 0; i < e.outputs.size(); ++i) {
    std::vector<HostTensor> shards;
    for (auto& of_rank : *outputs) shards.push_back(of_rank[i]);
    auto merged = Merge(shards, e.output_types[i], signature.outputs[i], mesh);
    std::string difference = merged.ok() ? Difference(*merged, subject.whole[i], tolerance)
                                         : std::string(merged.status().message());
    if (!difference.empty()) return absl::StrCat(about, ", output ", i, ": ", difference);
  }
  return "";
}

}  // namespace weir::ops
