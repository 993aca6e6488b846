#include "tests/fuzz/job_mutator.h"

#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace weir::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A place in the message: field `field` of `message`, element `index` if it is a list.
struct Spot {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
  int index = 0;
};

constexpr int64_t kTellingCounts[] = {-1,
                                      0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      5,
                                      7,
                                      8,
                                      16,
                                      64,
                                      1000,
                                      65536,
                                      1 << 20,
                                      int64_t{1} << 31,
                                      int64_t{1} << 40,
                                      int64_t{1} << 62,
                                      std::numeric_limits<int64_t>::max(),
                                      std::numeric_limits<int64_t>::min()};
constexpr double kTellingNumbers[] = {0,
                                      1,
                                      -1,
                                      0.5,
                                      1e-30,
                                      1e30,
                                      1e308,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};

class Mutator {
 public:
  Mutator(uint64_t seed, Message* message) : random_(seed), message_(message) {}

  void Run() {
    const size_t num_changes = 1 + Below(4);
    for (size_t i = 0; i < num_changes; ++i) {
      spots_.clear();
      words_ = {"",     "f32[batch]", "[dp: S(0)]", "[tp: P(sum)]", "call",
                "relu", "pp",         "dp",         "batch=4/2",    "x"};
      Collect(message_);
      if (!spots_.empty()) Change(spots_[Below(spots_.size())]);
    }
  }

 private:
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }

  void Collect(Message* message) {
    const Reflection* reflection = message->GetReflection();
    for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
      const FieldDescriptor* field = message->GetDescriptor()->field(f);
      if (!field->is_repeated()) {
        spots_.push_back({message, field, 0});
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
          words_.push_back(reflection->GetString(*message, field));
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
            reflection->HasField(*message, field)) {
          Collect(reflection->MutableMessage(message, field));
        }
        continue;
      }
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
        spots_.push_back({message, field, i});
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
          words_.push_back(reflection->GetRepeatedString(*message, field, i));
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
          Collect(reflection->MutableRepeatedMessage(message, field, i));
      }
    }
  }

  void Change(const Spot& spot) {
    if (spot.field->is_repeated() && Below(2) == 0) {
      ChangeList(spot);
    } else if (spot.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE && Below(8) != 0) {
      ChangeValue(spot);
    } else if (!spot.field->is_repeated()) {
      const Reflection* reflection = spot.message->GetReflection();
      if (reflection->HasField(*spot.message, spot.field)) {
        reflection->ClearField(spot.message, spot.field);
      } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        reflection->MutableMessage(spot.message, spot.field);
      }
    }
  }

  // Drops, repeats or moves the element.
  void ChangeList(const Spot& spot) {
    const Reflection* reflection = spot.message->GetReflection();
    const int last = reflection->FieldSize(*spot.message, spot.field) - 1;
    switch (Below(3)) {
      case 0:
        reflection->SwapElements(spot.message, spot.field, spot.index, last);
        reflection->RemoveLast(spot.message, spot.field);
        break;
      case 1:
        if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
          Message* copy = reflection->AddMessage(spot.message, spot.field);
          copy->CopyFrom(reflection->GetRepeatedMessage(*spot.message, spot.field, spot.index));
        } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
          reflection->AddString(spot.message, spot.field, words_[Below(words_.size())]);
        }
        break;
      default:
        reflection->SwapElements(spot.message, spot.field, spot.index,
                                 static_cast<int>(Below(last + 1)));
    }
  }

  void ChangeValue(const Spot& spot) {
    const Reflection* reflection = spot.message->GetReflection();
    const FieldDescriptor* field = spot.field;
    const int64_t count = kTellingCounts[Below(std::size(kTellingCounts))];
    if (field->is_repeated()) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection->SetRepeatedString(spot.message, field, spot.index,
                                      words_[Below(words_.size())]);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        reflection->SetRepeatedInt64(spot.message, field, spot.index, count);
      }
      return;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(spot.message, field, words_[Below(words_.size())]);
        break;
      case FieldDescriptor::CPPTYPE_INT64: reflection->SetInt64(spot.message, field, count); break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(spot.message, field, static_cast<int32_t>(count));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetDouble(spot.message, field,
                              kTellingNumbers[Below(std::size(kTellingNumbers))]);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(spot.message, field, !reflection->GetBool(*spot.message, field));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnumValue(spot.message, field, static_cast<int>(Below(4)));
        break;
      default: break;
    }
  }

  std::mt19937_64 random_;
  Message* message_;
  std::vector<Spot> spots_;
  std::vector<std::string> words_;
};

}  // namespace

void MutateJob(uint64_t seed, proto::Job* job) { MutateMessage(seed, job); }

void MutateMessage(uint64_t seed, Message* message) { Mutator(seed, message).Run(); }

}  // namespace weir::fuzz
