#include "runtime/store/mapped_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/input_file.h"

namespace weir {
absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path, const std::string& purpose) {
  const InputFile::Naming naming = {.expected = "a readable file (" + purpose + ")"};
  WEIR_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, naming));
  void* data = nullptr;
  if (file.size() > 0) {
    data = ::mmap(nullptr, static_cast<size_t>(file.size()), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (data == MAP_FAILED) {
      return Missing({naming.code, path, naming.expected, absl::StrCat("a file that cannot be mapped: ", ::strerror(errno)), naming.hint});
    }
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, static_cast<const uint8_t*>(data), file.size()));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

}  // namespace weir
