#include "runtime/store/idx_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "zlib.h"

namespace weir {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kElementsMax = int64_t{1} << 34;

class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : file_(gzopen(path.c_str(), "rb")) {}
  ~GzipFile() {
    if (file_ != nullptr) gzclose(file_);
  }
  bool is_open() const { return file_ != nullptr; }
  // Bytes read, at most `bytes`; fewer only at the end or on an error (see Flaw).
  int64_t Read(void* out, int64_t bytes) {
    int64_t done = 0;
    while (done < bytes) {
      int piece = gzread(file_, static_cast<char*>(out) + done, static_cast<unsigned>(std::min(bytes - done, kPieceBytes)));
      if (piece <= 0) break;
      done += piece;
    }
    return done;
  }
  // What zlib has to say against the file so far; empty: nothing.
  std::string Flaw() {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return code == Z_OK ? "" : std::string(text);
  }

 private:
  gzFile file_;
};

absl::Status DamagedIdx(const std::string& path, const std::string& expected, const std::string& found) {
  return Damaged({"W0057", path, expected, found, "fetch the file again"});
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, int num_dims, const std::string& purpose) {
  struct stat info;
  bool regular = ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  GzipFile file(regular ? path : std::string());
  if (!regular || !file.is_open()) {
    return Missing({"W0040", path, "a readable file (" + purpose + ")", regular ? "no permission" : "no such file",
                    "check the path; relative paths count from the current directory"});
  }
  unsigned char magic[4];
  if (file.Read(magic, 4) != 4) return DamagedIdx(path, "an IDX header", "a file that ends before it");
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 8 || magic[3] != num_dims) {
    return DamagedIdx(path, absl::StrCat("IDX of bytes with ", num_dims, " dimensions (magic 0 0 8 ", num_dims, ")"),
                      absl::StrCat("magic ", magic[0], " ", magic[1], " ", magic[2], " ", magic[3]));
  }
  IdxArray array;
  for (int i = 0; i < num_dims; ++i) {
    unsigned char b[4];
    if (file.Read(b, 4) != 4) return DamagedIdx(path, "an IDX header", "a file that ends within it");
    array.shape.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]});
  }
  int64_t elements = NumElements(array.shape);
  if (elements < 0 || elements > kElementsMax) {
    return DamagedIdx(path, absl::StrCat("at most ", kElementsMax, " elements"), ToText(array.shape));
  }
  // In pieces: a header may promise far more than the file has.
  while (static_cast<int64_t>(array.data.size()) < elements) {
    size_t before = array.data.size();
    int64_t piece = std::min(elements - static_cast<int64_t>(before), int64_t{16} * kPieceBytes);
    array.data.resize(before + static_cast<size_t>(piece));
    int64_t done = file.Read(array.data.data() + before, piece);
    if (done != piece) {
      std::string flaw = file.Flaw();
      return DamagedIdx(path, absl::StrCat(elements, " elements for shape ", ToText(array.shape)),
                        absl::StrCat("only ", static_cast<int64_t>(before) + done, flaw.empty() ? "" : "; gzip says: ", flaw));
    }
  }
  char extra;
  if (file.Read(&extra, 1) != 0) {
    return DamagedIdx(path, absl::StrCat("the file to end after ", elements, " elements"), "more bytes");
  }
  std::string flaw = file.Flaw();
  if (!flaw.empty()) return DamagedIdx(path, "a whole gzip stream", flaw);
  return array;
}

}  // namespace weir
