#include "runtime/store/idx_file.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/input_file.h"
#include "zlib.h"

namespace weir::store {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kElementsMax = int64_t{1} << 34;
// The limit to which a file may unpack. gzip can pack a thousand zeros into one byte, so that a
// small file could otherwise take all memory.
constexpr int64_t kUnpackedTimesMax = 4;
constexpr int64_t kUnpackedBytesMin = 32 << 20;

constexpr unsigned char kUnsignedBytes = 8;

// Returns the element type that the third byte of an IDX file stands for; null: the byte is not
// valid.
const char* ElementName(unsigned char code) {
  switch (code) {
    case kUnsignedBytes: return "unsigned bytes";
    case 9: return "signed bytes";
    case 11: return "16-bit integers";
    case 12: return "32-bit integers";
    case 13: return "32-bit floats";
    case 14: return "64-bit floats";
    default: return nullptr;
  }
}

std::string Dimensions(int count) {
  return absl::StrCat(count, count == 1 ? " dimension" : " dimensions");
}

class GzipFile {
 public:
  // Reads from the descriptor's position, and closes the descriptor.
  explicit GzipFile(int descriptor) : file_(gzdopen(descriptor, "rb")), descriptor_(descriptor) {}
  ~GzipFile() {
    if (file_ != nullptr) {
      gzclose(file_);
    } else {
      ::close(descriptor_);
    }
  }
  bool is_open() const { return file_ != nullptr; }
  // Returns the number of bytes read, at most `bytes`; fewer only at the end or on an error (see
  // Flaw).
  int64_t Read(void* out, int64_t bytes) {
    int64_t done = 0;
    while (done < bytes) {
      int piece = gzread(file_, static_cast<char*>(out) + done,
                         static_cast<unsigned>(std::min(bytes - done, kPieceBytes)));
      if (piece <= 0) break;
      done += piece;
    }
    return done;
  }
  // Returns zlib's error in the file so far; empty if there is none.
  std::string Flaw() {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return code == Z_OK ? "" : std::string(text);
  }

 private:
  gzFile file_;
  int descriptor_;
};

absl::Status DamagedIdx(const std::string& path, const std::string& expected,
                        const std::string& found) {
  return Damaged({"W0057", path, expected, found, "fetch the file again"});
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, int num_dims,
                                     const std::string& purpose) {
  const InputFile::Naming naming = {.expected = "a readable file (" + purpose + ")"};
  WEIR_ASSIGN_OR_RETURN(InputFile input, InputFile::Open(path, naming));
  const int64_t elements_max =
      std::min(kElementsMax, kUnpackedTimesMax * input.size() + kUnpackedBytesMin);
  GzipFile file(input.Release());
  if (!file.is_open())
    return Missing({naming.code, path, naming.expected, "no memory to read it with", naming.hint});
  unsigned char magic[4];
  if (file.Read(magic, 4) != 4)
    return DamagedIdx(path, "an IDX header", "a file that ends before it");
  const char* const type = magic[0] == 0 && magic[1] == 0 ? ElementName(magic[2]) : nullptr;
  if (type == nullptr) {
    return DamagedIdx(
        path,
        absl::StrCat("IDX of bytes with ", num_dims, " dimensions (magic 0 0 8 ", num_dims, ")"),
        absl::StrCat("magic ", magic[0], " ", magic[1], " ", magic[2], " ", magic[3]));
  }
  if (magic[2] != kUnsignedBytes || magic[3] != num_dims) {
    return Rejected(
        {"W0905", path,
         absl::StrCat("IDX of ", ElementName(kUnsignedBytes), " with ", Dimensions(num_dims), " (",
                      purpose, ")"),
         absl::StrCat("IDX of ", type, " with ", Dimensions(magic[3])),
         magic[2] == kUnsignedBytes
             ? "check that images and labels are not exchanged"
             : "convert the elements to unsigned bytes; Weir reads no other IDX files"});
  }
  IdxArray array;
  for (int i = 0; i < num_dims; ++i) {
    unsigned char b[4];
    if (file.Read(b, 4) != 4)
      return DamagedIdx(path, "an IDX header", "a file that ends within it");
    array.shape.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 |
                          int64_t{b[3]});
  }
  int64_t elements = NumElements(array.shape);
  if (elements < 0 || elements > kElementsMax) {
    return DamagedIdx(path, absl::StrCat("at most ", kElementsMax, " elements"),
                      ToText(array.shape));
  }
  if (elements > elements_max) {
    return Damaged({"W0057", path,
                    absl::StrCat("at most ", kUnpackedTimesMax, " times the size of the file and ",
                                 kUnpackedBytesMin >> 20, " MiB"),
                    absl::StrCat("shape ", ToText(array.shape), ", ", elements, " bytes"),
                    "fetch it again, or unpack it with gunzip"});
  }
  array.data.reserve(static_cast<size_t>(elements));  // not touched before it is read
  // The file is read in pieces, because a header may promise far more than the file has.
  while (static_cast<int64_t>(array.data.size()) < elements) {
    size_t before = array.data.size();
    int64_t piece = std::min(elements - static_cast<int64_t>(before), int64_t{16} * kPieceBytes);
    array.data.resize(before + static_cast<size_t>(piece));
    int64_t done = file.Read(array.data.data() + before, piece);
    if (done != piece) {
      std::string flaw = file.Flaw();
      return DamagedIdx(path, absl::StrCat(elements, " elements for shape ", ToText(array.shape)),
                        absl::StrCat("only ", static_cast<int64_t>(before) + done,
                                     flaw.empty() ? "" : "; gzip says: ", flaw));
    }
  }
  char extra;
  if (file.Read(&extra, 1) != 0) {
    return DamagedIdx(path, absl::StrCat("the file to end after ", elements, " elements"),
                      "more bytes");
  }
  std::string flaw = file.Flaw();
  if (!flaw.empty()) return DamagedIdx(path, "a whole gzip stream", flaw);
  return array;
}

}  // namespace weir::store
