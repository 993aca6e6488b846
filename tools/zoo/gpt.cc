#include "tools/zoo/gpt.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/zoo/function_writer.h"

namespace weir::zoo {
namespace {

constexpr double kStd = 0.02;

class GptWriter {
 public:
  explicit GptWriter(const TransformerOptions& options)
      : options_(options),
        residual_std_(kStd / std::sqrt(2.0 * static_cast<double>(options.layers))) {}

  void WriteBlock(proto::Function* function) {
    FunctionWriter f(function, "block");
    f.Input("x", "f32[batch, sequence, hidden]");
    std::string norm = Norm(f, "attention_norm", "x");
    std::string q = Heads(f, "q", norm), k = Heads(f, "k", norm), v = Heads(f, "v", norm);
    f.Node("attended", "attention", {q, k, v}, {{"causal", true}});
    f.Node("joined", "reshape", {"attended"}, {{"to", std::string("batch, sequence, heads")}});
    f.Normal("wo", "f32[heads, hidden]", residual_std_);
    f.Zeros("bo", "f32[hidden]");
    f.Node("projected", "matmul", {"joined", "wo", "bo"});
    f.Node("attention_residual", "add", {"x", Dropped(f, "projected")});
    norm = Norm(f, "ffn_norm", "attention_residual");
    f.Normal("w_up", "f32[hidden, ffn]", kStd);
    f.Zeros("b_up", "f32[ffn]");
    f.Node("up", "matmul", {norm, "w_up", "b_up"}, {{"activation", std::string("gelu")}});
    f.Normal("w_down", "f32[ffn, hidden]", residual_std_);
    f.Zeros("b_down", "f32[hidden]");
    f.Node("down", "matmul", {"up", "w_down", "b_down"});
    f.Output(f.Node("y", "add", {"attention_residual", Dropped(f, "down")}));
  }

  void WriteMain(proto::Function* function) {
    FunctionWriter f(function, "main");
    f.Input("tokens", "i32[batch, sequence]");
    f.Input("targets", "i32[batch, sequence]");
    f.Normal("token_table", "f32[vocab, hidden]", kStd);
    f.Normal("position_table", "f32[sequence, hidden]", kStd);
    f.Node("embedded", "embedding", {"token_table", "tokens"});
    f.Node("positioned", "add", {"embedded", "position_table"});
    f.Call("layers", "block", Dropped(f, "positioned"), "encoded", options_.layers);
    std::string norm = Norm(f, "final_norm", "encoded");
    WriteLogits(f, norm, options_.tied_embeddings, kStd);
    f.Node("token_loss", "softmax_cross_entropy", {"logits", "targets"});
    f.Output(f.Node("loss", "reduce_mean", {"token_loss"}));
  }

 private:
  std::string Norm(FunctionWriter& f, const std::string& name, const std::string& input) {
    std::string gamma = f.Ones(name + "_gamma", "f32[hidden]"),
                beta = f.Zeros(name + "_beta", "f32[hidden]");
    return f.Node(name, "layer_norm", {input, gamma, beta});
  }

  // Adds q, k or v: a matmul, and then the result cut into heads.
  std::string Heads(FunctionWriter& f, const std::string& name, const std::string& input) {
    std::string w = f.Normal("w" + name, "f32[hidden, heads]", kStd),
                b = f.Zeros("b" + name, "f32[heads]");
    f.Node(name, "matmul", {input, w, b});
    return f.Node(name + "_heads", "reshape", {name},
                  {{"to", std::string("batch, sequence, head_count, head_dim")}});
  }

  std::string Dropped(FunctionWriter& f, const std::string& input) {
    if (options_.dropout <= 0) return input;
    return f.Node(input + "_dropped", "dropout", {input}, {{"rate", options_.dropout}});
  }

  const TransformerOptions& options_;
  double residual_std_;
};

}  // namespace

absl::StatusOr<proto::Job> GptJob(const TransformerOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckTransformer(options));
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    return Rejected(
        {"W0061", "--dropout", "a rate from 0 to below 1", absl::StrCat(options.dropout), ""});
  }
  proto::Job job;
  job.set_name("gpt");
  proto::Graph* graph = job.mutable_graph();
  graph->set_name("gpt");
  int64_t head_dim = options.hidden / options.heads;
  AddDim(graph, "batch", options.training.batch);
  AddDim(graph, "sequence", options.sequence);
  AddDim(graph, "hidden", options.hidden);
  AddDim(graph, "heads", options.hidden, head_dim);
  AddDim(graph, "head_count", options.heads);
  AddDim(graph, "head_dim", head_dim);
  AddDim(graph, "ffn", options.ffn > 0 ? options.ffn : 4 * options.hidden);
  AddDim(graph, "vocab", options.vocab);
  GptWriter writer(options);
  writer.WriteBlock(graph->add_function());
  writer.WriteMain(graph->add_function());
  graph->set_main("main");
  AddTransformerRules(options.sequence_parallel, /*grouped_heads=*/false, &job);
  WriteTextData(options.training, &job);
  WEIR_RETURN_IF_ERROR(WriteTraining(options.training, &job));
  return job;
}

}  // namespace weir::zoo
