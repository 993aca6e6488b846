// Runs every case of every op of the catalogue that is differentiable or makes a mask, and its
// gradient function for random gradients of the outputs, and writes operands, results and gradients
// to one safetensors file:
//   CASE/input/I, CASE/output/O, CASE/output_grad/O, CASE/input_grad/I
// with a JSON line about each case in the header.
//
//   op_gradients OUT.safetensors
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "ops/testing/eager_gradient.h"
#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "tests/oracle/tensor_archive.h"

namespace weir::oracle {
namespace {

constexpr uint64_t kSeed = 11;

std::string Text(const char* text) { return text; }

// Returns longer cases than the shared ones, which are as small as finite differences need. These
// cases are longer than a vector register, a tile and a block of attention, and no multiple of any
// of them.
std::vector<ops::OpCase> LongCases() {
  std::vector<ops::OpCase> cases;
  for (const char* op : {"sigmoid", "tanh", "softplus", "erf", "exp", "sin", "cos"})
    cases.push_back({absl::StrCat(op, ", long"), op, {}, {"f32[a=17, b=61]"}});
  for (const char* op : {"relu", "gelu", "gelu_exact", "silu"}) {
    cases.push_back({absl::StrCat(op, ", long"), op, {}, {"f32[a=17, b=61]"}, {ops::Fill::kApart}});
    cases.push_back({absl::StrCat("matmul with ", op, ", long"),
                     "matmul",
                     {{"activation", Text(op)}},
                     {"f32[b=3, s=37, k=70]", "f32[k=70, n=131]", "f32[n=131]"}});
  }
  cases.push_back({"matmul, long",
                   "matmul",
                   {},
                   {"f32[b=3, s=37, k=130]", "f32[k=130, n=67]", "f32[n=67]"},
                   {},
                   1});
  cases.push_back({"matmul transposed, long",
                   "matmul",
                   {{"transpose_w", true}},
                   {"f32[b=45, k=130]", "f32[n=67, k=130]"},
                   {},
                   1});
  cases.push_back({"batched_matmul, long",
                   "batched_matmul",
                   {{"transpose_b", true}},
                   {"f32[b=3, h=2, m=45, k=130]", "f32[b=3, h=2, n=67, k=130]"}});
  cases.push_back({"layer_norm, long",
                   "layer_norm",
                   {},
                   {"f32[b=3, s=41, h=131]", "f32[h=131]", "f32[h=131]"}});
  cases.push_back({"rms_norm, long", "rms_norm", {}, {"f32[b=3, s=41, h=131]", "f32[h=131]"}});
  cases.push_back({"softmax, long", "softmax", {}, {"f32[b=23, n=301]"}});
  cases.push_back({"softmax_cross_entropy, long",
                   "softmax_cross_entropy",
                   {},
                   {"f32[b=3, s=29, v=301]", "i32[b=3, s=29]"},
                   {ops::Fill::kNormal, ops::Fill::kClasses}});
  cases.push_back(
      {"attention, long",
       "attention",
       {},
       {"f32[b=2, s=150, h=3, d=40]", "f32[b=2, s=150, h=3, d=40]", "f32[b=2, s=150, h=3, d=40]"}});
  cases.push_back({"attention of groups, long",
                   "attention",
                   {{"causal", false}},
                   {"f32[b=1, s=131, h=6/3, d=17]", "f32[b=1, s=131, g=2, d=17]",
                    "f32[b=1, s=131, g=2, d=17]"}});
  cases.push_back({"attention to other positions, long",
                   "attention",
                   {{"causal", false}},
                   {"f32[b=2, s=70, h=4/2, d=18]", "f32[b=2, t=131, g=2, d=18]",
                    "f32[b=2, t=131, g=2, d=18]"}});
  for (int64_t window : {1, 9, 70, 140}) {
    cases.push_back({absl::StrCat("attention in a window of ", window, ", long"),
                     "attention",
                     {{"window", window}},
                     {"f32[b=1, s=150, h=2, d=18]", "f32[b=1, s=150, h=2, d=18]",
                      "f32[b=1, s=150, h=2, d=18]"}});
  }
  for (const char* mask : {"bool[b=2, one=1, two=1, t=131]", "bool[b=2, h=4/2, s=70, t=131]",
                           "f32[one=1, h=4/2, s=70, t=131]"}) {
    cases.push_back({absl::StrCat("attention with ", mask, ", long"),
                     "attention",
                     {{"causal", false}},
                     {"f32[b=2, s=70, h=4/2, d=18]", "f32[b=2, t=131, g=2, d=18]",
                      "f32[b=2, t=131, g=2, d=18]", mask},
                     {ops::Fill::kNormal, ops::Fill::kNormal, ops::Fill::kNormal,
                      mask[0] == 'b' ? ops::Fill::kMask : ops::Fill::kNormal}});
  }
  cases.push_back({"attention with a causal bias, long",
                   "attention",
                   {{"window", int64_t{70}}},
                   {"f32[b=1, s=150, h=2, d=18]", "f32[b=1, s=150, h=2, d=18]",
                    "f32[b=1, s=150, h=2, d=18]", "f32[b=1, h=2, s=150, u=150]"}});
  cases.push_back({"softmax_cross_entropy of some, long",
                   "softmax_cross_entropy",
                   {{"ignore_index", std::vector<int64_t>{-100}}, {"label_smoothing", 0.1}},
                   {"f32[b=3, s=29, v=301]", "i32[b=3, s=29]"},
                   {ops::Fill::kNormal, ops::Fill::kMarked}});
  cases.push_back({"where of a column, long",
                   "where",
                   {},
                   {"bool[a=70, b=131]", "f32[a=70, one=1]", "f32[b=131]"},
                   {ops::Fill::kMask}});
  cases.push_back({"rotary, long", "rotary", {}, {"f32[b=2, s=150, h=3, d=34]"}});
  cases.push_back({"reduce_mean, long",
                   "reduce_mean",
                   {{"axes", std::vector<int64_t>{0, 2}}},
                   {"f32[a=37, b=9, c=70]"}});
  // The convolutions have more channels than a vector register holds, and images enough for several
  // pieces of the batch.
  const std::vector<int64_t> one{1}, two{2}, three{3};
  const Attributes halving = {{"stride", two}, {"padding", one}};
  cases.push_back({"conv, long",
                   "conv",
                   halving,
                   {"f32[b=6, k=19, s=23, t=20]", "f32[n=37, k=19, v=3, u=3]", "f32[n=37]"}});
  cases.push_back({"conv of points, long",
                   "conv",
                   {},
                   {"f32[b=6, k=35, s=17, t=18]", "f32[n=21, k=35, v=1, u=1]", "f32[n=21]"}});
  cases.push_back({"conv per channel, long",
                   "conv",
                   {{"padding", three}, {"groups", int64_t{35}}},
                   {"f32[b=6, k=35, s=17, t=18]", "f32[n=35, one=1, v=7, u=7]", "f32[n=35]"}});
  cases.push_back({"conv of many groups, long",
                   "conv",
                   {{"padding", one}, {"groups", int64_t{9}}},
                   {"f32[b=6, k=36, s=17, t=18]", "f32[n=18, k=4, v=3, u=3]", "f32[n=18]"}});
  cases.push_back({"conv over time, long",
                   "conv",
                   halving,
                   {"f32[b=6, k=19, s=101]", "f32[n=37, k=19, v=3]", "f32[n=37]"}});
  cases.push_back({"conv_transpose, long",
                   "conv_transpose",
                   {{"stride", two}},
                   {"f32[b=6, n=37, s=11, t=12]", "f32[n=37, k=19, v=2, u=2]", "f32[k=19]"}});
  cases.push_back({"max_pool, long",
                   "max_pool",
                   {{"kernel", three}, {"stride", two}, {"padding", one}},
                   {"f32[b=6, c=19, s=23, t=20]"}});
  cases.push_back({"average_pool, long",
                   "average_pool",
                   {{"kernel", three}, {"stride", two}, {"padding", one}},
                   {"f32[b=6, c=19, s=23, t=20]"}});
  cases.push_back(
      {"normalize, long",
       "normalize",
       {{"axes", std::vector<int64_t>{0, 2, 3}}},
       {"f32[b=6, c=19, s=23, t=27]", "f32[c=19]", "f32[c=19]", "f32[c=19]", "f32[c=19]"},
       {ops::Fill::kNormal, ops::Fill::kNormal, ops::Fill::kPositive}});
  cases.push_back(
      {"normalize of rows, long",
       "normalize",
       {{"axes", std::vector<int64_t>{0, 1}}},
       {"f32[b=6, s=23, c=621]", "f32[c=621]", "f32[c=621]", "f32[c=621]", "f32[c=621]"},
       {ops::Fill::kNormal, ops::Fill::kNormal, ops::Fill::kPositive}});
  cases.push_back({"reduce_variance, long",
                   "reduce_variance",
                   {{"axes", std::vector<int64_t>{0, 2, 3}}},
                   {"f32[b=6, c=19, s=23, t=27]", "f32[c=19]"}});
  const auto along = [](int64_t axis, const char* to = nullptr) {
    Attributes attrs = {{"axis", axis}};
    if (to != nullptr) attrs.Set("to", Text(to));
    return attrs;
  };
  const std::vector<ops::Fill> indexed = {ops::Fill::kNormal, ops::Fill::kIds};
  cases.push_back(
      {"take, long", "take", along(1), {"f32[a=9, v=8, c=131]", "i32[i=37, j=5]"}, indexed});
  cases.push_back({"gather, long",
                   "gather",
                   along(1),
                   {"f32[a=37, v=8, c=70]", "i32[a=37, i=21, c=70]"},
                   indexed});
  cases.push_back({"segment_sum, long",
                   "segment_sum",
                   along(1, "a=9, s=6, c=131"),
                   {"f32[a=9, i=151, c=131]", "i32[i=151]"},
                   indexed});
  cases.push_back({"segment_sum of rows, long",
                   "segment_sum",
                   along(0, "s=6, c=131"),
                   {"f32[i=301, c=131]", "i32[i=301]"},
                   indexed});
  cases.push_back({"scatter_add, long",
                   "scatter_add",
                   along(1, "a=70, s=8"),
                   {"f32[a=70, i=131]", "i32[a=70, i=131]"},
                   indexed});
  cases.push_back(
      {"top_k, long", "top_k", {{"axis", int64_t{1}}, {"k", int64_t{37}}}, {"f32[a=19, v=301]"}});
  cases.push_back({"argmax, long", "argmax", along(1), {"f32[a=19, v=301, c=3]"}});
  cases.push_back({"cumsum, long", "cumsum", along(1), {"f32[a=19, n=301, c=3]"}});
  cases.push_back({"add of a row, long", "add", {}, {"f32[a=70, b=131]", "f32[b=131]"}});
  cases.push_back({"mul of a row, long", "mul", {}, {"f32[a=70, b=131]", "f32[b=131]"}});
  cases.push_back({"div by a column, long",
                   "div",
                   {},
                   {"f32[a=70, b=131]", "f32[a=70, one=1]"},
                   {ops::Fill::kNormal, ops::Fill::kPositive}});
  return cases;
}

bool InF32(const ops::OpCase& op_case) {
  for (const std::string& input : op_case.inputs) {
    if (absl::StartsWith(input, "bf16") || absl::StartsWith(input, "f16")) return false;
  }
  return op_case.attrs.Str("to") != "bf16" && op_case.attrs.Str("to") != "f16";
}

// Returns whether output 0 of the case is a mask or are integers, which have no gradient.
bool IsWhole(const ops::OpCase& op_case) {
  const absl::StatusOr<ops::OpExample> example = ops::MakeExample(op_case, kSeed);
  return example.ok() && !IsReal(example->output_types[0].dtype);
}

std::vector<ops::OpCase> Cases() {
  std::vector<ops::OpCase> cases;
  for (const std::vector<ops::OpCase>& list : {ops::OpCases(), LongCases()}) {
    for (ops::OpCase op_case : list) {
      const ops::OpDef* def = ops::OpRegistry::Find(op_case.op);
      if (def == nullptr || def->schema.internal || !InF32(op_case)) continue;
      op_case.num_outputs = -1;
      if (!def->gradient && !IsWhole(op_case)) continue;
      cases.push_back(std::move(op_case));
    }
  }
  return cases;
}

void AddTensor(const std::string& name, const ops::HostTensor& tensor, TensorArchive* archive) {
  if (tensor.slice().dtype == DType::kI32) {
    std::vector<int32_t> values(tensor.size());
    for (int64_t i = 0; i < tensor.size(); ++i) values[i] = static_cast<int32_t>(tensor.Get(i));
    archive->Add(name, tensor.slice().shape, values);
  } else if (tensor.slice().dtype == DType::kBool) {
    std::vector<uint8_t> values(tensor.size());
    for (int64_t i = 0; i < tensor.size(); ++i) values[i] = tensor.Get(i) != 0;
    archive->Add(name, tensor.slice().shape, values);
  } else {
    std::vector<float> values(tensor.size());
    for (int64_t i = 0; i < tensor.size(); ++i) values[i] = static_cast<float>(tensor.Get(i));
    archive->Add(name, tensor.slice().shape, values);
  }
}

nlohmann::json AttributesJson(const Attributes& attrs) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : attrs.map()) {
    std::visit([&, key = name](const auto& v) { json[key] = v; }, value);
  }
  return json;
}

// Returns gradients of the differentiable outputs: the first output, and for matmul also the value
// before the activation, and for reduce_variance the unbiased variance.
std::map<int, ops::HostTensor> OutputGrads(const ops::OpExample& example) {
  std::map<int, ops::HostTensor> grads;
  const std::string& op = example.def->schema.name;
  for (int o = 0; o < (op == "matmul" || op == "reduce_variance" ? 2 : 1); ++o) {
    if (!IsReal(example.output_types[o].dtype)) continue;
    ops::HostTensor grad(example.output_types[o]);
    for (int64_t i = 0; i < grad.size(); ++i) grad.Set(i, NormalAt(MixKey(kSeed, 50 + o), i));
    grads.emplace(o, grad);
  }
  return grads;
}

absl::Status AddCase(const ops::OpCase& op_case, TensorArchive* archive) {
  WEIR_ASSIGN_OR_RETURN(ops::OpExample example, ops::MakeExample(op_case, kSeed));
  ops::KernelRun run{op_case.op, example.attrs, op_case.step, op_case.micro_batch, kSeed, 2};
  WEIR_RETURN_IF_ERROR(ops::RunKernel(run, example.inputs, &example.outputs));
  std::map<int, ops::HostTensor> output_grads = OutputGrads(example);
  const std::vector<bool> takes = ops::TakesGradient(example);
  ops::EagerGradient gradient(run, example, output_grads, takes);
  if (!output_grads.empty()) {
    WEIR_RETURN_IF_ERROR(example.def->gradient(gradient));
    WEIR_RETURN_IF_ERROR(gradient.status());
  }
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    AddTensor(absl::StrCat(op_case.name, "/input/", i), example.inputs[i], archive);
    if (!takes[i] || output_grads.empty()) continue;
    if (gradient.grads().count(i) == 0)
      return absl::InternalError(absl::StrCat("no gradient of input ", i));
    AddTensor(absl::StrCat(op_case.name, "/input_grad/", i),
              gradient.tensor(gradient.grads().at(i)), archive);
  }
  for (size_t o = 0; o < example.outputs.size(); ++o) {
    AddTensor(absl::StrCat(op_case.name, "/output/", o), example.outputs[o], archive);
  }
  for (const auto& [o, grad] : output_grads)
    AddTensor(absl::StrCat(op_case.name, "/output_grad/", o), grad, archive);
  nlohmann::json note = {{"op", op_case.op},
                         {"attrs", AttributesJson(example.attrs)},
                         {"inputs", example.inputs.size()},
                         {"outputs", example.outputs.size()}};
  archive->Note(op_case.name, note.dump());
  return absl::OkStatus();
}

absl::Status Main(const std::string& path) {
  TensorArchive archive;
  for (const ops::OpCase& op_case : Cases()) {
    absl::Status status = AddCase(op_case, &archive);
    if (!status.ok())
      return absl::Status(status.code(),
                          absl::StrCat("case ", op_case.name, ": ", status.message()));
  }
  return archive.Write(path);
}

}  // namespace
}  // namespace weir::oracle

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "op_gradients OUT.safetensors\n");
    return 2;
  }
  absl::Status status = weir::oracle::Main(argv[1]);
  if (status.ok()) return 0;
  fprintf(stderr, "op_gradients: %s\n", status.ToString().c_str());
  return 1;
}
