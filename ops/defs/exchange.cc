// exchange_pack and exchange_fill are the two halves of a boxing step on one rank. Both appear in
// plans only; their shapes are local, and no layout is derived from them. What they move is no
// attribute but a Transfer (runtime/base/transfer/transfer.h).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer.h"

namespace weir::ops {
namespace {

absl::Status BadTransfer(const TransferFlaw& flaw) {
  return Rejected({"W0310", "", absl::StrCat(flaw.expected, " in the exchange"), flaw.found, ""});
}

// Returns the half of an exchange that the op is given, without a flaw.
template <typename Half>
absl::StatusOr<const Half*> HalfOf(const InferInput& in) {
  const Half* half = in.transfer == nullptr ? nullptr : std::get_if<Half>(in.transfer);
  if (half == nullptr) return BadTransfer({"the op's half", "no such half"});
  if (const auto flaw = FindFlaw(*in.transfer)) return BadTransfer(*flaw);
  return half;
}

absl::StatusOr<std::vector<sbp::TensorType>> InferPack(const InferInput& in) {
  WEIR_ASSIGN_OR_RETURN(const ExchangePack* pack, HalfOf<ExchangePack>(in));
  OperandCheck check(in, {"t"});
  for (int i = 1; i < static_cast<int>(in.inputs.size()); ++i) check.SameType(i, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  std::vector<Shape> shapes;
  for (const sbp::TensorType& type : in.inputs) shapes.push_back(type.shape());
  if (const auto flaw = FindFlawWith(*pack, shapes)) return BadTransfer(*flaw);
  return std::vector<sbp::TensorType>{
      sbp::TensorType{in.inputs[0].dtype, {{"message", pack->chunk_elements, 1}}}};
}

OpDef ExchangePackDef() {
  OpDef def;
  def.schema = {
      .name = "exchange_pack",
      .doc = "One chunk of a message: the elements of the pieces whose position falls into it.",
      .inputs = {{.name = "t", .variadic = true, .doc = "local shards of one element type"}},
      .outputs = {{.name = "message", .doc = "[chunk_elements]; a chunk may fill less"}},
      .internal = true,
      .factors = "all whole"};
  def.infer = InferPack;
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return WholeRule(inputs, outputs);
  };
  def.flops = NoFlops();
  return def;
}

// Widens the shape of a region's tensor so that the region lies inside.
absl::Status Widen(const ExchangeRegion& region, std::vector<Shape>* shapes) {
  if (region.tensor >= static_cast<int>(shapes->size())) shapes->resize(region.tensor + 1);
  const Shape& end = region.target.end;
  Shape& shape = (*shapes)[region.tensor];
  if (shape.empty()) shape.resize(end.size(), 0);
  if (shape.size() != end.size())
    return BadTransfer({"one rank per tensor", absl::StrCat("two for tensor ", region.tensor)});
  for (size_t d = 0; d < end.size(); ++d) shape[d] = std::max(shape[d], end[d]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<sbp::TensorType>> InferFill(const InferInput& in) {
  WEIR_ASSIGN_OR_RETURN(const ExchangeFill* fill, HalfOf<ExchangeFill>(in));
  const int64_t count = static_cast<int64_t>(in.inputs.size());
  if (const auto flaw = FindFlawWith(*fill, count)) return BadTransfer(*flaw);
  OperandCheck check(in, {"t"});
  for (int i = 1; i < count; ++i) check.SameType(i, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  std::vector<Shape> shapes;
  for (const ExchangeRegion& region : fill->regions) WEIR_RETURN_IF_ERROR(Widen(region, &shapes));
  DType dtype = count == 0 ? DType::kF32 : in.inputs[0].dtype;
  std::vector<sbp::TensorType> outputs;
  for (const Shape& shape : shapes) {
    sbp::TensorType type{dtype, {}};
    for (size_t d = 0; d < shape.size(); ++d)
      type.dims.push_back({absl::StrCat("dim", d), shape[d], 1});
    outputs.push_back(std::move(type));
  }
  return outputs;
}

OpDef ExchangeFillDef() {
  OpDef def;
  def.schema = {
      .name = "exchange_fill",
      .doc =
          "Fills one chunk of new shards from own shards and messages, combining where several "
          "sources meet.",
      .inputs = {{.name = "t",
                  .optional = true,
                  .variadic = true,
                  .doc = "num_own own shards, then messages"}},
      .outputs = {{.name = "shard", .variadic = true, .doc = "as large as their regions"}},
      .internal = true,
      .factors = "all whole"};
  def.infer = InferFill;
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return WholeRule(inputs, outputs);
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

WEIR_REGISTER_OP(ExchangePackDef());
WEIR_REGISTER_OP(ExchangeFillDef());

}  // namespace
}  // namespace weir::ops
