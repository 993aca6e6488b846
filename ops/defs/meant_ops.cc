#include "ops/defs/meant_ops.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/name_parts.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

// Returns the last part of "torch.nn.functional.layer_norm" as "layernorm".
std::string Plain(const std::string& name) {
  std::string plain;
  for (const char c : name.substr(name.rfind('.') + 1)) {
    if (c != '_') plain.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

}  // namespace

const std::map<std::string, std::vector<std::string>>& ForeignOps() {
  static const auto* const kTable = new std::map<std::string, std::vector<std::string>>{
      {"linear", {"matmul"}},
      {"dense", {"matmul"}},
      {"gemm", {"matmul"}},
      {"addmm", {"matmul"}},
      {"mm", {"matmul"}},
      {"dot", {"matmul"}},
      {"bmm", {"batched_matmul"}},
      {"embeddingbag", {"embedding", "reduce_sum"}},
      {"layernormalization", {"layer_norm"}},
      {"rmsnormalization", {"rms_norm"}},
      {"batchnorm", {"reduce_mean", "reduce_variance", "moving_average", "normalize"}},
      {"batchnorm1d", {"reduce_mean", "reduce_variance", "moving_average", "normalize"}},
      {"batchnorm2d", {"reduce_mean", "reduce_variance", "moving_average", "normalize"}},
      {"batchnorm3d", {"reduce_mean", "reduce_variance", "moving_average", "normalize"}},
      {"groupnorm", {"reshape", "reduce_mean", "reduce_variance", "normalize", "mul", "add"}},
      {"swish", {"silu"}},
      {"heaviside", {"step"}},
      {"pow", {"power"}},
      {"crossentropy", {"softmax_cross_entropy"}},
      {"crossentropyloss", {"softmax_cross_entropy"}},
      {"binarycrossentropywithlogits", {"softplus", "mul", "sub", "reduce_mean"}},
      {"bcewithlogitsloss", {"softplus", "mul", "sub", "reduce_mean"}},
      {"mse", {"sub", "square", "reduce_mean"}},
      {"mseloss", {"sub", "square", "reduce_mean"}},
      {"l1loss", {"sub", "abs", "reduce_mean"}},
      {"scaleddotproductattention", {"attention"}},
      {"flashattention", {"attention"}},
      {"sdpa", {"attention"}},
      {"rope", {"rotary"}},
      {"conv1d", {"conv"}},
      {"conv2d", {"conv"}},
      {"conv3d", {"conv"}},
      {"convolution", {"conv"}},
      {"convtranspose1d", {"conv_transpose"}},
      {"convtranspose2d", {"conv_transpose"}},
      {"convtranspose3d", {"conv_transpose"}},
      {"maxpool1d", {"max_pool"}},
      {"maxpool2d", {"max_pool"}},
      {"maxpool3d", {"max_pool"}},
      {"avgpool", {"average_pool"}},
      {"avgpool1d", {"average_pool"}},
      {"avgpool2d", {"average_pool"}},
      {"avgpool3d", {"average_pool"}},
      {"adaptiveavgpool2d", {"reduce_mean"}},
      {"globalaveragepool", {"reduce_mean"}},
      {"view", {"reshape"}},
      {"flatten", {"reshape"}},
      {"squeeze", {"reshape"}},
      {"unsqueeze", {"reshape"}},
      {"permute", {"transpose"}},
      {"swapaxes", {"transpose"}},
      {"cat", {"concat"}},
      {"concatenate", {"concat"}},
      {"narrow", {"slice"}},
      {"indexselect", {"take"}},
      {"indexadd", {"segment_sum", "add"}},
      {"maskedfill", {"logical_not", "where"}},
      {"argmin", {"argmax"}},
      {"sort", {"top_k"}},
      {"argsort", {"top_k"}},
      {"sum", {"reduce_sum"}},
      {"amax", {"reduce_max"}},
      {"var", {"reduce_variance"}},
      {"variance", {"reduce_variance"}},
      {"plus", {"add"}},
      {"minus", {"sub"}},
      {"multiply", {"mul"}},
      {"times", {"mul"}},
      {"divide", {"div"}},
      {"neg", {"scale"}},
      {"eq", {"equal"}},
      {"ne", {"not_equal"}},
      {"lt", {"less"}},
      {"le", {"less_equal"}},
      {"gt", {"greater"}},
      {"ge", {"greater_equal"}},
      {"type", {"cast"}},
      {"to", {"cast"}},
      {"float", {"cast"}},
  };
  return *kTable;
}

std::string MeantOps(const std::string& word, const std::vector<std::string>& names) {
  if (word.size() > kNearestWordMax) return "";
  const std::string plain = Plain(word);
  for (const std::string& name : names) {
    if (!plain.empty() && Plain(name) == plain) return name;
  }
  const auto foreign = ForeignOps().find(plain);
  if (foreign == ForeignOps().end()) return SuggestedNames(word, names);
  std::vector<std::string> ops = foreign->second;
  if (ops.size() == 1) return ops[0];
  const std::string last = ops.back();
  ops.pop_back();
  return absl::StrCat(absl::StrJoin(ops, ", "), " and ", last);
}

}  // namespace weir::ops
