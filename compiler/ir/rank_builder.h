// A RankBuilder adds actors and tensors to the graph of one rank, item by item. The lowering of
// calls and the lowering of transfers share the builder; it knows the rates of items and the
// rank's place in the mesh, and nothing about what an actor does.
//
//   BeginItem -> { AddTensor | MakeActor -> AddActor | NextPlace }* -> BeginItem -> … -> TakeGraph
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

class RankBuilder {
 public:
  // The plan outlives the builder.
  RankBuilder(const LogicalPlan& plan, RankId rank);

  const LogicalPlan& plan() const { return plan_; }
  const sbp::Places& places() const { return plan_.places; }
  RankId rank() const { return graph_.rank; }
  int64_t stage() const { return graph_.stage; }
  RankGraph& graph() { return graph_; }
  const RankGraph& graph() const { return graph_; }
  RankGraph TakeGraph() { return std::move(graph_); }

  // Starts item number `index` of the program at its first station.
  void BeginItem(int index);
  int item_index() const { return item_; }
  const ProgramItem& item() const { return plan_.module.items[item_]; }
  // Returns the station of the actors that are made now. Stations move on alike on every rank.
  Station station() const { return {item_, index_}; }
  void NextStation(size_t stations = 1) { index_ += static_cast<int>(stations); }

  int64_t Tokens(Frequency frequency) const {
    return frequency == Frequency::kMicroBatch ? plan_.micro_batches : 1;
  }
  int64_t Every(Frequency frequency) const {
    return frequency == Frequency::kUpdate || frequency == Frequency::kAfterUpdate
               ? plan_.updates.every
               : 1;
  }
  // Returns the part of a tensor that this rank holds.
  TensorSlice Local(const sbp::TensorType& type, const sbp::Layout& layout) const {
    return sbp::LocalSlice(type, layout, plan_.places.mesh(stage()), coords_);
  }

  // Adds a tensor without a producer.
  TensorId AddTensor(const std::string& name, int64_t bytes, int64_t tokens, int64_t every);
  // Returns an actor of the item, at the station of now, with the rates of the item.
  RankActor MakeActor(const std::string& name) const;
  // Adds the actor, as the producer of its outputs.
  ActorId AddActor(RankActor actor);
  // Sets the inputs of an actor: every tensor that its chain reads and that it does not produce.
  static void CollectInputs(RankActor* actor);

 private:
  // Finds the pass that each item works for. A boxing works for the pass of the value that it
  // moves.
  void FindWaves();
  void FindTransfersToUpdates();

  const LogicalPlan& plan_;
  const sbp::Coords coords_;
  RankGraph graph_;
  int item_ = 0;
  int index_ = 0;
  std::vector<Wave> waves_;  // by item
};

}  // namespace weir::compiler
