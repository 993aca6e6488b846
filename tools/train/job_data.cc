#include "tools/train/job_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/store/idx_dataset.h"
#include "runtime/store/synthetic_dataset.h"
#include "runtime/store/text_dataset.h"

namespace weir {
namespace {

std::vector<std::string> InputsOfMain(const Job& job) {
  std::vector<std::string> names;
  for (const Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const TensorDecl& input : function.input()) names.push_back(input.name());
  }
  return names;
}

bool ReadsTokens(const Job& job) {
  std::vector<std::string> inputs = InputsOfMain(job);
  return std::find(inputs.begin(), inputs.end(), "tokens") != inputs.end();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const Job& job) {
  TextDataOptions options;
  options.path = job.data().text().path();
  options.held_out = job.data().text().held_out();
  options.batch = DimSize(job, BatchDim(job), 1);
  options.sequence = DimSize(job, "sequence", 0);
  options.vocabulary = DimSize(job, "vocab", 256);
  options.seed = job.training().seed();
  if (options.sequence == 0) {
    return Rejected({"W0050", "graph", "a dimension called sequence, the length of a window of text", "none",
                     "dim { name: \"sequence\" size: 128 }"});
  }
  return OpenTextDataset(options);
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const Job& job) {
  IdxDataOptions options;
  options.images = job.data().idx().images();
  options.labels = job.data().idx().labels();
  options.test_images = job.data().idx().test_images();
  options.test_labels = job.data().idx().test_labels();
  options.batch = DimSize(job, BatchDim(job), 1);
  options.classes = DimSize(job, "classes", 256);
  options.seed = job.training().seed();
  return OpenIdxDataset(options);
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenByKind(const Job& job) {
  switch (job.data().kind_case()) {
    case Data::kText: return OpenText(job);
    case Data::kIdx: return OpenIdx(job);
    case Data::kSynthetic: {
      SyntheticDataOptions options;
      options.feeds = InputsOfMain(job);
      options.vocabulary = DimSize(job, "vocab", 256);
      options.classes = DimSize(job, "classes", 10);
      options.seed = job.training().seed();
      return MakeSyntheticDataset(options);
    }
    case Data::KIND_NOT_SET: break;
  }
  return Rejected({"W0050", "data", "one of text, idx, synthetic", "nothing", "data { synthetic {} }"});
}

}  // namespace

int64_t DimSize(const Job& job, const std::string& name, int64_t fallback) {
  for (const Dim& dim : job.graph().dim()) {
    if (dim.name() == name) return dim.size();
  }
  return fallback;
}

std::string BatchDim(const Job& job) {
  return job.training().batch_dim().empty() ? "batch" : job.training().batch_dim();
}

int64_t MicroBatches(const Job& job) { return std::max<int64_t>(1, job.training().micro_batches()); }

int64_t ItemsPerStep(const Job& job) {
  int64_t batch = DimSize(job, BatchDim(job), 1);
  return ReadsTokens(job) ? batch * DimSize(job, "sequence", 1) : batch;
}

const char* ItemName(const Job& job) { return ReadsTokens(job) ? "tokens" : "samples"; }

absl::StatusOr<std::unique_ptr<Dataset>> OpenJobData(const Job& job) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, OpenByKind(job));
  std::vector<std::string> feeds = dataset->feeds();
  for (const std::string& input : InputsOfMain(job)) {
    if (std::find(feeds.begin(), feeds.end(), input) == feeds.end()) return UnknownFeed(input, feeds);
  }
  return dataset;
}

absl::Status DatasetFeed::Fill(const std::string& feed, int64_t step, int64_t micro_batch, const TensorSlice& slice,
                               void* out) {
  if (part_ == DataPart::kHeldOut && batches_ > 0) step %= batches_;
  return dataset_->Fill(feed, {part_, step, micro_batch, micro_batches_}, slice, out);
}

}  // namespace weir
