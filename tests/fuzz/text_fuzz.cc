// Reads any text as a mesh, layout, type or --set: refuses it, or reads it such that its own text
// reads back the same. The first byte chooses which.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ops/defs/type_text.h"
#include "runtime/base/status.h"
#include "sbp/layout.h"
#include "sbp/mesh.h"
#include "tools/job/job_file.h"

namespace {

using weir::sbp::Mesh;

void Expect(bool good, const std::string& text, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", text.c_str(), what);
  std::abort();
}

void ExpectRefusal(const absl::Status& status, const std::string& text) {
  Expect(weir::ExitCode(status) == 65 && status.message().substr(0, 1) == "W", text,
         std::string(status.message()).c_str());
}

void ReadMesh(const std::string& text) {
  absl::StatusOr<weir::sbp::Mesh> mesh = weir::sbp::Mesh::Parse(text);
  if (!mesh.ok()) return ExpectRefusal(mesh.status(), text);
  absl::StatusOr<weir::sbp::Mesh> again = weir::sbp::Mesh::Parse(mesh->ToText());
  Expect(again.ok() && *again == *mesh, text, "the mesh does not round-trip");
  const int64_t last = mesh->num_ranks() - 1;
  Expect(mesh->RankOf(mesh->CoordsOf(last)) == last, text, "the last rank does not round-trip");
}

void ReadLayout(const std::string& text) {
  const weir::sbp::Mesh mesh({{"dp", 2}, {"tp", 3}});
  absl::StatusOr<weir::sbp::Layout> layout = weir::sbp::ParseLayout(text, mesh);
  if (!layout.ok()) return ExpectRefusal(layout.status(), text);
  absl::StatusOr<weir::sbp::Layout> again = weir::sbp::ParseLayout(ToText(*layout, mesh), mesh);
  Expect(again.ok() && *again == *layout, text, "the layout does not round-trip");
  const weir::sbp::TensorType type{weir::DType::kF32, {{"a", 6, 2}, {"b", 5, 1}}};
  absl::Status valid = weir::sbp::ValidateLayout(*layout, type, mesh);
  if (!valid.ok()) return ExpectRefusal(valid, text);
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    const weir::TensorSlice slice = weir::sbp::LocalSlice(type, *layout, mesh, mesh.CoordsOf(rank));
    for (size_t i = 0; i < slice.shape.size(); ++i) {
      Expect(slice.offset[i] >= 0 && slice.shape[i] >= 0 &&
                 slice.offset[i] + slice.shape[i] <= slice.global_shape[i],
             text, "a shard lies outside its tensor");
    }
  }
}

void ReadType(const std::string& text) {
  const weir::ops::DimTable table = {{"batch", {"batch", 8, 1}}, {"heads", {"heads", 64, 16}}};
  absl::StatusOr<weir::sbp::TensorType> type = weir::ops::ParseType(text, table);
  if (!type.ok()) return ExpectRefusal(type.status(), text);
  absl::StatusOr<std::vector<weir::sbp::TensorDim>> again =
      weir::ops::ParseDims(weir::ops::DimsText(type->dims), table);
  Expect(again.ok() && *again == type->dims, text, "the dimensions do not round-trip");
  Expect(type->bytes() >= 0, text, "the bytes overflow");
}

void ReadSet(const std::string& text) {
  weir::proto::Job job;
  job.mutable_graph()->add_dim()->set_name("batch");
  job.add_rule();
  absl::Status status = weir::job::SetField(text, &job);
  if (!status.ok()) ExpectRefusal(status, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'm': ReadMesh(text); break;
    case 'l': ReadLayout(text); break;
    case 't': ReadType(text); break;
    default: ReadSet(text); break;
  }
  return 0;
}
