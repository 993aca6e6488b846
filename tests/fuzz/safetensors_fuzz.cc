// Reads any bytes as a safetensors file: opens and reads it whole, or refuses it as damaged.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/store/safetensors.h"

namespace {

// Tensors of the file are never larger than the file.
constexpr int64_t kBytesMax = 1 << 24;

void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

void ReadAll(const std::string& path) {
  auto reader = weir::store::SafetensorsReader::Open(path);
  if (!reader.ok()) {
    if (reader.status().code() != absl::StatusCode::kDataLoss) Fail(reader.status());
    return;
  }
  for (const auto& [name, tensor] : (*reader)->tensors()) {
    for (weir::DType dtype : {weir::DType::kF32, weir::DType::kBF16, weir::DType::kI32}) {
      weir::TensorSlice slice{dtype, tensor.shape, weir::Shape(tensor.shape.size(), 0),
                              tensor.shape};
      if (slice.bytes() < 0 || slice.bytes() > kBytesMax) continue;
      std::vector<char> out(slice.bytes());
      absl::Status status = (*reader)->Read(name, slice, out.data());
      if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) Fail(status);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int fd = ::memfd_create("weights", 0);
  if (fd < 0 || ::write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  ReadAll(absl::StrCat("/proc/self/fd/", fd));
  ::close(fd);
  return 0;
}
