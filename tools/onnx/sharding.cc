#include "tools/onnx/sharding.h"

#include <algorithm>
#include <set>
#include <utility>

namespace weir::onnx {
namespace {

constexpr char kConfiguration[] = "weir";
// A file of strangers may name any number of shards.
constexpr int64_t kShardsMax = int64_t{1} << 20;

void AddSpec(const std::string& name, const TensorSharding& tensor,
             proto::OnnxDeviceConfiguration* configuration) {
  proto::OnnxSharding* const spec = configuration->add_sharding();
  spec->set_tensor(name);
  int64_t groups = 0;
  for (const std::vector<int64_t>& shard : tensor.devices) {
    if (shard.size() == 1) {
      spec->add_device(shard[0]);
      continue;
    }
    // A negative number names a group of devices with equal shards.
    proto::OnnxDeviceGroup* const group = spec->add_group();
    group->set_key(--groups);
    for (int64_t device : shard) group->add_device(device);
    spec->add_device(groups);
  }
  for (size_t axis = 0; axis < tensor.shards.size(); ++axis) {
    if (tensor.shards[axis] == 1) continue;
    proto::OnnxShardedDim* const dim = spec->add_dim();
    dim->set_axis(static_cast<int64_t>(axis));
    dim->add_part()->set_shards(tensor.shards[axis]);
  }
}

// Returns the number of shards along a dimension; 0 if the file does not say.
int64_t ShardsOf(const proto::OnnxShardedDim& dim) {
  int64_t shards = 1;
  for (const proto::OnnxShardedPart& part : dim.part()) {
    if (part.shards() < 1 || part.shards() > kShardsMax) return 0;
    shards *= part.shards();
    if (shards > kShardsMax) return 0;
  }
  return shards;
}

}  // namespace

void AddSharding(const ModelSharding& sharding, proto::OnnxModel* model) {
  if (sharding.num_devices <= 1) return;
  model->set_ir_version(std::max(model->ir_version(), kShardingIrVersion));
  proto::OnnxConfiguration* const devices = model->add_configuration();
  devices->set_name(kConfiguration);
  devices->set_devices(static_cast<int32_t>(sharding.num_devices));
  int64_t stage = 0;
  for (proto::OnnxNode& node : *model->mutable_graph()->mutable_node()) {
    proto::OnnxDeviceConfiguration configuration;
    configuration.set_configuration(kConfiguration);
    std::set<std::string> named;
    for (const std::string& input : node.input()) {
      const auto found = sharding.tensors.find(input);
      if (found == sharding.tensors.end() || !named.insert(input).second) continue;
      stage = std::max(stage, found->second.stage);
      AddSpec(input, found->second, &configuration);
    }
    if (sharding.num_stages > 1) configuration.set_stage(static_cast<int32_t>(stage));
    if (!named.empty() || sharding.num_stages > 1)
      *node.add_configuration() = std::move(configuration);
  }
}

std::vector<ShardingHint> ShardingHints(const proto::OnnxModel& model) {
  std::vector<ShardingHint> hints;
  std::set<std::pair<std::string, int64_t>> known;
  for (const proto::OnnxNode& node : model.graph().node()) {
    for (const proto::OnnxDeviceConfiguration& configuration : node.configuration()) {
      for (const proto::OnnxSharding& spec : configuration.sharding()) {
        for (const proto::OnnxShardedDim& dim : spec.dim()) {
          const int64_t shards = ShardsOf(dim);
          if (shards > 1 && known.emplace(spec.tensor(), dim.axis()).second)
            hints.push_back({spec.tensor(), dim.axis(), shards});
        }
      }
    }
  }
  return hints;
}

}  // namespace weir::onnx
