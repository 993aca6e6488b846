#include "ops/kernels/testing/kernel_trial.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/emulation/thread_order.h"
#include "runtime/base/status.h"
#include "runtime/device/device_factory.h"

namespace weir::kernels {
namespace {

constexpr const char* kEmulated = "cuda-emulated";
constexpr int64_t kAlignment = 64;
constexpr int64_t kGuard = 64;
constexpr char kGuardByte = '\xa5';
// The first act is no graph, the second makes the graph, and the third launches it.
constexpr int kActsBefore = 3;

// A device, and a block of its memory that grows with the trials.
struct Bench {
  std::unique_ptr<device::Device> device;
  device::DeviceBlock block;
};

// Making a device takes long, so that a process makes each of them once.
absl::StatusOr<Bench*> BenchOf(const std::string& kind, int num_threads) {
  static auto* const benches = new std::map<std::pair<std::string, int>, Bench>();
  Bench& bench = (*benches)[{kind, num_threads}];
  if (!bench.device) {
    device::DeviceOptions options;
    options.kind = kind;
    options.num_threads = num_threads;
    WEIR_ASSIGN_OR_RETURN(bench.device, device::MakeDevice(options));
  }
  return &bench;
}

// Operands behind each other, as bytes of the host: each is aligned to 64 bytes and no more, and
// has a guard behind it.
class Image {
 public:
  struct Place {
    std::string name;
    int64_t offset = 0;
    int64_t bytes = 0;
    const void* input = nullptr;  // what the bytes must stay; null for others
  };

  size_t Add(std::string name, const void* contents, int64_t bytes) {
    Place place{std::move(name), static_cast<int64_t>(bytes_.size()), bytes};
    if (place.offset / kAlignment % 2 == 0) place.offset += kAlignment;
    const int64_t end = (place.offset + bytes + kGuard + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(end, kGuardByte);
    if (bytes > 0) std::memcpy(&bytes_[place.offset], contents, bytes);
    places_.push_back(std::move(place));
    return places_.size() - 1;
  }
  void KeepsInput(size_t place, const void* contents) { places_[place].input = contents; }

  const Place& at(size_t place) const { return places_[place]; }
  char* data() { return bytes_.data(); }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

  // Returns an error if a byte has changed that must not.
  absl::Status Check(const std::string& op) const {
    int64_t free = 0;
    for (const Place& place : places_) {
      for (int64_t i = free; i < place.offset; ++i) {
        if (bytes_[i] != kGuardByte) {
          return absl::InternalError(
              absl::StrCat(op, " writes ", place.offset - i, " bytes before ", place.name));
        }
      }
      free = place.offset + place.bytes;
      if (place.input && std::memcmp(&bytes_[place.offset], place.input, place.bytes) != 0)
        return absl::InternalError(absl::StrCat(op, " writes into ", place.name));
      for (int64_t i = 0; i < kGuard; ++i) {
        if (bytes_[free + i] != kGuardByte) {
          return absl::InternalError(absl::StrCat(op, " writes beyond ", place.name, ": byte ", i,
                                                  " behind its ", place.bytes, " bytes"));
        }
      }
      free += kGuard;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<char> bytes_;
  std::vector<Place> places_;
};

int64_t BytesOf(const std::optional<TensorSlice>& operand) {
  return operand ? operand->bytes() : 0;
}

}  // namespace

std::string DeviceOfTests() {
  const char* const kind = std::getenv("WEIR_TEST_DEVICE");
  return kind && *kind ? kind : "cpu";
}

std::vector<uint64_t> ThreadOrdersOf(const std::string& device) {
  using cuda_emulated::ThreadOrder;
  if (device != kEmulated) return {ThreadOrder::kFirstDrawn};
  return {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kFirstDrawn,
          ThreadOrder::kFirstDrawn + 1};
}

absl::Status Run(const KernelTrial& trial) {
  WEIR_ASSIGN_OR_RETURN(Bench * bench, BenchOf(trial.device, trial.spec.num_threads));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel,
                        KernelRegistry::Create(trial.device, trial.spec));
  device::DeviceMemory& memory = bench->device->memory();
  const bool travels = !memory.host_visible();

  Image image;
  std::vector<size_t> inputs, outputs;
  if (travels) {
    for (size_t i = 0; i < trial.spec.inputs.size(); ++i) {
      const void* const contents = trial.args.inputs[i];
      inputs.push_back(
          image.Add(absl::StrCat("input ", i), contents, BytesOf(trial.spec.inputs[i])));
      image.KeepsInput(inputs.back(), contents);
    }
    for (size_t i = 0; i < trial.spec.outputs.size(); ++i) {
      outputs.push_back(image.Add(absl::StrCat("output ", i), trial.args.outputs[i],
                                  BytesOf(trial.spec.outputs[i])));
    }
  }
  // The workspace lies behind the image and does not travel: it may be large.
  const int64_t workspace_end = image.size() + kernel->workspace_bytes();
  const int64_t needed = workspace_end + 2 * kGuard;
  if (bench->block.bytes() < needed) {
    bench->block = device::DeviceBlock();
    WEIR_ASSIGN_OR_RETURN(bench->block,
                          memory.Allocate(2 * needed, device::DeviceMemory::Reach::kDevice));
  }
  char* const base = bench->block.base();
  char guard[kGuard];
  std::memset(guard, kGuardByte, kGuard);
  memory.CopyIn(base + workspace_end, guard, kGuard);

  KernelArgs args = trial.args;
  std::vector<const void*> input_data;
  std::vector<void*> output_data;
  if (travels) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      input_data.push_back(trial.spec.inputs[i] ? base + image.at(inputs[i]).offset : nullptr);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      output_data.push_back(trial.spec.outputs[i] ? base + image.at(outputs[i]).offset : nullptr);
    }
    args.inputs = input_data;
    args.outputs = absl::MakeSpan(output_data);
  }
  if (trial.device == kEmulated) cuda_emulated::SetThreadOrder(trial.thread_order);

  // The work of one act.
  struct Act {
    Kernel* kernel;
    const KernelArgs* args;
    LaunchContext launch;
    std::unique_ptr<device::DeviceChain> chain;
    char* unused;  // guards, of which the second takes copies of the first
    absl::Status status;

    absl::Status Put() {
      WEIR_RETURN_IF_ERROR(kernel->Run(*args, launch));
      // A graph has at least two operations.
      if (chain != nullptr) launch.queue->Copy(unused + kGuard, unused, kGuard);
      return absl::OkStatus();
    }
  } act{kernel.get(), &args, {}, nullptr, base + workspace_end, {}};
  const QueueId queue{0};
  act.launch = {bench->device->team(), base + image.size(), &bench->device->queue(queue)};
  if (trial.launches == KernelTrial::Launches::kGraph)
    act.chain = act.launch.queue->MakeChain(device::DeviceQueue::Chains::kMust);
  device::DeviceWork work;
  work.run = [](void* context) {
    auto* of = static_cast<Act*>(context);
    of->status = of->chain == nullptr ? of->Put() : of->chain->Run([of] { return of->Put(); });
  };
  work.context = &act;
  for (int before = act.chain == nullptr ? 0 : kActsBefore; before >= 0; --before) {
    if (image.size() > 0) memory.CopyIn(base, image.data(), image.size());
    args.step = trial.args.step + before;
    args.random_key = trial.args.random_key + static_cast<uint64_t>(before);
    bench->device->Launch(work);
    WEIR_RETURN_IF_ERROR(act.status);
    WEIR_RETURN_IF_ERROR(bench->device->queue(queue).Finish());
    bench->device->NumDone(queue);
    WEIR_RETURN_IF_ERROR(bench->device->fault());
  }

  memory.CopyOut(guard, base + workspace_end, kGuard);
  for (int64_t i = 0; i < kGuard; ++i) {
    if (guard[i] == kGuardByte) continue;
    return absl::InternalError(absl::StrCat(trial.spec.op, " writes beyond its workspace: byte ", i,
                                            " behind its ", kernel->workspace_bytes(), " bytes"));
  }
  if (image.size() > 0) memory.CopyOut(image.data(), base, image.size());
  WEIR_RETURN_IF_ERROR(image.Check(trial.spec.op));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Image::Place& place = image.at(outputs[i]);
    if (place.bytes > 0)
      std::memcpy(trial.args.outputs[i], image.data() + place.offset, place.bytes);
  }
  return absl::OkStatus();
}

}  // namespace weir::kernels
