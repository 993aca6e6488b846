#include "runtime/store/whole_file.h"

#include <errno.h>
#include <unistd.h>

#include <streambuf>
#include <vector>

#include "runtime/base/status.h"

namespace weir::store {
namespace {

// Collects bytes for a descriptor; after an error it takes no more.
class DescriptorBuffer final : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor), bytes_(size_t{1} << 16) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }
  int error() const { return error_; }
  int sync() override {
    const char* from = pbase();
    while (error_ == 0 && from < pptr()) {
      const ssize_t done = ::write(descriptor_, from, static_cast<size_t>(pptr() - from));
      if (done >= 0) from += done;
      if (done < 0 && errno != EINTR) error_ = errno;
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return error_ == 0 ? 0 : -1;
  }

 private:
  int overflow(int c) override {
    if (sync() != 0) return traits_type::eof();
    if (c != traits_type::eof()) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

  const int descriptor_;
  std::vector<char> bytes_;
  int error_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SealedFile>> SealedFile::Seal(
    const std::string& path, const std::function<absl::Status(std::ostream& out)>& write) {
  auto sealed = std::unique_ptr<SealedFile>(new SealedFile(path));
  PendingFile& file = sealed->file_;
  if (const int error = file.Create(path))
    return CannotWrite(path, "cannot make a temporary file beside it", error);
  DescriptorBuffer buffer(file.descriptor());
  std::ostream out(&buffer);
  const absl::Status written = write(out);
  out.flush();
  if (buffer.error() != 0) return CannotWrite(path, "write failed", buffer.error());
  WEIR_RETURN_IF_ERROR(written);
  if (::fsync(file.descriptor()) != 0) return CannotWrite(path, "cannot flush", errno);
  return sealed;
}

absl::Status SealedFile::Commit() {
  if (const int error = file_.Publish())
    return CannotWrite(path_, "cannot put it in its place", error);
  if (const int error = file_.FlushFolder())
    return CannotWrite(path_, "it is in its place, but its folder cannot be flushed", error);
  return absl::OkStatus();
}

absl::Status WriteWholeFile(const std::string& path,
                            const std::function<absl::Status(std::ostream& out)>& write) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<SealedFile> sealed, SealedFile::Seal(path, write));
  return sealed->Commit();
}

absl::Status WriteWholeText(const std::string& path, const std::string& text) {
  return WriteWholeFile(path, [&text](std::ostream& out) {
    out << text;
    return absl::OkStatus();
  });
}

}  // namespace weir::store
