// Weights in a file as a job names them, whatever the file calls them: a safetensors file under a
// map, or without one if both have the same names.
//
// A weight without a source is an error, and so is a tensor of the file that nothing uses, because
// either means that the file belongs to another model. A file may lack all adapters of a job
// (adapter_names.h); one that has some of them has all of them. It calls them as the job does, or
// as the map says. Thread rule: immutable, any thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/safetensors.h"
#include "tools/weights/weight_layout.h"
#include "tools/weights/weight_map.h"

namespace weir::weights {

struct WeightType {
  DType dtype = DType::kF32;
  Shape shape;  // of the whole weight
};
using WeightTypes = std::map<std::string, WeightType>;  // the weights of a job, by name

// A Misfit names what does not fit between the weights of a job and the tensors of a file.
struct Misfit {
  struct Lack {
    std::string weight;
    std::string tensor;  // the name that the file should have; empty: the map has no rule
  };
  std::vector<Lack> missing;
  std::vector<std::string> unused;  // tensors

  bool empty() const { return missing.empty() && unused.empty(); }
  size_t size() const { return missing.size() + unused.size(); }
};

class MappedWeights {
 public:
  // The file with the names that it has. Weights of a checkpoint are found, and its other states
  // ("wq/adam_m") do not count.
  explicit MappedWeights(std::shared_ptr<const store::SafetensorsReader> file)
      : file_(std::move(file)) {}
  // `constants` holds the weights that no public file has; null: none.
  MappedWeights(std::shared_ptr<const store::SafetensorsReader> file,
                std::shared_ptr<const WeightMap> map,
                std::shared_ptr<const store::SafetensorsReader> constants)
      : file_(std::move(file)), map_(std::move(map)), constants_(std::move(constants)) {}

  const store::SafetensorsReader& file() const { return *file_; }
  const std::shared_ptr<const WeightMap>& shared_map() const { return map_; }  // null: none
  // The path of the constants; empty: there are none.
  std::string constants() const { return constants_ == nullptr ? "" : constants_->path(); }

  // Returns whether the file need not have a weight. The weight then keeps what the job gives it.
  bool IsFresh(const std::string& weight) const;
  // Returns the number of adapters among `weights` that keep what the job gives them.
  int64_t CountFreshAdapters(const WeightTypes& weights) const;
  // Compares names only.
  Misfit Compare(const WeightTypes& weights) const;
  // kInvalidArgument: a weight has no source, or a tensor no use (W0071); shapes (W0044) or element
  // types (W0045) do not fit; an alias has other bytes than its tensor (W0071).
  absl::Status Check(const WeightTypes& weights) const;
  // Returns the error of a misfit that is not empty, for a job with `num_weights` weights.
  absl::Status MisfitError(const Misfit& misfit, size_t num_weights) const;

  // Returns where a weight comes from, for people: "h.0.attn.c_attn.weight [24, 72], part 1 of 3
  // along axis 1". Precondition: Check.
  std::string SourceText(const std::string& weight) const;

  // Copies the part `slice` of a weight to `out`, as SafetensorsReader::Read does. Precondition:
  // the weight is not fresh.
  absl::Status Read(const std::string& weight, const TensorSlice& slice, void* out) const;

 private:
  struct Located {
    std::vector<std::string> tensors;  // of the sources, as the file calls them
    WeightLayout layout;
  };

  bool IsConstant(const std::string& weight) const;
  bool IsFreshByMap(const std::string& weight) const;
  // Returns whether the weight has the name of an adapter and the file does not have it.
  bool IsAbsentAdapter(const std::string& weight) const;
  // Returns whether the file calls the weight as the job does.
  bool IsByOwnName(const std::string& weight) const;
  std::optional<std::string> NameInFile(const TensorSource& source) const;
  // Returns whether the file has a tensor for each source of the weight.
  bool HasSources(const std::string& weight) const;
  absl::StatusOr<Located> Locate(const std::string& weight, const Shape& shape) const;
  // `used` holds the tensors that weights use themselves, which may have values of their own.
  absl::Status CheckAliases(const std::set<std::string>& used) const;

  std::shared_ptr<const store::SafetensorsReader> file_;
  std::shared_ptr<const WeightMap> map_;
  std::shared_ptr<const store::SafetensorsReader> constants_;
};

}  // namespace weir::weights
