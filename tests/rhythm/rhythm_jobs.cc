#include "tests/rhythm/rhythm_jobs.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tools/job/job_file.h"
#include "tools/zoo/gpt.h"

namespace weir::rhythm {

proto::Job SmallGptJob(const std::string& mesh, int layers, int micro_batches, int zero_stage) {
  zoo::TransformerOptions options;
  options.layers = layers;
  options.hidden = 32;
  options.heads = 4;
  options.ffn = 64;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 12 * micro_batches;
  options.training.micro_batches = micro_batches;
  options.training.zero_stage = zero_stage;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return {};
  EXPECT_TRUE(job::SetMesh(mesh, &*job).ok()) << mesh;
  return *job;
}

std::vector<RhythmJob> JobsOfManyLayouts() {
  std::vector<RhythmJob> jobs;
  auto add = [&](const std::string& mesh, int zero, int micro_batches, int64_t chunk_bytes) {
    proto::Job job = SmallGptJob(mesh, 4, micro_batches, zero);
    job.mutable_runtime()->set_chunk_bytes_max(chunk_bytes);
    jobs.push_back({absl::StrCat("mesh ", mesh, ", ZeRO ", zero, ", ", micro_batches,
                                 " micro-batches, chunks of ", chunk_bytes),
                    job});
  };
  for (const char* mesh : {"", "dp=2", "dp=3", "tp=2", "tp=3", "pp=2", "pp=4", "dp=2,tp=2",
                           "dp=2,pp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2", "dp=3,tp=2,pp=2"}) {
    for (int zero : {0, 1, 2, 3}) add(mesh, zero, 2, 0);
  }
  for (const char* mesh : {"dp=2,tp=2,pp=2", "dp=3,tp=3", "pp=4"}) {
    for (int64_t chunk_bytes : {256, 1000}) add(mesh, 1, 3, chunk_bytes);
    add(mesh, 0, 1, 0);
    add(mesh, 3, 5, 512);
  }
  for (const char* mesh : {"dp=3,pp=2", "dp=3,tp=2"}) {
    for (int zero : {1, 3}) {
      add(mesh, zero, 2, 1000);
      proto::Training* training = jobs.back().job.mutable_training();
      training->set_update_every(3);
      training->set_gradient_delay(zero);
      training->set_precision(proto::Training::BF16);
      absl::StrAppend(&jobs.back().name, ", updates every 3 steps, gradients ", zero,
                      " updates old");
    }
  }
  return jobs;
}

}  // namespace weir::rhythm
