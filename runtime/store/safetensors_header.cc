#include "runtime/store/safetensors_header.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"

namespace weir::store {
namespace {

using Json = nlohmann::json;

// An entry of 50 bytes of text takes some 500 in memory, so the contents of a header have bounds.
// With these bounds reading takes at most 4 times the file and 64 MiB.
constexpr size_t kTensorsMax = 100'000;
constexpr size_t kMetadataMax = 200'000;
constexpr size_t kNumbersMax = 16;  // of a shape; the most that anybody uses is 8
constexpr size_t kNameBytesMax = 64 << 10;
constexpr size_t kMetadataBytesMax = 16 << 20;

// A HeaderHandler receives the header piece by piece, and builds no document. Its states are:
//
//   kStart -{-> kTop -key-> kValue -{-> kTensor -"dtype"-> kDtype -string-> kTensor
//                                               -"shape"-> kShape -[-> kShapeItems -]-> kTensor
//                                               -"data_offsets"-> likewise
//               "__metadata__"     -{-> kMetadata -key-> kMetadataValue -string-> kMetadata
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(SafetensorsHeader* header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override {
    return Unexpected("the number " + text);
  }
  bool binary(Json::binary_t&) override { return Unexpected("binary data"); }
  bool number_integer(int64_t value) override {
    return Unexpected(absl::StrCat("the negative number ", value));
  }
  bool number_unsigned(uint64_t value) override {
    if (state_ != State::kItems) return Unexpected(absl::StrCat("the number ", value));
    if (value > static_cast<uint64_t>(INT64_MAX))
      return Fail(absl::StrCat("the number ", value, ", beyond 2^63"));
    items_->push_back(static_cast<int64_t>(value));
    if (items_->size() > kNumbersMax)
      return Fail(absl::StrCat("a list of more than ", kNumbersMax, " numbers"));
    return true;
  }
  bool string(std::string& value) override {
    if (state_ == State::kDtype) {
      header_->tensors.back().dtype = value;
      state_ = State::kTensor;
      return true;
    }
    if (state_ == State::kMetadataValue) {
      if (value.size() > kMetadataBytesMax)
        return Fail(absl::StrCat("metadata of more than ", kMetadataBytesMax, " bytes"));
      if (header_->metadata.size() == kMetadataMax)
        return Fail(absl::StrCat("more than ", kMetadataMax, " entries of metadata"));
      header_->metadata[key_] = value;
      state_ = State::kMetadata;
      return true;
    }
    return Unexpected("a string");
  }
  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart: state_ = State::kTop; return true;
      case State::kValue:
        if (header_->tensors.size() == kTensorsMax)
          return Fail(absl::StrCat("more than ", kTensorsMax, " tensors"));
        header_->tensors.push_back({key_, "", {}, {}});
        seen_.clear();
        state_ = State::kTensor;
        return true;
      case State::kMetadataStart: state_ = State::kMetadata; return true;
      default: return Unexpected("an object");
    }
  }
  bool end_object() override {
    if (state_ == State::kTensor) {
      for (const char* needed : {"dtype", "shape", "data_offsets"}) {
        if (seen_.count(needed) == 0) return Fail(absl::StrCat("no \"", needed, "\""));
      }
      if (header_->tensors.back().offsets.size() != 2) {
        return Fail(
            absl::StrCat(header_->tensors.back().offsets.size(), " data_offsets instead of 2"));
      }
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }
  bool start_array(size_t) override {
    if (state_ != State::kList) return Unexpected("a list");
    state_ = State::kItems;
    return true;
  }
  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }
  bool key(std::string& key) override {
    if (key.size() > kNameBytesMax)
      return Fail(absl::StrCat("a name of more than ", kNameBytesMax, " bytes"));
    if (state_ == State::kTop) {
      key_ = key;
      if (!names_.insert(key).second) return Fail("the same name twice");
      state_ = key == "__metadata__" ? State::kMetadataStart : State::kValue;
      return true;
    }
    if (state_ == State::kMetadata) {
      key_ = key;
      if (header_->metadata.count(key) > 0) return Fail("the same metadata key twice");
      state_ = State::kMetadataValue;
      return true;
    }
    if (state_ != State::kTensor) return Unexpected("the key " + key);
    if (!seen_.insert(key).second) return Fail("\"" + key + "\" twice");
    SafetensorsHeader::Tensor& tensor = header_->tensors.back();
    if (key == "dtype") {
      state_ = State::kDtype;
    } else if (key == "shape") {
      state_ = State::kList;
      items_ = &tensor.shape;
    } else if (key == "data_offsets") {
      state_ = State::kList;
      items_ = &tensor.offsets;
    } else {
      return Fail("the unknown key \"" + key + "\"");
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = absl::StrCat("text that is not JSON, at byte ", position, " of the header");
    return false;
  }

 private:
  enum class State {
    kStart,
    kTop,
    kValue,
    kTensor,
    kDtype,
    kList,
    kItems,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kEnd
  };

  bool Unexpected(const std::string& found) { return Fail(found + " in an unexpected place"); }
  bool Fail(const std::string& found) {
    error_ = key_.empty() ? found : absl::StrCat(found, ", at entry \"", key_, "\"");
    return false;
  }

  SafetensorsHeader* header_;
  State state_ = State::kStart;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> seen_;  // keys of the tensor being read
  std::vector<int64_t>* items_ = nullptr;
  std::string error_;
};

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& path, const char* text,
                                                         int64_t length) {
  SafetensorsHeader header;
  HeaderHandler handler(&header);
  bool parsed =
      Json::sax_parse(text, text + length, &handler, Json::input_format_t::json, /*strict=*/true);
  if (!parsed) {
    return Damaged({"W0042", path,
                    "a safetensors header: {name: {dtype, shape, data_offsets}, ...}",
                    handler.error().empty() ? "text that is not JSON" : handler.error(),
                    "write the file again"});
  }
  return header;
}

}  // namespace weir::store
