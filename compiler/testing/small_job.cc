#include "compiler/testing/small_job.h"

#include "absl/strings/substitute.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "sbp/mesh.h"

namespace weir::compiler {
namespace {

constexpr char kText[] = R"(
  name: "small"
  graph {
    dim { name: "batch" size: $0 } dim { name: "wide" size: 4 } dim { name: "deep" size: 8 }
    dim { name: "classes" size: 4 }
    function {
      name: "layer"
      input { name: "x" type: "f32[batch, wide]" }
      parameter { name: "w" type: "f32[wide, deep]" init { normal { std: 0.1 } } }
      parameter { name: "v" type: "f32[deep, wide]" init { normal { std: 0.1 } } }
      node { name: "h" op: "matmul" input: ["x", "w"] }
      node { name: "r" op: "relu" input: "h" }
      node { name: "m" op: "matmul" input: ["r", "v"] }
      node { name: "y" op: "add" input: ["x", "m"] }
      output: "y"
    }
    function {
      name: "main"
      input { name: "x" type: "f32[batch, wide]" }
      input { name: "labels" type: "i32[batch]" }
      parameter { name: "out" type: "f32[wide, classes]" init { normal { std: 0.1 } } }
      node { name: "layers" op: "call" function: "layer" repeat: $1 input: "x" output: "z" }
      node { name: "logits" op: "matmul" input: ["z", "out"] }
      node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
      node { name: "loss" op: "reduce_mean" input: "losses" }
      output: "loss"
    }
    main: "main"
  }
  rule { dim: "batch" axis: "dp" }
  rule { dim: "deep" axis: "tp" }
  data { synthetic {} }
  training {
    steps: 1 micro_batches: $2 optimizer { sgd {} } schedule { learning_rate: 0.1 }
  })";

}  // namespace

proto::Job SmallJob(const std::string& mesh, int layers, int micro_batches) {
  proto::Job job;
  const absl::StatusOr<sbp::Mesh> parsed = sbp::Mesh::Parse(mesh);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const int64_t samples = 2 * micro_batches * parsed->num_ranks();
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::Substitute(kText, samples, layers, micro_batches), &job));
  for (const sbp::MeshAxis& axis : parsed->axes()) {
    proto::MeshAxisSpec* spec = job.mutable_mesh()->add_axis();
    spec->set_name(axis.name);
    spec->set_size(axis.size);
  }
  return job;
}

}  // namespace weir::compiler
