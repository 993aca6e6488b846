#include "runtime/store/stored_array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/store/npy_header.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/zip_directory.h"

namespace weir::store {
namespace {

constexpr int64_t kPieceElements = 1 << 16;
constexpr int64_t kMembersMax = 10'000;
constexpr size_t kFolderFilesMax = 256;  // each is open while a job runs

struct TypeNames {
  ElementType type;
  const char* name;
  const char* npy;          // nullptr: NumPy has no such type
  const char* safetensors;  // likewise
  int64_t width;
};
constexpr TypeNames kTypes[] = {
    {ElementType::kBool, "bool", "'|b1'", "BOOL", 1}, {ElementType::kU8, "u8", "'|u1'", "U8", 1},
    {ElementType::kI8, "i8", "'|i1'", "I8", 1},       {ElementType::kU16, "u16", "'<u2'", "U16", 2},
    {ElementType::kI16, "i16", "'<i2'", "I16", 2},    {ElementType::kU32, "u32", "'<u4'", "U32", 4},
    {ElementType::kI32, "i32", "'<i4'", "I32", 4},    {ElementType::kU64, "u64", "'<u8'", "U64", 8},
    {ElementType::kI64, "i64", "'<i8'", "I64", 8},    {ElementType::kF16, "f16", "'<f2'", "F16", 2},
    {ElementType::kBF16, "bf16", nullptr, "BF16", 2}, {ElementType::kF32, "f32", "'<f4'", "F32", 4},
    {ElementType::kF64, "f64", "'<f8'", "F64", 8}};

const TypeNames& NamesOf(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

absl::Status NoArray(const std::string& place, const std::string& expected,
                     const std::string& found, const std::string& hint) {
  return Rejected({"W0790", place, expected, found, hint});
}

template <class T>
T ElementAt(const uint8_t* bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Calls convert(i, element) for each element, the element as a number of C++, and returns the first
// i for which `convert` is false, or -1.
template <class Convert>
int64_t FirstRefused(ElementType type, const uint8_t* bytes, int64_t count, Convert&& convert) {
  const auto all = [&](auto element_at) -> int64_t {
    for (int64_t i = 0; i < count; ++i) {
      if (!convert(i, element_at(i))) return i;
    }
    return -1;
  };
  switch (type) {
    case ElementType::kBool: return all([&](int64_t i) { return uint8_t{bytes[i] != 0}; });
    case ElementType::kU8: return all([&](int64_t i) { return bytes[i]; });
    case ElementType::kI8: return all([&](int64_t i) { return ElementAt<int8_t>(bytes, i); });
    case ElementType::kU16: return all([&](int64_t i) { return ElementAt<uint16_t>(bytes, i); });
    case ElementType::kI16: return all([&](int64_t i) { return ElementAt<int16_t>(bytes, i); });
    case ElementType::kU32: return all([&](int64_t i) { return ElementAt<uint32_t>(bytes, i); });
    case ElementType::kI32: return all([&](int64_t i) { return ElementAt<int32_t>(bytes, i); });
    case ElementType::kU64: return all([&](int64_t i) { return ElementAt<uint64_t>(bytes, i); });
    case ElementType::kI64: return all([&](int64_t i) { return ElementAt<int64_t>(bytes, i); });
    case ElementType::kF16:
      return all([&](int64_t i) { return ToFloat(Float16{ElementAt<uint16_t>(bytes, i)}); });
    case ElementType::kBF16:
      return all([&](int64_t i) { return ToFloat(BFloat16{ElementAt<uint16_t>(bytes, i)}); });
    case ElementType::kF32: return all([&](int64_t i) { return ElementAt<float>(bytes, i); });
    case ElementType::kF64: return all([&](int64_t i) { return ElementAt<double>(bytes, i); });
  }
  return -1;
}

// Returns the text of element i, for messages.
std::string ElementText(ElementType type, const uint8_t* bytes, int64_t i) {
  std::string text;
  FirstRefused(type, bytes + i * WidthOf(type), 1, [&](int64_t, auto element) {
    text = absl::StrCat(element);
    return true;
  });
  return text;
}

// Writes elements as i32 and returns the first that i32 does not have, or -1.
int64_t ToIntegers(ElementType type, const uint8_t* bytes, int64_t count, int32_t* out) {
  return FirstRefused(type, bytes, count, [out](int64_t i, auto element) {
    out[i] = static_cast<int32_t>(element);
    if constexpr (std::is_unsigned_v<decltype(element)>)
      return element <= static_cast<uint32_t>(std::numeric_limits<int32_t>::max());
    return static_cast<decltype(element)>(out[i]) == element;
  });
}

// Writes elements as truth values and returns the first that is neither 0 nor 1, or -1.
int64_t ToTruth(ElementType type, const uint8_t* bytes, int64_t count, uint8_t* out) {
  return FirstRefused(type, bytes, count, [out](int64_t i, auto element) {
    out[i] = element != 0;
    return element == 0 || element == 1;
  });
}

// Writes elements as f32 and returns the first finite one that becomes infinite, or -1.
int64_t ToReals(ElementType type, const uint8_t* bytes, int64_t count,
                const std::optional<ElementScale>& scale, float* out) {
  const ElementScale by = scale.value_or(ElementScale());
  return FirstRefused(type, bytes, count, [out, by](int64_t i, auto element) {
    const auto value = static_cast<double>(element);
    out[i] = static_cast<float>(value * by.by + by.plus);
    return !std::isinf(out[i]) || !std::isfinite(value);
  });
}

// Returns what an input of type `dtype` expects of an element.
const char* ExpectedElement(DType dtype) {
  if (dtype == DType::kI32) return "an integer of 32 bits, for an input of i32";
  if (dtype == DType::kBool) return "0 or 1, for an input of bool";
  return "a number that is finite as f32, with its scale, for an input of f32";
}

const char* ElementAdvice(DType dtype) {
  if (dtype == DType::kI32) return "save ids below 2^31";
  if (dtype == DType::kBool) return "save (array != 0), or give the input the type i32";
  return "save smaller numbers, such as their logarithms";
}

absl::StatusOr<StoredArray> NpyArrayAt(const std::string& place,
                                       std::shared_ptr<const WatchedFile> file, int64_t begin,
                                       int64_t size) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(size, kNpyHeaderBytesMax)));
  WEIR_RETURN_IF_ERROR(file->ReadAt(begin, static_cast<int64_t>(bytes.size()), bytes.data()));
  if (!IsNpy(bytes)) {
    return NoArray(place, "an array of NumPy, which begins with \\x93NUMPY", "other bytes",
                   "save the array with numpy.save");
  }
  WEIR_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader("W0790", place, bytes));
  const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& type) {
    return type.npy != nullptr && header.descr == type.npy;
  });
  if (known == std::end(kTypes)) {
    return NoArray(place,
                   "elements of bool, of integers or of real numbers of 16 to 64 bits, "
                   "little-endian",
                   absl::StrCat("elements of type ", header.descr),
                   "save the array with .astype(\"float32\") or .astype(\"int32\")");
  }
  if (header.shape.empty()) {
    return NoArray(place, "an array whose first dimension counts samples", "a single number",
                   "save one element a sample");
  }
  if (header.fortran_order && header.shape.size() > 1) {
    return NoArray(place, "an array in row-major order", "column-major order",
                   "save numpy.ascontiguousarray(array)");
  }
  const int64_t elements = NumElements(header.shape);
  if (elements > (size - header.begin) / known->width) {
    return NoArray(place, absl::StrCat(elements, " elements, as the header says"),
                   absl::StrCat((size - header.begin) / known->width), "copy the file again");
  }
  return StoredArray(place, std::move(file), begin + header.begin, known->type, header.shape);
}

std::string InFile(const std::string& path, const std::string& array) {
  return absl::StrCat(path, ", array ", array);
}

using Arrays = std::map<std::string, StoredArray>;

absl::StatusOr<Arrays> ArraysOfFolder(const std::string& path, const std::string& purpose) {
  std::error_code error;
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".npy") files.push_back(it->path().string());
    if (files.size() > kFolderFilesMax) {
      return NoArray(path, absl::StrCat("at most ", kFolderFilesMax, " files .npy"), "more",
                     "name the files with `array`");
    }
  }
  if (error) {
    return Missing({"W0790", path, "a folder that can be read", error.message(), "check the path"});
  }
  std::sort(files.begin(), files.end());
  Arrays arrays;
  for (const std::string& file : files) {
    WEIR_ASSIGN_OR_RETURN(StoredArray array, OpenNpyArray(file, purpose));
    arrays.emplace(std::filesystem::path(file).stem().string(), std::move(array));
  }
  return arrays;
}

absl::StatusOr<Arrays> ArraysOfZip(const std::shared_ptr<const WatchedFile>& file) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<ZipMember> members, ZipMembersOf(*file, kMembersMax));
  Arrays arrays;
  for (const ZipMember& member : members) {
    if (!absl::EndsWith(member.name, ".npy")) continue;
    const std::string name(absl::StripSuffix(member.name, ".npy"));
    const std::string place = InFile(file->path(), name);
    if (!member.is_stored) {
      return NoArray(place, "an array that is not compressed", "a compressed array",
                     "save the arrays with numpy.savez, not with numpy.savez_compressed");
    }
    WEIR_ASSIGN_OR_RETURN(StoredArray array, NpyArrayAt(place, file, member.begin, member.size));
    arrays.emplace(name, std::move(array));
  }
  return arrays;
}

absl::StatusOr<Arrays> ArraysOfSafetensors(const std::shared_ptr<const WatchedFile>& file) {
  // The reader compares all sizes with the file.
  WEIR_ASSIGN_OR_RETURN(const auto reader, SafetensorsReader::Open(file->path()));
  Arrays arrays;
  for (const auto& [name, tensor] : reader->tensors()) {
    const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& type) {
      return tensor.dtype == type.safetensors;
    });
    if (tensor.shape.empty() || tensor.file != 0) continue;
    if (known == std::end(kTypes)) {
      return NoArray(InFile(file->path(), name), "elements of a known type",
                     absl::StrCat("elements of type ", tensor.dtype), "save the array as F32");
    }
    if (tensor.end > file->size()) {
      return NoArray(file->path(), "a file that does not change", "another size", "start again");
    }
    arrays.emplace(name, StoredArray(InFile(file->path(), name), file, tensor.begin, known->type,
                                     tensor.shape));
  }
  return arrays;
}

}  // namespace

const char* Name(ElementType type) { return NamesOf(type).name; }
int64_t WidthOf(ElementType type) { return NamesOf(type).width; }
bool IsReal(ElementType type) { return type >= ElementType::kF16; }
bool IsInteger(ElementType type) { return type != ElementType::kBool && !IsReal(type); }

bool Converts(ElementType from, DType to, bool has_scale) {
  if (has_scale) return to == DType::kF32;
  switch (to) {
    case DType::kF32: return !IsInteger(from);
    case DType::kI32:
    case DType::kBool: return !IsReal(from);
    case DType::kBF16:
    case DType::kF16: break;
  }
  return false;
}

std::string StoredArray::TypeText() const {
  return absl::StrCat(Name(type_), weir::ToText(shape_));
}

std::string StoredArray::PositionText(int64_t position) const {
  int64_t of_sample = 1;
  for (size_t d = 1; d < shape_.size(); ++d) of_sample *= shape_[d];
  const std::string sample = absl::StrCat("sample ", position / of_sample);
  return of_sample == 1 ? sample : absl::StrCat(sample, ", element ", position % of_sample);
}

int64_t StoredArray::SkipHole(int64_t begin) const {
  const int64_t width = WidthOf(type_);
  const int64_t byte = file_->SkipHole(begin_ + begin * width);
  return std::clamp((byte - begin_) / width, begin, NumElements(shape_));
}

absl::Status StoredArray::Read(int64_t begin, int64_t count, DType dtype,
                               const std::optional<ElementScale>& scale, void* out) const {
  const int64_t width = WidthOf(type_);
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(count, kPieceElements) * width));
  for (int64_t done = 0; done < count;) {
    const int64_t piece = std::min(count - done, kPieceElements);
    WEIR_RETURN_IF_ERROR(
        file_->ReadAt(begin_ + (begin + done) * width, piece * width, bytes.data()));
    int64_t refused = -1;
    if (dtype == DType::kI32)
      refused = ToIntegers(type_, bytes.data(), piece, static_cast<int32_t*>(out) + done);
    if (dtype == DType::kBool)
      refused = ToTruth(type_, bytes.data(), piece, static_cast<uint8_t*>(out) + done);
    if (dtype == DType::kF32)
      refused = ToReals(type_, bytes.data(), piece, scale, static_cast<float*>(out) + done);
    if (refused >= 0) {
      return Rejected({"W0793", absl::StrCat(place_, ", ", PositionText(begin + done + refused)),
                       ExpectedElement(dtype), ElementText(type_, bytes.data(), refused),
                       ElementAdvice(dtype)});
    }
    done += piece;
  }
  return absl::OkStatus();
}

absl::Status StoredArray::ReadNumbers(int64_t begin, int64_t count, double* out) const {
  const int64_t width = WidthOf(type_);
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(count, kPieceElements) * width));
  for (int64_t done = 0; done < count; done += kPieceElements) {
    const int64_t piece = std::min(count - done, kPieceElements);
    WEIR_RETURN_IF_ERROR(
        file_->ReadAt(begin_ + (begin + done) * width, piece * width, bytes.data()));
    FirstRefused(type_, bytes.data(), piece, [&](int64_t i, auto element) {
      out[done + i] = static_cast<double>(element);
      return true;
    });
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredArray> OpenNpyArray(const std::string& path, const std::string& purpose) {
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const WatchedFile> file, WatchedFile::Open(path, purpose));
  WEIR_ASSIGN_OR_RETURN(const bool is_zip, IsZip(*file));
  if (is_zip) {
    return NoArray(path, "a file .npy with one array", "an archive .npz",
                   "data { arrays { path: \"FILE.npz\" } }");
  }
  const int64_t size = file->size();
  return NpyArrayAt(path, std::move(file), 0, size);
}

absl::StatusOr<std::map<std::string, StoredArray>> ArraysIn(const std::string& path,
                                                            const std::string& purpose) {
  std::error_code error;
  Arrays arrays;
  if (std::filesystem::is_directory(path, error)) {
    WEIR_ASSIGN_OR_RETURN(arrays, ArraysOfFolder(path, purpose));
  } else {
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const WatchedFile> file,
                          WatchedFile::Open(path, purpose));
    WEIR_ASSIGN_OR_RETURN(const bool is_zip, IsZip(*file));
    if (is_zip) {
      WEIR_ASSIGN_OR_RETURN(arrays, ArraysOfZip(file));
    } else if (absl::EndsWith(path, ".safetensors")) {
      WEIR_ASSIGN_OR_RETURN(arrays, ArraysOfSafetensors(file));
    } else {
      std::vector<uint8_t> bytes(static_cast<size_t>(std::min<int64_t>(6, file->size())));
      WEIR_RETURN_IF_ERROR(file->ReadAt(0, static_cast<int64_t>(bytes.size()), bytes.data()));
      const std::string stem = std::filesystem::path(path).stem().string();
      return NoArray(path, "a folder of .npy files, an .npz file or a .safetensors file",
                     IsNpy(bytes) ? "a file .npy, which has no names" : "another file",
                     IsNpy(bytes)
                         ? absl::StrCat("array { name: \"", stem, "\" path: \"", path, "\" }")
                         : "save the arrays with numpy.savez");
    }
  }
  if (arrays.empty()) {
    return NoArray(path, "arrays, whose first dimension counts samples", "none",
                   "save them with numpy.savez, or as .npy files in a folder");
  }
  return arrays;
}

}  // namespace weir::store
