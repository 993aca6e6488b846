// The logical plan of a job: all that the compiler decides once for all ranks. The plan does not
// grow with the number of ranks.
// Thread rule: immutable once CompileJob (compiler/compile.h) has made it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/job_rhythm.h"
#include "compiler/ir/job_settings.h"
#include "compiler/ir/pipeline_schedule.h"
#include "compiler/ir/stage_shape.h"
#include "runtime/base/product.h"
#include "runtime/base/update_rate.h"
#include "sbp/places.h"

namespace weir::proto {
class Job;
}

namespace weir::compiler {

enum class PlanMode : uint8_t {
  kTrain,  // forward, backward, update
  // Forward. Scalar outputs of the model are metrics. The outputs of a model without a loss stay in
  // fetched states, "fetch/<output>".
  kEvaluate,
  kGenerate,  // forward up to the logits, which stay in a fetched state
};

struct PassTiming {
  std::string name;
  double microseconds = 0;
  int nodes = 0;  // in the module after the pass
};

struct LogicalPlan {
  // The job as the user wrote it, for the folders above the compiler, which report on the job or
  // vary it. The passes read `settings`.
  std::shared_ptr<const proto::Job> job;
  JobSettings settings;
  PlanMode mode = PlanMode::kTrain;
  // The axes of the job. If stages have unequal meshes, an axis has its largest size, and the
  // number of devices is that of the places alone.
  sbp::Mesh mesh;
  std::string mesh_text;  // for people, with the meshes of stages
  sbp::Places places;     // where the stages are: stage s is place s
  // The axes of the places' meshes, with the largest size that an axis has on any stage: the mesh
  // of every place, unless the job gives stages meshes of their own. A function is laid out once
  // for all stages of one mesh.
  sbp::Mesh stage_mesh;
  int64_t micro_batches = 1;
  UpdateRate updates;  // kTrain
  int64_t chunk_bytes_max = 1 << 20;
  PipelineSchedule schedule;
  // The bubble of a training step by the costs that the plan was made with. 0 with one stage.
  double predicted_bubble = 0;
  std::string plan_id;  // hash of the compiled job
  Module module;
  std::vector<StageShape> stages;  // the combined work of the ranks of each stage
  JobRhythm rhythm;                // when every station acts
  std::vector<PassTiming> timings;
  ProductChoices products;  // the ways in which a CPU computes products (runtime.product)
};

// Returns how often something of frequency `rate` happens in Training::update_every steps.
int64_t TimesPerUpdate(const LogicalPlan& plan, Frequency frequency);

}  // namespace weir::compiler
