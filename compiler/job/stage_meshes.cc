#include "compiler/job/stage_meshes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

using StageMesh = proto::Pipeline::StageMesh;

// A stage has at least one device.
constexpr int64_t kStagesMax = 16384;

std::string Where(const StageMesh& entry) {
  return absl::StrCat("pipeline.stage_mesh of stage ", absl::StrJoin(entry.stage(), ", "));
}

sbp::Mesh WithoutPipeline(const sbp::Mesh& mesh) {
  std::vector<sbp::MeshAxis> axes;
  for (const sbp::MeshAxis& axis : mesh.axes()) {
    if (axis.name != sbp::kPipelineAxis) axes.push_back(axis);
  }
  return sbp::Mesh(std::move(axes));
}

// Returns the mesh of an entry, with the axes of `axes` in their order.
absl::StatusOr<sbp::Mesh> MeshOf(const StageMesh& entry, const sbp::Mesh& axes) {
  const absl::StatusOr<sbp::Mesh> written = sbp::Mesh::Parse(entry.mesh());
  if (!written.ok()) return At(Where(entry), written.status());
  std::vector<sbp::MeshAxis> sizes = axes.axes();
  for (sbp::MeshAxis& axis : sizes) axis.size = 1;
  for (const sbp::MeshAxis& axis : written->axes()) {
    const int index = axes.AxisIndex(axis.name);
    if (index >= 0) {
      sizes[index].size = axis.size;
      continue;
    }
    std::vector<std::string> names;
    for (const sbp::MeshAxis& known : axes.axes()) names.push_back(known.name);
    const std::string near = Nearest(axis.name, names);
    return Rejected(
        {"W0497", Where(entry),
         names.empty() ? "no axis, as the mesh of the job has none but pp"
                       : absl::StrCat("axes of the mesh of the job: ", absl::StrJoin(names, ", ")),
         absl::StrCat("axis ", axis.name),
         axis.name == sbp::kPipelineAxis ? "the axes within a stage alone"
         : !near.empty()
             ? absl::StrCat("axis ", near)
             : absl::StrCat("an axis ", axis.name, " of size 1 in the mesh of the job")});
  }
  return sbp::Mesh(std::move(sizes));
}

int64_t Clamped(int64_t count, int64_t size, int64_t most) {
  return size < 1 || count > most / size ? most : count * size;
}

}  // namespace

bool HasStageMeshes(const proto::Job& job) {
  return job.pipeline().stage_mesh_size() > 0 &&
         std::any_of(job.mesh().axis().begin(), job.mesh().axis().end(),
                     [](const proto::MeshAxisSpec& axis) {
                       return axis.name() == sbp::kPipelineAxis && axis.size() > 1;
                     });
}

absl::StatusOr<std::vector<sbp::Mesh>> ImportStageMeshes(const proto::Job& job,
                                                         const sbp::Mesh& mesh) {
  std::vector<sbp::Mesh> meshes;
  if (!HasStageMeshes(job)) return meshes;
  const int64_t stages = mesh.size(mesh.AxisIndex(sbp::kPipelineAxis));
  if (stages > kStagesMax) {
    return Rejected({"W0447", absl::StrCat("mesh ", mesh.ToText()),
                     absl::StrCat("at most ", kStagesMax, " stages"), absl::StrCat(stages),
                     "a smaller axis pp"});
  }
  const sbp::Mesh axes = WithoutPipeline(mesh);
  meshes.assign(static_cast<size_t>(stages), axes);
  std::vector<char> taken(static_cast<size_t>(stages), 0);
  for (const StageMesh& entry : job.pipeline().stage_mesh()) {
    if (entry.stage().empty()) {
      return Rejected({"W0497",
                       absl::StrCat("pipeline.stage_mesh with mesh \"", entry.mesh(), "\""),
                       "the stages that have this mesh", "none", "stage: 0"});
    }
    WEIR_ASSIGN_OR_RETURN(const sbp::Mesh of_entry, MeshOf(entry, axes));
    for (const int64_t stage : entry.stage()) {
      if (stage < 0 || stage >= stages) {
        return Rejected(
            {"W0497", Where(entry),
             absl::StrCat("stages from 0 to ", stages - 1, ", as the mesh has pp=", stages),
             absl::StrCat("stage ", stage), "a larger mesh axis pp, or another stage"});
      }
      if (taken[stage] != 0) {
        return Rejected({"W0497", Where(entry), "one mesh for a stage",
                         absl::StrCat("a second mesh for stage ", stage), "remove one of the two"});
      }
      taken[stage] = 1;
      meshes[stage] = of_entry;
    }
  }
  if (job.mesh().rank_order_size() > 0) {
    return Rejected(
        {"W0498", "mesh.rank_order",
         "ranks that are numbered stage after stage, as stages have meshes of their own "
         "(pipeline.stage_mesh)",
         absl::StrJoin(job.mesh().rank_order(), ","), "remove mesh.rank_order and --place"});
  }
  return meshes;
}

sbp::Mesh WrittenMesh(const proto::Job& job) {
  std::vector<sbp::MeshAxis> axes;
  for (const proto::MeshAxisSpec& axis : job.mesh().axis())
    axes.push_back({axis.name(), axis.size()});
  return sbp::Mesh(std::move(axes));
}

namespace {

// Returns the meshes of ImportStageMeshes, or none if the compiler refuses them.
std::vector<sbp::Mesh> MeshesOfStages(const proto::Job& job, const sbp::Mesh& mesh) {
  if (!HasStageMeshes(job) || !mesh.Validate().ok()) return {};
  return ImportStageMeshes(job, mesh).value_or(std::vector<sbp::Mesh>());
}

// Raises the sizes of the axes to those of the mesh.
void Raise(const sbp::Mesh& mesh, std::vector<sbp::MeshAxis>* axes) {
  for (size_t axis = 0; axis < axes->size(); ++axis)
    (*axes)[axis].size = std::max((*axes)[axis].size, mesh.size(static_cast<int>(axis)));
}

// Returns the pipeline axis of `mesh` with these axes of its stages.
sbp::Mesh WithPipelineOf(const sbp::Mesh& mesh, std::vector<sbp::MeshAxis> axes) {
  axes.insert(axes.begin(), mesh.axes()[mesh.AxisIndex(sbp::kPipelineAxis)]);
  return sbp::Mesh(std::move(axes));
}

}  // namespace

sbp::Mesh LargestMesh(const sbp::Places& places) {
  std::vector<sbp::MeshAxis> axes = places.mesh(0).axes();
  for (int64_t place = 1; place < places.size(); ++place) Raise(places.mesh(place), &axes);
  return sbp::Mesh(std::move(axes));
}

sbp::Mesh MeshOfStages(const sbp::Mesh& mesh, const sbp::Places& places) {
  return WithPipelineOf(mesh, LargestMesh(places).axes());
}

sbp::Mesh LargestMeshOf(const proto::Job& job) {
  const sbp::Mesh mesh = WrittenMesh(job);
  const std::vector<sbp::Mesh> meshes = MeshesOfStages(job, mesh);
  if (meshes.empty()) return mesh;
  std::vector<sbp::MeshAxis> axes = meshes[0].axes();
  for (const sbp::Mesh& of_stage : meshes) Raise(of_stage, &axes);
  return WithPipelineOf(mesh, std::move(axes));
}

int64_t NumDevices(const proto::Job& job, int64_t most) {
  const sbp::Mesh mesh = WrittenMesh(job);
  int64_t devices = 1;
  for (const sbp::MeshAxis& axis : mesh.axes()) devices = Clamped(devices, axis.size, most);
  const std::vector<sbp::Mesh> meshes = MeshesOfStages(job, mesh);
  if (meshes.empty()) return devices;
  devices = 0;
  for (const sbp::Mesh& of_stage : meshes) devices = std::min(most, devices + of_stage.num_ranks());
  return devices;
}

std::string MeshText(const sbp::Mesh& mesh, const sbp::Places& places) {
  const sbp::Mesh of_job = WithoutPipeline(mesh);
  bool is_of_job = true;
  for (int64_t place = 0; place < places.size(); ++place)
    is_of_job = is_of_job && places.mesh(place) == of_job;
  if (is_of_job) return mesh.ToText();
  std::string text = absl::StrCat(sbp::kPipelineAxis, "=", places.size(), ":");
  for (int64_t first = 0; first < places.size();) {
    int64_t last = first;
    while (last + 1 < places.size() && places.mesh(last + 1) == places.mesh(first)) ++last;
    absl::StrAppend(&text, first == 0 ? " " : ", ", first == last ? "stage " : "stages ", first,
                    first == last ? "" : absl::StrCat(" to ", last), " ",
                    places.mesh(first).ToText());
    first = last + 1;
  }
  return text;
}

absl::Status CheckEqualStages(const proto::Job& job, const std::string& where,
                              const std::string& hint) {
  if (!HasStageMeshes(job)) return absl::OkStatus();
  return Rejected({"W0498", where, "stages that all have the mesh of the job",
                   "stages with meshes of their own (pipeline.stage_mesh)", hint});
}

}  // namespace weir::compiler
