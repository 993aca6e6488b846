#include "tests/training/layouts.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tests/training/train_run.h"

namespace weir::training {

zoo::TransformerOptions SmallTransformer() {
  zoo::TransformerOptions options;
  options.layers = 4;
  options.hidden = 32;
  options.heads = 4;
  options.ffn = 64;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 12;
  options.training.micro_batches = 2;
  options.training.learning_rate = 3e-3;
  options.training.warmup_steps = 3;
  return options;
}

std::vector<Layout> LayoutMatrix() {
  std::vector<Layout> cases;
  for (const char* mesh : {"dp=2", "dp=3", "dp=4", "tp=2", "tp=4", "pp=2", "pp=4", "dp=2,tp=2",
                           "dp=2,pp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    cases.push_back({mesh, 0, zoo::SequenceParallel::kNone});
  }
  for (const char* mesh : {"dp=2", "dp=4", "dp=2,tp=2", "dp=2,pp=2"}) {
    for (int zero : {1, 2, 3}) cases.push_back({mesh, zero, zoo::SequenceParallel::kNone});
  }
  cases.push_back({"tp=2", 0, zoo::SequenceParallel::kMegatron});
  cases.push_back({"dp=2,tp=2", 3, zoo::SequenceParallel::kMegatron});
  cases.push_back({"sp=2", 0, zoo::SequenceParallel::kUlysses});
  cases.push_back({"sp=2,tp=2", 0, zoo::SequenceParallel::kUlysses});
  cases.push_back({"dp=2,sp=2,pp=2", 1, zoo::SequenceParallel::kUlysses});
  cases.push_back({"tp=3", 0, zoo::SequenceParallel::kNone});  // heads do not divide: 2, 1, 1
  return cases;
}

std::string NameOf(const Layout& layout) {
  return absl::StrCat(layout.mesh, layout.zero > 0 ? absl::StrCat(" zero ", layout.zero) : "",
                      layout.sequence == zoo::SequenceParallel::kMegatron  ? " megatron"
                      : layout.sequence == zoo::SequenceParallel::kUlysses ? " ulysses"
                                                                           : "");
}

absl::StatusOr<proto::Job> JobOn(const Layout& layout, MakeJob make,
                                 zoo::TransformerOptions options) {
  options.sequence_parallel = layout.sequence;
  WEIR_ASSIGN_OR_RETURN(proto::Job job, make(options));
  job.mutable_training()->set_zero_stage(layout.zero);
  return WithMesh(std::move(job), layout.mesh);
}

}  // namespace weir::training
