#include "tools/zoo/llama.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/zoo/function_writer.h"

namespace weir::zoo {
namespace {

constexpr double kStd = 0.02;

std::string Norm(FunctionWriter& f, const std::string& name, const std::string& input) {
  return f.Node(name, "rms_norm", {input, f.Ones(name + "_gamma", "f32[hidden]")});
}

std::string Rotated(FunctionWriter& f, const std::string& input) {
  return f.Node(input + "_rotated", "rotary", {input}, {{"base", 10000.0}});
}

void WriteBlock(double residual_std, bool grouped, proto::Function* function) {
  FunctionWriter f(function, "block");
  f.Input("x", "f32[batch, sequence, hidden]");
  std::string norm = Norm(f, "attention_norm", "x");
  std::string kv = grouped ? "kv_heads" : "heads",
              kv_count = grouped ? "kv_head_count" : "head_count";
  auto heads = [&](const std::string& name, const std::string& dim, const std::string& count) {
    f.Node(name, "matmul",
           {norm, f.Normal("w" + name, absl::StrCat("f32[hidden, ", dim, "]"), kStd)});
    return f.Node(name + "_heads", "reshape", {name},
                  {{"to", absl::StrCat("batch, sequence, ", count, ", head_dim")}});
  };
  std::string q = Rotated(f, heads("q", "heads", "head_count"));
  std::string k = Rotated(f, heads("k", kv, kv_count));
  std::string v = heads("v", kv, kv_count);
  f.Node("attended", "attention", {q, k, v}, {{"causal", true}});
  f.Node("joined", "reshape", {"attended"}, {{"to", std::string("batch, sequence, heads")}});
  f.Node("projected", "matmul", {"joined", f.Normal("wo", "f32[heads, hidden]", residual_std)});
  f.Node("attention_residual", "add", {"x", "projected"});
  norm = Norm(f, "ffn_norm", "attention_residual");
  f.Node("gate", "matmul", {norm, f.Normal("w_gate", "f32[hidden, ffn]", kStd)},
         {{"activation", std::string("silu")}});
  f.Node("up", "matmul", {norm, f.Normal("w_up", "f32[hidden, ffn]", kStd)});
  f.Node("gated", "mul", {"gate", "up"});
  f.Node("down", "matmul", {"gated", f.Normal("w_down", "f32[ffn, hidden]", residual_std)});
  f.Output(f.Node("y", "add", {"attention_residual", "down"}));
}

void WriteMain(const TransformerOptions& options, proto::Function* function) {
  FunctionWriter f(function, "main");
  f.Input("tokens", "i32[batch, sequence]");
  f.Input("targets", "i32[batch, sequence]");
  f.Node("embedded", "embedding", {f.Normal("token_table", "f32[vocab, hidden]", kStd), "tokens"});
  f.Call("layers", "block", "embedded", "encoded", options.layers);
  std::string norm = Norm(f, "final_norm", "encoded");
  WriteLogits(f, norm, options.tied_embeddings, kStd);
  f.Node("token_loss", "softmax_cross_entropy", {"logits", "targets"});
  f.Output(f.Node("loss", "reduce_mean", {"token_loss"}));
}

}  // namespace

absl::StatusOr<proto::Job> LlamaJob(const TransformerOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckTransformer(options));
  int64_t kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
  int64_t head_dim = options.hidden / options.heads;
  if (options.heads % kv_heads != 0) {
    return Rejected({"W0061", "--kv-heads", absl::StrCat("a divisor of --heads ", options.heads),
                     absl::StrCat(kv_heads), ""});
  }
  if (head_dim % 2 != 0) {
    return Rejected({"W0061", "--hidden",
                     "an even number of elements per head (rotary positions turn pairs)",
                     absl::StrCat(head_dim, " elements"),
                     absl::StrCat("--hidden ", (head_dim + 1) * options.heads)});
  }
  proto::Job job;
  job.set_name("llama");
  proto::Graph* graph = job.mutable_graph();
  graph->set_name("llama");
  int64_t per_group = options.heads / kv_heads;
  bool grouped = per_group > 1;
  AddDim(graph, "batch", options.training.batch);
  AddDim(graph, "sequence", options.sequence);
  AddDim(graph, "hidden", options.hidden);
  // The query heads of one key head stay together.
  AddDim(graph, "heads", options.hidden, per_group * head_dim);
  AddDim(graph, "head_count", options.heads, per_group);
  AddDim(graph, "head_dim", head_dim);
  if (grouped) {
    AddDim(graph, "kv_heads", kv_heads * head_dim, head_dim);
    AddDim(graph, "kv_head_count", kv_heads);
  }
  AddDim(graph, "ffn", options.ffn > 0 ? options.ffn : (options.hidden * 8 / 3 + 31) / 32 * 32);
  AddDim(graph, "vocab", options.vocab);
  double residual_std = kStd / std::sqrt(2.0 * static_cast<double>(options.layers));
  WriteBlock(residual_std, grouped, graph->add_function());
  WriteMain(options, graph->add_function());
  graph->set_main("main");
  AddTransformerRules(options.sequence_parallel, grouped, &job);
  WriteTextData(options.training, &job);
  WEIR_RETURN_IF_ERROR(WriteTraining(options.training, &job));
  return job;
}

}  // namespace weir::zoo
