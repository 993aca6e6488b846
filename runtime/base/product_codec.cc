#include "runtime/base/product_codec.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

// Twice this size is a number that Nearest can compare.
constexpr int64_t kSizeMax = int64_t{1} << 40;

}  // namespace

absl::StatusOr<ProductChoice> ProductChoiceOf(const proto::ProductWayChoice& choice,
                                              const std::string& where) {
  const auto rejected = [&where](const char* field, const std::string& expected,
                                 const std::string& found) {
    return Rejected({"W0843", absl::StrCat(where, field), expected, found,
                     "in a job, remove runtime.product: then the ways that `weir calibrate JOB "
                     "--keep` has measured count; remove a file that this command has written, and "
                     "it measures anew"});
  };
  const proto::ProductClass& of = choice.of();
  const std::optional<DType> operands = DTypeFromName(of.operands());
  if (!operands.has_value() || !IsReal(*operands))
    return rejected(".of.operands", "f32, bf16 or f16", absl::StrCat("\"", of.operands(), "\""));
  const std::optional<DType> result = of.result().empty() ? operands : DTypeFromName(of.result());
  if (!result.has_value() || !IsReal(*result))
    return rejected(".of.result", "f32, bf16 or f16", absl::StrCat("\"", of.result(), "\""));
  const auto [least, most] = std::minmax({of.m(), of.n(), of.k()});
  if (least <= 0 || most > kSizeMax)
    return rejected(".of", absl::StrCat("m, n and k from 1 to ", kSizeMax),
                    absl::StrCat("m ", of.m(), ", n ", of.n(), ", k ", of.k()));
  const std::optional<ProductWay> way = ProductWayFromName(choice.way());
  if (!way.has_value())
    return rejected(".way", ProductWayNames(), absl::StrCat("\"", choice.way(), "\""));
  return ProductChoice{
      {*operands, *result, of.m(), of.n(), of.k(), of.a_transposed(), of.b_transposed()},
      *way,
      choice.gain()};
}

absl::StatusOr<ProductChoices> ProductChoicesOf(
    const google::protobuf::RepeatedPtrField<proto::ProductWayChoice>& choices,
    const std::string& where) {
  std::vector<ProductChoice> read;
  for (const proto::ProductWayChoice& choice : choices) {
    WEIR_ASSIGN_OR_RETURN(ProductChoice one,
                          ProductChoiceOf(choice, absl::StrCat(where, "[", read.size(), "]")));
    read.push_back(one);
  }
  return ProductChoices(std::move(read));
}

proto::ProductClass ToProto(const ProductClass& product) {
  proto::ProductClass message;
  message.set_operands(Name(product.operands));
  if (product.result != product.operands) message.set_result(Name(product.result));
  message.set_m(product.m);
  message.set_n(product.n);
  message.set_k(product.k);
  message.set_a_transposed(product.a_transposed);
  message.set_b_transposed(product.b_transposed);
  return message;
}

proto::ProductWayChoice ToProto(const ProductChoice& choice) {
  proto::ProductWayChoice message;
  *message.mutable_of() = ToProto(choice.of);
  message.set_way(Name(choice.way));
  message.set_gain(choice.gain);
  return message;
}

}  // namespace weir
