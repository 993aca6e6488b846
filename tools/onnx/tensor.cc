#include "tools/onnx/tensor.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"

namespace weir::onnx {
namespace {

namespace fs = std::filesystem;

int64_t BytesOf(Element element) {
  switch (element) {
    case Element::kU8:
    case Element::kI8:
    case Element::kBool: return 1;
    case Element::kU16:
    case Element::kI16:
    case Element::kF16:
    case Element::kBF16: return 2;
    case Element::kF32:
    case Element::kI32:
    case Element::kU32: return 4;
    case Element::kI64:
    case Element::kU64:
    case Element::kF64: return 8;
    case Element::kUndefined:
    case Element::kString: break;
  }
  return 0;
}

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

void Append(Element element, const char* bytes, Tensor* out) {
  switch (element) {
    case Element::kF32: return out->reals.push_back(Load<float>(bytes));
    case Element::kF64: return out->reals.push_back(static_cast<float>(Load<double>(bytes)));
    case Element::kF16: return out->reals.push_back(ToFloat(Load<Float16>(bytes)));
    case Element::kBF16: return out->reals.push_back(ToFloat(Load<BFloat16>(bytes)));
    case Element::kBool: return out->integers.push_back(Load<uint8_t>(bytes) != 0 ? 1 : 0);
    case Element::kU8: return out->integers.push_back(Load<uint8_t>(bytes));
    case Element::kI8: return out->integers.push_back(Load<int8_t>(bytes));
    case Element::kU16: return out->integers.push_back(Load<uint16_t>(bytes));
    case Element::kI16: return out->integers.push_back(Load<int16_t>(bytes));
    case Element::kI32: return out->integers.push_back(Load<int32_t>(bytes));
    case Element::kU32: return out->integers.push_back(Load<uint32_t>(bytes));
    case Element::kI64: return out->integers.push_back(Load<int64_t>(bytes));
    case Element::kU64: return out->integers.push_back(static_cast<int64_t>(Load<uint64_t>(bytes)));
    case Element::kUndefined:
    case Element::kString: return;
  }
}

absl::Status FromRaw(absl::string_view raw, int64_t count, const std::string& where, Tensor* out) {
  const int64_t size = BytesOf(out->element);
  if (static_cast<int64_t>(raw.size()) != count * size) {
    return Rejected({"W0831", where, absl::StrCat(count * size, " bytes of elements"),
                     absl::StrCat(raw.size()), ""});
  }
  for (int64_t i = 0; i < count; ++i) Append(out->element, raw.data() + i * size, out);
  return absl::OkStatus();
}

// Takes the elements from the lists of numbers.
absl::Status FromLists(const proto::OnnxTensor& tensor, int64_t count, const std::string& where,
                       Tensor* out) {
  int64_t found = 0;
  if (out->element == Element::kF32) {
    out->reals.assign(tensor.floats().begin(), tensor.floats().end());
    found = tensor.floats_size();
  } else if (out->element == Element::kF64) {
    for (double value : tensor.doubles()) out->reals.push_back(static_cast<float>(value));
    found = tensor.doubles_size();
  } else if (out->element == Element::kF16 || out->element == Element::kBF16) {
    for (int32_t bits : tensor.ints()) {
      const auto half = static_cast<uint16_t>(bits);
      out->reals.push_back(out->element == Element::kF16 ? ToFloat(Float16{half})
                                                         : ToFloat(BFloat16{half}));
    }
    found = tensor.ints_size();
  } else if (out->element == Element::kI64) {
    out->integers.assign(tensor.longs().begin(), tensor.longs().end());
    found = tensor.longs_size();
  } else if (out->element == Element::kU32 || out->element == Element::kU64) {
    for (uint64_t value : tensor.unsigned_longs())
      out->integers.push_back(static_cast<int64_t>(value));
    found = tensor.unsigned_longs_size();
  } else {
    const bool is_truth = out->element == Element::kBool;
    for (int32_t value : tensor.ints())
      out->integers.push_back(is_truth ? (value != 0 ? 1 : 0) : value);
    found = tensor.ints_size();
  }
  if (found == count) return absl::OkStatus();
  return Rejected({"W0831", where, absl::StrCat(count, " elements"), absl::StrCat(found), ""});
}

absl::Status Outside(const std::string& where, const std::string& location) {
  return Rejected({"W0832", where, "a file in the folder of the model",
                   absl::StrCat("\"", location, "\""),
                   "put the files of the model into one folder"});
}

// Maps the file of an external tensor and gives its bytes.
absl::Status FromFile(const proto::OnnxTensor& tensor, const ExternalFiles& files, int64_t count,
                      const std::string& where, Tensor* out) {
  std::map<std::string, std::string> entries;
  for (const proto::OnnxEntry& entry : tensor.external()) entries[entry.key()] = entry.value();
  const std::string& location = entries["location"];
  if (files.folder.empty() || location.empty() || location.find('\0') != std::string::npos)
    return Outside(where, location);
  std::error_code error;
  const fs::path folder = fs::canonical(files.folder, error);
  if (error) return Outside(where, location);
  const fs::path path = fs::canonical(folder / location, error);
  if (error) {
    return Missing({"W0040", where, "a readable file of external data", location,
                    "put the files of the model into one folder"});
  }
  const fs::path inside = path.lexically_relative(folder);
  if (inside.empty() || *inside.begin() == "..") return Outside(where, location);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::MappedFile> file,
                        store::MappedFile::Open(path.string(), "elements of tensors"));
  int64_t offset = 0, length = count * BytesOf(out->element);
  const bool has_offset = entries.count("offset") > 0 && !entries["offset"].empty();
  const bool has_length = entries.count("length") > 0 && !entries["length"].empty();
  if ((has_offset && !absl::SimpleAtoi(entries["offset"], &offset)) ||
      (has_length && !absl::SimpleAtoi(entries["length"], &length)) || offset < 0 || length < 0 ||
      offset > file->size() || length > file->size() - offset) {
    return Rejected(
        {"W0832", where,
         absl::StrCat("offset and length within the ", file->size(), " bytes of ", location),
         absl::StrCat("offset ", entries["offset"], ", length ", length),
         "copy the whole file again"});
  }
  return FromRaw(file->text().substr(offset, length), count, where, out);
}

}  // namespace

std::string Name(Element element) {
  switch (element) {
    case Element::kUndefined: return "no type";
    case Element::kF32: return "f32";
    case Element::kU8: return "u8";
    case Element::kI8: return "i8";
    case Element::kU16: return "u16";
    case Element::kI16: return "i16";
    case Element::kI32: return "i32";
    case Element::kI64: return "i64";
    case Element::kString: return "text";
    case Element::kBool: return "bool";
    case Element::kF16: return "f16";
    case Element::kF64: return "f64";
    case Element::kU32: return "u32";
    case Element::kU64: return "u64";
    case Element::kBF16: return "bf16";
  }
  return absl::StrCat("type ", static_cast<int>(element));
}

bool IsReal(Element element) {
  return element == Element::kF32 || element == Element::kF16 || element == Element::kBF16 ||
         element == Element::kF64;
}

bool IsInteger(Element element) {
  return BytesOf(element) > 0 && !IsReal(element) && element != Element::kBool;
}

int64_t Count(const std::vector<int64_t>& shape) {
  if (shape.size() > kRankMax) return -1;
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 0 || size > kWeightElementsMax) return -1;
    if (size > 0 && count > (int64_t{1} << 62) / size) return -1;
    count *= size;
  }
  return count;
}

Tensor MakeIntegers(std::vector<int64_t> values) {
  return {Element::kI64, {static_cast<int64_t>(values.size())}, {}, std::move(values)};
}

Tensor MakeReals(std::vector<float> values, std::vector<int64_t> shape) {
  return {Element::kF32, std::move(shape), std::move(values), {}};
}

absl::StatusOr<Tensor> Decode(const proto::OnnxTensor& tensor, const ExternalFiles& files,
                              int64_t elements_max, const std::string& where) {
  Tensor out;
  out.shape.assign(tensor.dims().begin(), tensor.dims().end());
  const bool is_known = tensor.type() >= 0 && tensor.type() <= 16;
  out.element = is_known ? static_cast<Element>(tensor.type()) : Element::kUndefined;
  if (BytesOf(out.element) == 0) {
    return Rejected({"W0831", where, "elements that are numbers",
                     is_known ? Name(out.element) : absl::StrCat("type ", tensor.type()),
                     "f32, f16, bf16, f64, integers or bool"});
  }
  const int64_t count = Count(out.shape);
  if (count < 0 || count > elements_max) {
    return Rejected({"W0831", where, absl::StrCat("a shape of at most ", elements_max, " elements"),
                     absl::StrCat("[", absl::StrJoin(out.shape, ", "), "]"), ""});
  }
  if (tensor.place() == 1) {
    WEIR_RETURN_IF_ERROR(FromFile(tensor, files, count, where, &out));
  } else if (!tensor.raw().empty()) {
    WEIR_RETURN_IF_ERROR(FromRaw(tensor.raw(), count, where, &out));
  } else {
    WEIR_RETURN_IF_ERROR(FromLists(tensor, count, where, &out));
  }
  return out;
}

}  // namespace weir::onnx
