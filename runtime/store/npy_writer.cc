#include "runtime/store/npy_writer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir::store {
namespace {

constexpr char kWhat[] = "array";
constexpr size_t kAlignment = 64;  // of the first element, as NumPy writes

const char* DescrOf(DType dtype) {
  switch (dtype) {
    case DType::kI32: return "<i4";
    case DType::kBool: return "|b1";
    case DType::kF16: return "<f2";
    case DType::kF32:
    case DType::kBF16: break;
  }
  return "<f4";
}

// Returns the bytes before the first element.
std::string HeaderOf(DType dtype, const Shape& shape) {
  std::string header =
      absl::StrCat("{'descr': '", DescrOf(dtype), "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  constexpr size_t kBefore = 10;  // the magic string, the version, and the length of the header
  const size_t used = kBefore + header.size() + 1;
  header.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  header.push_back('\n');
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes.push_back(static_cast<char>(header.size() & 0xff));
  bytes.push_back(static_cast<char>(header.size() >> 8));
  return bytes + header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpyWriter>> NpyWriter::Create(const std::string& path, DType dtype,
                                                             const Shape& shape) {
  std::unique_ptr<NpyWriter> writer(new NpyWriter(path, dtype, NumElements(shape)));
  if (const int error = writer->file_.Create(path)) return CannotWrite(path, kWhat, error);
  const std::string header = HeaderOf(dtype, shape);
  WEIR_RETURN_IF_ERROR(writer->Write(header.data(), static_cast<int64_t>(header.size())));
  return writer;
}

absl::Status NpyWriter::Write(const char* data, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t count = ::write(file_.descriptor(), data, static_cast<size_t>(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotWrite(path_, kWhat, errno);
    data += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

absl::Status NpyWriter::Append(const void* data, int64_t bytes) {
  const int64_t elements = bytes / SizeOf(dtype_);
  missing_ -= elements;
  if (dtype_ != DType::kBF16) return Write(static_cast<const char*>(data), bytes);
  std::vector<float> wide(static_cast<size_t>(elements));
  const char* from = static_cast<const char*>(data);
  for (float& value : wide) {
    BFloat16 narrow;
    memcpy(&narrow.bits, from, sizeof(narrow.bits));
    from += sizeof(narrow.bits);
    value = ToFloat(narrow);
  }
  return Write(reinterpret_cast<const char*>(wide.data()),
               elements * static_cast<int64_t>(sizeof(float)));
}

absl::Status NpyWriter::Publish() {
  if (missing_ != 0) {
    return absl::InternalError(absl::StrCat(path_, ": ", missing_, " elements are missing"));
  }
  if (const int error = file_.Publish()) return CannotWrite(path_, kWhat, error);
  return absl::OkStatus();
}

}  // namespace weir::store
