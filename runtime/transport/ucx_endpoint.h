// A UcxEndpoint is one rank's end of the UCX transport; see ucx_transport.h for the protocol.
// Sending uses a record per slot, made at Connect. A slot has at most one message of this side
// under way, since the ledger hands nothing over for a slot whose message has not left.
// Thread rule: one thread at a time; OnNews alone is called by the network's wake thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/growing_nap.h"
#include "runtime/transport/message_ledger.h"
#include "runtime/transport/message_ring.h"
#include "runtime/transport/pair_key.h"
#include "runtime/transport/rank_card.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/ucx_context.h"
#include "runtime/transport/ucx_door.h"
#include "runtime/transport/ucx_transport.h"
#include "runtime/transport/wake_thread.h"

namespace weir::transport {

class UcxEndpoint final : public TransportEndpoint {
 public:
  // Network is the state that all endpoints of a network share; it outlives them.
  struct Network {
    int num_ranks = 0;
    Exchange* exchange = nullptr;
    UcxTransportOptions options;
    std::string host;
    std::unique_ptr<UcxContext> context;
    std::unique_ptr<WakeThread> wake;
  };

  // `index` is the endpoint's number at the wake thread; the number of its timer follows.
  static absl::StatusOr<std::unique_ptr<UcxEndpoint>> Create(Network* network, RankId rank,
                                                             int index);
  ~UcxEndpoint();

  absl::StatusOr<char*> AllocateLanding(int64_t bytes) override;
  absl::StatusOr<EdgeHandle> AddEdge(const TransportEdge& edge) override;
  absl::Status Connect() override;
  void* TryMap(EdgeHandle edge, int32_t slot) override;
  absl::Status Put(EdgeHandle edge, const MessageHeader& header, const void* bytes) override;
  absl::Status ReturnCredit(EdgeHandle edge, int32_t slot) override;
  absl::Status Flush() override;
  absl::StatusOr<int64_t> Poll(MessageReceiver* receiver) override;
  void SetWakeHook(std::function<void()> hook) override;
  ParkResult Park() override;
  void Unpark() override { parked_.store(kAwake); }
  void Close() override;
  EdgeTraffic Traffic(EdgeHandle edge) const override { return edges_[edge].traffic; }

  UcxTraffic traffic() const { return traffic_; }
  int event_fd() const { return event_fd_; }
  int timer_fd() const { return timer_fd_; }
  void OnNews(uint32_t parking);

 private:
  struct Record {
    UcxEndpoint* owner = nullptr;
    EdgeHandle edge;   // none: a greeting
    int32_t slot = 0;  // of a greeting: position of the peer
    // Credits that travel behind this message. They are part of what leaves with this record.
    std::array<Record*, kRidersMax> riders = {};
    int num_riders = 0;
    char wire[kWireMessageBytes * (1 + kRidersMax)] = {};
  };
  struct Peer {
    RankId rank;
    uint64_t pair_tag = 0;  // of messages to the peer
    bool same_host = false;
    RankCard card;           // until connected
    std::vector<int> pairs;  // PairEdges, with the edges of this endpoint in their order
    ucp_ep_h ep = nullptr;
    ucp_rkey_h rkey = nullptr;
    char* landing = nullptr;  // the peer's landing memory as it is mapped here
    ucp_rkey_h rings_rkey = nullptr;
    RingWriter to_peer;     // none: messages to the peer go through UCX alone
    SleepSign peer_sleeps;  // where to_peer is
    RingReader from_peer;   // none: the peer shares no memory with this rank
    bool greeted = false;
    bool left = false;                   // has said bye
    bool lost = false;                   // UCX reports an error
    ucs_status_t lost_because = UCS_OK;  // the first one
    int64_t num_sent = 0;
    int64_t num_handed = 0;    // over to the receiver, of what it sent
    int64_t num_expected = 0;  // by its bye
    Record hello, bye, bell;
    bool bell_under_way = false;
    std::array<Record*, kRidersMax> held = {};  // credits that wait for a token, in their order
    int num_held = 0;
    UcxEndpoint* owner = nullptr;
  };
  struct Edge {
    TransportEdge spec;
    int peer = -1;  // position in peers_
    EdgeHandle peer_edge;
    // kIncoming: the offset in the landing memory of this endpoint; -1: elsewhere.
    int64_t landing_offset = -1;
    // kOutgoing: how payloads travel, and the address of slot 0 if payloads lie in the peer's slot
    // already.
    WireMessage::Payload payload = WireMessage::Payload::kNone;
    char* mapped = nullptr;
    int64_t mapped_stride = 0;
    std::vector<Record> records;  // by slot
    EdgeTraffic traffic;
    bool in_ready = false;
  };

  UcxEndpoint(Network* network, RankId rank, int index, PairKey key);
  absl::Status MakeWorker();

  // The next functions connect (ucx_connect.cc).
  absl::StatusOr<RankCard> MakeCard() const;
  void FindPeers();
  absl::Status ReadCard(Peer& peer, const RankCard& mine);
  absl::Status Reach(Peer& peer);
  absl::Status MakeRings();
  absl::StatusOr<char*> AllocateShared(int64_t bytes, ucp_mem_h* memory) const;
  // Packs the key to memory of this rank for a card.
  absl::Status PackKey(ucp_mem_h memory, std::string* key) const;
  absl::Status MapMemory(Peer& peer);
  absl::StatusOr<char*> MapOf(const Peer& peer, const std::string& key, uint64_t address,
                              int64_t bytes, ucp_rkey_h* rkey) const;
  void JoinEdges();
  absl::Status Greet();

  WireMessage NewMessage(WireMessage::Kind kind, const Peer& peer, EdgeHandle receiver_edge) const;
  absl::Status Send(Peer& peer, Record& record, const void* bytes, size_t size);
  absl::Status SendHeld(Peer& peer);
  bool PutIntoRing(Peer& peer, const Record& record);
  absl::Status RingBell(Peer& peer);
  void TakeFromRings();
  void EnterRider(const RingEntry& entry, const RingRider& rider);
  void OnLeft(Record& record, ucs_status_t status);
  void EndSend(const Record& record, ucs_status_t status);
  static ucs_status_t OnMessage(void* endpoint, const void* header, size_t header_bytes, void* data,
                                size_t size, const ucp_am_recv_param_t* param);
  void Enter(const char* header, size_t header_bytes, void* data, size_t size,
             const ucp_am_recv_param_t* param);
  void Receive(const WireMessage& message, void* data, size_t size,
               const ucp_am_recv_param_t* param);
  void OnGreeting(const WireMessage& message);
  absl::Status HandOver(EdgeHandle edge, MessageReceiver* receiver, int64_t* num_messages);
  absl::Status CheckPayload(EdgeHandle edge, const WireMessage& message) const;
  void MarkReady(EdgeHandle edge);
  bool IsGone(const Peer& peer) const {
    return peer.lost || (peer.left && peer.num_handed >= peer.num_expected);
  }
  bool HasNews() const;
  class Sleeper;
  ParkResult StartParking(int watched);
  static void Lose(Peer& peer, ucs_status_t why);
  absl::Status PeerGone(const Peer& peer) const;
  Peer* PeerOf(RankId rank);
  // Lets UCX work until `done` or `deadline`; sleeps in between.
  void WorkUntil(absl::Time deadline, const std::function<bool()>& done);
  void CloseUcx();

  Network* const network_;
  const RankId rank_;
  const int index_;
  const PairKey key_;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  int timer_fd_ = -1;  // ends a parking that no event would end
  GrowingNap nap_;     // between two attempts to arm UCX
  std::string address_;
  UcxDoor door_;
  ucp_mem_h landing_memory_ = nullptr;
  char* landing_ = nullptr;
  int64_t landing_bytes_ = 0;
  // The block of the rings from each peer, in the order of peers_; null: there is no such memory.
  ucp_mem_h rings_memory_ = nullptr;
  char* rings_ = nullptr;
  SleepSign sleeps_;  // of this rank, in rings_
  bool shows_sleep_ = false;
  bool all_have_rings_ = false;
  int num_polls_of_rings_ = 0;  // in a row, without UCX
  int64_t ucx_worked_ticks_ = 0;

  IdVector<EdgeHandle, Edge> edges_;
  std::vector<Peer> peers_;
  std::unique_ptr<MessageLedger> ledger_;  // from Connect
  std::vector<EdgeHandle> ready_;          // edges that may have something to hand over
  absl::Status damage_;                    // a wrong message; ends everything
  UcxTraffic traffic_;
  int64_t num_pending_ = 0;  // tokens and credits that UCX has not let go of
  int64_t num_pending_greetings_ = 0;
  int64_t num_held_ = 0;       // credits, of all peers
  int num_polls_in_vain_ = 0;  // in a row, since a credit was held back
  bool connected_ = false;
  bool closed_ = false;

  Mutex hook_mutex_;
  std::function<void()> hook_ ABSL_GUARDED_BY(hook_mutex_);
  static constexpr uint32_t kAwake = 0;
  uint32_t parking_ = kAwake;  // the number of the latest
  // The parking that news would end, or kAwake: late news of an earlier parking is ignored. The
  // descriptor keeps the order of other memory.
  std::atomic<uint32_t> parked_{kAwake};
};

}  // namespace weir::transport
