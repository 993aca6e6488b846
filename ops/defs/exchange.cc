// exchange_pack and exchange_fill are the two halves of a boxing step on one rank. Both appear in
// plans only; their shapes are local, and no layout is derived from them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

// Reads a flat list of integers; a read past the end is recorded as an error.
class IntReader {
 public:
  explicit IntReader(std::vector<int64_t> values) : values_(std::move(values)) {}
  bool done() const { return at_ == values_.size() || !ok_; }
  bool ok() const { return ok_; }
  int64_t Next() {
    if (at_ == values_.size()) ok_ = false;
    return ok_ ? values_[at_++] : 0;
  }
  // Returns `count` numbers, or none if there are fewer.
  std::vector<int64_t> Take(int64_t count) {
    if (count < 0 || count > static_cast<int64_t>(values_.size() - at_)) ok_ = false;
    if (!ok_) return {};
    at_ += static_cast<size_t>(count);
    return {values_.begin() + static_cast<int64_t>(at_) - count,
            values_.begin() + static_cast<int64_t>(at_)};
  }

 private:
  std::vector<int64_t> values_;
  size_t at_ = 0;
  bool ok_ = true;
};

absl::Status BadList(const std::string& name, const std::string& expected,
                     const std::string& found) {
  return Rejected({"W0310", "", absl::StrCat(expected, " in attribute ", name), found, ""});
}

absl::Status CheckChunk(const Attributes& attrs) {
  int64_t elements = attrs.Int("chunk_elements");
  if (elements >= 1) return absl::OkStatus();
  return BadList("chunk_elements", "at least 1", absl::StrCat(elements));
}

bool IsRect(const std::vector<int64_t>& begin, const std::vector<int64_t>& end) {
  for (size_t d = 0; d < begin.size(); ++d) {
    if (begin[d] < 0 || end[d] < begin[d]) return false;
  }
  return begin.size() == end.size();
}

bool Fits(const std::vector<int64_t>& end, const TensorType& type) {
  if (end.size() != type.dims.size()) return false;
  for (size_t d = 0; d < end.size(); ++d) {
    if (end[d] > type.dims[d].size) return false;
  }
  return true;
}

absl::StatusOr<std::vector<TensorType>> InferPack(const InferInput& in) {
  WEIR_RETURN_IF_ERROR(CheckChunk(in.attrs));
  OperandCheck check(in, {"t"});
  for (int i = 1; i < static_cast<int>(in.inputs.size()); ++i) check.SameType(i, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  IntReader reader(in.attrs.Ints("pieces"));
  while (!reader.done()) {
    int64_t tensor = reader.Next(), position = reader.Next(), rank = reader.Next();
    std::vector<int64_t> begin = reader.Take(rank), end = reader.Take(rank);
    if (!reader.ok())
      return BadList("pieces", "whole pieces [tensor, position, rank, begin, end]",
                     "a list that ends early");
    if (tensor < 0 || tensor >= static_cast<int64_t>(in.inputs.size()) || position < 0 ||
        !IsRect(begin, end) || !Fits(end, in.inputs[tensor])) {
      return BadList("pieces", "pieces inside their tensors",
                     absl::StrCat("a piece of tensor ", tensor, " that is not"));
    }
  }
  return std::vector<TensorType>{
      TensorType{in.inputs[0].dtype, {{"message", in.attrs.Int("chunk_elements"), 1}}}};
}

OpDef ExchangePackDef() {
  OpDef def;
  def.schema = {
      .name = "exchange_pack",
      .doc = "One chunk of a message: the elements of the pieces whose position falls into it.",
      .inputs = {{.name = "t", .variadic = true, .doc = "local shards of one element type"}},
      .outputs = {{.name = "message", .doc = "[chunk_elements]; a chunk may fill less"}},
      .attrs = {{"pieces", AttrKind::kInts, std::nullopt,
                 "[tensor, position, rank, begin.., end..] per piece"},
                {"chunk_elements", AttrKind::kInt, std::nullopt, "positions per chunk"}},
      .internal = true,
      .factors = "all whole"};
  def.infer = InferPack;
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return WholeRule(inputs, outputs);
  };
  def.flops = NoFlops();
  return def;
}

// Reads one region, and widens the shape of its tensor.
absl::Status ReadRegion(IntReader& reader, int64_t num_messages,
                        std::vector<std::vector<int64_t>>* shapes) {
  int64_t tensor = reader.Next(), combiner = reader.Next(), rank = reader.Next();
  std::vector<int64_t> begin = reader.Take(rank), end = reader.Take(rank);
  int64_t num_sources = reader.Next();
  bool fine = reader.ok() && tensor >= 0 && tensor < (1 << 20) &&
              (combiner == 0 || combiner == 1) && IsRect(begin, end);
  for (int64_t s = 0; fine && s < num_sources; ++s) {
    int64_t source = reader.Next();
    if (source == -1) {
      int64_t source_rank = reader.Next();
      std::vector<int64_t> source_begin = reader.Take(source_rank),
                           source_end = reader.Take(source_rank);
      fine = reader.ok() && IsRect(source_begin, source_end);
    } else {
      fine = reader.ok() && source >= 0 && source < num_messages;
    }
  }
  if (!fine)
    return BadList("regions", "whole regions [tensor, combiner, rank, begin, end, sources]",
                   "a list that is not");
  if (tensor >= static_cast<int64_t>(shapes->size())) shapes->resize(tensor + 1);
  std::vector<int64_t>& shape = (*shapes)[tensor];
  if (shape.empty()) shape.resize(end.size(), 0);
  if (shape.size() != end.size())
    return BadList("regions", "one rank per tensor", absl::StrCat("two for tensor ", tensor));
  for (size_t d = 0; d < end.size(); ++d) shape[d] = std::max(shape[d], end[d]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> InferFill(const InferInput& in) {
  WEIR_RETURN_IF_ERROR(CheckChunk(in.attrs));
  int64_t num_own = in.attrs.Int("num_own"), count = static_cast<int64_t>(in.inputs.size());
  if (num_own < 0 || num_own > count) {
    return BadList("num_own", absl::StrCat("0 to ", count, ", the number of inputs,"),
                   absl::StrCat(num_own));
  }
  OperandCheck check(in, {"t"});
  for (int i = 1; i < count; ++i) check.SameType(i, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  IntReader reader(in.attrs.Ints("regions"));
  std::vector<std::vector<int64_t>> shapes;
  while (!reader.done()) WEIR_RETURN_IF_ERROR(ReadRegion(reader, count - num_own, &shapes));
  DType dtype = count == 0 ? DType::kF32 : in.inputs[0].dtype;
  std::vector<TensorType> outputs;
  for (const auto& shape : shapes) {
    TensorType type{dtype, {}};
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
      .attrs = {{"num_own", AttrKind::kInt, std::nullopt, "how many inputs are own shards"},
                {"regions", AttrKind::kInts, std::nullopt,
                 "[tensor, combiner, rank, begin.., end.., num_sources, sources..] per region"},
                {"chunk_elements", AttrKind::kInt, std::nullopt, "positions per chunk"}},
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
}  // namespace weir
