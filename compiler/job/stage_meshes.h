// The meshes of the stages of a job: those of pipeline.stage_mesh, and elsewhere the mesh of the
// job without its pipeline axis. All of them have the same axes in the same order, and may differ
// in their sizes, so a layout has one entry for each axis on every stage. Rules and layouts say
// what happens along an axis; on a stage where the axis has one device they mean nothing. Thread
// rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "sbp/mesh.h"
#include "sbp/places.h"

namespace weir::compiler {

// Returns whether the job gives stages meshes of their own. False on a mesh of one stage, where the
// entries have no effect.
bool HasStageMeshes(const proto::Job& job);

// Returns the mesh of each stage; none: the job gives no stage a mesh of its own. `mesh` is that of
// the job, and valid. kInvalidArgument: W0497, or the code of a text that is no mesh, if an entry
// cannot be meant; W0498 if the job numbers its ranks in another order than stage after stage.
absl::StatusOr<std::vector<sbp::Mesh>> ImportStageMeshes(const proto::Job& job,
                                                         const sbp::Mesh& mesh);

// Returns the mesh of the job as it is written, which the compiler may refuse.
sbp::Mesh WrittenMesh(const proto::Job& job);

// Returns the mesh with the axes of all places, each with its largest size.
sbp::Mesh LargestMesh(const sbp::Places& places);

// Returns the mesh of the job if stages have meshes of their own: their number on the pipeline
// axis, and the axes of LargestMesh. If all stages have one mesh, this mesh says everything, as any
// mesh of a job does.
sbp::Mesh MeshOfStages(const sbp::Mesh& mesh, const sbp::Places& places);

// Returns the mesh of the job with the largest size that each axis has on some stage; the mesh as
// it is written, if stages have no meshes of their own or the compiler refuses them.
sbp::Mesh LargestMeshOf(const proto::Job& job);

// Returns the number of devices of the job, or `most` if there are more. The number of a job whose
// mesh the compiler refuses means nothing.
int64_t NumDevices(const proto::Job& job, int64_t most);

// Returns the mesh of a job for people: "pp=2,dp=2,tp=2"; if stages have meshes of their own,
// "pp=3: stage 0 dp=1,tp=1, stages 1 to 2 dp=2,tp=2".
std::string MeshText(const sbp::Mesh& mesh, const sbp::Places& places);

// kInvalidArgument (W0498) if stages have meshes of their own. `where` names what cannot be done
// with such stages, and `hint` says what to try.
absl::Status CheckEqualStages(const proto::Job& job, const std::string& where,
                              const std::string& hint);

}  // namespace weir::compiler
