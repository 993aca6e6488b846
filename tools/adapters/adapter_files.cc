#include "tools/adapters/adapter_files.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/base/unit_text.h"
#include "tools/adapters/graph_weights.h"

namespace weir::adapters {
namespace {

using weights::WeightType;

// Reads a weight as real numbers.
absl::StatusOr<std::vector<float>> Floats(const AdaptedWeights& from, const std::string& weight,
                                          const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  WEIR_RETURN_IF_ERROR(from.Read(weight, {DType::kF32, shape}, values.data()));
  return values;
}

// Writes `names` to a new file. `read` gives the bytes of each.
template <typename F>
absl::Status WriteFile(const AdaptedJob& job, const std::vector<std::string>& names,
                       const std::string& path, F&& read) {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const std::string& name : names)
    entries.push_back({name, job.types.at(name).dtype, job.types.at(name).shape});
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsWriter> writer,
                        store::SafetensorsWriter::Create(path, std::move(entries), {}));
  std::vector<char> bytes;
  for (size_t i = 0; i < writer->entries().size(); ++i) {
    const store::SafetensorsWriter::Entry& entry = writer->entries()[i];
    bytes.resize(static_cast<size_t>(TensorSlice::Whole(entry.dtype, entry.shape).bytes()));
    WEIR_RETURN_IF_ERROR(read(entry.name, bytes.data()));
    WEIR_RETURN_IF_ERROR(writer->Write(i, bytes.data()));
  }
  return writer->Commit();
}

// Adds factor * a b to a weight of rows x columns. a has `rank` columns and b has `rank` rows. The
// sum over the rank and the sum with the weight are made in double precision and rounded once.
void AddProduct(double factor, const std::vector<float>& a, const std::vector<float>& b,
                int64_t rank, int64_t columns, std::vector<float>* weight) {
  std::vector<double> row(static_cast<size_t>(columns));
  const int64_t rows = static_cast<int64_t>(weight->size()) / columns;
  for (int64_t i = 0; i < rows; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      const double scaled = factor * static_cast<double>(a[i * rank + k]);
      for (int64_t j = 0; j < columns; ++j)
        row[j] += scaled * static_cast<double>(b[k * columns + j]);
    }
    for (int64_t j = 0; j < columns; ++j) {
      float& element = (*weight)[i * columns + j];
      element = static_cast<float>(static_cast<double>(element) + row[j]);
    }
  }
}

}  // namespace

absl::StatusOr<AdaptedJob> AdaptedJobOf(const proto::Graph& graph, weights::WeightTypes types) {
  AdaptedJob job{std::move(types), {}, {}};
  WEIR_ASSIGN_OR_RETURN(job.adapters, FindAdapters(graph));
  if (job.adapters.empty()) {
    return Rejected(
        {"W0852", "graph", "a job with adapters", "none", "the job that `weir lora add` has made"});
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<GraphWeight> all, WeightsOfGraph(graph));
  for (const GraphWeight& weight : all) {
    const bool frozen = graph.function(weight.function).parameter(weight.parameter).frozen();
    if (!frozen && job.types.count(weight.name) > 0) job.trained.push_back(weight.name);
  }
  return job;
}

absl::StatusOr<AdaptedWeights> AdaptedWeights::Open(
    const AdaptedJob& job, std::shared_ptr<const store::SafetensorsReader> weights,
    std::shared_ptr<const store::SafetensorsReader> adapters, const weights::MapPlaces& places) {
  WEIR_ASSIGN_OR_RETURN(weights::MappedWeights mapped,
                        weights::MapWeights(std::move(weights), places, job.types));
  if (adapters == nullptr) {
    if (mapped.CountFreshAdapters(job.types) > 0) {
      return Rejected({"W0853", mapped.file().path(),
                       absl::StrCat("the adapters of the job, such as ", job.adapters.front().a),
                       "weights without adapters",
                       "weights that `weir train` has saved for this job, or --adapters FILE"});
    }
    return AdaptedWeights(std::move(mapped), nullptr);
  }
  std::vector<std::string> missing;
  for (const Adapter& adapter : job.adapters) {
    for (const std::string& name : {adapter.a, adapter.b}) {
      if (adapters->tensors().count(name) == 0) missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    return Rejected(
        {"W0853", adapters->path(),
         absl::StrCat("the ", 2 * job.adapters.size(), " adapters of the job"),
         absl::StrCat("no ", missing.front(),
                      missing.size() > 1 ? absl::StrCat(" and ", missing.size() - 1, " more") : ""),
         "the file that `weir lora extract` has made for this job"});
  }
  AdaptedWeights opened(std::move(mapped), std::move(adapters));
  for (const auto& [name, tensor] : opened.adapters_->tensors()) {
    const auto type = job.types.find(name);
    if (type == job.types.end()) {
      return Rejected({"W0853", opened.adapters_->path(), "weights of the job",
                       absl::StrCat("tensor ", name, ", which is none"),
                       "the file that `weir lora extract` has made for this job"});
    }
    // A read of nothing checks shape and element type.
    const Shape none(type->second.shape.size(), 0);
    if (!none.empty()) {
      WEIR_RETURN_IF_ERROR(opened.adapters_->Read(
          name, TensorSlice{type->second.dtype, none, none, type->second.shape}, nullptr));
    }
  }
  return opened;
}

absl::Status AdaptedWeights::Read(const std::string& weight, const WeightType& type,
                                  void* out) const {
  const TensorSlice whole = TensorSlice::Whole(type.dtype, type.shape);
  if (adapters_ != nullptr && adapters_->tensors().count(weight) > 0)
    return adapters_->Read(weight, whole, out);
  return weights_.Read(weight, whole, out);
}

absl::Status WriteAdapters(const AdaptedJob& job, const AdaptedWeights& from,
                           const std::string& path) {
  return WriteFile(job, job.trained, path, [&](const std::string& name, char* bytes) {
    return from.Read(name, job.types.at(name), bytes);
  });
}

absl::Status WriteJoined(const AdaptedJob& job, const AdaptedWeights& from,
                         const std::string& path) {
  std::vector<std::string> names;
  for (const auto& [name, type] : job.types) names.push_back(name);
  return WriteFile(job, names, path, [&](const std::string& name, char* bytes) {
    return from.Read(name, job.types.at(name), bytes);
  });
}

absl::Status WriteMerged(const AdaptedJob& job, const AdaptedWeights& from,
                         const std::string& path) {
  std::map<std::string, const Adapter*> adapter_of;
  std::set<std::string> adapters;
  for (const Adapter& adapter : job.adapters) {
    adapter_of[adapter.weight] = &adapter;
    adapters.insert({adapter.a, adapter.b});
  }
  std::vector<std::string> names;
  for (const auto& [name, type] : job.types) {
    if (adapters.count(name) == 0) names.push_back(name);
  }
  return WriteFile(job, names, path, [&](const std::string& name, char* bytes) -> absl::Status {
    const WeightType& type = job.types.at(name);
    const auto found = adapter_of.find(name);
    if (found == adapter_of.end()) return from.Read(name, type, bytes);
    const Adapter& adapter = *found->second;
    // A weight [out, in] takes b a.
    const std::string& left = adapter.is_transposed ? adapter.b : adapter.a;
    const std::string& right = adapter.is_transposed ? adapter.a : adapter.b;
    WEIR_ASSIGN_OR_RETURN(std::vector<float> values, Floats(from, name, type.shape));
    WEIR_ASSIGN_OR_RETURN(const std::vector<float> a, Floats(from, left, job.types.at(left).shape));
    WEIR_ASSIGN_OR_RETURN(const std::vector<float> b,
                          Floats(from, right, job.types.at(right).shape));
    AddProduct(adapter.factor, a, b, job.types.at(right).shape[0], type.shape[1], &values);
    if (type.dtype != DType::kF32) {
      return absl::InternalError("a parameter of a job is f32");
    }
    std::copy_n(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float), bytes);
    return absl::OkStatus();
  });
}

}  // namespace weir::adapters
