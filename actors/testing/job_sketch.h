// Plans of a few ranks drawn by hand: actors, edges and stream orders by name, without tensors.
// Such a plan computes nothing; its actors only wait for each other. Thread rule: one thread at a
// time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/plan.pb.h"

namespace weir {

class JobSketch {
 public:
  JobSketch(int num_ranks, int micro_batches);

  struct Actor {
    int rank = 0;
    int id = 0;
  };
  // Acts once per micro-batch, or `acts` times a step.
  Actor Add(int rank, const std::string& name, int acts = 0);
  // An act of its own that tells another rank: SEND.
  Actor AddSend(int rank, const std::string& name);

  // One end of an edge: a span of `period` acts moves `tokens`.
  struct End {
    Actor actor;
    int period = 1;
    int tokens = 1;
  };
  // A register on one rank.
  void Connect(const std::string& name, const End& from, const std::vector<End>& to, int slots);
  // From a SEND actor to another rank.
  void ConnectRanks(const std::string& name, Actor from, Actor to, int slots);
  // All on one rank; entries are (actor, ahead).
  void Order(const std::string& name, const std::vector<std::pair<Actor, int>>& entries);

  const std::vector<RankPlan>& plans() const { return plans_; }

 private:
  RegisterSpec* AddRegister(int rank, const std::string& name, int slots, int64_t tokens);
  ActorSpec* Spec(Actor actor) { return plans_[actor.rank].mutable_actor(actor.id); }

  std::vector<RankPlan> plans_;
  int num_edges_ = 0;
};

}  // namespace weir
