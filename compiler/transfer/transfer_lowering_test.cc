// Lowers transfers for every rank of a small mesh, and compares what the ranks say of each other.
#include "compiler/transfer/transfer_lowering.h"

#include <map>
#include <set>

#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

constexpr int64_t kChunkElements = 16;

// A plan whose only item moves one tensor of 7 x 5 elements.
LogicalPlan MovePlan(const std::string& mesh, const sbp::Layout& from, const sbp::Layout& to,
                     int64_t to_stage = 0) {
  LogicalPlan plan;
  plan.mesh = *sbp::Mesh::Parse(mesh);
  plan.places = sbp::PipelinePlaces(plan.mesh);
  plan.stage_mesh = plan.places.mesh(0);
  plan.micro_batches = 2;
  const sbp::TensorType type{DType::kF32, {{"rows", 7, 1}, {"columns", 5, 1}}};
  plan.module.AddValue({"x", type, from, 0, Frequency::kMicroBatch, -1});
  plan.module.AddValue({"y", type, to, to_stage, Frequency::kMicroBatch, -1});
  ProgramItem item;
  item.kind = ItemKind::kBoxing;
  item.name = "y";
  item.phase = PhaseKind::kBoxing;
  item.inputs = {0};
  item.outputs = {1};
  plan.module.items = {item};
  return plan;
}

LogicalPlan GatherPlan() { return MovePlan("dp=3", {sbp::Sbp::S(0)}, {sbp::Sbp::B()}); }

// Lowers the first transfer of the plan's item.
RankGraph Lowered(const LogicalPlan& plan, LoweredFor lowered_for, RankId rank) {
  RankBuilder builder(plan, rank);
  builder.BeginItem(0);
  builder.NextStation();  // a segment stands before the transfer
  const MovedTensors moved = *TransferFactory().Plan(plan.module, builder.item(), plan.places);
  const ProgramValue& from = plan.module.values[0];
  std::vector<TensorId> inputs(1);
  if (from.stage == builder.stage())
    inputs[0] = builder.AddTensor("x", builder.Local(from.type, from.layout).bytes(), 2, 1);
  TransferFactory transfers;
  AddTransfer(*transfers.Make(moved, 0, {"gather y", /*key=*/99, kChunkElements}), lowered_for,
              inputs, &builder);
  EXPECT_EQ(builder.station(), (Station{0, 3})) << "past a segment and two stations";
  return builder.TakeGraph();
}

IdVector<RankId, RankGraph> AllLowered(const LogicalPlan& plan) {
  IdVector<RankId, RankGraph> graphs;
  for (RankId rank : plan.places.all_ranks())
    graphs.push_back(Lowered(plan, LoweredFor::kRank, rank));
  return graphs;
}

// Returns the elements that an actor sends in one transfer, from what its kernels move.
int64_t ElementsSent(const RankActor& actor) {
  int64_t sum = 0;
  if (actor.chain == nullptr) return 0;
  for (const RankKernel& kernel : actor.chain->kernels) {
    for (int64_t elements : MessageElements(kernel.transfer, actor.chunks)) sum += elements;
  }
  return sum;
}

// Returns the elements that all ranks send in one transfer.
int64_t ElementsSent(const IdVector<RankId, RankGraph>& graphs) {
  int64_t sum = 0;
  for (const RankGraph& graph : graphs) {
    for (const RankActor& actor : graph.actors) sum += ElementsSent(actor);
  }
  return sum;
}

TEST(TransferLoweringTest, TheStationsOfAnExchangeAreEachOthersPeers) {
  const LogicalPlan plan = GatherPlan();
  const MovedTensors moved =
      *TransferFactory().Plan(plan.module, plan.module.items[0], plan.places);
  ASSERT_EQ(moved.num_transfers(), 1u);
  TransferFactory transfers;
  const TransferSite site = transfers.Make(moved, 0, {})->Site({4, 7});
  ASSERT_EQ(site.ends.size(), 2u);
  EXPECT_EQ(site.ends[0].role, TransferRole::kSends);
  EXPECT_EQ(site.ends[1].role, TransferRole::kReceives);
  EXPECT_EQ(*site.PeerOf({4, 7}), (Station{4, 8}));
  EXPECT_EQ(*site.PeerOf({4, 8}), (Station{4, 7}));
  EXPECT_EQ(site.PeerOf({4, 9}), nullptr);
}

TEST(TransferLoweringTest, BothEndsOfEveryMessageSayTheSame) {
  for (const LogicalPlan& plan :
       {GatherPlan(), MovePlan("dp=3", {sbp::Sbp::P()}, {sbp::Sbp::S(1)}),
        MovePlan("pp=2,dp=2", {sbp::Sbp::S(0)}, {sbp::Sbp::B()}, /*to_stage=*/1)}) {
    const IdVector<RankId, RankGraph> graphs = AllLowered(plan);
    std::set<EdgeId> edges;
    int64_t messages = 0;
    for (const RankGraph& graph : graphs) {
      for (const RankActor& sender : graph.actors) {
        if (sender.role != TransferRole::kSends) continue;
        ++messages;
        const RankTensor& sent = graph.tensors[sender.outputs[0]];
        EXPECT_EQ(sent.side, proto::RegisterSpec::OUTBOUND);
        EXPECT_EQ(sent.peer, sender.peer);
        EXPECT_TRUE(edges.insert(sent.edge).second) << "an edge of its own";
        const RankGraph& there = graphs[sender.peer];
        ASSERT_FALSE(there.actors.empty());
        const RankActor& receiver = there.actors.back();
        EXPECT_EQ(receiver.role, TransferRole::kReceives);
        EXPECT_EQ(receiver.station, graph.PeerOf(sender));
        EXPECT_EQ(sender.station, there.PeerOf(receiver));
        EXPECT_EQ(sender.far_name, receiver.name);
        EXPECT_EQ(receiver.far_name, sender.name);
        EXPECT_EQ(receiver.chunks, sender.chunks);
        int64_t landings = 0;
        for (TensorId input : receiver.inputs) {
          const RankTensor& landing = there.tensors[input];
          if (landing.side != proto::RegisterSpec::INBOUND || landing.edge != sent.edge) continue;
          ++landings;
          EXPECT_EQ(landing.peer, graph.rank);
          EXPECT_EQ(landing.bytes, sent.bytes);
          EXPECT_EQ(landing.tokens_per_step, sent.tokens_per_step);
        }
        EXPECT_EQ(landings, 1);
      }
    }
    EXPECT_GT(messages, 0);
  }
}

TEST(TransferLoweringTest, EachRankSendsFirstToTheRankAfterIt) {
  const IdVector<RankId, RankGraph> graphs = AllLowered(GatherPlan());
  for (RankId rank : graphs.ids()) {
    std::vector<RankId> peers;
    for (const RankActor& actor : graphs[rank].actors) {
      if (actor.role == TransferRole::kSends) peers.push_back(actor.peer);
    }
    const auto after = [&](int places) { return RankId((rank.value() + places) % 3); };
    EXPECT_EQ(peers, (std::vector<RankId>{after(1), after(2)}));
  }
}

TEST(TransferLoweringTest, TheBytesOfATransferAreWhatItsKernelsSend) {
  for (const LogicalPlan& plan :
       {GatherPlan(), MovePlan("dp=3", {sbp::Sbp::S(0)}, {sbp::Sbp::S(1)}),
        MovePlan("dp=3", {sbp::Sbp::P()}, {sbp::Sbp::S(0)}),
        MovePlan("pp=2,dp=2", {sbp::Sbp::S(0)}, {sbp::Sbp::B()}, /*to_stage=*/1)}) {
    const MovedTensors moved =
        *TransferFactory().Plan(plan.module, plan.module.items[0], plan.places);
    TransferFactory transfers;
    const int64_t bytes = transfers.Make(moved, 0, {})->TotalBytes();
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(bytes, 4 * ElementsSent(AllLowered(plan)));
    EXPECT_EQ(bytes, transfers.TotalBytes(moved));
  }
}

TEST(TransferLoweringTest, TheBytesOfALinkAreWhatItsSenderSends) {
  for (const LogicalPlan& plan :
       {GatherPlan(), MovePlan("dp=3", {sbp::Sbp::P()}, {sbp::Sbp::S(0)}),
        MovePlan("pp=2,dp=2", {sbp::Sbp::S(0)}, {sbp::Sbp::B()}, /*to_stage=*/1)}) {
    const MovedTensors moved =
        *TransferFactory().Plan(plan.module, plan.module.items[0], plan.places);
    TransferFactory transfers;
    const std::unique_ptr<TransferLowering> transfer = transfers.Make(moved, 0, {});
    int64_t bytes = 0;
    for (const RankGraph& graph : AllLowered(plan)) {
      std::map<RankId, int64_t> sent;
      for (const RankActor& actor : graph.actors) {
        if (actor.role == TransferRole::kSends) sent[actor.peer] += 4 * ElementsSent(actor);
      }
      EXPECT_EQ(transfer->BytesSent(graph.rank), sent);
      for (const auto& [peer, link_bytes] : sent) bytes += link_bytes;
    }
    EXPECT_EQ(bytes, transfer->TotalBytes());
  }
}

TEST(TransferLoweringTest, WhatARankDoesIsAmongWhatItsStageDoes) {
  for (const LogicalPlan& plan :
       {GatherPlan(), MovePlan("pp=2,dp=2", {sbp::Sbp::S(0)}, {sbp::Sbp::B()}, /*to_stage=*/1)}) {
    for (const RankGraph& graph : AllLowered(plan)) {
      const RankGraph stage = Lowered(plan, LoweredFor::kStage, plan.places.RankAt(graph.stage, 0));
      ASSERT_EQ(stage.sites.size(), 1u);
      std::map<Station, const RankActor*> known;
      for (const RankActor& actor : stage.actors) known[actor.station] = &actor;
      EXPECT_EQ(known.size(), stage.actors.size()) << "one actor for each station";
      for (const RankActor& actor : graph.actors) {
        ASSERT_TRUE(known.count(actor.station)) << actor.name;
        const RankActor& like = *known.at(actor.station);
        EXPECT_EQ(like.role, actor.role);
        EXPECT_EQ(like.kind, actor.kind);
        EXPECT_GE(like.chunks, actor.chunks);
        EXPECT_EQ(stage.PeerOf(like), graph.PeerOf(actor));
      }
    }
  }
}

TEST(TransferLoweringTest, AFillOfManyChunksWaitsForItsRanksSends) {
  const RankGraph graph = Lowered(GatherPlan(), LoweredFor::kRank, RankId(1));
  const RankActor& fill = graph.actors.back();
  ASSERT_EQ(fill.chunks, 3);  // 35 elements in chunks of 16
  int64_t paces = 0;
  for (TensorId input : fill.inputs) {
    const RankTensor& tensor = graph.tensors[input];
    if (!tensor.paces) continue;
    ++paces;
    EXPECT_EQ(tensor.bytes, 0);
    EXPECT_EQ(graph.actors[tensor.producer].role, TransferRole::kSends);
  }
  EXPECT_EQ(paces, 2);
}

TEST(TransferLoweringTest, SendsOfTheSameElementsShareAChain) {
  const RankGraph gather = Lowered(GatherPlan(), LoweredFor::kRank, RankId(1));
  const ActorId first(0), second(1);
  ASSERT_EQ(gather.actors.size(), 3u) << "two sends and a fill";
  EXPECT_EQ(gather.actors[first].chain, gather.actors[second].chain)
      << "both receivers get the whole shard";
  EXPECT_NE(gather.actors[first].operands, gather.actors[second].operands)
      << "in messages of their own";
  const RankGraph scatter =
      Lowered(MovePlan("dp=3", {sbp::Sbp::P()}, {sbp::Sbp::S(0)}), LoweredFor::kRank, RankId(1));
  ASSERT_EQ(scatter.actors.size(), 3u);
  EXPECT_NE(scatter.actors[first].chain, scatter.actors[second].chain)
      << "each gets a part of its own";
}

TEST(TransferLoweringTest, ABoxingWithoutMessagesIsAKernelOfItsActor) {
  const LogicalPlan plan = MovePlan("dp=3", {sbp::Sbp::B()}, {sbp::Sbp::S(0)});
  const MovedTensors moved =
      *TransferFactory().Plan(plan.module, plan.module.items[0], plan.places);
  ASSERT_TRUE(IsLocal(moved.steps()[0]));
  EXPECT_FALSE(
      IsLocal(TransferFactory()
                  .Plan(GatherPlan().module, GatherPlan().module.items[0], GatherPlan().places)
                  ->steps()[0]));
  const RankBuilder builder(plan, RankId(1));
  KernelChain chain;
  const RankOperand in{RankOperand::kTensor, 5, {}}, out{RankOperand::kTensor, 6, {}};
  AppendLocalTransfer("slice", moved.types()[0], moved.steps()[0], in, out, builder, &chain);
  ASSERT_EQ(chain.kernels.size(), 1u);
  const RankKernel& kernel = chain.kernels[0];
  ASSERT_EQ(kernel.inputs.size(), 1u);
  EXPECT_EQ(kernel.inputs[0].index, 5);
  EXPECT_EQ(kernel.inputs[0].slice.shape, (Shape{7, 5}));
  EXPECT_EQ(kernel.outputs[0].index, 6);
  EXPECT_EQ(kernel.outputs[0].slice.shape, (Shape{2, 5}));
  EXPECT_FALSE(FindFlaw(kernel.transfer).has_value());
  const auto& fill = std::get<ExchangeFill>(kernel.transfer);
  ASSERT_EQ(fill.regions.size(), 1u);
  ASSERT_EQ(fill.regions[0].sources.size(), 1u);
  EXPECT_EQ(fill.regions[0].sources[0].own, (Rect{{3, 0}, {5, 5}}));
}

RuntimeSettings WithGroups(int32_t kib_min = 0) {
  RuntimeSettings settings;
  settings.collectives = Collectives::kGroups;
  settings.collective_kib_min = kib_min;
  return settings;
}

// Lowers the only transfer of MovePlan's item where the job asks for collectives.
RankGraph LoweredWithCollectives(const LogicalPlan& plan, LoweredFor lowered_for, RankId rank) {
  RankBuilder builder(plan, rank);
  builder.BeginItem(0);
  TransferFactory transfers(WithGroups());
  const MovedTensors moved = *transfers.Plan(plan.module, builder.item(), plan.places);
  EXPECT_EQ(moved.num_transfers(), 1u);
  const std::vector<TensorId> inputs = {builder.AddTensor("x", 4, 2, 1)};
  AddTransfer(*transfers.Make(moved, 0, {"move x", /*key=*/99, kChunkElements}), lowered_for,
              inputs, &builder);
  return builder.TakeGraph();
}

LogicalPlan EvenMovePlan(const std::string& mesh, const sbp::Layout& from, const sbp::Layout& to) {
  LogicalPlan plan = MovePlan(mesh, from, to);
  for (ProgramValue& value : plan.module.values)
    value.type = {DType::kF32, {{"rows", 8, 1}, {"columns", 4, 1}}};
  return plan;
}

TEST(TransferLoweringTest, EvenShardsInOnePieceAreCollectives) {
  const auto p = sbp::Sbp::P(), b = sbp::Sbp::B(), rows = sbp::Sbp::S(0);
  struct Case {
    const char* mesh;
    sbp::Layout from, to;
    Collective::Kind kind;
    std::vector<RankId> group;  // of rank 1
  };
  for (const Case& c :
       {Case{"dp=4",
             {p},
             {rows},
             Collective::Kind::kReduceScatter,
             {RankId(0), RankId(1), RankId(2), RankId(3)}},
        Case{"dp=4",
             {rows},
             {b},
             Collective::Kind::kAllGather,
             {RankId(0), RankId(1), RankId(2), RankId(3)}},
        Case{"dp=2", {p}, {b}, Collective::Kind::kAllReduce, {RankId(0), RankId(1)}},
        Case{"dp=4",
             {p},
             {b},
             Collective::Kind::kAllReduce,
             {RankId(0), RankId(1), RankId(2), RankId(3)}},
        Case{"dp=2,tp=2",
             {p, rows},
             {b, rows},
             Collective::Kind::kAllReduce,
             {RankId(1), RankId(3)}}}) {
    const LogicalPlan plan = EvenMovePlan(c.mesh, c.from, c.to);
    SCOPED_TRACE(Name(c.kind));
    const RankGraph graph = LoweredWithCollectives(plan, LoweredFor::kRank, RankId(1));
    ASSERT_EQ(graph.actors.size(), 1u);
    const RankActor& actor = graph.actors[ActorId(0)];
    EXPECT_EQ(actor.kind, proto::ActorSpec::COLLECTIVE);
    EXPECT_EQ(actor.role, TransferRole::kMeets);
    EXPECT_EQ(graph.PeerOf(actor), actor.station);
    ASSERT_EQ(actor.chain->kernels.size(), 1u);
    const RankKernel& kernel = actor.chain->kernels[0];
    const auto& collective = std::get<Collective>(kernel.transfer);
    EXPECT_EQ(collective.kind, c.kind);
    EXPECT_EQ(collective.ranks, c.group);
    EXPECT_FALSE(FindFlawWith(collective, kernel.inputs[0].slice.num_elements(),
                              kernel.outputs[0].slice.num_elements())
                     .has_value());
    const RankGraph stage = LoweredWithCollectives(plan, LoweredFor::kStage, RankId(0));
    ASSERT_EQ(stage.actors.size(), 1u);
    EXPECT_EQ(stage.actors[ActorId(0)].station, actor.station);
    EXPECT_EQ(stage.actors[ActorId(0)].kind, actor.kind);
  }
}

TEST(TransferLoweringTest, OtherShardsAreExchangesWhateverTheJobAsksFor) {
  const auto p = sbp::Sbp::P(), b = sbp::Sbp::B(), rows = sbp::Sbp::S(0), columns = sbp::Sbp::S(1);
  for (const LogicalPlan& plan :
       {EvenMovePlan("dp=2", {columns}, {b}),  // a shard is a piece of each row
        EvenMovePlan("dp=2", {p}, {columns}),  // likewise
        MovePlan("dp=2", {rows}, {columns}),   // 4 and 3 rows, to 3 and 2 columns
        MovePlan("dp=2", {rows}, {b})}) {      // 4 and 3 rows
    const RankGraph graph = LoweredWithCollectives(plan, LoweredFor::kRank, RankId(1));
    for (const RankActor& actor : graph.actors)
      EXPECT_NE(actor.kind, proto::ActorSpec::COLLECTIVE) << actor.name;
  }
}

// Rows to columns: the block for each rank is a part of each row of a rank's own, and what comes
// lies in its place. Columns to rows: the reverse.
TEST(TransferLoweringTest, AnAllToAllPacksOrUnpacksWhatDoesNotLieInOnePiece) {
  const auto rows = sbp::Sbp::S(0), columns = sbp::Sbp::S(1);
  for (const bool packs : {true, false}) {
    const LogicalPlan plan =
        packs ? EvenMovePlan("dp=4", {rows}, {columns}) : EvenMovePlan("dp=4", {columns}, {rows});
    const RankGraph graph = LoweredWithCollectives(plan, LoweredFor::kRank, RankId(1));
    ASSERT_EQ(graph.actors.size(), 2u);
    const RankActor& to_all = graph.actors[ActorId(packs ? 1 : 0)];
    const RankActor& block = graph.actors[ActorId(packs ? 0 : 1)];
    EXPECT_EQ(to_all.kind, proto::ActorSpec::COLLECTIVE);
    EXPECT_EQ(to_all.station, (Station{0, 1}));
    EXPECT_EQ(std::get<Collective>(to_all.chain->kernels[0].transfer).kind,
              Collective::Kind::kAllToAll);
    EXPECT_EQ(block.kind, proto::ActorSpec::COMPUTE);
    EXPECT_EQ(block.station, (Station{0, packs ? 0 : 2}));
    ASSERT_EQ(block.chain->kernels.size(), 1u);
    const RankKernel& kernel = block.chain->kernels[0];
    EXPECT_FALSE(FindFlaw(kernel.transfer).has_value());
    // Rank 1 of 4 has 2 of 8 rows, or 1 of 4 columns: the block of rank 2 has 2 rows and 1 column.
    const Rect in_shard = packs ? Rect{{0, 2}, {2, 3}} : Rect{{0, 0}, {2, 1}};
    const ExchangeRegion& region = std::get<ExchangeFill>(kernel.transfer).regions[packs ? 2 : 0];
    const Rect packed = packs ? Rect{{4, 0}, {6, 1}} : Rect{{0, 0}, {2, 1}};
    EXPECT_EQ(packs ? region.sources[0].own : region.target, in_shard);
    EXPECT_EQ(packs ? region.target : region.sources[0].own, packed);
    const RankGraph stage = LoweredWithCollectives(plan, LoweredFor::kStage, RankId(0));
    ASSERT_EQ(stage.actors.size(), 2u);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(stage.actors[ActorId(i)].station, graph.actors[ActorId(i)].station);
  }
}

TEST(TransferLoweringTest, SmallTensorsAreExchangesWhereTheJobSaysSo) {
  const LogicalPlan plan = EvenMovePlan("dp=4", {sbp::Sbp::S(0)}, {sbp::Sbp::B()});
  for (const int32_t kib_min : {0, 1}) {  // the tensor has 128 bytes
    TransferFactory transfers(WithGroups(kib_min));
    const MovedTensors moved = *transfers.Plan(plan.module, plan.module.items[0], plan.places);
    EXPECT_EQ(transfers.IsCollective(moved, 0), kib_min == 0);
  }
}

TEST(TransferLoweringTest, TheBytesOfACollectiveAreThoseOfItsRing) {
  const auto p = sbp::Sbp::P(), b = sbp::Sbp::B(), rows = sbp::Sbp::S(0);
  for (const LogicalPlan& plan :
       {EvenMovePlan("dp=4", {p}, {rows}), EvenMovePlan("dp=4", {rows}, {b}),
        EvenMovePlan("dp=2,tp=2", {p, rows}, {b, rows}),
        EvenMovePlan("dp=4", {rows}, {sbp::Sbp::S(1)})}) {
    TransferFactory transfers(WithGroups());
    const MovedTensors moved = *transfers.Plan(plan.module, plan.module.items[0], plan.places);
    ASSERT_TRUE(transfers.IsCollective(moved, 0));
    const std::unique_ptr<TransferLowering> transfer = transfers.Make(moved, 0, {});
    int64_t sent = 0;
    for (RankId rank : plan.places.all_ranks()) {
      for (const auto& [peer, bytes] : transfer->BytesSent(rank)) sent += bytes;
    }
    EXPECT_EQ(sent, transfer->TotalBytes());
    EXPECT_EQ(sent, TransferFactory().Make(moved, 0, {})->TotalBytes());
  }
}

// A member with a single station, which is its own peer, as the stations of a ring are.
class OneStation final : public TransferLowering {
 public:
  TransferSite Site(const Station& first) const override {
    return {{{first, TransferRole::kSends, first}}};
  }
  std::vector<TensorId> LowerForRank(const TransferSite& site, const std::vector<TensorId>& inputs,
                                     RankBuilder* builder) const override {
    RankActor actor = builder->MakeActor("pass on");
    actor.role = site.ends[0].role;
    actor.site = static_cast<int>(builder->graph().sites.size()) - 1;
    builder->AddActor(std::move(actor));
    return inputs;
  }
  std::vector<TensorId> LowerForStage(const TransferSite& site, const std::vector<TensorId>& inputs,
                                      RankBuilder* builder) const override {
    return LowerForRank(site, inputs, builder);
  }
  int64_t TotalBytes() const override { return 0; }
  std::map<RankId, int64_t> BytesSent(RankId rank) const override { return {}; }
};

TEST(TransferLoweringTest, AMemberMayHaveOneStationThatIsItsOwnPeer) {
  const LogicalPlan plan = GatherPlan();
  RankBuilder builder(plan, RankId(0));
  builder.BeginItem(0);
  const std::vector<TensorId> moved = {TensorId(3)};
  EXPECT_EQ(AddTransfer(OneStation(), LoweredFor::kRank, moved, &builder), moved);
  EXPECT_EQ(builder.station(), (Station{0, 1}));
  AddTransfer(OneStation(), LoweredFor::kRank, moved, &builder);
  EXPECT_EQ(builder.station(), (Station{0, 2}));
  const RankGraph graph = builder.TakeGraph();
  ASSERT_EQ(graph.actors.size(), 2u);
  for (const RankActor& actor : graph.actors) EXPECT_EQ(graph.PeerOf(actor), actor.station);
}

}  // namespace
}  // namespace weir::compiler
