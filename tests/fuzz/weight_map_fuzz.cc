// Reads any text as a map of weights: refuses it with W0048 or a bound of texts, or applies it to a
// small file in both directions without harm.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/weights/convert_weights.h"
#include "tools/weights/mapped_weights.h"
#include "tools/weights/weight_map.h"

namespace {

using weir::DType;
using weir::Shape;
using weir::weights::WeightTypes;
using SharedFile = std::shared_ptr<const weir::store::SafetensorsReader>;

void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

void ExpectRefusal(const absl::Status& status) {
  if (!status.ok() && weir::ExitCode(status) != 65) Fail(status);
}

// Shapes that maps of the corpus use, an empty one and a scalar among them.
const WeightTypes& Types() {
  static const auto* const types = new WeightTypes{{"w.0", {DType::kF32, {2, 3}}},
                                                   {"w.1", {DType::kF32, {3, 2}}},
                                                   {"v", {DType::kF32, {6}}},
                                                   {"empty", {DType::kF32, {0, 4}}},
                                                   {"scalar", {DType::kF32, {}}}};
  return *types;
}

SharedFile Written(const std::string& path, const std::vector<std::string>& names) {
  std::vector<weir::store::SafetensorsWriter::Entry> entries;
  size_t i = 0;
  for (const auto& [name, type] : Types()) entries.push_back({names[i++], DType::kF32, type.shape});
  auto writer = weir::store::SafetensorsWriter::Create(path, entries, {}).value();
  const std::vector<float> values(16, 1.5f);
  for (size_t k = 0; k < writer->entries().size(); ++k) {
    if (!writer->Write(k, values.data()).ok()) std::abort();
  }
  if (absl::Status status = writer->Commit(); !status.ok()) Fail(status);
  return weir::store::SafetensorsReader::Open(path).value();
}

struct Files {
  std::string folder;
  SharedFile with_public_names, with_own_names;

  Files() {
    char name[] = "/tmp/weight_map_fuzz_XXXXXX";
    if (::mkdtemp(name) == nullptr) std::abort();
    folder = name;
    with_public_names = Written(folder + "/public", {"a", "b", "h.0.c", "h.1.c", "m.d"});
    std::vector<std::string> own;
    for (const auto& [weight, type] : Types()) own.push_back(weight);
    with_own_names = Written(folder + "/own", own);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Files* const files = new Files();
  const std::string text(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<weir::weights::WeightMap> read = weir::weights::WeightMap::Parse(text, "map");
  if (!read.ok()) {
    ExpectRefusal(read.status());
    return 0;
  }
  const auto map = std::make_shared<const weir::weights::WeightMap>(*std::move(read));
  const weir::weights::MappedWeights mapped(files->with_public_names, map, nullptr);
  ExpectRefusal(mapped.Check(Types()));
  std::vector<char> out(64);
  for (const auto& [weight, type] : Types()) {
    if (mapped.IsFresh(weight)) continue;
    ExpectRefusal(
        mapped.Read(weight, weir::TensorSlice::Whole(type.dtype, type.shape), out.data()));
    if (mapped.SourceText(weight).empty()) std::abort();
  }
  const std::string map_file = files->folder + "/map";
  if (FILE* file = std::fopen(map_file.c_str(), "wb"); file != nullptr) {
    std::fwrite(data, 1, size, file);
    std::fclose(file);
    ExpectRefusal(weir::weights::WritePublic(*files->with_own_names, Types(),
                                             {{map_file, ""}, nullptr, files->folder + "/new"})
                      .status());
  }
  return 0;
}
