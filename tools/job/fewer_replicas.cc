#include "tools/job/fewer_replicas.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir::job {
namespace {

int ReplicaAxis(const proto::Job& job) {
  for (int axis = 0; axis < job.mesh().axis_size(); ++axis) {
    if (job.mesh().axis(axis).name() == kReplicaAxis) return axis;
  }
  return -1;
}

}  // namespace

bool HasReplicas(const proto::Job& job) {
  const int axis = ReplicaAxis(job);
  return axis >= 0 && job.mesh().axis(axis).size() > 1;
}

std::optional<FewerReplicas> WithFewerReplicas(const proto::Job& job, int64_t devices,
                                               int64_t devices_min) {
  if (!HasReplicas(job)) return std::nullopt;
  const int axis = ReplicaAxis(job);
  const int64_t replicas = job.mesh().axis(axis).size();
  int64_t devices_each = 1;
  for (const proto::MeshAxisSpec& of_mesh : job.mesh().axis()) devices_each *= of_mesh.size();
  devices_each /= replicas;
  int64_t fewer = std::min(devices / devices_each, replicas - 1);
  while (fewer > 0 && replicas % fewer != 0) --fewer;
  if (fewer < 1 || fewer * devices_each < devices_min) return std::nullopt;
  const int64_t micro_batches = std::max<int64_t>(job.training().micro_batches(), 1);
  FewerReplicas smaller;
  smaller.job = job;
  smaller.job.mutable_mesh()->mutable_axis(axis)->set_size(fewer);
  smaller.job.mutable_training()->set_micro_batches(micro_batches * (replicas / fewer));
  smaller.devices = fewer * devices_each;
  return smaller;
}

std::string FewerReplicasText(const proto::Job& before, const proto::Job& smaller) {
  const auto replicas = [](const proto::Job& job) {
    const int axis = ReplicaAxis(job);
    return axis < 0 ? int64_t{1} : int64_t{job.mesh().axis(axis).size()};
  };
  return absl::StrCat(kReplicaAxis, "=", replicas(smaller), " instead of ", kReplicaAxis, "=",
                      replicas(before), ", and ", smaller.training().micro_batches(),
                      " micro-batches instead of ",
                      std::max<int64_t>(before.training().micro_batches(), 1));
}

}  // namespace weir::job
