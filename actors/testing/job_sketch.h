// A JobSketch builds plans of a few ranks by hand: actors, edges and stream orders by name, without
// tensors. Such a plan computes nothing; its actors only wait for each other. Thread rule: one
// thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/plan.pb.h"

namespace weir::actors {

class JobSketch {
 public:
  JobSketch(int num_ranks, int micro_batches);

  struct Actor {
    int rank = 0;
    int id = 0;
  };
  // Adds an actor that acts once per micro-batch, or `acts` times a step.
  Actor Add(int rank, const std::string& name, int acts = 0);
  // Adds a SEND actor, whose act tells another rank.
  Actor AddSend(int rank, const std::string& name);
  // Adds a COLLECTIVE, which reduces no elements of a type with the ranks of a group, `rank` among
  // them.
  Actor AddCollective(int rank, const std::string& name, const std::vector<int>& group,
                      const std::string& dtype);
  // Lets the actor act from `start_ns` on, for 1 ns, in an iteration of `iteration_ns`.
  void SetTime(Actor actor, int64_t start_ns, int64_t iteration_ns);

  // An End is one end of an edge: a span of `period` acts moves `tokens`.
  struct End {
    Actor actor;
    int period = 1;
    int tokens = 1;
  };
  // Connects actors by a register on one rank.
  void Connect(const std::string& name, const End& from, const std::vector<End>& to, int slots);
  // Connects a SEND actor to an actor of another rank.
  void ConnectRanks(const std::string& name, Actor from, Actor to, int slots);
  // Adds a stream order. All actors are on one rank; entries are (actor, ahead).
  void Order(const std::string& name, const std::vector<std::pair<Actor, int>>& entries);

  const std::vector<proto::RankPlan>& plans() const { return plans_; }

 private:
  proto::RegisterSpec* AddRegister(int rank, const std::string& name, int slots, int64_t tokens);
  proto::ActorSpec* Spec(Actor actor) { return plans_[actor.rank].mutable_actor(actor.id); }

  std::vector<proto::RankPlan> plans_;
  int num_edges_ = 0;
};

}  // namespace weir::actors
