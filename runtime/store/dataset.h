// A Dataset returns the elements of a given slice of a given feed in a given batch. The answer is a
// pure function of (options, batch position, slice), so each rank fills just its shard, in any
// order, and all ranks agree.
//
// A Dataset is not a loader with threads or a queue: the engine's source actors call Fill ahead of
// need. Which samples a batch has follows from its position (batch_position.h).
//
// A dataset declares its feeds: the name of each feed, its forms, the size of a sample, and the
// possible values. CheckRequest compares the requirements of a model (FeedRequest) with the
// declaration before anything is filled. No dimension means anything by its name: the first
// dimension counts samples. Thread rule: immutable after opening; any thread calls Fill.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/batch_position.h"

namespace weir::store {

// A FeedForm is one form in which a feed comes.
struct FeedForm {
  enum class Role : uint8_t {
    kIndex,  // whole numbers from 0 on that name things: a byte, a class
    kReal,   // measured numbers
    kMask,   // places that count and places that do not
  } role = Role::kIndex;
  DType dtype = DType::kI32;
};

struct FeedType {
  std::string name;
  std::vector<FeedForm> forms;  // one for each element type that Fill can write
  // The dimensions after the dimension that counts samples.
  enum class Sample : uint8_t {
    kOne,       // none: one element a sample
    kWindow,    // one, of `elements`
    kElements,  // any, with `elements` in all
    kAny,       // any
    kShape,     // those of `shape`
  } sample = Sample::kOne;
  int64_t elements = 1;
  Shape shape = {};
};

// "i32[samples, 128]", or several with "or" between them.
std::string ToText(const FeedType& feed);

// A FeedRequest holds the type and the range that a model requires of a feed.
struct FeedRequest {
  std::string input;  // of the model, for messages
  std::string feed;
  DType dtype = DType::kF32;
  Shape shape;         // of a whole step, [samples, ...]
  int64_t below = 0;   // the model has room for values from 0 to below this number; 0: for any
  std::string reader;  // why, for messages: "an index along dimension vocab of …"
  std::optional<int64_t> ignored;  // a value that the model ignores, in range or not
};

// How a dataset is used.
enum class DataUse : uint8_t {
  kTrain,    // to train on, and a part that is held out to evaluate on
  kInOrder,  // all samples once, in the order of the files: everything is held out
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::vector<FeedType> feeds() const = 0;
  // Checks that the feed, which is one of feeds(), comes in the type of the request. The default
  // compares the request with feeds() (W0056).
  virtual absl::Status CheckType(const FeedRequest& request) const;
  // Checks that every value of the feed, in the training part and the held-out part, is inside the
  // range of the request, as far as can be known before reading. kInvalidArgument names the first
  // value outside the range.
  virtual absl::Status CheckValues(const FeedRequest& request) const = 0;
  // Returns the number of whole batches of held-out samples; samples beyond the last whole batch
  // are not used.
  virtual int64_t num_held_out_batches() const = 0;
  // Returns a text for the log: "text file.txt: 1,000,000 bytes to train on, 111,111 held out".
  virtual std::string Describe() const = 0;

  // Writes slice.bytes() to `out`. slice.global_shape is the shape of one micro-batch. Errors: an
  // unknown feed (the error names the nearest feed), or a slice whose shape or dtype the feed
  // cannot have.
  virtual absl::Status Fill(const std::string& feed, const BatchPosition& position,
                            const TensorSlice& slice, void* out) const = 0;
};

// Checks that the dataset can deliver the request: the feed is known (W0055, which offers the
// nearest feed of the requested type), is of the requested type (Dataset::CheckType), and every
// value known in advance is in range (Dataset::CheckValues).
absl::Status CheckRequest(const Dataset& dataset, const FeedRequest& request);

// Returns the error for feed `from`, wanted by input `input`, that is none of `known`.
absl::Status UnknownFeed(const std::string& input, const std::string& from,
                         const std::vector<FeedType>& known);
// Returns the error for Fill of a slice that `feed` cannot be.
absl::Status WrongFeedType(const FeedType& feed, const TensorSlice& slice);

}  // namespace weir::store
