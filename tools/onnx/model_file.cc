#include "tools/onnx/model_file.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"

namespace weir::onnx {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

absl::Status NotAModel(const std::string& name, const std::string& found) {
  return Rejected({"W0830", name, "a model of ONNX", found,
                   "export the model again, or look at the file with another program"});
}

// Walks over the wire form of a message and counts what a parser would make of it.
class WireCounter {
 public:
  explicit WireCounter(std::string name) : name_(std::move(name)) {}

  absl::Status Walk(absl::string_view bytes, const Descriptor* message, int depth) {
    if (depth > kDepthMax)
      return Beyond(absl::StrCat("at most ", kDepthMax, " messages in one another"), "more");
    if (++messages_ > kMessagesMax)
      return Beyond(absl::StrCat("at most ", kMessagesMax, " messages"), "more");
    while (!bytes.empty()) {
      uint64_t tag = 0, length = 0;
      if (!TakeVarint(&bytes, &tag)) return NotAModel(name_, "a damaged field");
      structure_bytes_ += 8;
      const FieldDescriptor* field = message->FindFieldByNumber(static_cast<int>(tag >> 3));
      switch (tag & 7) {
        case 0:
          if (!TakeVarint(&bytes, &length)) return NotAModel(name_, "a damaged number");
          break;
        case 1:
        case 5:
          length = (tag & 7) == 1 ? 8 : 4;
          if (bytes.size() < length) return NotAModel(name_, "a file that ends within a number");
          bytes.remove_prefix(length);
          break;
        case 2:
          if (!TakeVarint(&bytes, &length) || length > bytes.size())
            return NotAModel(name_, "a file that ends within a field");
          WEIR_RETURN_IF_ERROR(Field(bytes.substr(0, length), field, depth));
          bytes.remove_prefix(length);
          break;
        default: return NotAModel(name_, absl::StrCat("a field of unknown kind ", tag & 7));
      }
      if (structure_bytes_ > kStructureBytesMax) {
        return Beyond(
            absl::StrCat("at most ", kStructureBytesMax, " bytes besides the elements of tensors"),
            "more");
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Field(absl::string_view bytes, const FieldDescriptor* field, int depth) {
    if (field == nullptr) return absl::OkStatus();
    switch (field->type()) {
      case FieldDescriptor::TYPE_MESSAGE: return Walk(bytes, field->message_type(), depth + 1);
      case FieldDescriptor::TYPE_BYTES:
      case FieldDescriptor::TYPE_FLOAT:
      case FieldDescriptor::TYPE_DOUBLE: break;  // as many bytes in memory as in the file
      default: structure_bytes_ += static_cast<int64_t>(bytes.size()); break;
    }
    return absl::OkStatus();
  }

  static bool TakeVarint(absl::string_view* bytes, uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes->front());
      bytes->remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  absl::Status Beyond(const std::string& expected, const std::string& found) const {
    return Rejected({"W0830", name_, expected, found,
                     "keep large tensors in `raw_data` or in files of external data"});
  }

  const std::string name_;
  int64_t messages_ = 0;
  int64_t structure_bytes_ = 0;
};

absl::Status Parse(absl::string_view bytes, const std::string& name,
                   google::protobuf::Message* message) {
  if (static_cast<int64_t>(bytes.size()) > kModelBytesMax) {
    return Rejected({"W0830", name, absl::StrCat("a file of at most ", kModelBytesMax, " bytes"),
                     absl::StrCat(bytes.size()), "export with external data"});
  }
  WireCounter counter(name);
  WEIR_RETURN_IF_ERROR(counter.Walk(bytes, message->GetDescriptor(), 0));
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetTotalBytesLimit(static_cast<int>(kModelBytesMax));
  stream.SetRecursionLimit(kDepthMax + 2);
  if (!message->ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    return NotAModel(name, "fields that do not fit the format");
  message->DiscardUnknownFields();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<proto::OnnxModel> ParseModel(absl::string_view bytes, const std::string& name) {
  proto::OnnxModel model;
  WEIR_RETURN_IF_ERROR(Parse(bytes, name, &model));
  if (!model.has_graph()) return NotAModel(name, "no graph in it");
  if (model.opset_size() == 0) return NotAModel(name, "no version of the operations in it");
  return model;
}

absl::StatusOr<proto::OnnxTensor> ParseTensor(absl::string_view bytes, const std::string& name) {
  proto::OnnxTensor tensor;
  WEIR_RETURN_IF_ERROR(Parse(bytes, name, &tensor));
  return tensor;
}

absl::StatusOr<proto::OnnxModel> ReadModelFile(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::MappedFile> file,
                        store::MappedFile::Open(path, "model of ONNX"));
  return ParseModel(file->text(), path);
}

}  // namespace weir::onnx
