// A residual multilayer perceptron that classifies images (Fashion-MNIST by default): relu into
// `hidden`, then blocks hidden -> ffn -> hidden, then classes. Reports accuracy. Thread rule: reads
// the file system to find the data's files; otherwise pure.
#pragma once

#include "absl/status/statusor.h"
#include "tools/zoo/zoo_options.h"

namespace weir::zoo {

struct MlpOptions {
  int64_t layers = 2;
  int64_t pixels = 784;
  int64_t hidden = 128;
  int64_t ffn = 0;  // 0: twice hidden
  int64_t classes = 10;
  TrainingOptions training;  // data: a folder with the four IDX files
};

// kInvalidArgument: a flag makes no sense, and the error names the flag. kNotFound: a file is not
// in the folder, and the error names the file.
absl::StatusOr<proto::Job> MlpJob(const MlpOptions& options);

}  // namespace weir::zoo
