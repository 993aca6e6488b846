#include "tools/weights/convert_weights.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/stored_dtype.h"
#include "tools/weights/adapter_names.h"
#include "tools/weights/export_files.h"

namespace weir::weights {
namespace {

absl::Status CannotExport(const std::string& where, const std::string& expected,
                          const std::string& found, const std::string& hint) {
  return Rejected({"W0063", where, expected, found, hint});
}

// A source of a weight in a public tensor.
struct Contribution {
  std::string weight;
  size_t source = 0;
};

// The public tensors of a job: what each is made of.
struct PublicTensors {
  std::map<std::string, store::SafetensorsWriter::Entry> entries;
  std::map<std::string, std::vector<Contribution>> parts;  // by tensor
  std::map<std::string, WeightLayout> layouts;             // by weight
};

class PublicPlanner {
 public:
  PublicPlanner(const WeightMap& map, const ExportOrder& order) : map_(map), order_(order) {}

  absl::Status Add(const std::string& weight, const WeightType& type,
                   const SourcesOfWeight& sources) {
    std::vector<Shape> shapes;
    for (size_t k = 0; k < sources.from.size(); ++k) {
      WEIR_ASSIGN_OR_RETURN(store::SafetensorsWriter::Entry entry,
                            EntryOf(weight, type, sources, k));
      const auto [known, is_new] = planned_.entries.emplace(entry.name, entry);
      if (!is_new && known->second.shape != entry.shape) {
        return CannotExport(absl::StrCat("tensor ", entry.name), "one shape from all its weights",
                            absl::StrCat(ToText(known->second.shape), ", and ", ToText(entry.shape),
                                         " from ", weight),
                            "--like FILE, a public file of the model");
      }
      shapes.push_back(entry.shape);
      planned_.parts[entry.name].push_back({weight, k});
    }
    absl::StatusOr<WeightLayout> layout = WeightLayout::Make(sources, shapes, type.shape);
    if (!layout.ok()) {
      return CannotExport(absl::StrCat("weight ", weight),
                          absl::StrCat("shape ", ToText(type.shape)),
                          absl::StrCat(layout.status().message(), " by the map ", map_.name()),
                          "a job of the same sizes as the public file");
    }
    planned_.layouts.emplace(weight, *std::move(layout));
    return absl::OkStatus();
  }

  PublicTensors Take() { return std::move(planned_); }

 private:
  absl::StatusOr<store::SafetensorsWriter::Entry> EntryOf(const std::string& weight,
                                                          const WeightType& type,
                                                          const SourcesOfWeight& sources,
                                                          size_t k) const {
    const TensorSource& source = sources.from[k];
    if (order_.like != nullptr) {
      for (const std::string& tensor : source.tensors) {
        for (const std::string& name : map_.NamesInFile(tensor)) {
          const auto it = order_.like->tensors().find(name);
          if (it == order_.like->tensors().end()) continue;
          const std::optional<DType> stored = store::DTypeFromStoredName(it->second.dtype);
          const bool is_half = stored.has_value() && IsHalf(*stored);
          const DType dtype = is_half ? *stored : type.dtype;
          return store::SafetensorsWriter::Entry{name, dtype, it->second.shape};
        }
      }
      return CannotExport(order_.like->path(), absl::StrCat("a tensor ", source.tensors[0]), "none",
                          "another --like FILE, or none");
    }
    const absl::StatusOr<Shape> shape = TensorShapeFrom(sources, k, type.shape);
    if (!shape.ok()) {
      return CannotExport(absl::StrCat("weight ", weight),
                          absl::StrCat("the shape of tensor ", source.tensors[0]),
                          absl::StrCat("a map, ", map_.name(), ", from which it does not follow"),
                          "--like FILE, a public file of the model");
    }
    return store::SafetensorsWriter::Entry{source.tensors[0], type.dtype, *shape};
  }

  const WeightMap& map_;
  const ExportOrder& order_;
  PublicTensors planned_;
};

// The bytes of one public tensor as its weights come in. A second weight for an element must have
// the same value.
class TensorBytes {
 public:
  explicit TensorBytes(const store::SafetensorsWriter::Entry& entry)
      : width_(SizeOf(entry.dtype)),
        bytes_(static_cast<size_t>(NumElements(entry.shape) * width_)),
        written_(static_cast<size_t>(NumElements(entry.shape))) {}

  // Returns false if an element has another value already.
  bool Put(const char* from, int64_t first, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(first + i * stride);
      char* const to = bytes_.data() + at * static_cast<size_t>(width_);
      const char* const element = from + i * width_;
      if (written_[at] && memcmp(to, element, static_cast<size_t>(width_)) != 0) return false;
      if (!written_[at]) ++num_written_;
      written_[at] = true;
      memcpy(to, element, static_cast<size_t>(width_));
    }
    return true;
  }
  int64_t missing() const { return static_cast<int64_t>(written_.size()) - num_written_; }
  const char* data() const { return bytes_.data(); }

 private:
  const int64_t width_;
  std::vector<char> bytes_;
  std::vector<bool> written_;
  int64_t num_written_ = 0;
};

absl::Status NotCovered(const store::SafetensorsWriter::Entry& entry, int64_t elements) {
  return CannotExport(absl::StrCat("tensor ", entry.name, " ", ToText(entry.shape)),
                      "a weight for each element", absl::StrCat("none for ", elements, " of them"),
                      "a job that uses the whole tensor");
}

absl::StatusOr<TensorBytes> Assemble(const store::SafetensorsReader& from,
                                     const WeightTypes& weights, const PublicTensors& planned,
                                     const store::SafetensorsWriter::Entry& entry) {
  TensorBytes tensor(entry);
  for (const Contribution& part : planned.parts.at(entry.name)) {
    WEIR_ASSIGN_OR_RETURN(const store::StoredElements elements,
                          from.ElementsOf(part.weight, entry.dtype));
    std::vector<char> run;
    bool agree = true;
    absl::Status status;
    planned.layouts.at(part.weight)
        .ForEachElementRun(
            TensorSlice::Whole(entry.dtype, weights.at(part.weight).shape),
            [&](size_t source, int64_t first, int64_t stride, int64_t count, int64_t local) {
              if (source != part.source || !agree || !status.ok()) return;
              run.resize(static_cast<size_t>(count * SizeOf(entry.dtype)));
              status = elements.Copy(local, 1, count, run.data());
              if (status.ok()) agree = tensor.Put(run.data(), first, stride, count);
            });
    WEIR_RETURN_IF_ERROR(status);
    if (!agree) {
      return CannotExport(absl::StrCat("tensor ", entry.name), "equal values from all its weights",
                          absl::StrCat("other values from ", part.weight),
                          "a map that gives each weight a tensor of its own");
    }
  }
  if (tensor.missing() > 0) return NotCovered(entry, tensor.missing());
  return tensor;
}

// A tensor that is larger than all its weights together cannot be covered, and may be larger than
// any memory.
absl::Status CheckSizes(const WeightTypes& weights, const PublicTensors& planned) {
  for (const auto& [name, entry] : planned.entries) {
    int64_t elements = 0;
    for (const Contribution& part : planned.parts.at(name))
      elements += NumElements(weights.at(part.weight).shape);
    if (NumElements(entry.shape) > elements)
      return NotCovered(entry, NumElements(entry.shape) - elements);
  }
  return absl::OkStatus();
}

// Returns the map for writing the weights of a job: the first with a rule for each of them.
absl::StatusOr<std::shared_ptr<const WeightMap>> MapForExport(
    const WeightTypes& weights, const ExportOrder& order,
    std::map<std::string, SourcesOfWeight>* sources) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<const WeightMap>> maps,
                        MapsFor(order.places));
  std::string nearest;  // of the map that lacks least
  size_t least = weights.size() + 1;
  for (const std::shared_ptr<const WeightMap>& map : maps) {
    sources->clear();
    std::vector<std::string> lacks;
    for (const auto& [weight, type] : weights) {
      std::optional<SourcesOfWeight> found = map->SourcesOf(weight);
      if (found.has_value()) {
        sources->emplace(weight, *std::move(found));
      } else if (!map->IsConstant(weight)) {
        lacks.push_back(weight);
      }
    }
    if (lacks.empty()) return map;
    if (lacks.size() >= least) continue;
    least = lacks.size();
    nearest = absl::StrCat("none for ", lacks[0],
                           least > 1 ? absl::StrCat(" and ", least - 1, " more") : "", " in ",
                           map->name());
  }
  return Rejected(
      {"W0071", "maps of weights", "a map with a rule for each weight of the job", nearest,
       "--map FILE; a file with `rule { weight: \"{*}\" from { tensor: \"{*}\" } }` keeps "
       "the names of the job"});
}

}  // namespace

absl::Status WriteForJob(const MappedWeights& from, const WeightTypes& weights,
                         const std::string& path) {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const auto& [name, type] : weights) {
    if (from.IsFresh(name)) {
      return CannotExport(absl::StrCat(from.file().path(), ", weight ", name), "a tensor",
                          AdaptedWeight(name).has_value() ? "none; the file has no adapters"
                                                          : "none; the map calls the weight fresh",
                          "--init with the file itself, which `weir train` reads");
    }
    entries.push_back({name, type.dtype, type.shape});
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsWriter> writer,
                        store::SafetensorsWriter::Create(path, std::move(entries), {}));
  std::vector<char> bytes;
  for (size_t i = 0; i < writer->entries().size(); ++i) {
    const store::SafetensorsWriter::Entry& entry = writer->entries()[i];
    const TensorSlice whole = TensorSlice::Whole(entry.dtype, entry.shape);
    bytes.resize(static_cast<size_t>(whole.bytes()));
    WEIR_RETURN_IF_ERROR(from.Read(entry.name, whole, bytes.data()));
    WEIR_RETURN_IF_ERROR(writer->Write(i, bytes.data()));
  }
  return writer->Commit();
}

absl::StatusOr<Exported> WritePublic(const store::SafetensorsReader& from,
                                     const WeightTypes& weights, const ExportOrder& order,
                                     const CheckPaths& check) {
  std::map<std::string, SourcesOfWeight> sources;
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const WeightMap> map,
                        MapForExport(weights, order, &sources));
  PublicPlanner planner(*map, order);
  for (const auto& [weight, of_weight] : sources)
    WEIR_RETURN_IF_ERROR(planner.Add(weight, weights.at(weight), of_weight));
  const PublicTensors planned = planner.Take();
  WEIR_RETURN_IF_ERROR(CheckSizes(weights, planned));
  Entries entries;
  for (const auto& [name, entry] : planned.entries) entries.push_back(entry);
  ExportFiles files(order.path, PackIntoFiles(entries, order.file_bytes_max));
  if (check != nullptr) WEIR_RETURN_IF_ERROR(check(files.paths()));
  // Readers of public files want to know which library's tensors they are.
  store::Metadata metadata = {{"format", "pt"}};
  if (const std::optional<int64_t> steps = store::StepsBehind(from.metadata()); steps.has_value())
    metadata[store::kTrainedStepsKey] = absl::StrCat(*steps);
  const auto fill = [&](store::SafetensorsWriter* writer) -> absl::Status {
    for (size_t i = 0; i < writer->entries().size(); ++i) {
      WEIR_ASSIGN_OR_RETURN(const TensorBytes tensor,
                            Assemble(from, weights, planned, writer->entries()[i]));
      WEIR_RETURN_IF_ERROR(writer->Write(i, tensor.data()));
    }
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(files.Seal(metadata, fill));
  WEIR_RETURN_IF_ERROR(files.Commit());
  return Exported{map->name(), files.paths()};
}

}  // namespace weir::weights
