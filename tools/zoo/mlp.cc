#include "tools/zoo/mlp.h"

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/zoo/function_writer.h"

namespace weir::zoo {
namespace {

double HeStd(int64_t fan_in) { return std::sqrt(2.0 / static_cast<double>(fan_in)); }

void WriteBlock(const MlpOptions& options, int64_t ffn, proto::Function* function) {
  FunctionWriter f(function, "block");
  f.Input("x", "f32[batch, hidden]");
  f.Normal("w_up", "f32[hidden, ffn]", HeStd(options.hidden));
  f.Zeros("b_up", "f32[ffn]");
  f.Node("up", "matmul", {"x", "w_up", "b_up"}, {{"activation", std::string("relu")}});
  f.Normal("w_down", "f32[ffn, hidden]",
           HeStd(ffn) / std::sqrt(2.0 * static_cast<double>(options.layers)));
  f.Zeros("b_down", "f32[hidden]");
  f.Node("down", "matmul", {"up", "w_down", "b_down"});
  f.Output(f.Node("y", "add", {"x", "down"}));
}

void WriteMain(const MlpOptions& options, proto::Function* function) {
  FunctionWriter f(function, "main");
  f.Input("images", "f32[batch, pixels]");
  f.Input("labels", "i32[batch]");
  f.Normal("w_in", "f32[pixels, hidden]", HeStd(options.pixels));
  f.Zeros("b_in", "f32[hidden]");
  f.Node("features", "matmul", {"images", "w_in", "b_in"}, {{"activation", std::string("relu")}});
  f.Call("layers", "block", "features", "encoded", options.layers);
  f.Normal("w_out", "f32[hidden, classes]", std::sqrt(1.0 / static_cast<double>(options.hidden)));
  f.Zeros("b_out", "f32[classes]");
  f.Node("logits", "matmul", {"encoded", "w_out", "b_out"});
  f.Node("image_loss", "softmax_cross_entropy", {"logits", "labels"});
  f.Output(f.Node("loss", "reduce_mean", {"image_loss"}));
  f.Node("hits", "accuracy", {"logits", "labels"});
  f.Output(f.Node("accuracy", "reduce_mean", {"hits"}));
}

// Returns the path of `stem` in `folder`, plain or compressed.
absl::StatusOr<std::string> FindIdx(const std::string& folder, const std::string& stem) {
  for (const char* ending : {"", ".gz"}) {
    std::filesystem::path path = std::filesystem::path(folder) / (stem + ending);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path.string();
  }
  return Missing({"W0062", "--data " + folder,
                  absl::StrCat(stem, " or ", stem, ".gz in the folder"), "neither",
                  "Fashion-MNIST is the Debian package dataset-fashion-mnist: "
                  "/usr/share/datasets/fashion-mnist"});
}

absl::Status WriteData(const std::string& folder, proto::Job* job) {
  if (folder.empty()) {
    job->mutable_data()->mutable_synthetic();
    return absl::OkStatus();
  }
  proto::Data::Idx* idx = job->mutable_data()->mutable_idx();
  WEIR_ASSIGN_OR_RETURN(*idx->mutable_images(), FindIdx(folder, "train-images-idx3-ubyte"));
  WEIR_ASSIGN_OR_RETURN(*idx->mutable_labels(), FindIdx(folder, "train-labels-idx1-ubyte"));
  WEIR_ASSIGN_OR_RETURN(*idx->mutable_test_images(), FindIdx(folder, "t10k-images-idx3-ubyte"));
  WEIR_ASSIGN_OR_RETURN(*idx->mutable_test_labels(), FindIdx(folder, "t10k-labels-idx1-ubyte"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<proto::Job> MlpJob(const MlpOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckPositive("layers", options.layers));
  WEIR_RETURN_IF_ERROR(CheckPositive("hidden", options.hidden));
  WEIR_RETURN_IF_ERROR(CheckPositive("classes", options.classes));
  proto::Job job;
  job.set_name("mlp");
  proto::Graph* graph = job.mutable_graph();
  graph->set_name("mlp");
  int64_t ffn = options.ffn > 0 ? options.ffn : 2 * options.hidden;
  AddDim(graph, "batch", options.training.batch);
  AddDim(graph, "pixels", options.pixels);
  AddDim(graph, "hidden", options.hidden);
  AddDim(graph, "ffn", ffn);
  AddDim(graph, "classes", options.classes);
  WriteBlock(options, ffn, graph->add_function());
  WriteMain(options, graph->add_function());
  graph->set_main("main");
  AddRule(&job, "batch", "dp");
  AddRule(&job, "ffn", "tp");
  WEIR_RETURN_IF_ERROR(WriteData(options.training.data, &job));
  WEIR_RETURN_IF_ERROR(WriteTraining(options.training, &job));
  return job;
}

}  // namespace weir::zoo
