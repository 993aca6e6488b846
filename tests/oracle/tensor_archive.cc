#include "tests/oracle/tensor_archive.h"

#include "runtime/base/status.h"
#include "runtime/store/safetensors.h"

namespace weir::oracle {
namespace {

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

void TensorArchive::Add(const std::string& name, const Shape& shape,
                        const std::vector<float>& values) {
  tensors_[name] = {DType::kF32, shape, BytesOf(values)};
}

void TensorArchive::Add(const std::string& name, const Shape& shape,
                        const std::vector<int32_t>& values) {
  tensors_[name] = {DType::kI32, shape, BytesOf(values)};
}

void TensorArchive::Add(const std::string& name, const Shape& shape,
                        const std::vector<uint8_t>& values) {
  tensors_[name] = {DType::kBool, shape, BytesOf(values)};
}

absl::Status TensorArchive::Write(const std::string& path) const {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : tensors_) entries.push_back({name, tensor.dtype, tensor.shape});
  WEIR_ASSIGN_OR_RETURN(auto writer,
                        store::SafetensorsWriter::Create(path, std::move(entries), notes_));
  for (size_t i = 0; i < writer->entries().size(); ++i) {
    WEIR_RETURN_IF_ERROR(writer->Write(i, tensors_.at(writer->entries()[i].name).bytes.data()));
  }
  return writer->Commit();
}

}  // namespace weir::oracle
