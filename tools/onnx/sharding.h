// How the tensors of a model lie over devices, in the terms of ONNX (since version 1.18 of the
// format): a node names the tensors that it reads, the number of shards along each axis, the
// devices of each shard, and its stage of a pipeline. These are hints: a program may ignore them.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/onnx.pb.h"

namespace weir::onnx {

// The first version of the file format that has shardings.
inline constexpr int64_t kShardingIrVersion = 11;

// How one tensor lies over the devices of one stage.
struct TensorSharding {
  std::vector<int64_t> shards;  // along each axis; 1: whole
  // The devices of each shard: shards are numbered row-major over the axes. Several devices of a
  // shard hold the same elements.
  std::vector<std::vector<int64_t>> devices;
  int64_t stage = 0;
};

struct ModelSharding {
  int64_t num_devices = 1;
  int64_t num_stages = 1;
  std::map<std::string, TensorSharding> tensors;  // weights and inputs, by name
};

// Writes the sharding of each named tensor into all nodes that read the tensor. With several
// stages, a node gets the largest stage of what it reads, and of the nodes before it: a stage
// begins with the first node that reads one of its weights.
void AddSharding(const ModelSharding& sharding, proto::OnnxModel* model);

// A hint of a file: some node reads a tensor in `shards` shards along `axis`.
struct ShardingHint {
  std::string tensor;
  int64_t axis = 0;
  int64_t shards = 1;
};

// Returns the hints of a model, each tensor and axis once, in the order of the nodes. An axis is as
// in the file: a negative one counts from the end. Malformed hints are left out.
std::vector<ShardingHint> ShardingHints(const proto::OnnxModel& model);

}  // namespace weir::onnx
